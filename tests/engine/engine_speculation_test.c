/* Speculation end to end: the queried drafters, the counters and the memory. Other tests also check that no bit
 * changes. */
#include "tests/engine/fixtures/step_options.h"
#include "tests/engine/fixtures/client.h"
#include "tests/engine/fixtures/tiny_model.h"

#include "engine/run/speculate.h"
#include "engine/run/state.h"
#include "kernels/planner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_PROMPT 24u
#define N_TOKENS 90u

static struct tiny_model model;

/* ---- memory ---------------------------------------------------------------------------------- */

static bool counting;
static uint64_t n_asked_bytes;

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_malloc(size_t n)
{
    n_asked_bytes += counting ? n : 0;
    return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    n_asked_bytes += counting ? n * size : 0;
    return __real_calloc(n, size);
}

static void memory_is_planned_to_the_byte(void **state)
{
    (void)state;
    static const struct k_planner planner; /* no steps in flight */
    static const char *const configs[] = {"{\"method\":\"none\"}",
                                          "{\"method\":\"ngram\"}",
                                          "{\"method\":\"ngram\",\"prompt_lookup_min\":1,\"prompt_lookup_max\":3}",
                                          "{\"method\":\"suffix\"}",
                                          "{\"method\":\"suffix\",\"suffix_decoding_max_cached_bytes\":1000000}",
                                          "{\"method\":\"suffix\",\"suffix_decoding_max_cached_requests\":0}"};
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++)
        for (uint32_t n_seqs = 1; n_seqs < 300; n_seqs = n_seqs * 5 + 2) {
            struct engine_plan plan = {.planner = &planner,
                                       .max_num_seqs = n_seqs,
                                       .max_model_len = 100 + n_seqs,
                                       .max_num_batched_tokens = 512,
                                       .max_logit_rows = 64 + n_seqs,
                                       .block_tokens = 16,
                                       .n_kv_groups = 1,
                                       .groups = {{.n_blocks = 77}}};
            struct engine e = {.plan = &plan};
            struct engine_options o;
            struct quire_error err;
            engine_options_default(&o);
            o.steps = client_steps();
            assert_int_equal(speculative_config_parse(configs[i], strlen(configs[i]), &o.steps->speculative, &err),
                             QUIRE_OK);
            n_asked_bytes = 0;
            counting = true;
            int status = speculate_create(&e, &o, &err);
            counting = false;
            assert_int_equal(status, QUIRE_OK);
            assert_int_equal(n_asked_bytes, speculate_bytes(&o.steps->speculative, &plan));
            speculate_destroy(e.speculation);
        }
}

/* ---- answers --------------------------------------------------------------------------------- */

static struct engine_options options(const char *speculative)
{
    struct engine_options o = client_small_options(64);
    struct quire_error err;
    if (speculative_config_parse(speculative, strlen(speculative), &o.steps->speculative, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    return o;
}

static struct answer *submit(struct client *c, uint64_t seed, float temperature, uint32_t max_drafts)
{
    uint32_t prompt[N_PROMPT];
    client_random_prompt(prompt, N_PROMPT, TINY_VOCAB, seed);
    struct request_spec r = client_request(prompt, N_PROMPT, N_TOKENS);
    r.temperature = temperature;
    r.has_seed = true;
    r.seed = seed;
    r.ignore_eos = true;
    r.n_logprobs = 1;
    if (max_drafts != UINT32_MAX)
        r.max_drafts = max_drafts;
    return client_submit(c, &r);
}

/* A random model left to itself repeats itself, and n-gram sees that: the same bits in far fewer steps. */
static void ngram_saves_steps(void **state)
{
    (void)state;
    static const char *const configs[] = {"{\"method\":\"none\"}",
                                          "{\"method\":\"ngram\",\"num_speculative_tokens\":8,\"adaptive\":false}"};
    struct answer *answers[2][4];
    struct client *clients[2];
    struct engine_stats stats[2];
    for (int i = 0; i < 2; i++) {
        struct engine_options o = options(configs[i]);
        clients[i] = client_open(model.dir, &o);
        for (uint64_t seed = 0; seed < 4; seed++)
            client_wait(clients[i], answers[i][seed] = submit(clients[i], seed, seed == 3 ? 0.3f : 0, UINT32_MAX));
        stats[i] = client_idle_stats(clients[i]);
    }
    for (int seed = 0; seed < 4; seed++)
        assert_true(answers_equal(answers[0][seed], answers[1][seed]));
    assert_int_equal(stats[0].n_drafts, 0);
    assert_true(stats[1].n_accepted_tokens > 20 && stats[1].n_draft_tokens >= stats[1].n_accepted_tokens);
    assert_int_equal(stats[1].n_steps, stats[0].n_steps - stats[1].n_accepted_tokens);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < ENGINE_MAX_DRAFT; i++) {
        sum += stats[1].accepted_at[i];
        assert_true(i == 0 || stats[1].accepted_at[i] <= stats[1].accepted_at[i - 1]);
    }
    assert_int_equal(sum, stats[1].n_accepted_tokens);
    for (int i = 0; i < 2; i++)
        client_close(clients[i]);
}

/* Asked again, an answer is known from its first token on; to another domain it is not. */
static void suffix_learns_answers(void **state)
{
    (void)state;
    struct engine_options o = options("{\"method\":\"suffix\",\"num_speculative_tokens\":8,\"adaptive\":false}");
    struct client *c = client_open(model.dir, &o);
    struct answer *answers[3];
    uint64_t n_accepted[4] = {0};
    for (int i = 0; i < 3; i++) {
        uint32_t prompt[N_PROMPT];
        client_random_prompt(prompt, N_PROMPT, TINY_VOCAB, 1);
        struct request_spec r = client_request(prompt, N_PROMPT, N_TOKENS);
        r.ignore_eos = true;
        r.temperature = 0.8f;
        r.has_seed = true;
        r.cache_domain.bytes[31] = i == 2;
        client_wait(c, answers[i] = client_submit(c, &r));
        n_accepted[i + 1] = client_idle_stats(c).n_accepted_tokens;
        assert_true(answers_equal(answers[0], answers[i]));
    }
    assert_true(n_accepted[2] - n_accepted[1] >= 60 && n_accepted[1] < 30);
    assert_int_equal(n_accepted[3] - n_accepted[2], n_accepted[1]);
    client_close(c);
}

static void requests_bound_and_forbid_drafts(void **state)
{
    (void)state;
    struct engine_options o = options("{\"method\":\"ngram\",\"adaptive\":false}");
    struct client *c = client_open(model.dir, &o);
    client_wait(c, submit(c, 1, 0, 0));
    assert_int_equal(client_idle_stats(c).n_drafts, 0);
    client_wait(c, submit(c, 1, 0, 2));
    struct engine_stats stats = client_idle_stats(c);
    assert_true(stats.n_drafts > 0 && stats.n_draft_tokens <= 2 * stats.n_drafts);
    assert_int_equal(stats.accepted_at[2], 0);

    struct quire_error err;
    int status = QUIRE_OK;
    struct request_spec r = client_request((const uint32_t[]){1, 2, 3}, 3, 4);
    r.draft_method = DRAFT_SUFFIX;
    assert_null(client_try(c, &r, &status, NULL, &err));
    assert_int_equal(status, QUIRE_INVALID);
    assert_string_equal(err.parameter, "speculative");
    client_close(c);
}

static int set_up(void **state)
{
    (void)state;
    tiny_model_plain(5, &model);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tiny_model_remove(&model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_planned_to_the_byte),
        cmocka_unit_test(ngram_saves_steps),
        cmocka_unit_test(suffix_learns_answers),
        cmocka_unit_test(requests_bound_and_forbid_drafts),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
