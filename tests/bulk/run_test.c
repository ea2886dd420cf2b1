/* Lines as requests: against a server in this process that answers, refuses, cuts and is slow. */
#include "server/bulk/run/run.h"

#include "base/hash.h"
#include "server/gateway/remote/remote.h"
#include "server/http/http.h"
#include "server/http/local_listener.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define COMPLETIONS "/v1/completions"
#define DIGEST 5

/* How the server answers a prompt, by the number in its body. */
enum answer { GOOD, REFUSED, BUSY_ONCE, FAILS_ONCE, CUT_ONCE, NO_JSON, SILENT };

static struct {
    struct event_base *base;
    struct local_listener *listener;
    struct http_server *server;
    struct remote *remote;
    enum answer answers[4096];
    unsigned n_requests[4096], n_all, n_open, n_most;
    char seen_id[64], seen_tenant[64];
    struct http_exchange *silent[16];
    unsigned n_silent, n_gone;
} w;

static char input_path[64], results_path[64];

/* ---- the server ----------------------------------------------------------------------------- */

static void on_gone(void *context)
{
    (void)context;
    w.n_gone++;
}

static void reply(struct http_exchange *x, int status, const char *text)
{
    http_reply(x, status, "application/json", text, strlen(text));
}

static void on_request(void *context, struct http_exchange *x)
{
    size_t n;
    const char *body = http_body(x, &n);
    const unsigned i = (unsigned)atoi(body + strlen("{\"prompt\":\""));
    const bool is_first = w.n_requests[i]++ == 0;
    char text[128];
    (void)context;
    w.n_all++;
    snprintf(w.seen_id, sizeof w.seen_id, "%s", http_header(x, "x-request-id"));
    snprintf(w.seen_tenant, sizeof w.seen_tenant, "%s", http_header(x, "x-quire-tenant"));
    assert_string_equal(http_path(x), COMPLETIONS);
    snprintf(text, sizeof text,
             "{\"answer\":%u,\n\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2,\"cost\":0.00000050,"
             "\"prompt_tokens_details\":{\"cached_tokens\":3}}}",
             i);
    if (w.answers[i] == SILENT) {
        http_on_gone(x, on_gone, NULL);
        w.silent[w.n_silent++] = x;
        return;
    }
    if (w.answers[i] == BUSY_ONCE && is_first) {
        http_add_header(x, "Retry-After", "0.01");
        reply(x, i % 2 ? 429 : 503, "{}");
    } else if (w.answers[i] == FAILS_ONCE && is_first) {
        reply(x, 502, "{}");
    } else if (w.answers[i] == CUT_ONCE && is_first) {
        http_stream_begin(x, 200, "application/json");
        http_cut_off(x);
    } else if (w.answers[i] == REFUSED) {
        reply(x, 400, "{\"error\":{\"message\":\"no\"}}");
    } else if (w.answers[i] == NO_JSON) {
        reply(x, 200, "oh");
    } else {
        reply(x, 200, text);
    }
}

static void on_head(void *context, struct http_exchange *x)
{
    (void)context;
    (void)x;
}

static bool is_urgent(void *context, const struct http_exchange *x)
{
    (void)context;
    (void)x;
    return false;
}

static void on_bad(void *context, struct http_exchange *x, int status, const char *reason)
{
    (void)context;
    reply(x, status, reason);
}

static void on_client(void *context, int fd)
{
    (void)context;
    http_server_adopt(w.server, fd);
}

static int begin_test(void **state)
{
    static const struct http_limits limits = {.max_head_bytes = 8192,
                                              .max_body_bytes = 1 << 20,
                                              .max_all_bodies_bytes = 1 << 24,
                                              .max_pending_bytes = 1 << 20,
                                              .max_connections = 256,
                                              .max_connections_per_address = 256,
                                              .head_timeout_ms = 60000,
                                              .body_timeout_ms = 60000,
                                              .idle_timeout_ms = 60000,
                                              .write_timeout_ms = 60000};
    static const struct http_handler handler = {on_head, is_urgent, on_request, on_bad};
    struct quire_error err;
    (void)state;
    memset(&w, 0, sizeof w);
    unlink(results_path);
    w.base = event_base_new();
    assert_int_equal(http_server_open_private(w.base, &limits, &handler, NULL, &w.server, &err), QUIRE_OK);
    assert_int_equal(local_listener_open(w.base, on_client, NULL, &w.listener, &err), QUIRE_OK);
    assert_int_equal(remote_open(w.base, &w.remote, &err), QUIRE_OK);
    return 0;
}

static int end_test(void **state)
{
    (void)state;
    remote_close(w.remote);
    local_listener_close(w.listener);
    http_server_close(w.server);
    event_base_free(w.base);
    return 0;
}

/* ---- a batch -------------------------------------------------------------------------------- */

struct batch {
    struct bulk_input *input;
    struct bulk_results *results;
    struct bulk_run *run;
    bool is_over;
    unsigned n_results, stops_after; /* stops_after results the loop ends; 0: never */
};

static void on_result(void *context)
{
    struct batch *b = context;
    if (++b->n_results == b->stops_after)
        event_base_loopbreak(w.base);
}

static void on_end(void *context)
{
    struct batch *b = context;
    b->is_over = true;
    event_base_loopbreak(w.base);
}

static void write_lines(unsigned n, const char *further)
{
    FILE *file = fopen(input_path, "w");
    for (unsigned i = 0; i < n; i++)
        fprintf(file,
                "{\"custom_id\":\"c%u\",\"method\":\"POST\",\"url\":\"" COMPLETIONS
                "\",\"body\":{\"prompt\":\"%u\"}}\n",
                i, i);
    fputs(further, file);
    fclose(file);
}

static void open_batch(struct batch *b, struct bulk_run_options o)
{
    static const char *const headers[] = {"x-quire-tenant: team"};
    struct quire_error err = {.text = ""};
    assert_int_equal(bulk_input_open(input_path, BULK_OPENAI, COMPLETIONS, 100000, &b->input, &err), QUIRE_OK);
    assert_int_equal(bulk_results_open(results_path, DIGEST, bulk_input_lines(b->input), &b->results, &err), QUIRE_OK);
    o.base = w.base;
    o.remote = w.remote;
    o.socket = local_listener_name(w.listener);
    o.headers = headers;
    o.n_headers = 1;
    o.id = "batch_7";
    o.input = b->input;
    o.results = b->results;
    o.max_concurrent = o.max_concurrent ? o.max_concurrent : 4;
    o.on_result = on_result;
    o.on_end = on_end;
    o.context = b;
    assert_int_equal(bulk_run_begin(&o, &b->run, &err), QUIRE_OK);
}

static void close_batch(struct batch *b)
{
    bulk_run_free(b->run);
    bulk_results_close(b->results);
    bulk_input_close(b->input);
}

/* The line of the results that contains a text. */
static const char *result_with(struct batch *b, const char *needle)
{
    static char *text;
    size_t n;
    struct quire_error err;
    free(text);
    text = NULL;
    FILE *file = open_memstream(&text, &n);
    assert_int_equal(bulk_results_flush(b->results, &err), QUIRE_OK);
    assert_int_equal(bulk_results_write(b->results, 15, file, &err), QUIRE_OK);
    fclose(file);
    char *found = strstr(text, needle);
    if (!found)
        fail_msg("no %s in %s", needle, text);
    while (found > text && found[-1] != '\n')
        found--;
    *strchr(found, '\n') = '\0';
    return found;
}

static void every_kind_of_reply(void **state)
{
    struct batch b = {0};
    struct bulk_counts counts;
    (void)state;
    static const enum answer answers[] = {GOOD, REFUSED, BUSY_ONCE, BUSY_ONCE, FAILS_ONCE, CUT_ONCE, NO_JSON, GOOD};
    memcpy(w.answers, answers, sizeof answers);
    write_lines(8, "rubbish\n{\"custom_id\":\"c1\",\"method\":\"POST\",\"url\":\"" COMPLETIONS "\",\"body\":{}}\n"
                   "{\"custom_id\":\"late\",\"method\":\"GET\"}\n");
    open_batch(&b, (struct bulk_run_options){.ordered = true});
    event_base_dispatch(w.base);
    assert_true(b.is_over);
    bulk_results_count(b.results, &counts);
    assert_int_equal(counts.n[BULK_SUCCEEDED], 6);
    assert_int_equal(counts.n[BULK_ERRORED], 5);
    assert_int_equal(b.n_results, 11);
    assert_int_equal(counts.input_tokens, 42);
    assert_int_equal(counts.cached_tokens, 18);
    assert_int_equal(counts.output_tokens, 12);
    assert_int_equal(counts.cost, 6 * 500000);
    assert_int_equal(w.n_requests[2] + w.n_requests[3] + w.n_requests[4] + w.n_requests[5], 8);
    assert_string_equal(w.seen_tenant, "team");
    assert_string_equal(
        result_with(&b, "\"c7\""),
        "{\"id\":\"batch_7-8\",\"custom_id\":\"c7\",\"response\":{\"status_code\":200,\"request_id\":"
        "\"batch_7-8\",\"body\":{\"answer\":7, \"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2,\"cost\":0.00000050,"
        "\"prompt_tokens_details\":{\"cached_tokens\":3}}}},\"error\":null}");
    assert_string_equal(result_with(&b, "\"custom_id\":\"c1\",\"response\":{"),
                        "{\"id\":\"batch_7-2\",\"custom_id\":\"c1\",\"response\":{\"status_code\":400,\"request_id\":"
                        "\"batch_7-2\",\"body\":{\"error\":{\"message\":\"no\"}}},\"error\":null}");
    assert_string_equal(result_with(&b, "\"c6\""),
                        "{\"id\":\"batch_7-7\",\"custom_id\":\"c6\",\"response\":null,\"error\":"
                        "{\"code\":\"invalid_reply\",\"message\":\"the reply is not JSON\"}}");
    result_with(&b, "{\"id\":\"batch_7-9\",\"custom_id\":null,\"response\":null,\"error\":{\"code\":\"invalid_line\","
                    "\"message\":\"line 9: the line is not valid JSON");
    result_with(&b,
                "{\"id\":\"batch_7-10\",\"custom_id\":\"c1\",\"response\":null,\"error\":{\"code\":\"invalid_line\","
                "\"message\":\"line 10: custom_id: line 2 has the same\"}}");
    close_batch(&b);
}

/* Ends after some results, as a killed process does, and goes on: no line is asked for twice but those that ran. */
static void a_batch_goes_on(void **state)
{
    struct bulk_counts counts;
    (void)state;
    write_lines(500, "");
    for (unsigned i = 0; i < 4; i++) {
        struct batch b = {.stops_after = i < 3 ? 100 : 0};
        open_batch(&b, (struct bulk_run_options){.max_concurrent = 10});
        assert_int_equal(b.is_over, false);
        event_base_dispatch(w.base);
        assert_int_equal(b.is_over, i == 3);
        bulk_results_count(b.results, &counts);
        assert_int_equal(counts.n_done, i < 3 ? 100 * (i + 1) : 500);
        close_batch(&b);
        if (i == 3)
            break;
        http_server_close(w.server); /* requests of the run before are gone */
        w.server = NULL;
        remote_close(w.remote);
        local_listener_close(w.listener);
        event_base_free(w.base);
        unsigned n[4096];
        memcpy(n, w.n_requests, sizeof n);
        const unsigned n_all = w.n_all;
        char keep[80];
        snprintf(keep, sizeof keep, "%s.keep", results_path);
        rename(results_path, keep);
        begin_test(NULL);
        rename(keep, results_path);
        memcpy(w.n_requests, n, sizeof n);
        w.n_all = n_all;
    }
    assert_true(w.n_all >= 500 && w.n_all <= 500 + 3 * 10);
}

static void at_most_so_many_at_a_time(void **state)
{
    struct batch b = {.stops_after = 20};
    (void)state;
    write_lines(30, "");
    for (unsigned i = 0; i < 10; i++)
        w.answers[20 + i] = SILENT;
    open_batch(&b, (struct bulk_run_options){.max_concurrent = 5});
    event_base_dispatch(w.base); /* ends after 20 good ones */
    while (w.n_silent < 5)
        event_base_loop(w.base, EVLOOP_ONCE);
    assert_int_equal(bulk_run_running(b.run), 5);
    bulk_run_limit(b.run, 2);
    for (unsigned i = 0; i < 2; i++)
        reply(w.silent[i], 200, "{}");
    while (b.n_results < 22)
        event_base_loop(w.base, EVLOOP_ONCE);
    event_base_loop(w.base, EVLOOP_NONBLOCK);
    assert_int_equal(bulk_run_running(b.run), 3); /* none came after */
    bulk_run_limit(b.run, 100); /* at most what it had */
    while (w.n_silent < 7)
        event_base_loop(w.base, EVLOOP_ONCE);
    assert_int_equal(bulk_run_running(b.run), 5);
    /* Cancelled: those that run and the rest have a result, and the server hears of it. */
    bulk_run_end(b.run, BULK_CANCELLED);
    assert_false(b.is_over);
    while (!b.is_over || w.n_gone < 5)
        event_base_loop(w.base, EVLOOP_ONCE);
    struct bulk_counts counts;
    bulk_results_count(b.results, &counts);
    assert_int_equal(counts.n[BULK_SUCCEEDED], 22);
    assert_int_equal(counts.n[BULK_CANCELLED], 8);
    assert_string_equal(result_with(&b, "\"c29\""),
                        "{\"id\":\"batch_7-30\",\"custom_id\":\"c29\",\"response\":null,\"error\":{\"code\":"
                        "\"batch_cancelled\",\"message\":\"the batch was cancelled before this line ran\"}}");
    close_batch(&b);
}

/* 6,000 requests in a minute are one every 10 ms: 20 take 190 ms at least. */
static void a_rate(void **state)
{
    struct batch b = {0};
    struct timespec begun, ended;
    (void)state;
    write_lines(20, "");
    clock_gettime(CLOCK_MONOTONIC, &begun);
    open_batch(&b, (struct bulk_run_options){.per_minute = 6000});
    event_base_dispatch(w.base);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    const double s = (double)(ended.tv_sec - begun.tv_sec) + 1e-9 * (double)(ended.tv_nsec - begun.tv_nsec);
    assert_true(b.is_over && s > 0.185);
    close_batch(&b);
}

/* Lines in Anthropic's dialect have Anthropic's results. */
static void results_of_anthropic(void **state)
{
    struct quire_error err;
    struct batch b = {0};
    (void)state;
    FILE *file = fopen(input_path, "w");
    fputs("{\"custom_id\":\"a\",\"params\":{}}\n{\"custom_id\":\"a\",\"params\":{}}\nwrong\n", file);
    fclose(file);
    assert_int_equal(bulk_input_open(input_path, BULK_ANTHROPIC, NULL, 10, &b.input, &err), QUIRE_OK);
    assert_int_equal(bulk_results_open(results_path, DIGEST, 3, &b.results, &err), QUIRE_OK);
    struct bulk_run_options o = {.base = w.base,
                                 .remote = w.remote,
                                 .socket = local_listener_name(w.listener),
                                 .dialect = BULK_ANTHROPIC,
                                 .id = "b",
                                 .input = b.input,
                                 .results = b.results,
                                 .max_concurrent = 1,
                                 .on_end = on_end,
                                 .context = &b};
    assert_int_equal(bulk_run_begin(&o, &b.run, &err), QUIRE_OK);
    bulk_run_end(b.run, BULK_EXPIRED);
    event_base_dispatch(w.base);
    assert_string_equal(result_with(&b, "\"a\""), "{\"custom_id\":\"a\",\"result\":{\"type\":\"expired\"}}");
    assert_string_equal(result_with(&b, "null"), "{\"custom_id\":null,\"result\":{\"type\":\"expired\"}}");
    close_batch(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_kind_of_reply, begin_test, end_test),
        cmocka_unit_test_setup_teardown(a_batch_goes_on, begin_test, end_test),
        cmocka_unit_test_setup_teardown(at_most_so_many_at_a_time, begin_test, end_test),
        cmocka_unit_test_setup_teardown(a_rate, begin_test, end_test),
        cmocka_unit_test_setup_teardown(results_of_anthropic, begin_test, end_test),
    };
    signal(SIGPIPE, SIG_IGN);
    if (quire_hash_init() != 0)
        return 1;
    snprintf(input_path, sizeof input_path, "/tmp/bulk_run_%d.in", (int)getpid());
    snprintf(results_path, sizeof results_path, "/tmp/bulk_run_%d.db", (int)getpid());
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(input_path);
    unlink(results_path);
    return failed;
}
