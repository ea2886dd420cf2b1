/* Every committed golden is read whole: its numbers are sane, its config is understood, and its
 * files hold the tensors that the description promises, in their shapes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "../../goldens/golden.h"
#include "engine/model/describe.h"
#include "engine/model/layer.h"
#include "engine/checkpoint/checkpoint.h"

#include <stdio.h>
#include <string.h>

#define MODELS QUIRE_SOURCE_DIR "/tests/goldens/models/"

static const char *const names[] = {"llama2",       "llama3",  "llama_bias", "mistral", "qwen2",     "qwen2_yarn",
                                    "qwen2_window", "qwen3",   "qwen3_f16",  "olmo2",   "olmo2_f32", "smollm3",
                                    "olmo3",        "granite", "gemma",      "gemma2",  "gemma3"};

static void expect_shape(const struct checkpoint *st, const struct model_config *config, const char *name,
                         uint64_t rows, uint64_t cols)
{
    struct checkpoint_tensor t;
    struct quire_error err;
    if (checkpoint_find(st, name, &t, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    assert_int_equal(t.format.kind, config->dtype);
    assert_int_equal(t.n_dims, cols ? 2 : 1);
    assert_int_equal(t.shape[0], rows);
    assert_int_equal(t.shape[1], cols);
}

static void expect_layer(const struct checkpoint *st, const struct model_config *d, uint32_t layer)
{
    const struct model_block *block = &d->layers[layer].blocks[0];
    const struct model_attention *a = &block->attention;
    const struct model_mlp *mlp = &d->layers[layer].blocks[1].mlp;
    const bool head_norm = a->head_norm != HEAD_NORM_NONE, follow = block->place == NORM_POST,
               both = block->place == NORM_BOTH;
    const bool all = a->head_norm == HEAD_NORM_ALL;
    const struct {
        const char *name;
        bool present;
        uint32_t rows, cols;
    } tensors[] = {
        {"input_layernorm.weight", !follow, d->hidden_size, 0},
        {"post_attention_layernorm.weight", true, d->hidden_size, 0},
        {"post_feedforward_layernorm.weight", follow || both, d->hidden_size, 0},
        {"pre_feedforward_layernorm.weight", both, d->hidden_size, 0},
        {"self_attn.q_proj.weight", true, a->n_q_heads * a->k_dim, d->hidden_size},
        {"self_attn.k_proj.weight", true, a->n_kv_heads * a->k_dim, d->hidden_size},
        {"self_attn.v_proj.weight", true, a->n_kv_heads * a->k_dim, d->hidden_size},
        {"self_attn.o_proj.weight", true, d->hidden_size, a->n_q_heads * a->k_dim},
        {"self_attn.q_proj.bias", a->q_bias, a->n_q_heads * a->k_dim, 0},
        {"self_attn.v_proj.bias", a->v_bias, a->n_kv_heads * a->k_dim, 0},
        {"self_attn.o_proj.bias", a->o_bias, d->hidden_size, 0},
        {"self_attn.q_norm.weight", head_norm, (all ? a->n_q_heads : 1) * a->k_dim, 0},
        {"self_attn.k_norm.weight", head_norm, (all ? a->n_kv_heads : 1) * a->k_dim, 0},
        {"mlp.gate_proj.weight", true, mlp->inner_size, d->hidden_size},
        {"mlp.down_proj.weight", true, d->hidden_size, mlp->inner_size},
        {"mlp.down_proj.bias", mlp->bias, d->hidden_size, 0},
    };
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        char name[96];
        struct checkpoint_tensor t;
        snprintf(name, sizeof name, "model.layers.%u.%s", layer, tensors[i].name);
        if (tensors[i].present)
            expect_shape(st, d, name, tensors[i].rows, tensors[i].cols);
        else
            assert_int_equal(checkpoint_find(st, name, &t, NULL), QUIRE_NOT_FOUND);
    }
}

static void files_hold_what_the_description_promises(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char dir[512];
        struct model_config *config;
        struct sampling_defaults sampling;
        struct checkpoint *st;
        struct checkpoint_tensor t;
        struct quire_error err;
        snprintf(dir, sizeof dir, MODELS "%s", names[i]);
        if (model_describe(dir, &config, &sampling, &err) != QUIRE_OK || checkpoint_open(dir, &st, &err) != QUIRE_OK)
            fail_msg("%s: %s", names[i], err.text);
        assert_true(config->dtype_stated);
        assert_int_equal(checkpoint_n_files(st), strcmp(names[i], "llama_bias") == 0 ? 4 : 1);
        expect_shape(st, config, "model.embed_tokens.weight", config->vocab_size, config->hidden_size);
        expect_shape(st, config, "model.norm.weight", config->hidden_size, 0);
        assert_int_equal(checkpoint_find(st, "lm_head.weight", &t, NULL) == QUIRE_NOT_FOUND, config->tied_embeddings);
        for (uint32_t layer = 0; layer < config->n_layers; layer++)
            expect_layer(st, config, layer);
        checkpoint_close(st);
        model_config_free(config);
    }
}

static void check_top(const struct golden *g, const struct golden_top *top, uint32_t vocab)
{
    for (uint32_t i = 0; i < GOLDEN_TOP; i++) {
        assert_true(top->ids[i] < vocab);
        assert_true(top->logprobs[i] < 0.0);
        if (i > 0)
            assert_true(top->logprobs[i] <= top->logprobs[i - 1]);
        if (top->position < g->n_prompt && g->prompt[top->position] == top->ids[i])
            assert_true(g->next_logprob[top->position - 1] == top->logprobs[i]);
        if (top->position == g->n_prompt && i == 0) {
            assert_int_equal(g->greedy[0], top->ids[0]);
            assert_true(g->greedy_logprob[0] == top->logprobs[0]);
        }
    }
}

static void goldens_are_sane(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[512];
        struct golden g;
        struct model_config *config;
        struct sampling_defaults sampling;
        struct quire_error err;
        snprintf(path, sizeof path, MODELS "%s", names[i]);
        assert_int_equal(model_describe(path, &config, &sampling, &err), QUIRE_OK);
        snprintf(path, sizeof path, MODELS "%s/golden.txt", names[i]);
        if (golden_read(path, &g, &err) != QUIRE_OK)
            fail_msg("%s", err.text);
        assert_string_equal(g.name, names[i]);
        assert_true(g.n_prompt + g.n_greedy <= config->max_position);
        assert_int_equal(g.n_greedy, 24);
        assert_true(g.tolerance > 0.0 && g.tolerance <= 0.02);
        assert_true(golden_certain_steps(&g) >= 8);
        for (uint32_t p = 0; p < g.n_prompt; p++)
            assert_true(g.prompt[p] < config->vocab_size);
        for (uint32_t t = 0; t < g.n_tops; t++)
            check_top(&g, &g.tops[t], config->vocab_size);
        assert_int_equal(g.tops[g.n_tops - 1].position, g.n_prompt);
        golden_free(&g);
        model_config_free(config);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_hold_what_the_description_promises),
        cmocka_unit_test(goldens_are_sane),
    };
    return cmocka_run_group_tests_name("engine_goldens", tests, NULL, NULL);
}
