/* Compilations for requests: their results, which are shared and remembered, and their limits. */
#include "base/hash.h"
#include "server/front/grammar/grammar_cache.h"
#include "server/front/grammar/grammar_pool.h"
#include "server/front/observe/metrics.h"
#include "text/quire_grammar.h"
#include "text/quire_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define DIRECTORY QUIRE_SOURCE_DIR "/tools/demo_model/model"

static struct event_base *base;
static struct quire_grammars *grammars;
static struct metrics metrics;

struct waiter {
    int n_done;
    bool ok;
    int status, retry_ms;
    char text[256]; /* the beginning of the normal text, or the message */
    struct grammar_wait *leaves; /* another one, which its end ends */
};

static void on_done(void *owner, const struct grammar_result *result)
{
    struct waiter *w = owner;
    w->n_done++;
    w->ok = result->ok;
    w->status = result->ok ? 200 : result->error.status;
    w->retry_ms = result->ok ? 0 : (int)result->error.retry_ms;
    snprintf(w->text, sizeof w->text, "%.*s", result->ok ? (int)result->n : 200,
             result->ok ? result->normal : result->error.why.text);
    if (w->leaves)
        grammar_pool_leave(w->leaves);
}

static struct grammar_request *request(enum quire_grammar_form form, const char *text)
{
    const struct quire_grammar_source how = {.form = form};
    struct grammar_request *r = NULL;
    struct api_error e;
    assert_true(grammar_request_set(&r, &how, strdup(text), strlen(text), "guided_regex", &e));
    return r;
}

static struct grammar_pool *open_pool(void)
{
    struct grammar_pool *pool;
    metrics_init(&metrics);
    assert_int_equal(grammar_pool_open(base, 2, &pool, NULL), QUIRE_OK);
    return pool;
}

static struct grammar_wait *begin(struct grammar_pool *pool, const struct grammar_request *r, uint32_t tenant,
                                  struct waiter *w, struct api_error *e)
{
    struct grammar_result result;
    *w = (struct waiter){0};
    assert_false(grammar_pool_find(pool, grammars, r, &metrics.grammars, &result));
    return grammar_pool_wait(pool, grammars, r, tenant, &metrics.grammars, on_done, w, e);
}

static void run_until(const struct waiter *w)
{
    while (w->n_done == 0)
        event_base_loop(base, EVLOOP_ONCE);
}

static uint64_t n_compiled(void)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i <= metrics.grammars.compile.n_bounds; i++)
        n += metrics.grammars.compile.counts[i];
    return n;
}

static void results_are_remembered(void **state)
{
    (void)state;
    struct grammar_pool *pool = open_pool();
    struct grammar_request *good = request(QUIRE_FORM_REGEX, "ab+"), *bad = request(QUIRE_FORM_REGEX, "a(");
    struct waiter w;
    struct api_error e;
    struct grammar_result result;
    assert_non_null(begin(pool, good, 1, &w, &e));
    run_until(&w);
    assert_true(w.ok && w.n_done == 1);
    assert_true(grammar_pool_find(pool, grammars, good, &metrics.grammars, &result));
    assert_true(result.ok && strncmp(result.normal, w.text, result.n) == 0);
    assert_non_null(begin(pool, bad, 1, &w, &e));
    run_until(&w);
    assert_false(w.ok);
    assert_non_null(strstr(w.text, "character 2"));
    assert_true(grammar_pool_find(pool, grammars, bad, &metrics.grammars, &result));
    assert_string_equal(result.error.why.text, w.text);
    assert_int_equal(result.error.status, 400);
    assert_int_equal(metrics.grammars.n_hits, 2);
    assert_int_equal(metrics.grammars.n_misses, 2);
    assert_int_equal(metrics.grammars.rejected[GRAMMAR_INVALID], 2);
    assert_int_equal(n_compiled(), 2);
    grammar_request_free(good);
    grammar_request_free(bad);
    grammar_pool_close(pool);
}

/* Requests with the same text wait for one compilation, and one of them may leave. */
static void same_text_is_compiled_once(void **state)
{
    (void)state;
    struct grammar_pool *pool = open_pool();
    struct grammar_request *r = request(QUIRE_FORM_REGEX, "x{3}");
    struct waiter w[4];
    struct grammar_wait *waits[4];
    struct api_error e;
    for (uint32_t i = 0; i < 4; i++) {
        waits[i] = begin(pool, r, i, &w[i], &e);
        assert_non_null(waits[i]);
    }
    grammar_pool_leave(waits[0]);
    w[1].leaves = waits[2]; /* in its done() */
    run_until(&w[3]);
    assert_true(w[1].ok && w[3].ok);
    assert_int_equal(w[0].n_done + w[2].n_done, 0);
    assert_int_equal(n_compiled(), 1);
    grammar_request_free(r);
    grammar_pool_close(pool);
}

/* When the last one leaves, nothing remains: its tenant may compile as many as before. */
static void who_leaves_gets_nothing(void **state)
{
    (void)state;
    struct grammar_pool *pool = open_pool();
    struct waiter w;
    struct api_error e;
    for (int i = 0; i < 3 * GRAMMAR_MAX_JOBS; i++) {
        char text[32];
        snprintf(text, sizeof text, "y{%d}", i + 1);
        struct grammar_request *r = request(QUIRE_FORM_REGEX, text);
        struct grammar_wait *wait = begin(pool, r, 1, &w, &e);
        assert_non_null(wait);
        grammar_pool_leave(wait);
        assert_int_equal(w.n_done, 0);
        grammar_request_free(r);
    }
    grammar_pool_close(pool);
}

/* Submits one job more of a tenant. status: 0, or of the error. */
static void submit_job(struct grammar_pool *pool, uint32_t tenant, struct waiter *w, struct grammar_wait **wait,
                       int status)
{
    static uint32_t n_jobs;
    char text[32];
    struct api_error e;
    snprintf(text, sizeof text, "t%u{%u}", tenant, ++n_jobs % 500 + 1);
    struct grammar_request *r = request(QUIRE_FORM_REGEX, text);
    *wait = begin(pool, r, tenant, w, &e);
    assert_int_equal(*wait != NULL, status == 0);
    if (status) {
        assert_int_equal(e.status, status);
        assert_int_equal(e.retry_ms, 1000);
    }
    grammar_request_free(r);
}

/* A tenant alone gets three fourths of the jobs, beside others a fourth. */
static void the_queue_is_bounded(void **state)
{
    (void)state;
    enum { SHARE = GRAMMAR_MAX_JOBS / 4 };
    struct grammar_pool *pool = open_pool();
    static struct waiter w[GRAMMAR_MAX_JOBS + 1];
    static struct grammar_wait *waits[GRAMMAR_MAX_JOBS + 1];
    uint32_t n = 0;
    for (uint32_t i = 0; i < SHARE; i++)
        for (uint32_t tenant = 1; tenant <= 3; tenant++, n++)
            submit_job(pool, tenant, &w[n], &waits[n], 0);
    for (uint32_t tenant = 1; tenant <= 3; tenant++)
        submit_job(pool, tenant, &w[n], &waits[n], 429);
    for (uint32_t i = 0; i < SHARE; i++, n++)
        submit_job(pool, 4, &w[n], &waits[n], 0);
    submit_job(pool, 5, &w[n], &waits[n], 503);
    assert_int_equal(n, GRAMMAR_MAX_JOBS);
    assert_int_equal(metrics.grammars.rejected[GRAMMAR_BUSY], 4);
    for (uint32_t i = 0; i < n; i++)
        grammar_pool_leave(waits[i]);
    for (uint32_t i = 0; i < 3 * SHARE; i++)
        submit_job(pool, 1, &w[i], &waits[i], 0);
    submit_job(pool, 1, &w[n], &waits[n], 429);
    for (uint32_t i = 0; i < 3 * SHARE; i++)
        grammar_pool_leave(waits[i]);
    grammar_pool_close(pool);
}

/* A Lark text that takes hours. */
static struct grammar_request *endless(int first)
{
    char text[4096] = "start: A\nA: /a/";
    for (int i = 0; i < 30; i++) {
        const size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, "%s/.*[ab]*a[ab]{%d}c.*/", i ? " & " : " | ", first + i);
    }
    return request(QUIRE_FORM_LARK, text);
}

/* Beyond the limit a compilation holds no thread, a tenant loses two at most, and the pool's end waits for none. */
static void endless_compilations_are_given_up(void **state)
{
    (void)state;
    enum { N = 2 };
    struct grammar_pool *pool = open_pool();
    struct waiter w[N], other;
    struct grammar_request *r[N];
    struct api_error e;
    for (int i = 0; i < N; i++) {
        r[i] = endless(10 + i);
        assert_non_null(begin(pool, r[i], 1, &w[i], &e));
    }
    struct grammar_request *good = request(QUIRE_FORM_REGEX, "other+");
    assert_non_null(begin(pool, good, 2, &other, &e));
    run_until(&other);
    assert_true(other.ok);
    for (int i = 0; i < N; i++) {
        run_until(&w[i]);
        assert_false(w[i].ok);
        assert_non_null(strstr(w[i].text, "longer than 5 s"));
        grammar_request_free(r[i]);
    }
    assert_int_equal(metrics.grammars.rejected[GRAMMAR_TIMED_OUT], N);
    struct quire_grammars_stats stats;
    do {
        event_base_loop(base, EVLOOP_NONBLOCK);
        quire_grammars_stats(grammars, &stats);
    } while (stats.given_up_now < N);
    struct grammar_request *late = request(QUIRE_FORM_REGEX, "late+");
    assert_non_null(begin(pool, late, 1, &other, &e));
    run_until(&other);
    assert_non_null(strstr(other.text, "2 compilations of this key"));
    assert_int_equal(other.status, 503);
    assert_int_equal(other.retry_ms, 1000);
    assert_non_null(begin(pool, late, 2, &other, &e));
    run_until(&other);
    assert_true(other.ok);
    struct grammar_result result; /* known grammars continue to work */
    assert_true(grammar_pool_find(pool, grammars, good, &metrics.grammars, &result) && result.ok);
    struct grammar_request *last = endless(20);
    struct grammar_wait *wait = begin(pool, last, 3, &other, &e);
    assert_non_null(wait);
    usleep(100000); /* a thread has most likely begun it */
    grammar_pool_leave(wait);
    grammar_request_free(last);
    grammar_request_free(late);
    grammar_request_free(good);
    grammar_pool_close(pool);
}

/* The least recently used results make space. */
static void the_cache_is_bounded(void **state)
{
    (void)state;
    struct grammar_cache c;
    struct key256 key = {{0}}, first = {{0}};
    grammar_cache_init(&c);
    grammar_cache_add(&c, &first, QUIRE_OK, "first", 5);
    for (uint32_t i = 1; i < 3 * GRAMMAR_CACHE_ENTRIES; i++) {
        memcpy(key.bytes, &i, sizeof i);
        grammar_cache_add(&c, &key, QUIRE_INVALID, "x", 1);
        const struct grammar_entry *entry = grammar_cache_find(&c, &first); /* used, so it stays */
        assert_true(entry && entry->n == 5 && entry->status == QUIRE_OK);
    }
    assert_int_equal(c.n_entries, GRAMMAR_CACHE_ENTRIES);
    assert_int_equal(c.n_bytes, GRAMMAR_CACHE_ENTRIES - 1 + 5);
    const uint32_t old = 1;
    memset(&key, 0, sizeof key);
    memcpy(key.bytes, &old, sizeof old);
    assert_null(grammar_cache_find(&c, &key));
    char *large = calloc(1, GRAMMAR_CACHE_BYTES);
    assert_non_null(large);
    grammar_cache_add(&c, &key, QUIRE_OK, large, GRAMMAR_CACHE_BYTES);
    assert_int_equal(c.n_entries, 1);
    free(large);
    grammar_cache_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_remembered),  cmocka_unit_test(same_text_is_compiled_once),
        cmocka_unit_test(who_leaves_gets_nothing), cmocka_unit_test(the_queue_is_bounded),
        cmocka_unit_test(the_cache_is_bounded),    cmocka_unit_test(endless_compilations_are_given_up),
    };
    struct quire_text *text;
    struct quire_error err;
    if (quire_hash_init() || quire_text_open(DIRECTORY, &text, &err))
        return 1;
    const uint32_t eos = (uint32_t)quire_text_token_id(text, "<|im_end|>");
    const struct quire_grammars_options options = {.n_vocab = quire_text_n_ids(text), .eos = &eos, .n_eos = 1};
    if (quire_grammars_open(text, &options, &grammars, &err))
        return 1;
    base = event_base_new();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    event_base_free(base);
    quire_grammars_release(grammars);
    quire_text_close(text);
    return failed;
}
