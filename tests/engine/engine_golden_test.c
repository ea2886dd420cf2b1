/* The whole engine against transformers in fp32, for every model of tests/goldens/: logprobs of the
 * prompt, the best twenty at chosen positions, and the greedy continuation.
 *
 * Lane form: within the golden's own tolerance (twice the error of a naive computation in the same
 * dtypes). Tile and mma form: within the goal that docs/numerics.md §15 sets, 0.02 nats. (The tile form of
 * bf16 activations misses it, and is not the default anywhere.) */
#include "client.h"
#include "tests/goldens/golden.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CAP 0.02
#define MODELS QUIRE_SOURCE_DIR "/tests/goldens/models/"

static void check_near(const char *what, uint32_t position, uint32_t token, double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance))
        fail_msg("%s of token %u at position %u: %.6f, transformers has %.6f (tolerance %.2g)", what, token, position,
                 got, want, tolerance);
}

/* Every one of transformers' best is in ours with its logprob, or ties with our last. */
static void check_top(const struct golden_top *want, const struct recorded *got, double tolerance)
{
    for (uint32_t i = 0; i < GOLDEN_TOP; i++) {
        uint32_t j = 0;
        while (j < got->n_top && got->ids[j] != want->ids[i])
            j++;
        if (j < got->n_top)
            check_near("logprob", want->position, want->ids[i], got->logprobs[j], want->logprobs[i], tolerance);
        else
            check_near("logprob missing from the best, last", want->position, want->ids[i],
                       got->logprobs[got->n_top - 1], want->logprobs[i], tolerance);
    }
}

static void check_answer(const struct golden *g, const struct answer *a, double tolerance)
{
    const struct choice_answer *c = &a->choices[0];
    assert_int_equal(a->n_prompt_logprobs, g->n_prompt - 1);
    for (uint32_t p = 1; p < g->n_prompt; p++)
        check_near("prompt logprob", p, g->prompt[p], a->prompt_logprobs[p], g->next_logprob[p - 1], tolerance);
    for (uint32_t i = 0; i < g->n_tops; i++) {
        uint32_t p = g->tops[i].position;
        struct recorded got = p < g->n_prompt ? record_entry(&a->prompt_record, p - 1, GOLDEN_TOP)
                                              : record_entry(&c->record, p - g->n_prompt, GOLDEN_TOP);
        assert_int_equal(got.position, p);
        check_top(&g->tops[i], &got, tolerance);
    }
    assert_int_equal(c->n_tokens, g->n_greedy);
    for (uint32_t i = 0; i < g->n_greedy && g->greedy_margin[i] > tolerance; i++) {
        assert_int_equal(c->tokens[i], g->greedy[i]);
        check_near("greedy logprob", g->n_prompt + i, c->tokens[i], c->logprobs[i], g->greedy_logprob[i], tolerance);
    }
}

static void check_model(const char *name, const char *form)
{
    char path[512], dir[512];
    struct golden g;
    struct quire_error err;
    snprintf(dir, sizeof dir, MODELS "%s", name);
    snprintf(path, sizeof path, MODELS "%s/golden.txt", name);
    if (golden_read(path, &g, &err) != QUIRE_OK)
        fail_msg("%s", err.text);

    struct engine_options options;
    engine_options_default(&options);
    options.n_threads = 1;
    options.num_kv_blocks = 100;
    options.max_num_batched_tokens = 64;
    options.gemm_form = form;
    const char *invariance = getenv("TEST_INVARIANCE");
    if (invariance)
        options.invariance = invariance;
    struct client *c = client_open(dir, &options);
    bool is_off = invariance && strcmp(invariance, "off") == 0;
    assert_int_equal(engine_info(client_engine(c))->gemm_library != NULL, is_off && strcmp(form, "mma") == 0);
    struct request_spec r = client_request(g.prompt, g.n_prompt, g.n_greedy);
    r.n_logprobs = r.n_prompt_logprobs = GOLDEN_TOP;
    r.ignore_eos = true;
    assert_true(g.tolerance <= CAP);
    check_answer(&g, client_ask(c, &r), strcmp(form, "lane") != 0 ? CAP : g.tolerance);
    client_close(c);
    golden_free(&g);
}

#define LANE(model) \
    static void lane_##model(void **state) \
    { \
        (void)state; \
        check_model(#model, "lane"); \
    }
#define TILE(model) \
    static void tile_##model(void **state) \
    { \
        (void)state; \
        check_model(#model, "tile"); \
    }
#define MMA(model) \
    static void mma_##model(void **state) \
    { \
        (void)state; \
        check_model(#model, "mma"); \
    }
LANE(llama2)
LANE(llama3)
LANE(llama_bias)
LANE(mistral)
LANE(qwen2)
LANE(qwen2_yarn)
LANE(qwen2_window)
LANE(qwen3)
LANE(qwen3_f16)
LANE(olmo2)
LANE(olmo2_f32)
#ifdef TEST_DEVICE
MMA(llama2)
MMA(llama3)
MMA(mistral)
MMA(qwen2_yarn)
MMA(qwen2_window)
MMA(qwen3)
MMA(qwen3_f16)
MMA(olmo2)
#else
TILE(llama3)
TILE(qwen2_window)
TILE(qwen3)
TILE(qwen3_f16)
TILE(olmo2)
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lane_llama2),       cmocka_unit_test(lane_llama3),      cmocka_unit_test(lane_llama_bias),
        cmocka_unit_test(lane_mistral),      cmocka_unit_test(lane_qwen2),       cmocka_unit_test(lane_qwen2_yarn),
        cmocka_unit_test(lane_qwen2_window), cmocka_unit_test(lane_qwen3),       cmocka_unit_test(lane_qwen3_f16),
        cmocka_unit_test(lane_olmo2),        cmocka_unit_test(lane_olmo2_f32),
#ifdef TEST_DEVICE
        cmocka_unit_test(mma_llama2),        cmocka_unit_test(mma_llama3),       cmocka_unit_test(mma_mistral),
        cmocka_unit_test(mma_qwen2_yarn),    cmocka_unit_test(mma_qwen2_window), cmocka_unit_test(mma_qwen3),
        cmocka_unit_test(mma_qwen3_f16),     cmocka_unit_test(mma_olmo2),
#else
        cmocka_unit_test(tile_llama3),       cmocka_unit_test(tile_qwen2_window), cmocka_unit_test(tile_qwen3),
        cmocka_unit_test(tile_qwen3_f16),    cmocka_unit_test(tile_olmo2),
#endif
    };
#ifdef TEST_DEVICE
    const struct CMUnitTest off[] = {
                                      /* a model of each 16-bit dtype: an emulator is slow */
        cmocka_unit_test(mma_llama3),
        cmocka_unit_test(mma_qwen3_f16),
    };
    if (getenv("TEST_INVARIANCE"))
        return cmocka_run_group_tests(off, NULL, NULL);
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
