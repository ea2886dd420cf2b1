/* The Redis store against a real redis-server, started here, and against ones that lie. */
#include "server/cache/answer.h"
#include "server/cache/redis/url.h"
#include "server/cache/store/store.h"
#include "tests/cache/store_rig.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static struct event_base *base;
static struct key256 ours = {{1}}, theirs = {{2}}, nobody;

/* ---- a real one ----------------------------------------------------------------------------- */

static pid_t redis;
static int port_holder;
static char port_text[8];

/* No other process gets the port while this socket is bound to it. It does not listen, so a Redis may, which reuses
 * addresses too. */
static void hold_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    const int yes = 1, s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(s >= 0 && setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
                bind(s, (struct sockaddr *)&at, n) == 0 && getsockname(s, (struct sockaddr *)&at, &n) == 0);
    snprintf(port_text, sizeof port_text, "%u", ntohs(at.sin_port));
    port_holder = s;
}

static int connect_to(const char *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    at.sin_port = htons((uint16_t)atoi(port));
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(s, (struct sockaddr *)&at, sizeof at) == 0)
        return s;
    close(s);
    return -1;
}

/* Sends one command, a line of words, and returns the reply. */
static void tell(const char *line, char *out, size_t n_out)
{
    size_t n = 0;
    int s = connect_to(port_text);
    assert_true(s >= 0);
    dprintf(s, "%s\r\nQUIT\r\n", line);
    ssize_t got;
    while (n + 1 < n_out && (got = read(s, out + n, n_out - 1 - n)) > 0)
        n += (size_t)got;
    out[n] = '\0';
    close(s);
}

static char folder[64]; /* certificates */

static void start_redis_as(const char *const *options)
{
    const char *words[32] = {"redis-server", "--bind",    "127.0.0.1", "--save", "",
                             "--logfile",    "/dev/null", "--dir",     "/tmp"};
    for (size_t n = 9; *options; n++)
        words[n] = *options++;
    redis = fork();
    if (redis == 0) {
        execvp(words[0], (char *const *)words);
        _exit(127);
    }
    const uint64_t begun = quire_now_ms();
    while (quire_now_ms() - begun < STORE_RIG_PATIENCE_MS) {
        int how, s = connect_to(port_text);
        if (s >= 0) {
            close(s);
            return;
        }
        if (waitpid(redis, &how, WNOHANG) == redis)
            break;
        usleep(5000);
    }
    fail_msg("redis-server does not start: bash tools/setup.sh test installs it");
}

static void start_redis(void)
{
    const char *const options[] = {"--port", port_text, NULL};
    start_redis_as(options);
}

/* With a certificate of its own for "localhost". */
static void start_redis_tls(void)
{
    char command[400], cert[80], key[80];
    snprintf(folder, sizeof folder, "/tmp/quire_redis_XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(cert, sizeof cert, "%s/cert", folder);
    snprintf(key, sizeof key, "%s/key", folder);
    snprintf(command, sizeof command,
             "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost "
             "-addext subjectAltName=DNS:localhost -keyout %s -out %s 2>/dev/null",
             key, cert);
    assert_int_equal(system(command), 0);
    setenv("SSL_CERT_FILE", cert, 1);
    const char *const options[] = {"--port",
                                   "0",
                                   "--tls-port",
                                   port_text,
                                   "--tls-cert-file",
                                   cert,
                                   "--tls-key-file",
                                   key,
                                   "--tls-ca-cert-file",
                                   cert,
                                   "--tls-auth-clients",
                                   "no",
                                   NULL};
    start_redis_as(options);
}

/* Returns when it has stopped: a signal alone leaves it the time to answer what comes next. */
static void pause_redis(void)
{
    int how;
    kill(redis, SIGSTOP);
    assert_int_equal(waitpid(redis, &how, WUNTRACED), redis);
    assert_true(WIFSTOPPED(how));
}

static void stop_redis(void)
{
    kill(redis, SIGKILL);
    waitpid(redis, NULL, 0);
    redis = 0;
}

/* ---- the store ------------------------------------------------------------------------------ */

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
    (void)hits;
    g->done = true;
    g->found = found;
    g->n = n;
    if (n) {
        assert_in_range(created_s, time(NULL) - 100, time(NULL) + 2);
        assert_in_range(expires_s, time(NULL), time(NULL) + 100);
        memcpy(g->bytes, bytes, n < sizeof g->bytes ? n : sizeof g->bytes);
    }
}

static struct answer_store *open_url(const char *text, struct key256 identity)
{
    struct answer_store *s = NULL;
    struct quire_error err = {0};
    struct redis_url url;
    if (redis_url_parse(text, &url, &err) != QUIRE_OK || store_open_redis(base, &url, identity, &s, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    return s;
}

static struct store_stats stats_of(const struct answer_store *s)
{
    struct store_stats stats;
    s->ops->stats(s, &stats);
    return stats;
}

static void wait_until(struct answer_store *s, bool connected)
{
    const uint64_t begun = quire_now_ms();
    while (stats_of(s).connected != connected) {
        assert_true(quire_now_ms() - begun < STORE_RIG_PATIENCE_MS);
        event_base_loop(base, EVLOOP_ONCE);
    }
}

static void wait_for_trouble(struct answer_store *s, const char *what)
{
    const uint64_t begun = quire_now_ms();
    while (!strstr(stats_of(s).trouble, what)) {
        assert_true(quire_now_ms() - begun < STORE_RIG_PATIENCE_MS);
        event_base_loop(base, EVLOOP_ONCE);
    }
}

static struct answer_store *open_here(struct key256 identity)
{
    char url[64];
    snprintf(url, sizeof url, "redis://127.0.0.1:%s/3", port_text);
    struct answer_store *s = open_url(url, identity);
    wait_until(s, true);
    return s;
}

static void settle(struct answer_store *s)
{
    while (stats_of(s).n_waiting > 0)
        event_base_loop(base, EVLOOP_ONCE);
}

/* Once. */
static enum store_found look_once(struct answer_store *s, uint32_t i)
{
    static struct got g;
    uint8_t bytes[70000];
    g = (struct got){0};
    if (!s->ops->get(s, key_of(i), on_answer, &g))
        return STORE_AWAY;
    assert_false(g.done);
    while (!g.done)
        event_base_loop(base, EVLOOP_ONCE);
    if (g.found == STORE_FOUND && g.n > 0) {
        assert_int_equal(g.n, fill(i, bytes));
        assert_memory_equal(g.bytes, bytes, g.n);
    }
    if (g.found == STORE_FOUND && g.n == 0)
        return (enum store_found)99; /* none that was put */
    return g.found;
}

/* Late, or away for the moment, is no answer: asked again. */
static enum store_found look(struct answer_store *s, uint32_t i)
{
    enum store_found found;
    const uint64_t begun = quire_now_ms();
    while ((found = look_once(s, i)) == STORE_AWAY) {
        assert_true(quire_now_ms() - begun < STORE_RIG_PATIENCE_MS);
        event_base_loop(base, EVLOOP_NONBLOCK);
        usleep(1000);
    }
    return found;
}

/* Answers from first to last, each written. A Redis that does not run for 1 s is given up, and what was on its way is
 * lost: then they are put again. */
static void put_all(struct answer_store *s, uint32_t first, uint32_t last)
{
    struct store_stats before;
    do {
        before = stats_of(s);
        for (uint32_t i = first; i <= last; i++)
            put(s, i, 100);
        settle(s);
        wait_until(s, true);
    } while (stats_of(s).n_reconnects > before.n_reconnects);
    assert_int_equal(stats_of(s).n_put_failed, before.n_put_failed);
}

static void on_clear(void *context, bool ok, uint64_t n_removed)
{
    assert_true(ok);
    *(uint64_t *)context = n_removed;
}

static void cached_and_found_again(void **state)
{
    (void)state;
    struct answer_store *s = open_here(ours);
    assert_int_equal(look(s, 1), STORE_MISS);
    for (uint32_t i = 1; i <= 100; i++)
        put(s, i, i == 50 ? 1 : 100);
    s->ops->hit(s, key_of(1));
    s->ops->close(s, STORE_RIG_PATIENCE_MS); /* answers written before a stop exist after it */
    s = open_here(ours);
    struct answer_store *other = open_here(ours), *stranger = open_here(theirs);
    for (uint32_t i = 1; i <= 100; i++)
        if (i != 50)
            assert_int_equal(look(i % 2 ? s : other, i), STORE_FOUND);
    assert_int_equal(look(stranger, 1), STORE_MISS);
    while (look(s, 50) == STORE_FOUND)
        usleep(50000);
    s->ops->remove(s, key_of(3));
    assert_int_equal(look(s, 2), STORE_FOUND);
    while (look(s, 3) == STORE_FOUND)
        usleep(1000);
    struct got g = {0};
    struct store_lookup *l = s->ops->get(s, key_of(1), on_answer, &g); /* none is late: look() had its answer */
    assert_non_null(l);
    s->ops->cancel(s, l);
    assert_int_equal(look(s, 2), STORE_FOUND);
    assert_false(g.done);
    while (stats_of(s).n_entries != 98)
        event_base_loop(base, EVLOOP_ONCE);
    s->ops->get(s, key_of(1), on_answer, &g);
    s->ops->close(s, STORE_RIG_PATIENCE_MS); /* in the middle of a lookup */
    assert_false(g.done);
    other->ops->close(other, 0);
    stranger->ops->close(stranger, 0);
}

static void clear_takes_only_ours(void **state)
{
    char said[256], name[200], hex[65];
    uint64_t n = UINT64_MAX;
    (void)state;
    struct answer_store *s = open_here(ours), *stranger = open_here(theirs);
    const time_t begun_s = time(NULL);
    put_all(s, 1, 351);
    put_all(s, 1, 351);
    put_all(stranger, 1, 1);
    tell("SELECT 3\r\nSET users 1\r\nSET quire:users 1\r\nSET *quire* 1", said, sizeof said);
    const time_t before = time(NULL);
    s->ops->clear(s, on_clear, &n);
    while (n == UINT64_MAX)
        event_base_loop(base, EVLOOP_ONCE);
    assert_int_equal(n, 351);
    assert_int_equal(look(s, 1), STORE_MISS);
    assert_int_equal(look(stranger, 1), STORE_FOUND); /* and was not cleared */
    tell("SELECT 3\r\nDBSIZE", said, sizeof said);
    assert_non_null(strstr(said, ":5"));
    /* An answer that another server computed earlier and writes later. */
    struct answer_store *other = open_here(ours);
    put_made(other, 5, 100, before);
    settle(other);
    assert_int_equal(look(s, 5), STORE_MISS);
    put_made(other, 5, 100, time(NULL) + 2);
    settle(other);
    assert_int_equal(look(s, 5), STORE_FOUND);
    other->ops->close(other, STORE_RIG_PATIENCE_MS);
    quire_key256_hex(&theirs, hex);
    struct key256 key = key_of(1);
    int end = snprintf(name, sizeof name, "SELECT 3\r\nTTL quire:%s:", hex);
    quire_key256_hex(&key, name + end);
    tell(name, said, sizeof said);
    const char *ttl = strchr(said, ':');
    assert_non_null(ttl);
    assert_in_range(atoi(ttl + 1), 100 - (time(NULL) - begun_s) - 1, 100);
    s->ops->close(s, STORE_RIG_PATIENCE_MS);
    stranger->ops->close(stranger, STORE_RIG_PATIENCE_MS);
}

/* Values that another program has written under our names. */
static void strange_values(void **state)
{
    char said[256], name[200], line[600], hex[65];
    (void)state;
    struct answer_store *s = open_here(ours);
    struct key256 key = key_of(1);
    quire_key256_hex(&ours, hex);
    int end = snprintf(name, sizeof name, "quire:%s:", hex);
    quire_key256_hex(&key, name + end);
    snprintf(line, sizeof line, "SELECT 3\r\nLPUSH %s a", name);
    tell(line, said, sizeof said);
    assert_int_equal(look(s, 1), STORE_MISS);
    put_all(s, 1, 1); /* heals it */
    assert_int_equal(look(s, 1), STORE_FOUND);
    snprintf(line, sizeof line, "SELECT 3\r\nSETRANGE %s 20 x", name);
    tell(line, said, sizeof said);
    assert_int_equal(look(s, 1), 99);
    snprintf(line, sizeof line, "SELECT 3\r\nSET %s short", name);
    tell(line, said, sizeof said);
    assert_int_equal(look(s, 1), 99);
    /* And the mark of a clear. */
    put_made(s, 1, 100, time(NULL) + 2);
    settle(s);
    assert_int_equal(look(s, 1), STORE_FOUND);
    snprintf(line, sizeof line, "SELECT 3\r\nSET quire:%s:cleared 99999999999", hex);
    tell(line, said, sizeof said);
    put(s, 2, 100);
    settle(s);
    assert_int_equal(look(s, 2), STORE_MISS);
    assert_int_equal(look(s, 1), STORE_FOUND);
    assert_true(stats_of(s).connected);
    s->ops->close(s, STORE_RIG_PATIENCE_MS);
}

static void passwords(void **state)
{
    char url[128], said[128];
    (void)state;
    tell("CONFIG SET requirepass p@ss:w/rd", said, sizeof said);
    snprintf(url, sizeof url, "redis://:wrong@127.0.0.1:%s", port_text);
    struct answer_store *s = open_url(url, ours);
    wait_for_trouble(s, "WRONGPASS");
    assert_null(strstr(stats_of(s).trouble, "wrong"));
    assert_int_equal(look_once(s, 1), STORE_AWAY);
    s->ops->close(s, STORE_RIG_PATIENCE_MS);
    snprintf(url, sizeof url, "redis://default:p%%40ss%%3Aw%%2frd@localhost:%s/2", port_text);
    s = open_url(url, ours);
    wait_until(s, true);
    put_all(s, 1, 1);
    assert_int_equal(look(s, 1), STORE_FOUND);
    s->ops->close(s, STORE_RIG_PATIENCE_MS);
}

/* More than a turn of the loop moves, there and back. */
static void put_much_and_find_it(struct answer_store *s)
{
    put_all(s, 1, 200);
    for (uint32_t i = 1; i <= 200; i++)
        assert_int_equal(look(s, i), STORE_FOUND);
}

static void large_ones(void **state)
{
    static uint8_t bytes[ANSWER_MAX_BYTES + 1];
    struct got g = {0};
    (void)state;
    struct answer_store *s = open_here(ours);
    put_much_and_find_it(s);
    const uint64_t n_failed = stats_of(s).n_put_failed, begun = quire_now_ms();
    s->ops->put(s, key_of(1), bytes, sizeof bytes, time(NULL), 100, 1, nobody);
    assert_int_equal(stats_of(s).n_put_failed, n_failed + 1);
    s->ops->put(s, key_of(1), bytes, sizeof bytes - 1, time(NULL), 100, 1, nobody);
    settle(s);
    while (!g.done) { /* late is no answer */
        assert_true(quire_now_ms() - begun < STORE_RIG_PATIENCE_MS);
        if (s->ops->get(s, key_of(1), on_answer, &g))
            while (!g.done)
                event_base_loop(base, EVLOOP_ONCE);
        g.done = g.done && g.found != STORE_AWAY;
        event_base_loop(base, EVLOOP_NONBLOCK);
    }
    assert_int_equal(g.found, STORE_FOUND);
    assert_int_equal(g.n, sizeof bytes - 1);
    do { /* until a lookup beside them is not late */
        assert_true(quire_now_ms() - begun < STORE_RIG_PATIENCE_MS);
        settle(s);
        wait_until(s, true);
        for (int i = 0; i < 200; i++) /* 100 MiB: no more than 64 wait */
            s->ops->put(s, key_of(1), bytes, sizeof bytes - 1, time(NULL), 100, 1, nobody);
        assert_in_range(stats_of(s).n_waiting, 120, 130);
    } while (look_once(s, 2) != STORE_FOUND); /* before them */
    assert_true(stats_of(s).n_waiting > 50);
    s->ops->close(s, STORE_RIG_PATIENCE_MS);
}

static void by_tls(void **state)
{
    char url[64];
    (void)state;
    snprintf(url, sizeof url, "rediss://localhost:%s/1", port_text);
    struct answer_store *s = open_url(url, ours);
    wait_until(s, true);
    put_much_and_find_it(s);
    for (uint32_t i = 201; i <= 300; i++)
        put(s, i, 100);
    s->ops->close(s, STORE_RIG_PATIENCE_MS);
    s = open_url(url, ours);
    wait_until(s, true);
    assert_int_equal(look(s, 300), STORE_FOUND);
    s->ops->close(s, STORE_RIG_PATIENCE_MS);
    snprintf(url, sizeof url, "rediss://127.0.0.1:%s", port_text); /* the certificate is for another name */
    s = open_url(url, ours);
    wait_for_trouble(s, "certificate: IP address mismatch");
    s->ops->close(s, STORE_RIG_PATIENCE_MS);
    snprintf(url, sizeof url, "rediss://127.1:%s", port_text); /* an address to the resolver, a name to TLS */
    s = open_url(url, ours);
    wait_for_trouble(s, "certificate: hostname mismatch");
    s->ops->close(s, STORE_RIG_PATIENCE_MS);
    setenv("SSL_CERT_FILE", "/dev/null", 1); /* no authority signed it */
    snprintf(url, sizeof url, "rediss://localhost:%s", port_text);
    s = open_url(url, ours);
    wait_for_trouble(s, "certificate: "); /* if localhost is ::1 first: not at once */
    assert_false(stats_of(s).connected);
    s->ops->close(s, STORE_RIG_PATIENCE_MS);
}

/* ---- ones that lie -------------------------------------------------------------------------- */

struct liar {
    const char *says; /* to everything after the greeting, but "+OK" to a SET */
    unsigned greets; /* commands that are answered as they should be: PING */
    bool slowly; /* a byte at a time */
    bool floods; /* and then whatever, until it is hung up on */
    int listener, stop[2];
    char port[8];
    pthread_t thread;
};

/* One command is answered. False: that was enough. */
static bool lie(const struct liar *liar, int s, const char *says)
{
    static const char junk[1 << 16];
    const struct pollfd stop = {.fd = liar->stop[0], .events = POLLIN};
    for (const char *c = says; *c; c += liar->slowly ? 1 : strlen(c)) {
        struct pollfd p = stop;
        if (send(s, c, liar->slowly ? 1 : strlen(c), MSG_NOSIGNAL) < 0 || (liar->slowly && poll(&p, 1, 5) > 0))
            return false;
    }
    while (liar->floods && says == liar->says)
        if (send(s, junk, sizeof junk, MSG_NOSIGNAL) < 0)
            return false;
    return strstr(says, "bye") == NULL;
}

static void lie_to(const struct liar *liar, int s)
{
    char in[4096];
    unsigned n_greeted = 0;
    struct pollfd p[2] = {{.fd = s, .events = POLLIN}, {.fd = liar->stop[0], .events = POLLIN}};
    ssize_t n;
    while (poll(p, 2, -1) > 0 && !p[1].revents && (n = read(s, in, sizeof in - 1)) > 0) {
        in[n] = '\0';
        for (char *command = in, *next; command; command = next) {
            next = strstr(command, "\n*");
            if (next)
                *next++ = '\0';
            const char *says = n_greeted++ < liar->greets       ? "+PONG\r\n"
                               : strstr(command, "\r\nSET\r\n") ? "+OK\r\n"
                                                                : liar->says;
            if (!lie(liar, s, says))
                return;
        }
    }
}

static void *liar_thread(void *context)
{
    struct liar *liar = context;
    struct pollfd p[2] = {{.fd = liar->listener, .events = POLLIN}, {.fd = liar->stop[0], .events = POLLIN}};
    while (poll(p, 2, -1) > 0 && !p[1].revents) {
        int s = accept(liar->listener, NULL, NULL);
        lie_to(liar, s);
        close(s);
    }
    return NULL;
}

static void liar_start(struct liar *liar)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    liar->listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(liar->listener, (struct sockaddr *)&at, n), 0);
    assert_int_equal(listen(liar->listener, 8), 0);
    assert_int_equal(getsockname(liar->listener, (struct sockaddr *)&at, &n), 0);
    snprintf(liar->port, sizeof liar->port, "%u", ntohs(at.sin_port));
    assert_int_equal(pipe(liar->stop), 0);
    assert_int_equal(pthread_create(&liar->thread, NULL, liar_thread, liar), 0);
}

static void liar_stop(struct liar *liar)
{
    assert_int_equal(write(liar->stop[1], "x", 1), 1);
    pthread_join(liar->thread, NULL);
    close(liar->listener);
    close(liar->stop[0]);
    close(liar->stop[1]);
}

static void paused_killed_and_back(void **state)
{
    struct liar liar = {.says = ""}; /* a server that sends nothing, meanwhile */
    char url[64];
    (void)state;
    liar_start(&liar);
    snprintf(url, sizeof url, "redis://127.0.0.1:%s", liar.port);
    struct answer_store *silent = open_url(url, ours), *s = open_here(ours);
    put_all(s, 1, 1);
    for (int round = 0; round < 20; round++) { /* the clocks of the loop and of the store meet at another offset */
        pause_redis();
        assert_int_equal(look_once(s, 1), STORE_AWAY);
        const struct store_stats away = stats_of(s); /* where this process did not run for 1 s, both are over at once */
        assert_true(strstr(away.trouble, "50 ms") || strstr(away.trouble, "does not answer"));
        for (int i = 0; i < 50; i++) /* one waited its 50 ms, the others not at all */
            assert_null(s->ops->get(s, key_of(1), on_answer, NULL));
        kill(redis, SIGCONT);
        assert_int_equal(look(s, 1), STORE_FOUND);
    }
    const uint64_t n_before = stats_of(s).n_reconnects;
    pause_redis();
    assert_int_equal(look_once(s, 1), STORE_AWAY);
    wait_until(s, false); /* given up after 1 s; a connection to a stopped server receives no greeting */
    kill(redis, SIGCONT);
    assert_int_equal(look(s, 1), STORE_FOUND);
    assert_true(stats_of(s).n_reconnects > n_before);
    const uint64_t n_failed = stats_of(s).n_put_failed;
    stop_redis();
    put(s, 2, 100);
    wait_until(s, false);
    put(s, 3, 100);
    assert_int_equal(stats_of(s).n_put_failed, n_failed + 2);
    assert_int_equal(stats_of(s).n_waiting, 0);
    assert_int_equal(look_once(s, 1), STORE_AWAY);
    start_redis();
    assert_int_equal(look(s, 1), STORE_MISS);
    put_all(s, 1, 1);
    assert_int_equal(look(s, 1), STORE_FOUND);
    assert_true(stats_of(s).n_reconnects > n_before + 1);
    assert_non_null(strstr(stats_of(silent).trouble, "does not answer"));
    s->ops->close(s, STORE_RIG_PATIENCE_MS);
    silent->ops->close(silent, STORE_RIG_PATIENCE_MS);
    liar_stop(&liar);
}

static void lies(void **state)
{
    static const struct {
        struct liar liar;
        const char *trouble;
    } rows[] = {
        {{.says = "HTTP/1.1 400 Bad Request\r\n\r\n"}, "Protocol error"},
        {{.says = "-NOAUTH Authentication required: secret\r\n"}, "rejected: NOAUTH"},
        {{.says = "-LOADING it takes long: secret\r\n"}, "rejected: LOADING"},
        {{.says = "bye"}, ""},
        {{.says = "+PONG\r\n+PONG\r\n"}, "a reply without a command"},
        {{.says = "$10000000000\r\nabc", .greets = 1}, "50 ms"},
        {{.says = "$10000000000\r\n", .greets = 1, .floods = true}, "more bytes"},
        {{.says = "", .greets = 1, .floods = true}, ""},
        {{.says = "-secret\r\n"}, "not shown"},
        {{.says = "$5\r\nab", .greets = 1}, ""},
        {{.says = "*1000000000\r\n", .greets = 1}, "more items"},
        {{.says = "*2\r\n*2000\r\n*2000\r\n*2000\r\n", .greets = 1}, "more items"},
        {{.says = ":1\r\n", .greets = 1}, "unexpected type"},
        {{.says = "*0\r\n", .greets = 1}, "unexpected type"},
        {{.says = "-ERR \x1b[2J secret\r\n", .greets = 1}, "ERR ?[2J"},
        {{.says = "$3\r\nabcXY", .greets = 1}, ""},
        {{.says = "\r\n\r\n\xff\xfe", .greets = 1}, "Protocol error"},
        {{.says = "$18446744073709551617\r\n", .greets = 1}, ""},
        {{.says = "$-2\r\n", .greets = 1}, ""},
        {{.says = "$100\r\nabcdefghijklmnopqrstuvwxyz", .greets = 1, .slowly = true}, "50 ms"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct liar liar = rows[i].liar;
        char url[64];
        liar_start(&liar);
        snprintf(url, sizeof url, "redis://127.0.0.1:%s", liar.port);
        struct answer_store *s = open_url(url, ours);
        if (liar.greets)
            wait_until(s, true);
        const uint64_t begun = quire_now_ms();
        /* Where this process or the liar does not run for a while, the trouble may be that first. */
        while ((!stats_of(s).trouble[0] || !strstr(stats_of(s).trouble, rows[i].trouble)) &&
               quire_now_ms() - begun < STORE_RIG_PATIENCE_MS) {
            const enum store_found found = look_once(s, 1);
            assert_true(found == STORE_AWAY || found == 99);
            event_base_loop(base, EVLOOP_NONBLOCK);
            usleep(1000);
        }
        if (!strstr(stats_of(s).trouble, rows[i].trouble) ||
            (!rows[i].liar.greets && strstr(stats_of(s).trouble, "secret")))
            fail_msg("%s: %s", rows[i].liar.says, stats_of(s).trouble);
        s->ops->close(s, 100);
        liar_stop(&liar);
    }
}

/* A value under a name that is not ours is never removed. */
static void strange_names(void **state)
{
    struct liar liar = {.says = "*2\r\n$1\r\n0\r\n*2\r\n$5\r\nusers\r\n$-1\r\n", .greets = 1};
    char url[64];
    uint64_t n = UINT64_MAX;
    (void)state;
    liar_start(&liar);
    snprintf(url, sizeof url, "redis://127.0.0.1:%s", liar.port);
    struct answer_store *s = open_url(url, ours);
    wait_until(s, true);
    while (stats_of(s).n_lookups == 0)
        look_once(s, 1); /* the count was answered before this */
    s->ops->clear(s, on_clear, &n);
    while (n == UINT64_MAX)
        event_base_loop(base, EVLOOP_ONCE);
    assert_int_equal(n, 0);
    assert_int_equal(stats_of(s).n_entries, 0);
    s->ops->close(s, 100);
    liar_stop(&liar);
}

/* ---- addresses ------------------------------------------------------------------------------ */

static void urls(void **state)
{
    static const struct {
        const char *text, *shown, *user, *password;
    } good[] = {
        {"redis://h", "redis://h:6379/0", "", ""},
        {"rediss://cache.example:7000/12", "rediss://cache.example:7000/12", "", ""},
        {"redis://u:p%20%25@[::1]:1/", "redis://[::1]:1/0", "u", "p %"},
        {"redis://:a@b:c@h:1", "redis://h:1/0", "", "a@b:c"},
        {"redis://10.0.0.1/5", "redis://10.0.0.1:6379/5", "", ""},
    };
    static const char *const bad[] = {"redis:",
                                      "redis://",
                                      "redis:///3",
                                      "redis://secret@h",
                                      "redis://u:@h",
                                      "redis://h:0",
                                      "redis://h:65536",
                                      "redis://h:",
                                      "redis://h:6379x",
                                      "redis://::1",
                                      "redis://[::1",
                                      "redis://h/x",
                                      "redis://h/1/2",
                                      "redis://h/-1",
                                      "redis://h/99999999",
                                      "redis://u:sec%2@h",
                                      "redis://u:sec%zz@h",
                                      "redis://u:sec%00@h",
                                      "redis://u:sec/ret@h",
                                      "redis://h?db=1",
                                      "redis://h h",
                                      "redis+tls://h",
                                      "redisx://h",
                                      "redis://u:secret@",
                                      "rediss//h"};
    struct redis_url url;
    struct quire_error err;
    char text[400], longer[700];
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(redis_url_parse(good[i].text, &url, &err), QUIRE_OK);
        redis_url_text(&url, text, sizeof text);
        assert_string_equal(text, good[i].shown);
        assert_string_equal(url.user, good[i].user);
        assert_string_equal(url.password, good[i].password);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (redis_url_parse(bad[i], &url, &err) != QUIRE_INVALID)
            fail_msg("%s", bad[i]);
        assert_null(strstr(err.text, "sec"));
    }
    snprintf(longer, sizeof longer, "redis://%0600d", 1);
    assert_int_equal(redis_url_parse(longer, &url, &err), QUIRE_INVALID);
    snprintf(longer, sizeof longer, "redis://:%0600d@h", 1);
    assert_int_equal(redis_url_parse(longer, &url, &err), QUIRE_INVALID);
}

static int begin(void **state)
{
    (void)state;
    base = event_base_new();
    return base ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    event_base_free(base);
    return 0;
}

static int begin_redis(void **state)
{
    hold_port();
    start_redis();
    return begin(state);
}

static int end_redis(void **state)
{
    stop_redis();
    close(port_holder);
    return end(state);
}

static int begin_redis_tls(void **state)
{
    hold_port();
    start_redis_tls();
    return begin(state);
}

static int end_redis_tls(void **state)
{
    char command[128];
    unsetenv("SSL_CERT_FILE");
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return end_redis(state) || system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(urls),
        cmocka_unit_test_setup_teardown(cached_and_found_again, begin_redis, end_redis),
        cmocka_unit_test_setup_teardown(clear_takes_only_ours, begin_redis, end_redis),
        cmocka_unit_test_setup_teardown(paused_killed_and_back, begin_redis, end_redis),
        cmocka_unit_test_setup_teardown(strange_values, begin_redis, end_redis),
        cmocka_unit_test_setup_teardown(passwords, begin_redis, end_redis),
        cmocka_unit_test_setup_teardown(large_ones, begin_redis, end_redis),
        cmocka_unit_test_setup_teardown(by_tls, begin_redis_tls, end_redis_tls),
        cmocka_unit_test_setup_teardown(strange_names, begin, end),
        cmocka_unit_test_setup_teardown(lies, begin, end),
    };
    if (quire_hash_init() != QUIRE_OK)
        return 1;
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
