/* The store of responses: owners, chains, limits, expiry, files; and putting while other threads read. The sanitizers
 * run it, too. */
#include "server/front/responses/response_store.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

static const struct key256 mine = {{1}}, others = {{2}};

/* The wall clock runs ahead by this much: a test that slept was late on a busy machine. */
static _Atomic int64_t later_s;
int __real_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    const int status = __real_clock_gettime(clock, out);
    if (clock == CLOCK_REALTIME)
        out->tv_sec += later_s;
    return status;
}

static struct response_store *open_store(const char *path, uint64_t max, uint64_t of_tenant, uint32_t ttl_s)
{
    const struct response_store_options options = {path, max, of_tenant, ttl_s};
    struct response_store *s;
    struct quire_error err;
    assert_int_equal(response_store_open(&options, &s, &err), 0);
    return s;
}

/* The reply is <(OUTPUT)>. id: its new id. */
static void put(struct response_store *s, struct key256 tenant, const char *previous, const char *input,
                const char *output, char id[RESPONSE_ID_BYTES])
{
    struct response_record r = {.tenant = tenant, .output_at = 2, .n_output = strlen(output)};
    response_id(r.id);
    memcpy(id, r.id, sizeof r.id);
    snprintf(r.previous, sizeof r.previous, "%s", previous);
    buffer_append(&r.input, input, strlen(input));
    buffer_append(&r.reply, "<(", 2);
    buffer_append(&r.reply, output, strlen(output));
    buffer_append(&r.reply, ")>", 2);
    response_store_put(s, &r);
    assert_null(r.input.data);
    assert_null(r.reply.data);
}

static bool has(struct response_store *s, struct key256 tenant, const char *id)
{
    struct response_record r;
    struct quire_error err;
    const int status = response_store_find(s, &tenant, id, &r, &err);
    response_record_free(&r);
    assert_true(status == QUIRE_OK || status == QUIRE_NOT_FOUND);
    return status == QUIRE_OK;
}

static int chain(struct response_store *s, const char *id, char out[256])
{
    struct buffer items = {0};
    struct quire_error err;
    const int status = response_store_chain(s, &mine, id, &items, &err);
    snprintf(out, 256, "%.*s", (int)items.n, items.data ? items.data : "");
    buffer_free(&items);
    return status;
}

static void a_chain_is_read_from_its_beginning(void **state)
{
    (void)state;
    struct response_store *s = open_store(NULL, 1 << 20, 1 << 20, 60);
    char one[RESPONSE_ID_BYTES], two[RESPONSE_ID_BYTES], three[RESPONSE_ID_BYTES], text[256];
    struct quire_error err;
    size_t n = 0;
    put(s, mine, "", "i1", "o1", one);
    put(s, mine, one, "", "o2", two);
    put(s, mine, two, "i3", "", three);
    assert_int_equal(chain(s, three, text), QUIRE_OK);
    assert_string_equal(text, "i1,o1,o2,i3");
    assert_int_equal(response_store_chain_bytes(s, &mine, three, &n, &err), QUIRE_OK);
    assert_int_equal(n, 8);
    assert_int_equal(response_store_chain_bytes(s, &others, three, &n, &err), QUIRE_NOT_FOUND);
    /* A chain without one of its responses is no chain. */
    assert_int_equal(response_store_remove(s, &others, one, &err), QUIRE_NOT_FOUND);
    assert_int_equal(response_store_remove(s, &mine, one, &err), QUIRE_OK);
    assert_int_equal(chain(s, three, text), QUIRE_NOT_FOUND);
    assert_true(has(s, mine, three));
    assert_false(has(s, others, three));
    response_store_close(s);
}

static void long_chains_are_rejected(void **state)
{
    (void)state;
    struct response_store *s = open_store(NULL, 64 << 20, 64 << 20, 60);
    char id[RESPONSE_ID_BYTES] = "", text[256];
    struct quire_error err;
    struct buffer items = {0};
    for (int i = 0; i < RESPONSE_MAX_CHAIN; i++) {
        char previous[RESPONSE_ID_BYTES];
        memcpy(previous, id, sizeof previous);
        put(s, mine, previous, "i", "o", id);
    }
    assert_int_equal(response_store_chain(s, &mine, id, &items, &err), QUIRE_OK);
    assert_int_equal(items.n, RESPONSE_MAX_CHAIN * 4 - 1);
    buffer_free(&items);
    put(s, mine, id, "i", "o", id);
    assert_int_equal(chain(s, id, text), QUIRE_INVALID);
    char *large = malloc(RESPONSE_MAX_CHAIN_BYTES + 2);
    assert_non_null(large);
    memset(large, 'x', RESPONSE_MAX_CHAIN_BYTES + 1);
    large[RESPONSE_MAX_CHAIN_BYTES + 1] = '\0';
    put(s, mine, "", large, "o", id);
    assert_int_equal(chain(s, id, text), QUIRE_INVALID);
    free(large);
    response_store_close(s);
}

static void the_least_recently_used_go_first(void **state)
{
    (void)state;
    /* Each takes its bytes and 4,096. */
    struct response_store *s = open_store(NULL, 41 * 1024, 21 * 1024, 60);
    char ids[8][RESPONSE_ID_BYTES], text[256];
    struct response_store_counts counts;
    for (int i = 0; i < 4; i++)
        put(s, mine, "", "", "o", ids[i]);
    assert_int_equal(chain(s, ids[0], text), QUIRE_OK); /* a use */
    for (int i = 4; i < 6; i++)
        put(s, mine, "", "", "o", ids[i]);
    assert_true(has(s, mine, ids[0]));
    assert_false(has(s, mine, ids[1]));
    assert_true(has(s, mine, ids[2]));
    /* Of the limit of all, the tenant with the most loses. */
    char last[RESPONSE_ID_BYTES];
    const struct key256 third = {{3}};
    for (int i = 0; i < 4; i++)
        put(s, others, "", "", "o", last);
    put(s, third, "", "", "o", last);
    put(s, third, "", "", "o", last);
    response_store_count(s, &counts);
    assert_int_equal(counts.n_responses, 10);
    assert_true(counts.n_bytes <= 41 * 1024);
    assert_true(has(s, third, last));
    assert_false(has(s, mine, ids[2]));
    response_store_close(s);
}

static void an_unused_response_expires(void **state)
{
    (void)state;
    struct response_store *s = open_store(NULL, 1 << 20, 1 << 20, 2000);
    char one[RESPONSE_ID_BYTES], two[RESPONSE_ID_BYTES], text[256];
    put(s, mine, "", "i", "o", one);
    put(s, mine, one, "i", "o", two);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(chain(s, two, text), QUIRE_OK); /* extends the life of both */
        later_s += 1000;
    }
    assert_true(has(s, mine, one));
    later_s += 3000;
    assert_false(has(s, mine, one));
    later_s = 0;
    response_store_close(s);
}

static void a_file_is_private_and_its_own(void **state)
{
    (void)state;
    char path[] = "/tmp/response_store_test.XXXXXX", id[RESPONSE_ID_BYTES], command[128];
    struct response_store_options options = {path, 1 << 20, 1 << 20, 60};
    struct response_store *s;
    struct quire_error err;
    struct stat st;
    assert_non_null(mkdtemp(path));
    assert_int_equal(response_store_open(&options, &s, &err), QUIRE_IO); /* a directory */
    assert_non_null(strstr(err.text, "--response-store"));
    char file[64];
    snprintf(file, sizeof file, "%s/db", path);
    options.path = file;
    const int made = open(file, O_CREAT | O_WRONLY, 0644);
    assert_true(made >= 0 && write(made, "no database, but a text that is longer than a header", 52) == 52);
    close(made);
    assert_int_equal(response_store_open(&options, &s, &err), QUIRE_IO);
    unlink(file);
    s = open_store(file, 1 << 20, 1 << 20, 60);
    put(s, mine, "", "i", "o", id);
    response_store_close(s);
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    s = open_store(file, 1 << 20, 1 << 20, 60);
    assert_true(has(s, mine, id));
    assert_false(has(s, others, id));
    response_store_close(s);
    snprintf(command, sizeof command, "rm -rf %s", path);
    assert_int_equal(system(command), 0);
}

static void *read_often(void *context)
{
    char text[256], id[RESPONSE_ID_BYTES];
    struct response_store *s = context;
    for (int i = 0; i < 300; i++) {
        response_id(id);
        if (chain(s, id, text) != QUIRE_NOT_FOUND)
            return NULL;
    }
    return s;
}

static void what_was_put_is_seen_at_once(void **state)
{
    (void)state;
    struct response_store *s = open_store(NULL, 8 << 20, 8 << 20, 60);
    pthread_t threads[2];
    void *result;
    char id[RESPONSE_ID_BYTES] = "", text[256];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_often, s), 0);
    for (int i = 0; i < 500; i++) {
        char previous[RESPONSE_ID_BYTES];
        memcpy(previous, id, sizeof previous);
        put(s, mine, previous, "i", "o", id);
        assert_int_equal(chain(s, id, text), QUIRE_OK);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_ptr_equal(result, s);
    }
    response_store_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_is_read_from_its_beginning), cmocka_unit_test(long_chains_are_rejected),
        cmocka_unit_test(the_least_recently_used_go_first),   cmocka_unit_test(an_unused_response_expires),
        cmocka_unit_test(a_file_is_private_and_its_own),      cmocka_unit_test(what_was_put_is_seen_at_once),
    };
    return quire_hash_init() ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
