/* The log's line while an engine is busy: its contents, and when it is absent. */
#include "base/log.h"
#include "engine/stats.h"
#include "app/watch/log_stats.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define EVERY_MS 20u

/* These numbers are the engine of this test. */
static struct engine_stats engine;

void engine_stats(const struct engine *e, struct engine_stats *out)
{
    (void)e;
    *out = engine;
}

/* The log lines of n ticks; the base has no other event. */
static char *during(struct event_base *base, unsigned n_ticks, char *out, size_t n_out)
{
    FILE *file = tmpfile();
    int kept = dup(STDERR_FILENO);
    assert_non_null(file);
    dup2(fileno(file), STDERR_FILENO);
    for (unsigned i = 0; i < n_ticks; i++)
        event_base_loop(base, EVLOOP_ONCE);
    dup2(kept, STDERR_FILENO);
    close(kept);
    rewind(file);
    out[fread(out, 1, n_out - 1, file)] = 0;
    fclose(file);
    return out;
}

static unsigned n_lines(const char *text)
{
    unsigned n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

static void it_speaks_while_there_is_traffic(void **state)
{
    struct event_base *base = event_base_new();
    struct log_stats *stats;
    char text[4096];
    (void)state;
    engine = (struct engine_stats){.n_prompt_tokens = 1000, .n_generation_tokens = 1000};
    assert_int_equal(log_stats_begin(base, NULL, EVERY_MS, &stats, NULL), QUIRE_OK);
    assert_string_equal(during(base, 2, text, sizeof text), "");

    engine.n_running = 3;
    engine.n_waiting = 7;
    engine.n_prompt_tokens += 4000;
    engine.n_generation_tokens += 200;
    engine.kv_usage = 0.125;
    engine.n_prefix_queries = 4000;
    engine.n_prefix_hits = 1000;
    usleep(100000); /* so that the next tick is of at least this time */
    during(base, 1, text, sizeof text);
    assert_int_equal(n_lines(text), 1);
    assert_non_null(strstr(text, " info  engine: running 3, waiting 7; prompt "));
    assert_non_null(strstr(text, "KV cache 12.5% used, prefix cache hit rate 25.0%\n"));
    double prompt, generation;
    assert_int_equal(
        sscanf(strstr(text, "prompt "), "prompt %lf tokens/s, generation %lf tokens/s", &prompt, &generation), 2);
    assert_true(prompt > 4000 / 200.0 && prompt <= 4000 / 0.1 && generation / prompt > 0.049 &&
                generation / prompt < 0.051);

    /* One more line at the end, and then silence. */
    engine.n_running = engine.n_waiting = 0;
    engine.kv_usage = 0;
    during(base, 3, text, sizeof text);
    assert_int_equal(n_lines(text), 1);
    assert_non_null(strstr(text,
                           "running 0, waiting 0; prompt 0.0 tokens/s, generation 0.0 tokens/s; KV cache 0.0% used, "
                           "prefix cache hit rate 25.0%"));
    assert_string_equal(during(base, 2, text, sizeof text), "");

    /* The hit rate covers the requests since the last line. */
    engine.n_steps++;
    engine.n_prefix_queries += 100;
    engine.n_prefix_hits += 90;
    assert_non_null(strstr(during(base, 1, text, sizeof text), "hit rate 90.0%\n"));

    /* Of 100 tokens, 60 came from 80 drafts: 40 steps of the sequences. */
    engine.n_generation_tokens += 100;
    engine.n_draft_tokens += 80;
    engine.n_accepted_tokens += 60;
    assert_non_null(
        strstr(during(base, 1, text, sizeof text), "hit rate 26.6%; drafts 75.0% accepted, 2.50 tokens per step\n"));
    log_stats_end(stats);
    event_base_free(base);
}

static void as_json_it_has_fields(void **state)
{
    struct event_base *base = event_base_new();
    struct log_stats *stats;
    char text[4096];
    (void)state;
    quire_log_set_format(QUIRE_LOG_AS_JSON);
    engine = (struct engine_stats){.n_running = 2, .kv_usage = 0.5};
    assert_int_equal(log_stats_begin(base, NULL, EVERY_MS, &stats, NULL), QUIRE_OK);
    during(base, 1, text, sizeof text);
    assert_non_null(strstr(text, "\"running\":2,\"waiting\":0,\"prompt_tokens_per_s\":0,\"generation_tokens_per_s\":0,"
                                 "\"kv_cache_usage\":0.5,\"prefix_cache_hit_rate\":0,\"msg\":\"running 2, "));
    engine.n_generation_tokens = engine.n_draft_tokens = 8;
    engine.n_accepted_tokens = 2;
    during(base, 1, text, sizeof text);
    assert_non_null(strstr(text, "\"draft_acceptance_rate\":0.25,\"tokens_a_step\":1.333,\"msg\":"));
    quire_log_set_format(QUIRE_LOG_AS_TEXT);
    log_stats_end(stats);
    event_base_free(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_speaks_while_there_is_traffic),
        cmocka_unit_test(as_json_it_has_fields),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
