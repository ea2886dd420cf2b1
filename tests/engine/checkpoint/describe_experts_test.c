/* config.json of mixtures of experts: defaults of the config classes, and rejections by the field's name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/model/describe.h"
#include "engine/identity/model_identity.h"

#include <string.h>

static struct model_config *config_read; /* the last one */
static struct sampling_defaults sampling;
static struct quire_error err;
static const struct checkpoint_facts facts; /* of no checkpoint */

/* Of the first layer. */
static const struct model_attention *attention(void)
{
    return &config_read->layers[0].blocks[0].attention;
}

static uint32_t window_of(uint32_t layer)
{
    const struct model_desc desc = {.config = config_read, .facts = &facts};
    return model_window(&desc, layer);
}

static struct key256 identity(void)
{
    const struct model_desc desc = {.config = config_read, .facts = &facts};
    return model_identity(&desc);
}

static int describe(const char *config)
{
    err.text[0] = '\0';
    model_config_free(config_read);
    return model_describe_json(config, strlen(config), NULL, 0, &config_read, &sampling, &err);
}

static void must_describe(const char *config)
{
    if (describe(config) != QUIRE_OK)
        fail_msg("%s: %s", config, err.text);
}

#define CONFIG(arch, fields) \
    "{\"architectures\":[\"" arch "\"],\"vocab_size\":100,\"hidden_size\":96,\"intermediate_size\":50," \
    "\"num_hidden_layers\":3,\"num_attention_heads\":6" fields "}"

static const struct model_experts *experts_of(uint32_t layer)
{
    const struct model_block *block = &config_read->layers[layer].blocks[1];
    assert_int_equal(block->kind, BLOCK_EXPERTS);
    return &block->experts;
}

#define MIXTRAL(fields) CONFIG("MixtralForCausalLM", fields)
#define QWEN3_MOE(fields) CONFIG("Qwen3MoeForCausalLM", fields)

static void experts(void **state)
{
    (void)state;
    must_describe(MIXTRAL(",\"num_key_value_heads\":2"));
    assert_int_equal(experts_of(0)->n_experts, 8);
    assert_int_equal(experts_of(2)->n_used, 2);
    assert_int_equal(experts_of(0)->inner_size, 50);
    assert_true(experts_of(0)->normalize);
    assert_true(config_read->ropes[0].theta == 1e6);
    assert_int_equal(window_of(0), 0);
    const struct key256 mixtral = identity();
    must_describe(MIXTRAL(",\"num_key_value_heads\":2,\"num_experts_per_tok\":3"));
    const struct key256 other = identity();
    assert_memory_not_equal(&mixtral, &other, sizeof mixtral);

    must_describe(QWEN3_MOE(",\"num_key_value_heads\":2,\"num_experts\":12,\"num_experts_per_tok\":3,"
                            "\"moe_intermediate_size\":20,\"norm_topk_prob\":true,\"mlp_only_layers\":[1]"));
    assert_int_equal(experts_of(0)->n_experts, 12);
    assert_int_equal(experts_of(0)->inner_size, 20);
    assert_true(experts_of(2)->normalize);
    assert_int_equal(config_read->layers[1].blocks[1].kind, BLOCK_MLP);
    must_describe(CONFIG("Qwen2MoeForCausalLM", ",\"num_key_value_heads\":2,\"decoder_sparse_step\":2"));
    assert_int_equal(config_read->layers[0].blocks[1].kind, BLOCK_MLP);
    assert_int_equal(experts_of(1)->shared_size, 5632);
    assert_true(attention()->q_bias && !attention()->o_bias);
}

#define YARN \
    ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":32,\"truncate\":false," \
    "\"original_max_position_embeddings\":4096}"
#define GPT_OSS(fields) CONFIG("GptOssForCausalLM", ",\"num_key_value_heads\":2" fields)
#define GLM4(fields) CONFIG("Glm4MoeForCausalLM", ",\"num_key_value_heads\":2,\"head_dim\":32" fields)

static void gpt_oss(void **state)
{
    (void)state;
    must_describe(GPT_OSS(YARN));
    assert_int_equal(experts_of(0)->n_experts, 128);
    assert_int_equal(experts_of(0)->n_used, 4);
    assert_int_equal(experts_of(0)->inner_size, 50);
    assert_int_equal(experts_of(0)->router, ROUTER_TOP_SOFTMAX);
    assert_false(experts_of(0)->normalize);
    assert_true(experts_of(0)->limit == 7);
    assert_true(attention()->sinks && attention()->q_bias && attention()->v_bias && attention()->o_bias);
    assert_int_equal(window_of(0), 128);
    assert_int_equal(window_of(1), 0);
    assert_int_equal(window_of(2), 128);
    assert_true(config_read->ropes[0].theta == 150000.0 && !config_read->ropes[0].truncate);
    assert_int_equal(config_read->max_position, 131072);
    const struct key256 plain = identity();
    must_describe(GPT_OSS(YARN ",\"swiglu_limit\":6.5"));
    assert_true(experts_of(0)->limit == 6.5f);
    const struct key256 other = identity();
    assert_memory_not_equal(&plain, &other, sizeof plain);
    must_describe(GPT_OSS(YARN ",\"attention_bias\":false,\"sliding_window\":null"));
    assert_false(attention()->q_bias || attention()->o_bias);
    assert_int_equal(window_of(0), 0);
}

static void granite_experts(void **state)
{
    (void)state;
    must_describe(CONFIG("GraniteMoeForCausalLM", ",\"num_local_experts\":4,\"residual_multiplier\":0.5"));
    assert_int_equal(experts_of(0)->router, ROUTER_TOP_SOFTMAX);
    assert_int_equal(experts_of(0)->names, EXPERTS_LINEAR);
    assert_int_equal(experts_of(0)->shared_size, 0);
    assert_true(config_read->factors.residual == 0.5f && attention()->scale == 1);
    must_describe(CONFIG("GraniteMoeSharedForCausalLM", ",\"shared_intermediate_size\":48"));
    assert_int_equal(experts_of(0)->shared_size, 48);
    assert_false(experts_of(0)->shared_gate);
}

static void glm4(void **state)
{
    (void)state;
    must_describe(GLM4(",\"n_routed_experts\":12,\"num_experts_per_tok\":3,\"n_group\":4,\"topk_group\":2,"
                       "\"moe_intermediate_size\":20,\"n_shared_experts\":2,\"routed_scaling_factor\":2.5"));
    assert_int_equal(config_read->layers[0].blocks[1].kind, BLOCK_MLP);
    assert_int_equal(experts_of(1)->router, ROUTER_SIGMOID);
    assert_int_equal(experts_of(1)->n_groups, 4);
    assert_int_equal(experts_of(1)->n_groups_used, 2);
    assert_int_equal(experts_of(1)->shared_size, 40);
    assert_true(experts_of(1)->normalize && experts_of(1)->scale == 2.5f && !experts_of(1)->shared_gate);
    assert_int_equal(attention()->head_norm, HEAD_NORM_NONE);
    assert_int_equal(config_read->ropes[0].dim, 16);
    must_describe(GLM4(",\"use_qk_norm\":true,\"attention_bias\":true,\"first_k_dense_replace\":0,"
                       "\"rope_parameters\":{\"rope_type\":\"default\",\"partial_rotary_factor\":1.0}"));
    assert_int_equal(attention()->head_norm, HEAD_NORM_EACH);
    assert_true(attention()->v_bias && !attention()->o_bias);
    assert_int_equal(config_read->ropes[0].dim, 32);
    assert_int_equal(experts_of(0)->inner_size, 1408);
}

static void bad_experts(void **state)
{
    (void)state;
    static const struct {
        const char *config, *says;
    } bad[] = {
        {MIXTRAL(",\"num_key_value_heads\":2,\"num_experts_per_tok\":0"), "num_experts_per_tok"},
        {MIXTRAL(",\"num_key_value_heads\":2,\"num_experts_per_tok\":9"), "num_experts_per_tok: is 9, but there are 8"},
        {MIXTRAL(",\"num_key_value_heads\":2,\"num_local_experts\":0"), "num_local_experts"},
        {MIXTRAL(",\"num_key_value_heads\":2,\"num_local_experts\":4096"), "num_local_experts"},
        {MIXTRAL(",\"num_key_value_heads\":2,\"num_experts\":4,\"num_local_experts\":5"), "num_experts: is 4, but"},
        {QWEN3_MOE(",\"num_key_value_heads\":2,\"mlp_only_layers\":[3]"), "mlp_only_layers"},
        {QWEN3_MOE(",\"num_key_value_heads\":2,\"decoder_sparse_step\":0"), "decoder_sparse_step"},
        {QWEN3_MOE(",\"num_key_value_heads\":2,\"use_sliding_window\":true"), "use_sliding_window"},
        {CONFIG("OlmoeForCausalLM", ",\"clip_qkv\":8.0"), "clip_qkv"},
        {GPT_OSS(YARN ",\"num_experts_per_tok\":0"), "num_experts_per_tok"},
        {GPT_OSS(YARN ",\"num_local_experts\":3"), "num_experts_per_tok: is 4, but there are 3 experts"},
        {GPT_OSS(YARN ",\"layer_types\":[\"full_attention\"]"),
         "layer_types: has 1 entries, but num_hidden_layers is 3"},
        {GPT_OSS(YARN ",\"sliding_window\":null,\"layer_types\":[\"sliding_attention\",\"full_attention\","
                      "\"full_attention\"]"),
         "layer_types: layer 0 is sliding_attention"},
        {GPT_OSS(YARN ",\"swiglu_alpha\":1.5"), "swiglu_alpha: 1.5 is not supported"},
        {GPT_OSS(YARN ",\"swiglu_limit\":0"), "swiglu_limit"},
        {GPT_OSS(""), "rope_parameters: is missing"},
        {GLM4(",\"n_group\":3"), "n_group: 128 experts cannot be 3 groups"},
        {GLM4(",\"n_group\":128"), "n_group: 128 experts cannot be 128 groups"},
        {GLM4(",\"n_group\":16,\"topk_group\":17"), "topk_group"},
        {GLM4(",\"n_group\":64,\"topk_group\":2"), "topk_group: 2 of 64 groups of 2 experts do not hold the 8"},
        {GLM4(",\"first_k_dense_replace\":4"), "first_k_dense_replace"},
        {GLM4(",\"n_shared_experts\":1024,\"moe_intermediate_size\":20000"), "n_shared_experts"},
        {"{\"architectures\":[\"Qwen3MoeForCausalLM\"],\"vocab_size\":100,\"hidden_size\":1048576,"
         "\"intermediate_size\":50,\"moe_intermediate_size\":16777216,\"num_hidden_layers\":256,"
         "\"num_attention_heads\":4096,\"num_experts\":1024}",
         "more than any memory holds"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_not_equal(describe(bad[i].config), QUIRE_OK);
        if (!strstr(err.text, bad[i].says))
            fail_msg("%s: %s", bad[i].says, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts), cmocka_unit_test(gpt_oss),     cmocka_unit_test(granite_experts),
        cmocka_unit_test(glm4),    cmocka_unit_test(bad_experts),
    };
    const int n_failed = cmocka_run_group_tests_name("engine_describe_experts", tests, NULL, NULL);
    model_config_free(config_read);
    return n_failed;
}
