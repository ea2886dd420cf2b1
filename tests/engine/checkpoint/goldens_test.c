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

static const char *const names[] = {"llama2",       "llama3", "llama_bias", "mistral", "qwen2",    "qwen2_yarn",
                                    "qwen2_window", "qwen3",  "qwen3_f16",  "olmo2",   "olmo2_f32"};

static void expect_shape(const struct checkpoint *st, const struct model_desc *desc, const char *name, uint64_t rows,
                         uint64_t cols)
{
    struct checkpoint_tensor t;
    struct quire_error err;
    if (checkpoint_find(st, name, &t, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    assert_int_equal(t.format.kind, desc->dtype);
    assert_int_equal(t.n_dims, cols ? 2 : 1);
    assert_int_equal(t.shape[0], rows);
    assert_int_equal(t.shape[1], cols);
}

static void expect_layer(const struct checkpoint *st, const struct model_desc *d, uint32_t layer)
{
    const struct model_block *attention = model_block_of(d, layer, BLOCK_ATTENTION);
    const bool head_norm = attention->head_norm != HEAD_NORM_NONE, follow = attention->place == NORM_POST;
    const bool all = attention->head_norm == HEAD_NORM_ALL;
    const struct {
        const char *name;
        bool present;
        uint32_t rows, cols;
    } tensors[] = {
        {"input_layernorm.weight", !follow, d->hidden_size, 0},
        {"post_attention_layernorm.weight", true, d->hidden_size, 0},
        {"post_feedforward_layernorm.weight", follow, d->hidden_size, 0},
        {"self_attn.q_proj.weight", true, d->n_q_heads * d->head_dim, d->hidden_size},
        {"self_attn.k_proj.weight", true, d->n_kv_heads * d->head_dim, d->hidden_size},
        {"self_attn.v_proj.weight", true, d->n_kv_heads * d->head_dim, d->hidden_size},
        {"self_attn.o_proj.weight", true, d->hidden_size, d->n_q_heads * d->head_dim},
        {"self_attn.q_proj.bias", d->q_bias, d->n_q_heads * d->head_dim, 0},
        {"self_attn.v_proj.bias", d->v_bias, d->n_kv_heads * d->head_dim, 0},
        {"self_attn.o_proj.bias", d->o_bias, d->hidden_size, 0},
        {"self_attn.q_norm.weight", head_norm, (all ? d->n_q_heads : 1) * d->head_dim, 0},
        {"self_attn.k_norm.weight", head_norm, (all ? d->n_kv_heads : 1) * d->head_dim, 0},
        {"mlp.gate_proj.weight", true, d->intermediate_size, d->hidden_size},
        {"mlp.down_proj.weight", true, d->hidden_size, d->intermediate_size},
        {"mlp.down_proj.bias", d->mlp_bias, d->hidden_size, 0},
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
        struct model_desc desc;
        struct sampling_defaults sampling;
        struct checkpoint *st;
        struct checkpoint_tensor t;
        struct quire_error err;
        snprintf(dir, sizeof dir, MODELS "%s", names[i]);
        if (model_describe(dir, &desc, &sampling, &err) != QUIRE_OK || checkpoint_open(dir, &st, &err) != QUIRE_OK)
            fail_msg("%s: %s", names[i], err.text);
        assert_true(desc.dtype_stated);
        assert_int_equal(checkpoint_n_files(st), strcmp(names[i], "llama_bias") == 0 ? 4 : 1);
        expect_shape(st, &desc, "model.embed_tokens.weight", desc.vocab_size, desc.hidden_size);
        expect_shape(st, &desc, "model.norm.weight", desc.hidden_size, 0);
        assert_int_equal(checkpoint_find(st, "lm_head.weight", &t, NULL) == QUIRE_NOT_FOUND, desc.tied_embeddings);
        for (uint32_t layer = 0; layer < desc.n_layers; layer++)
            expect_layer(st, &desc, layer);
        checkpoint_close(st);
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
        struct model_desc desc;
        struct sampling_defaults sampling;
        struct quire_error err;
        snprintf(path, sizeof path, MODELS "%s", names[i]);
        assert_int_equal(model_describe(path, &desc, &sampling, &err), QUIRE_OK);
        snprintf(path, sizeof path, MODELS "%s/golden.txt", names[i]);
        if (golden_read(path, &g, &err) != QUIRE_OK)
            fail_msg("%s", err.text);
        assert_string_equal(g.name, names[i]);
        assert_true(g.n_prompt + g.n_greedy <= desc.max_position);
        assert_int_equal(g.n_greedy, 24);
        assert_true(g.tolerance > 0.0 && g.tolerance <= 0.02);
        assert_true(golden_certain_steps(&g) >= 8);
        for (uint32_t p = 0; p < g.n_prompt; p++)
            assert_true(g.prompt[p] < desc.vocab_size);
        for (uint32_t t = 0; t < g.n_tops; t++)
            check_top(&g, &g.tops[t], desc.vocab_size);
        assert_int_equal(g.tops[g.n_tops - 1].position, g.n_prompt);
        golden_free(&g);
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
