/* Parses replies of XREAD: entries in order; every other reply is rejected. */
#include "tests/cache/cache_unit_test.h"

#include "server/cache/redis/stream.h"

#include <string.h>

#define ENTRY(id, n_id, value) \
    "*2\r\n$" #n_id "\r\n" id "\r\n*4\r\n$2\r\nby\r\n$2\r\nme\r\n$2\r\nv1\r\n$1\r\n" value "\r\n"
#define STREAM(n) "*1\r\n*2\r\n$1\r\ns\r\n*" #n "\r\n"

static struct redis_reply *read_reply(const char *text)
{
    struct redis_replies *r = redis_replies_new();
    struct redis_reply *reply = NULL;
    struct quire_error err;
    assert_non_null(r);
    assert_int_equal(redis_replies_feed(r, text, strlen(text), &err), QUIRE_OK);
    assert_int_equal(redis_replies_next(r, &reply, &err), QUIRE_OK);
    assert_non_null(reply);
    redis_replies_free(r);
    return reply;
}

/* How many of its entries are some, in their order; -1: it is no such reply. */
static int n_good(const char *text)
{
    struct redis_reply *reply = read_reply(text);
    const struct redis_reply *entries;
    struct redis_stream_id last = {7, 7};
    size_t n, good = 0;
    const bool ok = redis_stream_entries(reply, &entries, &n);
    while (ok && good < n && redis_stream_next(&entries[good], &last))
        good++;
    redis_reply_free(reply);
    return ok ? (int)good : -1;
}

void redis_stream_test(void **state)
{
    char text[REDIS_STREAM_ID_BYTES];
    (void)state;
    assert_int_equal(n_good("*-1\r\n"), 0);
    assert_int_equal(n_good(STREAM(0)), 0);
    assert_int_equal(n_good(STREAM(3) ENTRY("7-8", 3, "a") ENTRY("8-0", 3, "b") ENTRY("10-0", 4, "c")), 3);
    assert_int_equal(n_good(STREAM(2) ENTRY("8-1", 3, "a") ENTRY("8-1", 3, "b")), 1); /* for ever the same */
    assert_int_equal(n_good(STREAM(1) ENTRY("7-7", 3, "a")), 0);
    assert_int_equal(n_good(STREAM(1) ENTRY("6-9", 3, "a")), 0);
    assert_int_equal(n_good(STREAM(1) ENTRY("18446744073709551615-9", 22, "a")), 1);
    assert_int_equal(n_good(STREAM(1) ENTRY("18446744073709551616-9", 22, "a")), 0);
    assert_int_equal(n_good(STREAM(1) ENTRY("9-", 2, "a")), 0);
    assert_int_equal(n_good(STREAM(1) ENTRY("9-1x", 4, "a")), 0);
    assert_int_equal(n_good(STREAM(1) ENTRY("9", 1, "a")), 0);
    assert_int_equal(n_good(STREAM(1) "*2\r\n$3\r\n9-1\r\n*-1\r\n"), 0);
    for (size_t i = 0; i < 6; i++) {
        static const char *const none[] = {
            "-ERR no\r\n", "$1\r\na\r\n", ":1\r\n", "*1\r\n*1\r\n:1\r\n", "*1\r\n*2\r\n:1\r\n:1\r\n", "*0\r\n"};
        assert_int_equal(n_good(none[i]), -1);
    }
    struct redis_reply *reply = read_reply(
        STREAM(2) ENTRY("8-1", 3, "a") "*2\r\n$3\r\n8-2\r\n*3\r\n$2\r\nv1\r\n:1\r\n$2\r\nby\r\n");
    const struct redis_reply *entries;
    size_t n;
    assert_true(redis_stream_entries(reply, &entries, &n) && n == 2);
    assert_string_equal(redis_stream_value(&entries[0], "v1")->text, "a");
    assert_string_equal(redis_stream_value(&entries[0], "by")->text, "me");
    assert_null(redis_stream_value(&entries[0], "v"));
    assert_null(redis_stream_value(&entries[1], "v1")); /* no text */
    assert_null(redis_stream_value(&entries[1], "by")); /* no value */
    redis_reply_free(reply);
    redis_stream_id_text(&(struct redis_stream_id){UINT64_MAX, UINT64_MAX}, text);
    assert_string_equal(text, "18446744073709551615-18446744073709551615");
}
