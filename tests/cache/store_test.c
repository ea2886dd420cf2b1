/* Stores by their interface: what was put is found, whole, by its key alone. */
#include "server/cache/store/store.h"
#include "tests/cache/store_rig.h"

#include "base/clock.h"

#include <fcntl.h>
#include <glob.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static struct event_base *base;
static char folder[64], path[96];
static struct key256 ours = {{1}}, theirs = {{2}};

struct got {
    bool done;
    enum store_found found;
    uint8_t bytes[70000];
    size_t n;
};

static void on_answer(void *context, enum store_found found, const uint8_t *bytes, size_t n, int64_t created_s,
                      int64_t expires_s, uint64_t hits)
{
    struct got *g = context;
    (void)created_s, (void)expires_s, (void)hits;
    g->done = true;
    g->found = found;
    g->n = n;
    if (n)
        memcpy(g->bytes, bytes, n < sizeof g->bytes ? n : sizeof g->bytes);
}

/* Until it is open, or cannot be; note: what it says about that. */
static struct answer_store *open_any(const char *where, struct key256 identity, uint64_t max_bytes, char note[256])
{
    struct answer_store *s = NULL;
    struct store_stats stats;
    assert_int_equal(store_open_sqlite(base, where, identity, max_bytes, &s, NULL), QUIRE_OK);
    do {
        usleep(200);
        s->ops->stats(s, &stats);
    } while (!stats.connected && !stats.trouble[0]);
    snprintf(note, 256, "%s", stats.trouble);
    return s;
}

static struct answer_store *open_file(struct key256 identity, uint64_t max_bytes, char note[256])
{
    struct answer_store *s = open_any(path, identity, max_bytes, note);
    struct store_stats stats;
    s->ops->stats(s, &stats);
    if (!stats.connected)
        fail_msg("%s", stats.trouble);
    return s;
}

/* Late is no answer: asked again. */
static enum store_found look(struct answer_store *s, uint32_t i)
{
    static struct got g;
    uint8_t bytes[70000];
    const uint64_t begun = quire_now_ms();
    do {
        g = (struct got){0};
        assert_non_null(s->ops->get(s, key_of(i), on_answer, &g));
        assert_false(g.done);
        while (!g.done)
            event_base_loop(base, EVLOOP_ONCE);
        if (g.found == STORE_AWAY)
            usleep(10000);
    } while (g.found == STORE_AWAY && quire_now_ms() - begun < STORE_RIG_PATIENCE_MS);
    if (g.found == STORE_FOUND) {
        assert_int_equal(g.n, fill(i, bytes));
        assert_memory_equal(g.bytes, bytes, g.n);
    }
    return g.found;
}

static void settle(struct answer_store *s)
{
    struct store_stats stats;
    do {
        usleep(1000);
        event_base_loop(base, EVLOOP_NONBLOCK);
        s->ops->stats(s, &stats);
    } while (stats.n_waiting > 0);
}

static void cached_and_found_again(void **state)
{
    char note[256];
    (void)state;
    struct answer_store *s = open_file(ours, 64u << 20, note);
    assert_int_equal(look(s, 1), STORE_MISS);
    for (uint32_t i = 1; i <= 100; i++)
        put(s, i, i == 50 ? 1 : 100);
    s->ops->hit(s, key_of(1));
    s->ops->close(s, STORE_RIG_PATIENCE_MS);
    s = open_file(ours, 64u << 20, note); /* answers written before a stop exist after it */
    assert_string_equal(note, "");
    for (uint32_t i = 1; i <= 100; i++)
        if (i != 50)
            assert_int_equal(look(s, i), STORE_FOUND);
    while (look(s, 50) == STORE_FOUND)
        usleep(50000);
    s->ops->remove(s, key_of(3));
    put(s, 200, 100);
    settle(s);
    assert_int_equal(look(s, 3), STORE_MISS);
    struct got g = {0};
    struct store_lookup *l = s->ops->get(s, key_of(1), on_answer, &g);
    s->ops->cancel(s, l);
    assert_int_equal(look(s, 2), STORE_FOUND);
    assert_false(g.done);
    s->ops->close(s, STORE_RIG_PATIENCE_MS);
}

static void on_clear(void *context, bool ok, uint64_t n_removed)
{
    assert_true(ok);
    *(uint64_t *)context = n_removed;
}

static void cleared(void **state)
{
    char note[256];
    uint64_t n = UINT64_MAX;
    struct stat st;
    (void)state;
    struct answer_store *s = open_file(ours, 64u << 20, note);
    for (uint32_t i = 1; i <= 10; i++)
        put(s, i, 100);
    for (uint32_t i = 11; i <= 200; i++)
        put(s, i, 100);
    const time_t before = time(NULL);
    s->ops->clear(s, on_clear, &n);
    while (n == UINT64_MAX)
        event_base_loop(base, EVLOOP_ONCE);
    assert_int_equal(n, 200);
    assert_int_equal(look(s, 1), STORE_MISS);
    /* The space is returned. */
    const uint64_t begun = quire_now_ms();
    while ((stat(path, &st) != 0 || st.st_size > 100000) && quire_now_ms() - begun < STORE_RIG_PATIENCE_MS)
        usleep(5000);
    assert_true(st.st_size <= 100000);
    /* Another server's, computed before and put after it. */
    struct answer_store *other = open_file(ours, 64u << 20, note);
    put_made(other, 201, 100, before);
    settle(other);
    assert_int_equal(look(s, 201), STORE_MISS);
    put_made(other, 201, 100, time(NULL) + 2);
    settle(other);
    assert_int_equal(look(s, 201), STORE_FOUND);
    other->ops->close(other, STORE_RIG_PATIENCE_MS);
    s->ops->close(s, STORE_RIG_PATIENCE_MS);
}

static void bounded(void **state)
{
    char note[256];
    struct stat st;
    struct store_stats stats;
    (void)state;
    struct answer_store *s = open_file(ours, 2u << 20, note);
    for (uint32_t i = 1; i <= 300; i++) {
        put(s, i, 100);
        if (i % 20 == 0)
            settle(s);
    }
    s->ops->stats(s, &stats);
    assert_true(stats.n_evicted > 100);
    assert_int_equal(stats.n_put_failed, 0);
    assert_int_equal(look(s, 300), STORE_FOUND);
    assert_int_equal(look(s, 1), STORE_MISS);
    s->ops->close(s, STORE_RIG_PATIENCE_MS);
    assert_int_equal(stat(path, &st), 0);
    assert_in_range(st.st_size, 1u << 20, 2u << 20);
}

/* Other users of this machine must not read cached responses, whatever the umask. */
static void for_its_owner_alone(void **state)
{
    static const char *const names[] = {"", "-wal", "-shm", ".lock"};
    char note[256], name[128];
    struct stat st;
    (void)state;
    unlink(path);
    const mode_t mask = umask(0);
    struct answer_store *s = open_file(ours, 64u << 20, note);
    put(s, 1, 100);
    settle(s);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(name, sizeof name, "%s%s", path, names[i]);
        assert_int_equal(stat(name, &st), 0);
        assert_int_equal(st.st_mode & 077, 0);
    }
    s->ops->close(s, STORE_RIG_PATIENCE_MS);
    umask(mask);
    assert_int_equal(chmod(path, 0644), 0); /* one of before */
    s = open_file(ours, 64u << 20, note);
    assert_true(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);
    assert_int_equal(look(s, 1), STORE_FOUND);
    s->ops->close(s, STORE_RIG_PATIENCE_MS);
}

static void set_aside(void **state)
{
    char note[256];
    (void)state;
    struct answer_store *s = open_file(ours, 64u << 20, note);
    put(s, 1, 100);
    s->ops->close(s, STORE_RIG_PATIENCE_MS);
    s = open_file(theirs, 64u << 20, note);
    assert_non_null(strstr(note, "renamed to answers.db.old-"));
    assert_int_equal(look(s, 1), STORE_MISS);
    /* Another server's file is not taken away from it; it is there for this one when that is gone. */
    struct answer_store *other = open_any(path, ours, 64u << 20, note);
    assert_non_null(strstr(note, "another process"));
    s->ops->close(s, STORE_RIG_PATIENCE_MS);
    assert_int_equal(look(other, 1), STORE_MISS);
    other->ops->close(other, STORE_RIG_PATIENCE_MS);
    FILE *f = fopen(path, "w");
    for (int i = 0; i < 5000; i++)
        fputs("no file of SQLite\n", f);
    fclose(f);
    s = open_file(ours, 64u << 20, note);
    assert_non_null(strstr(note, "is not a SQLite file"));
    put(s, 2, 100);
    s->ops->close(s, STORE_RIG_PATIENCE_MS);
    other = open_any("/nowhere/at/all", ours, 64u << 20, note);
    assert_non_null(strstr(note, "--response-cache sqlite:/nowhere/at/all"));
    other->ops->close(other, STORE_RIG_PATIENCE_MS);
}

/* An answer that the store reported as not written. */
static void put_again(struct answer_store *s, uint32_t i)
{
    struct store_stats stats;
    s->ops->stats(s, &stats);
    assert_true(stats.n_put_failed > 0);
    uint64_t n_failed;
    do {
        n_failed = stats.n_put_failed;
        put(s, i, 100);
        settle(s);
        s->ops->stats(s, &stats);
    } while (stats.n_put_failed > n_failed);
}

/* Two servers share a file. */
static void shared(void **state)
{
    char note[256];
    (void)state;
    struct answer_store *a = open_file(ours, 64u << 20, note), *b = open_file(ours, 64u << 20, note);
    for (uint32_t i = 1; i <= 40; i++)
        put(i % 2 ? a : b, i, 100);
    settle(a);
    settle(b);
    for (uint32_t i = 1; i <= 40; i++) {
        if (look(i % 2 ? b : a, i) == STORE_MISS) /* the file was in use for longer than a writer waits */
            put_again(i % 2 ? a : b, i);
        assert_int_equal(look(i % 2 ? b : a, i), STORE_FOUND);
    }
    a->ops->close(a, STORE_RIG_PATIENCE_MS);
    b->ops->close(b, STORE_RIG_PATIENCE_MS);
}

/* It has counted what is in the file, and has that in its own memory. */
static void wait_for(struct answer_store *s, uint64_t n_entries)
{
    struct store_stats stats;
    do {
        usleep(1000);
        s->ops->stats(s, &stats);
    } while (stats.n_entries != n_entries);
}

/* All pages but the first. */
static void spoil(void)
{
    FILE *f = fopen(path, "r+");
    struct stat st;
    assert_true(f && fstat(fileno(f), &st) == 0 && st.st_size > 65536);
    fseek(f, 4096, SEEK_SET);
    for (long i = 4096; i < st.st_size; i++)
        fputc((int)(i * 7), f);
    fclose(f);
}

static uint32_t n_set_aside(void)
{
    char pattern[128];
    glob_t found;
    uint32_t n = 0;
    snprintf(pattern, sizeof pattern, "%s.old-*", path);
    const int status = glob(pattern, 0, NULL, &found);
    for (size_t i = 0; status == 0 && i < found.gl_pathc; i++)
        n += !strstr(found.gl_pathv[i], "-wal") && !strstr(found.gl_pathv[i], "-shm");
    if (status == 0)
        globfree(&found);
    return n;
}

/* Damage that opening did not notice is found by a read or write: the file is renamed, and answers go to a new file. */
static void damaged(void **state)
{
    char note[256];
    struct store_stats stats;
    (void)state;
    for (int reads = 0; reads < 2; reads++) {
        struct answer_store *s = open_file(ours, 64u << 20, note);
        for (uint32_t i = 1; i <= 20; i++)
            put(s, i, 100);
        s->ops->close(s, STORE_RIG_PATIENCE_MS);
        s = open_file(ours, 64u << 20, note);
        wait_for(s, 20);
        spoil();
        if (reads)
            assert_int_equal(look(s, 1), STORE_MISS);
        put(s, 21, 100); /* may be what finds it, and is lost then */
        settle(s);
        put(s, 22, 100);
        settle(s);
        assert_int_equal(look(s, 22), STORE_FOUND);
        assert_int_equal(look(s, 1), STORE_MISS);
        s->ops->stats(s, &stats);
        assert_true(stats.connected && stats.n_reconnects == 1 && stats.n_put_failed == !reads);
        assert_non_null(strstr(stats.trouble, "it is damaged: renamed to answers.db.old-"));
        assert_int_equal(n_set_aside(), reads + 1);
        s->ops->close(s, STORE_RIG_PATIENCE_MS);
        unlink(path);
    }
}

/* One of two servers finds it: the file is not taken from the other, and both go on with the same fresh one. */
static void damaged_and_shared(void **state)
{
    char note[256];
    struct store_stats stats;
    struct got g = {0};
    (void)state;
    struct answer_store *a = open_file(ours, 64u << 20, note), *b;
    for (uint32_t i = 1; i <= 20; i++)
        put(a, i, 100);
    a->ops->close(a, STORE_RIG_PATIENCE_MS);
    a = open_file(ours, 64u << 20, note);
    b = open_file(ours, 64u << 20, note);
    wait_for(a, 20);
    wait_for(b, 20);
    spoil();
    const uint64_t begun = quire_now_ms();
    do { /* the first lookup finds the damage, the second that the file is in use; a late one finds neither */
        g = (struct got){0};
        a->ops->get(a, key_of(1), on_answer, &g);
        while (!g.done)
            event_base_loop(base, EVLOOP_ONCE);
        assert_int_equal(g.found, STORE_AWAY);
        a->ops->stats(a, &stats);
    } while (!strstr(stats.trouble, "another process") && quire_now_ms() - begun < STORE_RIG_PATIENCE_MS);
    assert_non_null(strstr(stats.trouble, "another process"));
    assert_false(stats.connected);
    assert_int_equal(n_set_aside(), 0);
    assert_int_equal(look(b, 1), STORE_MISS);
    assert_int_equal(look(a, 1), STORE_MISS);
    put(a, 1, 100);
    settle(a);
    assert_int_equal(look(b, 1), STORE_FOUND);
    assert_int_equal(n_set_aside(), 1);
    a->ops->close(a, STORE_RIG_PATIENCE_MS);
    b->ops->close(b, STORE_RIG_PATIENCE_MS);
}

/* Says so through the pipe when its first answer is written. */
static void write_for_ever(uint32_t from, int pipe)
{
    struct answer_store *s = NULL;
    base = event_base_new();
    if (store_open_sqlite(base, path, ours, 64u << 20, &s, NULL) != QUIRE_OK)
        _exit(1);
    for (uint32_t i = from;; i++) {
        put(s, i % 500, 1000);
        if (i == from) {
            settle(s);
            if (write(pipe, "x", 1) != 1)
                _exit(1);
        }
        usleep(100);
        event_base_loop(base, EVLOOP_NONBLOCK);
    }
}

/* Killed at any point of a write: every answer is complete or missing. */
static void killed(void **state)
{
    char note[256];
    uint32_t n_found = 0;
    (void)state;
    for (uint32_t round = 0; round < 8; round++) {
        char byte;
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        pid_t child = fork();
        if (child == 0)
            write_for_ever(round * 37, ends[1]);
        close(ends[1]);
        assert_int_equal(read(ends[0], &byte, 1), 1);
        close(ends[0]);
        usleep(20000 + round * 7001);
        kill(child, SIGKILL);
        int how;
        waitpid(child, &how, 0);
        assert_true(WIFSIGNALED(how));
        struct answer_store *s = open_file(ours, 64u << 20, note);
        assert_string_equal(note, "");
        for (uint32_t i = 0; i < 500; i += 3)
            n_found += look(s, i) == STORE_FOUND;
        s->ops->close(s, STORE_RIG_PATIENCE_MS);
    }
    assert_true(n_found > 0);
}

/* Lines of the log so far that say this. */
static int n_logged(const char *log, const char *what)
{
    char text[4096] = "";
    int n = 0;
    FILE *f = fopen(log, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    for (const char *at = text; (at = strstr(at, what)); at++)
        n++;
    return n;
}

/* A file that may not grow stands for a disk that is full: writing fails, once in the log and in `trouble`. */
static void full(void **state)
{
    char note[256], log[128];
    struct store_stats stats;
    struct rlimit no_limit, limit;
    (void)state;
    snprintf(log, sizeof log, "%s/log", folder);
    struct answer_store *s = open_file(ours, 64u << 20, note);
    put(s, 1, 100);
    settle(s);
    const int told = dup(2), to = open(log, O_WRONLY | O_CREAT, 0600);
    assert_true(told >= 0 && to >= 0 && dup2(to, 2) == 2);
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &no_limit), 0);
    limit = (struct rlimit){8192, no_limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (uint32_t i = 2; i < 20; i++) {
        put(s, i, 100);
        settle(s);
    }
    s->ops->stats(s, &stats);
    assert_true(stats.connected && stats.n_put_failed == 18);
    assert_true(strncmp(stats.trouble, "writing: ", 9) == 0);
    assert_int_equal(look(s, 1), STORE_FOUND);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &no_limit), 0);
    put(s, 30, 100);
    settle(s);
    assert_int_equal(look(s, 30), STORE_FOUND);
    s->ops->close(s, STORE_RIG_PATIENCE_MS);
    assert_true(dup2(told, 2) == 2);
    assert_int_equal(n_logged(log, "writing: "), 2);
    assert_int_equal(n_logged(log, "writing: it works again"), 1);
    close(to);
    close(told);
}

static int begin(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/quire_store_XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/answers.db", folder);
    base = event_base_new();
    return base ? 0 : -1;
}

static int end(void **state)
{
    char command[128];
    (void)state;
    event_base_free(base);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(cached_and_found_again, begin, end),
        cmocka_unit_test_setup_teardown(cleared, begin, end),
        cmocka_unit_test_setup_teardown(bounded, begin, end),
        cmocka_unit_test_setup_teardown(for_its_owner_alone, begin, end),
        cmocka_unit_test_setup_teardown(set_aside, begin, end),
        cmocka_unit_test_setup_teardown(shared, begin, end),
        cmocka_unit_test_setup_teardown(damaged, begin, end),
        cmocka_unit_test_setup_teardown(damaged_and_shared, begin, end),
        cmocka_unit_test_setup_teardown(full, begin, end),
        cmocka_unit_test_setup_teardown(killed, begin, end),
    };
    if (quire_hash_init() != QUIRE_OK)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
