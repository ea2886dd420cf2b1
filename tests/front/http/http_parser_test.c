#include "server/http/http_parser.h"
#include "server/http/query.h"
#include "tests/front/front_unit_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_HEAD 1024
#define MAX_BODY 64

/* Parses the first request in text, fed in pieces of `step` bytes, into a summary. */
static void summarize(const char *text, size_t n, size_t step, char *out, size_t n_out)
{
    struct http_parser p;
    size_t at = 0, end = 0, used;
    enum http_parsed got = HTTP_MORE;
    int n_heads = 0;
    http_parser_init(&p, MAX_HEAD, MAX_BODY);
    while (got == HTTP_MORE || got == HTTP_HEAD) {
        if (at == end && end == n && got != HTTP_HEAD)
            break;
        if (at == end)
            end = end + step < n ? end + step : n;
        got = http_parser_feed(&p, (const uint8_t *)text + at, end - at, &used);
        assert_true(used <= end - at);
        at += used;
        n_heads += got == HTTP_HEAD;
        if (got == HTTP_MORE && used == 0 && at == end && end == n)
            break;
    }
    if (got == HTTP_BAD)
        snprintf(out, n_out, "bad %d %s", p.bad_status, p.bad_reason);
    else if (got == HTTP_DONE)
        snprintf(out, n_out, "%s %s keep=%d heads=%d expect=%d body=%.*s rest=%zu host=%s query=%s", p.method, p.path,
                 p.keep_alive, n_heads, p.expect_continue, (int)p.n_body, p.n_body ? p.body : "", n - at,
                 http_parser_header(&p, "host") ? http_parser_header(&p, "host") : "none", p.query);
    else
        snprintf(out, n_out, "more");
    http_parser_reset(&p);
    assert_true(http_parser_is_idle(&p));
}

/* The result does not depend on how the bytes arrive. */
static void check(const char *text, size_t n, const char *expected)
{
    char got[512];
    for (size_t step = 1; step <= n + 1; step = step < 8 ? step + 1 : step * 2) {
        summarize(text, n, step > n ? n : step, got, sizeof got);
        if (strncmp(got, expected, strlen(expected)) != 0)
            print_error("in steps of %zu: %s\n", step, got);
        assert_true(strncmp(got, expected, strlen(expected)) == 0);
    }
}
#define CHECK(text, expected) check(text, sizeof text - 1, expected)
#define H "Host: x\r\n"

static void good_requests(void **state)
{
    (void)state;
    CHECK("GET / HTTP/1.1\r\n" H "\r\n", "GET / keep=1 heads=1 expect=0 body= rest=0");
    CHECK("\r\n\r\nGET /a?b=c HTTP/1.1\r\n" H "\r\n", "GET /a keep=1");
    CHECK("GET /a#f HTTP/1.1\r\n" H "\r\n", "GET /a keep=1");
    CHECK("GET http://h:8/a?q HTTP/1.1\r\n" H "\r\n", "GET /a keep=1");
    CHECK("GET / HTTP/1.0\r\n\r\n", "GET / keep=0");
    CHECK("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "GET / keep=1");
    CHECK("GET / HTTP/1.1\r\n" H "Connection: foo, close\r\n\r\n", "GET / keep=0");
#define POST "POST /x HTTP/1.1\r\n" H
    CHECK(POST "Content-Length: 5\r\n\r\nhelloGET", "POST /x keep=1 heads=1 expect=0 body=hello rest=3");
    CHECK(POST "content-length:\t 5 \r\nExpect: 100-Continue\r\n\r\nhello",
          "POST /x keep=1 heads=1 expect=1 body=hello");
    CHECK(POST "Transfer-Encoding: Chunked\r\n\r\n"
               "5\r\nhello\r\n0A;x=y\r\n, you over\r\n0\r\n\r\nGET",
          "POST /x keep=1 heads=1 expect=0 body=hello, you over rest=3");
    CHECK(POST "Transfer-Encoding: chunked\r\n\r\n2 \r\nhi\r\n0\r\nA: b\r\nC: d\r\n\r\n",
          "POST /x keep=1 heads=1 expect=0 body=hi rest=0");
    CHECK("OPTIONS * HTTP/1.1\r\n" H "\r\n", "OPTIONS * keep=1");
    CHECK("BREW /pot HTTP/1.1\r\n" H "X:\r\n\r\n", "BREW /pot keep=1");
    CHECK("GET / HTTP/1.1\r\n" H "X: \xe2\x82\xac\r\n\r\n", "GET / keep=1");
}

static void queries(void **state)
{
    static const struct {
        const char *query, *name, *value; /* value NULL: invalid; "-": absent */
    } rows[] = {{"a=1&b=two+words", "a", "1"},
                {"a=1&b=two+words", "b", "two words"},
                {"a=%e4%BD%a0%26", "a", "\xe4\xbd\xa0&"},
                {"a=1&a=2", "a", "1"},
                {"ab=1&a", "a", ""},
                {"a==&b", "a", "="},
                {"", "a", "-"},
                {"&&b=&", "a", "-"},
                {"&&b=&", "b", ""},
                {"a=%", "a", NULL},
                {"a=%4", "a", NULL},
                {"a=%zz", "a", NULL},
                {"a=%00", "a", NULL},
                {"a=%ff", "a", NULL},
                {"a=%4&1=", "a", NULL}};
    static const char *const known[] = {"a", "b"};
    (void)state;
    CHECK("GET /a?b=c&d HTTP/1.1\r\n" H "\r\n", "GET /a keep=1 heads=1 expect=0 body= rest=0 host=x query=b=c&d");
    CHECK("GET http://h/a?b=c?d#e HTTP/1.1\r\n" H "\r\n",
          "GET /a keep=1 heads=1 expect=0 body= rest=0 host=h query=b=c?d");
    CHECK("GET /a#f?b HTTP/1.0\r\n\r\n", "GET /a keep=0 heads=1 expect=0 body= rest=0 host=none query=");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buffer out = {0};
        const enum query_result result = query_value(rows[i].query, rows[i].name, &out);
        const bool is_absent = rows[i].value && strcmp(rows[i].value, "-") == 0;
        assert_int_equal(result, is_absent ? QUERY_ABSENT : rows[i].value ? QUERY_FOUND : QUERY_INVALID);
        if (result == QUERY_FOUND)
            assert_string_equal(buffer_text(&out), rows[i].value);
        buffer_free(&out);
    }
    assert_true(query_has_only("a=1&b&&", known, 2) && query_has_only("", known, 2));
    assert_false(query_has_only("a=1&ab=1", known, 2));
}

static void targets(void **state)
{
    (void)state;
#define REST " heads=1 expect=0 body= rest=0 host="
    /* The authority of a URL is the host, whatever the Host header contains. */
    CHECK("GET http://h:8/a?q HTTP/1.1\r\n" H "\r\n", "GET /a keep=1" REST "h:8");
    CHECK("GET HTTPS://[::1]:8/ HTTP/1.1\r\nA: b\r\nhOST: evil\r\n\r\n", "GET / keep=1" REST "[::1]:8");
    CHECK("GET http://h/a HTTP/1.0\r\n\r\n", "GET /a keep=0" REST "h");
    CHECK("GET /a HTTP/1.0\r\n\r\n", "GET /a keep=0" REST "none");
    CHECK("GET http://h/a/http://i/ HTTP/1.1\r\n" H "\r\n", "GET /a/http://i/ keep=1" REST "h");
    CHECK("GET http://h/a HTTP/1.1\r\n\r\n", "bad 400");
    CHECK("GET http:///a HTTP/1.1\r\n" H "\r\n", "bad 400 the request's URL has no host");
    CHECK("GET http://h?x/a HTTP/1.1\r\n" H "\r\n", "bad 400 the request's URL has no path");
    CHECK("GET http://h#x/a HTTP/1.1\r\n" H "\r\n", "bad 400 the request's URL has no path");
    CHECK("GET http://u:p@h/a HTTP/1.1\r\n" H "\r\n", "bad 400 the request's URL has a user name");
    /* Later versions of HTTP/1. */
    CHECK("GET / HTTP/1.2\r\n" H "\r\n", "GET / keep=1" REST "x");
    CHECK("GET / HTTP/1.9\r\n" H "Connection: close\r\n\r\n", "GET / keep=0" REST "x");
    CHECK("GET / HTTP/1.2\r\n\r\n", "bad 400");
    CHECK("GET / HTTP/1.10\r\n" H "\r\n", "bad 400");
    CHECK("GET / HTTP/1.\r\n" H "\r\n", "bad 400");
    CHECK("GET / HTTP/1.x\r\n" H "\r\n", "bad 400");
    CHECK("GET / http/1.1\r\n" H "\r\n", "bad 400");
    /* Escapes. */
    CHECK("GET /%61%2Fb%20c%C3%a9%3F HTTP/1.1\r\n" H "\r\n", "GET /a%2Fb c\xc3\xa9? keep=1");
    CHECK("GET /%2561%zz%4%2f HTTP/1.1\r\n" H "\r\n", "GET /%2561%zz%4%2f keep=1");
    CHECK("GET /a%3fb?c=%00 HTTP/1.1\r\n" H "\r\n", "GET /a?b keep=1");
    CHECK("GET /%00 HTTP/1.1\r\n" H "\r\n", "bad 400");
    CHECK("GET /%0d%0a HTTP/1.1\r\n" H "\r\n", "bad 400");
    CHECK("GET /%7f HTTP/1.1\r\n" H "\r\n", "bad 400");
}

static void incomplete_requests(void **state)
{
    (void)state;
    CHECK("G", "more");
    CHECK("GET / HTTP/1.1\r\n" H, "more");
    CHECK("POST / HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhell", "more");
    CHECK("POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", "more");
    CHECK(POST "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n", "more");
}

static void bad_requests(void **state)
{
    (void)state;
    CHECK("GET /\r\n\r\n", "bad 400");
    CHECK("GET  / HTTP/1.1\r\n" H "\r\n", "bad 400");
    CHECK("GET / HTTP/1.1 \r\n" H "\r\n", "bad 400");
    CHECK("GET / HTTP/2.0\r\n" H "\r\n", "bad 400");
    CHECK("G\x01T / HTTP/1.1\r\n" H "\r\n", "bad 400");
    CHECK("GET /\x80 HTTP/1.1\r\n" H "\r\n", "bad 400");
    CHECK("GET x HTTP/1.1\r\n" H "\r\n", "bad 400");
    CHECK("GET http://x HTTP/1.1\r\n" H "\r\n", "bad 400");
    CHECK("GET / HTTP/1.1\n" H "\n", "bad 400");
    CHECK("GET / HTTP/1.1\r\n" H "A b: c\r\n\r\n", "bad 400");
    CHECK("GET / HTTP/1.1\r\n" H "A : c\r\n\r\n", "bad 400");
    CHECK("GET / HTTP/1.1\r\n" H ": c\r\n\r\n", "bad 400");
    CHECK("GET / HTTP/1.1\r\n" H "nothing\r\n\r\n", "bad 400");
    CHECK("GET / HTTP/1.1\r\n" H "A: b\r\n folded\r\n\r\n", "bad 400");
    CHECK("GET / HTTP/1.1\r\n" H "A: b\rc\r\n\r\n", "bad 400");
    CHECK("GET / HTTP/1.1\r\n" H "A: b\0c\r\n\r\n", "bad 400");
    CHECK("GET / HTTP/1.1\r\n\r\n", "bad 400");
    CHECK("GET / HTTP/1.1\r\n" H H "\r\n", "bad 400");
    CHECK("\r\n\r\n\r\n\r\n\r\n\r\n", "bad 400");
    CHECK("POST / HTTP/1.1\r\n" H "Content-Length: -1\r\n\r\n", "bad 400");
    CHECK("POST / HTTP/1.1\r\n" H "Content-Length: +1\r\n\r\n", "bad 400");
    CHECK("POST / HTTP/1.1\r\n" H "Content-Length: 1 1\r\n\r\n", "bad 400");
    CHECK("POST / HTTP/1.1\r\n" H "Content-Length: 0x1\r\n\r\n", "bad 400");
    CHECK("POST / HTTP/1.1\r\n" H "Content-Length:\r\n\r\n", "bad 400");
    CHECK("POST / HTTP/1.1\r\n" H "Content-Length: 99999999999999999999\r\n\r\n", "bad 400");
    CHECK("POST / HTTP/1.1\r\n" H "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", "bad 400");
    CHECK("POST / HTTP/1.1\r\n" H "Content-Length: 2\r\ncontent-length: 2\r\n\r\nhi", "bad 400");
    /* At the first byte. */
    CHECK("\x16", "bad 400 this port accepts plain HTTP");
    CHECK("\r\n\x80", "bad 400");
    CHECK("{", "bad 400");
    CHECK(POST "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "bad 400");
    CHECK("POST / HTTP/1.1\r\n" H "Transfer-Encoding: gzip, chunked\r\n\r\n", "bad 400");
    CHECK(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "bad 400");
    CHECK("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "bad 400");
    CHECK("POST / HTTP/1.1\r\n" H "Expect: cake\r\n\r\n", "bad 417");
    CHECK("POST / HTTP/1.1\r\n" H "content-encoding: gzip\r\n\r\n", "bad 415");
    CHECK("POST / HTTP/1.1\r\n" H "Content-Length: 65\r\n\r\n", "bad 413");
#define CHUNKED "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n"
    CHECK(CHUNKED "\r\n", "bad 400");
    CHECK(CHUNKED "x\r\n", "bad 400");
    CHECK(CHUNKED "-1\r\n", "bad 400");
    CHECK(CHUNKED "5\nhello", "bad 400");
    CHECK(CHUNKED "5\r\nhello5\r\n", "bad 400");
    CHECK(CHUNKED "5\r\nhello\r5", "bad 400");
    CHECK(CHUNKED "0\r\nA: b\n", "bad 400");
    CHECK(CHUNKED "ffffffffffffffffff\r\n", "bad 413");
    CHECK(CHUNKED "20\r\n01234567890123456789012345678901\r\n"
                  "21\r\n012345678901234567890123456789012",
          "bad 413");
}

static void bounds(void **state)
{
    char text[4096], got[512];
    (void)state;
    /* Many headers, each valid by itself. */
    size_t n = (size_t)snprintf(text, sizeof text, "GET / HTTP/1.1\r\n" H);
    for (int i = 0; n + 16 < sizeof text; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "A%d: b\r\n", i);
    summarize(text, n, 7, got, sizeof got);
    assert_memory_equal(got, "bad 431", 7);
    /* One line without an end. */
    memset(text, 'a', sizeof text);
    summarize(text, sizeof text, 100, got, sizeof got);
    assert_memory_equal(got, "bad 431", 7);
    /* A size line and trailers without an end. */
    n = (size_t)snprintf(text, sizeof text, CHUNKED "1;");
    memset(text + n, 'x', sizeof text - n);
    summarize(text, sizeof text, 100, got, sizeof got);
    assert_memory_equal(got, "bad 400", 7);
    char *large = malloc(20000);
    assert_non_null(large);
    n = (size_t)snprintf(large, 20000, CHUNKED "0\r\n");
    memset(large + n, 'x', 20000 - n);
    summarize(large, 20000, 1000, got, sizeof got);
    assert_memory_equal(got, "bad 431", 7);
    free(large);
}

int run_http_parser_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_requests),       cmocka_unit_test(targets),      cmocka_unit_test(queries),
        cmocka_unit_test(incomplete_requests), cmocka_unit_test(bad_requests), cmocka_unit_test(bounds),
    };
    return cmocka_run_group_tests_name("http_parser", tests, NULL, NULL);
}
