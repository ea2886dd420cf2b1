/* Ranks that divide a mixture of experts give the bits of one rank: by columns of each expert or by whole experts, in
 * stages, and in formats whose blocks end within a rank's columns, so that each rank computes all of them. */
#include "engine/engine.h"
#include "tests/engine/fixtures/client.h"
#include "tests/engine/fixtures/tiny_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_PROMPT 40u
#define N_EXPERTS 5u /* which two ranks do not divide evenly */
#define N_WORDS 96u /* no model here has fewer */

static struct tiny_model model;
static uint32_t prompt[N_PROMPT];

static int set_up(void **state)
{
    (void)state;
    tiny_model_write(&(struct tiny_spec){.seed = 5, .nan_token = -1, .prefix = "model.", .n_experts = N_EXPERTS},
                     &model);
    client_random_prompt(prompt, N_PROMPT, N_WORDS, 3);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tiny_model_remove(&model);
    return 0;
}

struct shape {
    const char *dir; /* NULL: the tiny model */
    uint32_t n_places, n_stages;
    bool whole_experts;
    const char *quantization, *activations; /* NULL: the default */
};

static struct client *open_shape(const struct shape *s)
{
    struct engine_options o;
    engine_options_default(&o);
    o.n_threads = 1;
    o.num_kv_blocks = 64;
    o.max_num_batched_tokens = 16; /* the prompt in chunks, and 32 choices in a sum over ranks */
    o.tensor_parallel_size = s->n_places;
    o.pipeline_parallel_size = s->n_stages;
    o.enable_expert_parallel = s->whole_experts;
    o.quantization = s->quantization;
    o.activation_dtype = s->activations;
    return client_open(s->dir ? s->dir : model.dir, &o);
}

static const struct answer *ask(struct client *c)
{
    struct request_spec r = client_request(prompt, N_PROMPT, 12);
    r.ignore_eos = true;
    r.n_logprobs = r.n_prompt_logprobs = 5;
    return client_ask(c, &r);
}

static void check_format(const char *quantization, const char *activations)
{
    const struct shape one = {NULL, 1, 1, false, quantization, activations};
    const struct shape shapes[] = {{NULL, 2, 1, false, quantization, activations},
                                   {NULL, 2, 1, true, quantization, activations},
                                   {NULL, 1, 2, false, quantization, activations},
                                   {NULL, 2, 2, true, quantization, activations}};
    struct client *alone = open_shape(&one);
    const struct answer *want = ask(alone);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct client *c = open_shape(&shapes[i]);
        assert_true(answers_equal(ask(c), want));
        client_close(c);
    }
    client_close(alone);
}

static void plain(void **state)
{
    (void)state;
    check_format(NULL, NULL);
}

static void blocks_that_ranks_cannot_divide(void **state)
{
    (void)state;
    check_format("int8", NULL);
    check_format("int8", "float32");
}

/* Shared experts, corrections and groups by columns, too; biases of experts, sinks and MXFP4 with whole experts alone. */
static void families(void **state)
{
    static const char goldens[] = QUIRE_SOURCE_DIR "/tests/goldens/";
    static const struct {
        const char *model;
        bool has_columns;
    } all[] = {{"models/gpt_oss", false},
               {"quantized/mxfp4", false},
               {"models/glm4_moe", true},
               {"models/granite_moe_shared", true}};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char dir[512];
        snprintf(dir, sizeof dir, "%s%s", goldens, all[i].model);
        struct client *alone = open_shape(&(struct shape){dir, 1, 1, false, NULL, NULL});
        const struct answer *want = ask(alone);
        for (uint32_t whole = !all[i].has_columns; whole < 2; whole++) {
            struct client *c = open_shape(&(struct shape){dir, 2, 1, whole == 1, NULL, NULL});
            if (!answers_equal(ask(c), want))
                fail_msg("%s: two ranks %s give other bits", all[i].model, whole ? "of whole experts" : "of columns");
            client_close(c);
        }
        client_close(alone);
    }
}

/* Two of five experts for each token of a prompt in two layers, but in the last one for the token alone whose logits
 * are wanted. A rank counts the choices whose experts others hold, too, but not those of other stages. */
static void the_load_is_counted(void **state)
{
    const struct shape shapes[] = {
        {NULL, 1, 1, false, NULL, NULL}, {NULL, 2, 1, true, NULL, NULL}, {NULL, 1, 2, false, NULL, NULL}};
    const uint64_t counted[] = {2 * (N_PROMPT + 1), 2 * (N_PROMPT + 1), 2 * N_PROMPT};
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct client *c = open_shape(&shapes[i]);
        const struct request_spec r = client_request(prompt, N_PROMPT, 1);
        client_ask(c, &r);
        const struct engine_stats stats = client_idle_stats(c);
        uint64_t sum = 0;
        for (uint32_t e = 0; e < stats.n_experts; e++)
            sum += stats.expert_tokens[e];
        assert_int_equal(stats.n_experts, N_EXPERTS);
        assert_int_equal(sum, counted[i]);
        assert_true(stats.expert_imbalance >= 1 && stats.expert_imbalance <= 2.5);
        client_close(c);
    }
}

int main(void)
{
    if (engine_is_rank())
        return rank_main();
    const struct CMUnitTest tests[] = {cmocka_unit_test(plain), cmocka_unit_test(blocks_that_ranks_cannot_divide),
                                       cmocka_unit_test(families), cmocka_unit_test(the_load_is_counted)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
