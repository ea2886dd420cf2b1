/* config.json and generation_config.json: both layouts, every default of the config classes, and rejections of
 * unsupported models with a line that names the file and the field. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/model/describe.h"
#include "engine/identity/model_identity.h"
#include "engine/model/share.h"
#include "scratch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct model_config *config_read; /* the last one */
static struct sampling_defaults sampling;
static struct quire_error err;
static const struct checkpoint_facts facts; /* of no checkpoint */

/* Of the first layer. */
static const struct model_attention *attention(void)
{
    return &config_read->layers[0].blocks[0].attention;
}

static const struct model_mlp *mlp(void)
{
    return &config_read->layers[0].blocks[1].mlp;
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

static int describe_both(const char *config, const char *generation)
{
    err.text[0] = '\0';
    model_config_free(config_read);
    return model_describe_json(config, strlen(config), generation, generation ? strlen(generation) : 0, &config_read,
                               &sampling, &err);
}

static void must_describe(const char *config)
{
    if (describe_both(config, NULL) != QUIRE_OK)
        fail_msg("%s: %s", config, err.text);
}

#define SIZES \
    "\"vocab_size\":100,\"hidden_size\":96,\"intermediate_size\":50," \
    "\"num_hidden_layers\":3,\"num_attention_heads\":6"
#define CONFIG(arch, fields) "{\"architectures\":[\"" arch "\"]," SIZES fields "}"
#define LLAMA(fields) CONFIG("LlamaForCausalLM", fields)
#define MISTRAL(fields) CONFIG("MistralForCausalLM", fields)
#define QWEN2(fields) CONFIG("Qwen2ForCausalLM", fields)
#define QWEN3(fields) CONFIG("Qwen3ForCausalLM", fields)
#define OLMO2(fields) CONFIG("Olmo2ForCausalLM", fields)
#define OLMO3(fields) CONFIG("Olmo3ForCausalLM", fields)
#define SMOLLM3(fields) CONFIG("SmolLM3ForCausalLM", ",\"num_key_value_heads\":2" fields)
#define PHI3(fields) CONFIG("Phi3ForCausalLM", fields)
#define LONG(scaling, more) \
    PHI3(",\"original_max_position_embeddings\":64,\"max_position_embeddings\":512," \
         "\"rope_scaling\":{\"type\":\"longrope\"," scaling "}" more)
#define EIGHT(x) "[" x "," x "," x "," x "," x "," x "," x "," x "]"
#define GRANITE(fields) CONFIG("GraniteForCausalLM", fields)
#define GEMMA2(fields) CONFIG("Gemma2ForCausalLM", ",\"num_key_value_heads\":2" fields)
#define GEMMA3(fields) CONFIG("Gemma3ForCausalLM", ",\"num_key_value_heads\":2" fields)

static void llama_defaults(void **state)
{
    (void)state;
    must_describe(LLAMA(",\"is_causal\":true,\"use_bidirectional_attention\":false"));
    must_describe(LLAMA(""));
    assert_string_equal(config_read->architecture, "LlamaForCausalLM");
    assert_int_equal(config_read->vocab_size, 100);
    assert_int_equal(config_read->hidden_size, 96);
    assert_int_equal(mlp()->inner_size, 50);
    assert_int_equal(config_read->n_layers, 3);
    assert_int_equal(attention()->n_q_heads, 6);
    assert_int_equal(attention()->n_kv_heads, 6);
    assert_int_equal(attention()->k_dim, 16);
    assert_int_equal(config_read->max_position, 2048);
    assert_true(config_read->rms_eps == 1e-6f);
    assert_false(config_read->tied_embeddings || attention()->q_bias || attention()->o_bias || mlp()->bias);
    assert_int_equal(config_read->layers[0].blocks[0].attention.head_norm, HEAD_NORM_NONE);
    assert_int_equal(config_read->ropes[0].kind, MODEL_ROPE_DEFAULT);
    assert_true(config_read->ropes[0].theta == 10000.0 && config_read->ropes[0].attention_factor == 1.0);
    assert_int_equal(window_of(2), 0);
    assert_int_equal(config_read->tokens.n_eos, 1);
    assert_int_equal(config_read->tokens.eos[0], 2);
    assert_int_equal(config_read->tokens.bos, 1);
    assert_false(config_read->dtype_stated);

    must_describe(LLAMA(",\"attention_bias\":true,\"mlp_bias\":true,\"tie_word_embeddings\":true,"
                        "\"sliding_window\":4,\"bos_token_id\":null,\"eos_token_id\":null"));
    assert_true(attention()->q_bias && attention()->k_bias && attention()->v_bias && attention()->o_bias &&
                mlp()->bias);
    assert_true(config_read->tied_embeddings);
    assert_int_equal(window_of(0), 0);
    assert_int_equal(config_read->tokens.n_eos, 0);
    assert_int_equal(config_read->tokens.bos, -1);
}

static void model_type_stands_in_for_architectures(void **state)
{
    (void)state;
    must_describe("{\"model_type\":\"qwen3\"," SIZES ",\"num_key_value_heads\":3}");
    assert_string_equal(config_read->architecture, "Qwen3ForCausalLM");
    must_describe("{\"architectures\":[],\"model_type\":\"mistral\"," SIZES ",\"num_key_value_heads\":3}");
    assert_string_equal(config_read->architecture, "MistralForCausalLM");
    must_describe("{\"architectures\":null,\"model_type\":\"llama\"," SIZES "}");
    assert_string_equal(config_read->architecture, "LlamaForCausalLM");
}

static void dtype_in_both_layouts(void **state)
{
    (void)state;
    must_describe(LLAMA(",\"torch_dtype\":\"bfloat16\""));
    assert_true(config_read->dtype_stated);
    assert_int_equal(config_read->dtype, K_BF16);
    must_describe(LLAMA(",\"dtype\":\"float16\",\"torch_dtype\":\"float32\""));
    assert_int_equal(config_read->dtype, K_F16);
    must_describe(LLAMA(",\"dtype\":null,\"torch_dtype\":\"float32\""));
    assert_int_equal(config_read->dtype, K_F32);
    assert_true(config_read->dtype_stated);
}

static void mistral_windows(void **state)
{
    (void)state;
    must_describe(MISTRAL(",\"num_key_value_heads\":2"));
    assert_int_equal(config_read->max_position, 131072);
    assert_int_equal(window_of(0), 4096);
    assert_int_equal(window_of(2), 4096);
    must_describe(MISTRAL(",\"num_key_value_heads\":null,\"sliding_window\":null"));
    assert_int_equal(attention()->n_kv_heads, 6);
    assert_int_equal(window_of(0), 0);
    must_describe(MISTRAL(",\"num_key_value_heads\":2,\"sliding_window\":24"));
    assert_int_equal(window_of(1), 24);
}

static void qwen_windows(void **state)
{
    (void)state;
    must_describe(QWEN2(",\"num_key_value_heads\":2,\"sliding_window\":8"));
    assert_true(attention()->q_bias && attention()->k_bias && attention()->v_bias);
    assert_false(attention()->o_bias);
    assert_int_equal(window_of(2), 0);
    assert_int_equal(config_read->tokens.n_eos, 0);
    assert_int_equal(config_read->tokens.bos, -1);

#define USE ",\"num_key_value_heads\":2,\"use_sliding_window\":true"
    must_describe(QWEN2(USE ",\"sliding_window\":8,\"max_window_layers\":1"));
    assert_int_equal(window_of(0), 0);
    assert_int_equal(window_of(1), 8);
    assert_int_equal(window_of(2), 8);
    must_describe(QWEN2(USE ",\"sliding_window\":8")); /* max_window_layers: 28 */
    assert_int_equal(window_of(2), 0);
    must_describe(QWEN2(USE ",\"sliding_window\":null,\"max_window_layers\":0"));
    assert_int_equal(window_of(2), 0);
    must_describe(QWEN2(USE ",\"max_window_layers\":0"));
    assert_int_equal(window_of(2), 4096);
    must_describe(QWEN3(USE ",\"sliding_window\":8,\"layer_types\":[\"sliding_attention\","
                            "\"full_attention\",\"attention\"]"));
    assert_int_equal(window_of(0), 8);
    assert_int_equal(window_of(1), 0);
    assert_int_equal(window_of(2), 0);
}

static void qwen3_heads(void **state)
{
    (void)state;
    must_describe(QWEN3(",\"num_key_value_heads\":2"));
    assert_int_equal(attention()->k_dim, 128);
    assert_int_equal(config_read->layers[0].blocks[0].attention.head_norm, HEAD_NORM_EACH);
    assert_false(attention()->q_bias || attention()->o_bias);
    must_describe(QWEN3(",\"num_key_value_heads\":2,\"head_dim\":64,\"attention_bias\":true"));
    assert_int_equal(attention()->k_dim, 64);
    assert_true(attention()->q_bias && attention()->o_bias);
}

static void olmo2_norms(void **state)
{
    (void)state;
    must_describe(QWEN3(",\"num_key_value_heads\":2"));
    assert_int_equal(config_read->layers[2].blocks[1].place, NORM_PRE);
    must_describe(OLMO2(""));
    assert_int_equal(attention()->n_kv_heads, 6);
    assert_int_equal(attention()->k_dim, 16);
    assert_int_equal(config_read->max_position, 2048);
    assert_true(config_read->rms_eps == 1e-5f);
    assert_int_equal(config_read->tokens.n_eos, 0); /* 50279 is outside a vocabulary of 100 */
    assert_false(attention()->q_bias || attention()->o_bias || config_read->tied_embeddings);
    for (uint32_t l = 0; l < config_read->n_layers; l++) {
        assert_int_equal(config_read->layers[l].n_blocks, 2);
        assert_int_equal(config_read->layers[l].blocks[0].kind, BLOCK_ATTENTION);
        assert_int_equal(config_read->layers[l].blocks[0].place, NORM_POST);
        assert_int_equal(config_read->layers[l].blocks[0].attention.head_norm, HEAD_NORM_ALL);
        assert_int_equal(config_read->layers[l].blocks[1].kind, BLOCK_MLP);
        assert_int_equal(config_read->layers[l].blocks[1].place, NORM_POST);
    }
    must_describe(OLMO2(",\"num_key_value_heads\":2,\"attention_bias\":true,\"rms_norm_eps\":1e-6"));
    assert_int_equal(attention()->n_kv_heads, 2);
    assert_true(attention()->q_bias && attention()->o_bias && config_read->rms_eps == 1e-6f);
}

/* Which layers have a window, and which RoPE each has. */
static void layers_of_two_kinds(void **state)
{
    (void)state;
    must_describe(SMOLLM3(",\"no_rope_layer_interval\":2"));
    assert_int_equal(config_read->n_ropes, 2);
    assert_int_equal(config_read->ropes[1].kind, MODEL_ROPE_NONE);
    assert_true(config_read->ropes[0].theta == 2e6 && config_read->tied_embeddings);
    for (uint32_t l = 0; l < 3; l++)
        assert_int_equal(config_read->layers[l].blocks[0].attention.rope, l == 1);
    must_describe(SMOLLM3(",\"no_rope_layers\":[0,1,0,1]")); /* a list may be longer */
    for (uint32_t l = 0; l < 3; l++)
        assert_int_equal(config_read->layers[l].blocks[0].attention.rope, l != 1);

    must_describe(OLMO3(",\"max_position_embeddings\":512,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,"
                        "\"original_max_position_embeddings\":64}")); /* every fourth layer is full: none of three */
    assert_int_equal(config_read->ropes[0].kind, MODEL_ROPE_YARN);
    assert_int_equal(config_read->ropes[1].kind, MODEL_ROPE_DEFAULT);
    assert_int_equal(config_read->max_position, 512);
    for (uint32_t l = 0; l < 3; l++) {
        assert_int_equal(window_of(l), 4096);
        assert_int_equal(config_read->layers[l].blocks[0].attention.rope, 1);
    }
    must_describe(GEMMA3(",\"sliding_window\":8,\"sliding_window_pattern\":2"));
    assert_true(config_read->ropes[0].theta == 1e6 && config_read->ropes[1].theta == 1e4);
    for (uint32_t l = 0; l < 3; l++) {
        assert_int_equal(window_of(l), l == 1 ? 0 : 8);
        assert_int_equal(config_read->layers[l].blocks[0].attention.rope, l != 1);
    }
    const struct key256 legacy = identity();
    must_describe(GEMMA3(",\"sliding_window\":8,\"layer_types\":[\"sliding_attention\",\"full_attention\","
                         "\"sliding_attention\"],\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\","
                         "\"rope_theta\":1e6},\"sliding_attention\":{\"rope_type\":\"default\",\"rope_theta\":1e4}}"));
    const struct key256 saved = identity();
    assert_memory_equal(&legacy, &saved, sizeof legacy);
}

/* The length that the engine is started with chooses the factors, and the identity has those. */
static void long_rope(void **state)
{
    (void)state;
    must_describe(PHI3(""));
    assert_true(config_read->fused && attention()->k_dim == 16 && config_read->ropes[0].dim == 16);
    assert_int_equal(window_of(0), 0);
    must_describe(PHI3(",\"head_dim\":64,\"partial_rotary_factor\":0.75,\"sliding_window\":8"));
    assert_int_equal(config_read->ropes[0].dim, 48);
    assert_int_equal(window_of(2), 8);
    must_describe(LONG("\"short_factor\":" EIGHT("1") ",\"long_factor\":" EIGHT("2"), ""));
    struct model_rope *rope = &config_read->ropes[0];
    float inv_freq[8];
    assert_true(rope->kind == MODEL_ROPE_LONG && rope->is_long && config_read->max_position == 512);
    assert_true(fabs(rope->attention_factor - sqrt(1.5)) < 1e-12); /* 1 + log 8 / log 64 */
    model_inv_freq(rope, inv_freq);
    assert_true(inv_freq[0] == 0.5f);
    const struct key256 longer = identity();
    model_rope_choose(rope, 64);
    model_inv_freq(rope, inv_freq);
    assert_true(inv_freq[0] == 1.0f);
    const struct key256 shorter = identity();
    assert_memory_not_equal(&longer, &shorter, sizeof longer);
    model_rope_choose(rope, 65);
    const struct key256 again = identity();
    assert_memory_equal(&longer, &again, sizeof longer);
}

static void factors_and_softcaps(void **state)
{
    (void)state;
    must_describe(GRANITE(""));
    assert_true(attention()->scale == 1 && config_read->factors.residual == 0 && config_read->factors.logits == 0);
    must_describe(GRANITE(",\"embedding_multiplier\":12,\"residual_multiplier\":0.22,\"attention_multiplier\":0.125,"
                          "\"logits_scaling\":8"));
    assert_true(attention()->scale == 0.125f && config_read->factors.residual == 0.22f);
    assert_true(config_read->factors.embedding == 12 && config_read->factors.logits == 0.125f);
    must_describe(GEMMA2(""));
    assert_true(attention()->softcap == 50 && config_read->factors.logit_softcap == 30 &&
                attention()->scale == 0.0625f);
    assert_true(config_read->norms_add_one && config_read->tied_embeddings);
    assert_int_equal(mlp()->activation, ACTIVATION_GELU_TANH_MUL);
    assert_int_equal(config_read->layers[0].blocks[0].place, NORM_BOTH);
    assert_int_equal(window_of(0), 4096);
    assert_int_equal(window_of(1), 0);
    must_describe(GEMMA2(",\"attn_logit_softcapping\":null,\"final_logit_softcapping\":null,\"sliding_window\":null"));
    assert_true(attention()->softcap == 0 && config_read->factors.logit_softcap == 0);
    assert_int_equal(window_of(0), 0);
    must_describe(GEMMA3(",\"attn_logit_softcapping\":50,\"final_logit_softcapping\":30"));
    assert_true(attention()->softcap == 0 && config_read->factors.logit_softcap == 30);
}

static void rope_in_both_layouts(void **state)
{
    (void)state;
    must_describe(LLAMA(",\"rope_theta\":500000,\"rope_scaling\":null"));
    assert_true(config_read->ropes[0].theta == 500000.0);
    must_describe(LLAMA(",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":1e6}"));
    assert_true(config_read->ropes[0].theta == 1e6);
    assert_int_equal(config_read->ropes[0].kind, MODEL_ROPE_DEFAULT);

#define LLAMA3_FIELDS \
    "\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0," \
    "\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\""
    must_describe(LLAMA(",\"max_position_embeddings\":131072,\"rope_theta\":5e5,"
                        "\"rope_scaling\":{" LLAMA3_FIELDS "}"));
    assert_int_equal(config_read->ropes[0].kind, MODEL_ROPE_LLAMA3);
    assert_true(config_read->ropes[0].theta == 5e5 && config_read->ropes[0].factor == 8.0 &&
                config_read->ropes[0].low_freq == 1.0 && config_read->ropes[0].high_freq == 4.0 &&
                config_read->ropes[0].original_max == 8192.0);
    assert_int_equal(config_read->max_position, 131072);
    const struct key256 hub = identity();
    must_describe(LLAMA(",\"max_position_embeddings\":131072,"
                        "\"rope_parameters\":{\"rope_theta\":500000.0," LLAMA3_FIELDS "}"));
    const struct key256 today = identity();
    assert_memory_equal(&hub, &today, sizeof hub);
    assert_int_equal(config_read->max_position, 131072);

    must_describe(LLAMA(",\"rope_scaling\":{\"type\":\"linear\",\"factor\":4.0},"
                        "\"rope_parameters\":{\"rope_type\":\"yarn\"}"));
    assert_int_equal(config_read->ropes[0].kind, MODEL_ROPE_LINEAR);
    assert_int_equal(config_read->max_position, 8192);
}

static void yarn_fields(void **state)
{
    (void)state;
    must_describe(LLAMA(",\"max_position_embeddings\":32768,\"rope_scaling\":{\"type\":\"yarn\","
                        "\"factor\":4.0,\"original_max_position_embeddings\":32768}"));
    assert_int_equal(config_read->ropes[0].kind, MODEL_ROPE_YARN);
    assert_int_equal(config_read->max_position, 131072);
    assert_true(config_read->ropes[0].beta_fast == 32.0 && config_read->ropes[0].beta_slow == 1.0 &&
                config_read->ropes[0].truncate);
    assert_true(fabs(config_read->ropes[0].attention_factor - 1.138629436111989) < 1e-14);

    /* A config that has the extended length already does not get it twice. */
    must_describe(LLAMA(",\"max_position_embeddings\":131072,\"rope_scaling\":{\"type\":\"yarn\","
                        "\"factor\":4.0,\"original_max_position_embeddings\":32768}"));
    assert_int_equal(config_read->max_position, 131072);
    must_describe(LLAMA(",\"max_position_embeddings\":1000,\"rope_scaling\":{\"type\":\"yarn\","
                        "\"factor\":1.5,\"beta_fast\":0,\"beta_slow\":2,\"truncate\":false,"
                        "\"attention_factor\":0.75}"));
    assert_int_equal(config_read->max_position, 1500);
    assert_true(config_read->ropes[0].original_max == 1000.0 && config_read->ropes[0].beta_fast == 32.0 &&
                config_read->ropes[0].beta_slow == 2.0 && !config_read->ropes[0].truncate &&
                config_read->ropes[0].attention_factor == 0.75);
}

static void generation_config_wins(void **state)
{
    (void)state;
    assert_int_equal(describe_both(LLAMA(",\"eos_token_id\":[7,8,7]"), NULL), QUIRE_OK);
    assert_int_equal(config_read->tokens.n_eos, 2);
    assert_int_equal(config_read->tokens.eos[1], 8);
    assert_false(sampling.has_temperature || sampling.has_top_k || sampling.has_top_p || sampling.has_min_p ||
                 sampling.has_repetition_penalty);

    assert_int_equal(describe_both(LLAMA(",\"eos_token_id\":7"),
                                   "{\"eos_token_id\":[5,6],\"bos_token_id\":9,\"temperature\":0.5,"
                                   "\"top_k\":20,\"top_p\":0.75,\"min_p\":0.25,"
                                   "\"repetition_penalty\":1.25,\"do_sample\":true,"
                                   "\"max_length\":4096}"),
                     QUIRE_OK);
    assert_int_equal(config_read->tokens.n_eos, 2);
    assert_int_equal(config_read->tokens.eos[0], 5);
    assert_int_equal(config_read->tokens.bos, 9);
    assert_true(sampling.has_temperature && sampling.temperature == 0.5);
    assert_true(sampling.has_top_k && sampling.top_k == 20);
    assert_true(sampling.has_top_p && sampling.top_p == 0.75);
    assert_true(sampling.has_min_p && sampling.min_p == 0.25);
    assert_true(sampling.has_repetition_penalty && sampling.repetition_penalty == 1.25);

    /* Silence, or null, leaves what config.json says. */
    assert_int_equal(
        describe_both(LLAMA(",\"eos_token_id\":7"), "{\"eos_token_id\":null,\"temperature\":null,\"top_k\":-1}"),
        QUIRE_OK);
    assert_int_equal(config_read->tokens.eos[0], 7);
    assert_false(sampling.has_temperature);
    assert_true(sampling.has_top_k && sampling.top_k == 0);
}

struct refusal {
    const char *config;
    const char *generation;
    int status;
    const char *says;
};

#define SUPPORTED_LIST "supported: LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM"
#define INVALID(config, says) {config, NULL, QUIRE_INVALID, says}
#define UNSUPPORTED(config, says) {config, NULL, QUIRE_UNSUPPORTED, says}
#define GENERATION(text, says) {LLAMA(""), text, QUIRE_INVALID, says}
#define SCALING(fields) LLAMA(",\"rope_scaling\":{" fields "}")

static const struct refusal refusals[] = {
    INVALID("", "config.json: not valid JSON"),
    INVALID("[]", "config.json: must be a JSON object"),
    INVALID("{\"a\":\"\xff\"}", "config.json: not valid JSON"),
    INVALID("{}", "config.json: architectures: is missing"),
    INVALID("{\"architectures\":\"x\"}", "config.json: architectures: must be an array"),
    INVALID("{\"architectures\":[1]}", "config.json: architectures: must hold strings"),
    UNSUPPORTED("{\"architectures\":[\"DeepseekV3ForCausalLM\"]}",
                "config.json: architectures: 'DeepseekV3ForCausalLM' is not supported; " SUPPORTED_LIST),
    UNSUPPORTED("{\"model_type\":\"gpt2\"}", "config.json: model_type: 'gpt2' is not supported; " SUPPORTED_LIST),
    UNSUPPORTED("{\"architectures\":[\"\\u001b[2J\\n\"]}", "architectures: '?[2J?' is not supported"),
    UNSUPPORTED(LLAMA(",\"quantization_config\":{\"quant_method\":\"hqq\"}"),
                "config.json: quantization_config: quant_method: 'hqq' is not supported"),
    INVALID(LLAMA(",\"quantization_config\":{}"), "quantization_config: quant_method: is missing"),
    UNSUPPORTED(LLAMA(",\"dtype\":\"float8_e4m3fn\""), "config.json: dtype: 'float8_e4m3fn'"),
    UNSUPPORTED(LLAMA(",\"torch_dtype\":\"int8\""), "config.json: torch_dtype: 'int8'"),
    INVALID(LLAMA(",\"dtype\":16"), "config.json: dtype: must be a string"),
    INVALID("{\"architectures\":[\"LlamaForCausalLM\"]}", "config.json: vocab_size: is missing"),
    INVALID(LLAMA(",\"max_position_embeddings\":0"), "config.json: max_position_embeddings: must be"),
    INVALID(LLAMA(",\"max_position_embeddings\":2048.5"), "max_position_embeddings: must be an integer"),
    INVALID(LLAMA(",\"max_position_embeddings\":99999999999"), "max_position_embeddings: must be"),
    INVALID(LLAMA(",\"num_key_value_heads\":4"),
            "config.json: num_key_value_heads: 4 does not divide num_attention_heads 6"),
    INVALID(LLAMA(",\"num_key_value_heads\":0"), "config.json: num_key_value_heads: must be"),
    INVALID(LLAMA(",\"num_key_value_heads\":12"), "num_key_value_heads: 12 does not divide"),
    UNSUPPORTED(LLAMA(",\"head_dim\":24"), "config.json: head_dim: 24 is not supported"),
    UNSUPPORTED(LLAMA(",\"head_dim\":272"), "config.json: head_dim: 272 is not supported"),
    UNSUPPORTED(LLAMA(",\"head_dim\":4294967295"), "config.json: head_dim: 4294967295 is not"),
    INVALID(LLAMA(",\"head_dim\":-16"), "config.json: head_dim: must be between"),
    INVALID(LLAMA(",\"rms_norm_eps\":-1"), "config.json: rms_norm_eps: must be between"),
    INVALID(LLAMA(",\"rms_norm_eps\":\"1e-5\""), "config.json: rms_norm_eps: must be a number"),
    UNSUPPORTED(LLAMA(",\"hidden_act\":\"gelu\""), "config.json: hidden_act: 'gelu' is not supported"),
    INVALID(LLAMA(",\"attention_bias\":1"), "config.json: attention_bias: must be true or false"),
    INVALID(LLAMA(",\"tie_word_embeddings\":\"no\""), "config.json: tie_word_embeddings: must be"),
    INVALID(LLAMA(",\"rope_theta\":0"), "config.json: rope_theta: must be between"),
    INVALID(LLAMA(",\"rope_theta\":1e999"), "config.json: rope_theta: must be a number"),
    INVALID(LLAMA(",\"rms_norm_eps\":NaN"), "config.json: rms_norm_eps: must be a number"),
    INVALID(LLAMA(",\"rope_scaling\":Infinity"), "config.json: rope_scaling: must be an object"),
    INVALID("\xef\xbb\xbf" LLAMA(""), "config.json: begins with a byte order mark"),
    UNSUPPORTED(LLAMA(",\"partial_rotary_factor\":0.5"), "config.json: partial_rotary_factor: only 1"),
    UNSUPPORTED(LLAMA(",\"is_causal\":false"), "config.json: is_causal: false is not supported for a decoder"),
    UNSUPPORTED(LLAMA(",\"use_bidirectional_attention\":true"),
                "config.json: use_bidirectional_attention: true is not"),
    INVALID(LLAMA(",\"rope_scaling\":\"yarn\""), "config.json: rope_scaling: must be an object"),
    UNSUPPORTED(SCALING("\"rope_type\":\"longrope\""),
                "config.json: rope_scaling: rope_type: 'longrope' is not supported"),
    UNSUPPORTED(SCALING("\"type\":\"ntk\",\"factor\":2"), "rope_type: 'ntk' is not supported"),
    INVALID(SCALING("\"type\":\"dynamic\""), "factor: is missing"),
    UNSUPPORTED(SCALING("\"rope_type\":\"default\",\"partial_rotary_factor\":0.25"),
                "config.json: rope_scaling: partial_rotary_factor: only 1"),
    INVALID(SCALING("\"rope_type\":\"yarn\""), "config.json: rope_scaling: factor: is missing"),
    INVALID(SCALING("\"rope_type\":\"yarn\",\"factor\":0.5"), "rope_scaling: factor: must be between"),
    INVALID(SCALING("\"rope_type\":\"yarn\",\"factor\":2,\"beta_slow\":64"),
            "config.json: rope_scaling: beta_fast: must not be below beta_slow"),
    UNSUPPORTED(SCALING("\"rope_type\":\"yarn\",\"factor\":65536"),
                "config.json: rope_scaling: factor: gives 134217728 positions"),
    INVALID(SCALING("\"rope_type\":\"llama3\",\"factor\":8"), "low_freq_factor: is missing"),
    INVALID(SCALING("\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,"
                    "\"high_freq_factor\":4"),
            "config.json: rope_scaling: high_freq_factor: must be above low_freq_factor"),
    UNSUPPORTED(LLAMA(",\"rope_parameters\":{\"full_attention\":{}}"),
                "config.json: rope_parameters: one set of parameters for each layer type"),
    INVALID(MISTRAL(",\"num_key_value_heads\":2,\"sliding_window\":0"), "sliding_window: must be"),
    INVALID(QWEN2(USE ",\"sliding_window\":-1"), "config.json: sliding_window: must be between"),
    INVALID(QWEN2(USE ",\"layer_types\":[\"full_attention\"]"),
            "config.json: layer_types: has 1 entries, but num_hidden_layers is 3"),
    INVALID(QWEN2(USE ",\"layer_types\":[1,2,3]"), "config.json: layer_types: must hold strings"),
    UNSUPPORTED(QWEN2(USE ",\"layer_types\":[\"full_attention\",\"conv\",\"full_attention\"]"),
                "config.json: layer_types: 'conv' is not supported"),
    INVALID(QWEN2(",\"num_key_value_heads\":2,\"layer_types\":[\"sliding_attention\","
                  "\"full_attention\",\"full_attention\"]"),
            "config.json: layer_types: layer 0 is sliding_attention, but sliding_window is"),
    UNSUPPORTED(MISTRAL(",\"num_key_value_heads\":2,\"layer_types\":[\"sliding_attention\","
                        "\"full_attention\",\"sliding_attention\"]"),
                "layer_types: layer 1 as full_attention is not supported for MistralForCausalLM"),
    INVALID(SMOLLM3(",\"no_rope_layers\":[1,1]"),
            "config.json: no_rope_layers: has 2 entries, but num_hidden_layers is"),
    INVALID(SMOLLM3(",\"no_rope_layers\":[1,2,1]"), "config.json: no_rope_layers: must hold 1"),
    INVALID(SMOLLM3(",\"no_rope_layers\":[1,\"a\",1]"), "config.json: no_rope_layers: must hold 1"),
    INVALID(SMOLLM3(",\"no_rope_layer_interval\":0"), "config.json: no_rope_layer_interval: must be between"),
    INVALID(SMOLLM3(",\"use_sliding_window\":true,\"sliding_window\":8"), "config.json: layer_types: is missing, but"),
    UNSUPPORTED(PHI3(",\"head_dim\":64,\"partial_rotary_factor\":0.7"),
                "config.json: partial_rotary_factor: 0.7 rotates"),
    UNSUPPORTED(PHI3(",\"partial_rotary_factor\":0"), "config.json: partial_rotary_factor: 0 rotates 0 numbers"),
    INVALID(LONG("\"short_factor\":" EIGHT("1"), ""), "rope_scaling: long_factor: must have 8 numbers"),
    INVALID(LONG("\"short_factor\":[1,2],\"long_factor\":" EIGHT("1"), ""), "short_factor: must have 8 numbers"),
    INVALID(LONG("\"short_factor\":" EIGHT("0") ",\"long_factor\":" EIGHT("1"), ""), "short_factor: [0] must be"),
    INVALID(LONG("\"short_factor\":" EIGHT("\"a\"") ",\"long_factor\":" EIGHT("1"), ""), "short_factor: [0] must be"),
    INVALID(GRANITE(",\"residual_multiplier\":0"), "config.json: residual_multiplier: must be between"),
    INVALID(GRANITE(",\"logits_scaling\":\"8\""), "config.json: logits_scaling: must be a number"),
    INVALID(GRANITE(",\"attention_multiplier\":-1"), "config.json: attention_multiplier: must be between"),
    INVALID(GEMMA2(",\"query_pre_attn_scalar\":0"), "config.json: query_pre_attn_scalar: must be between"),
    INVALID(GEMMA2(",\"attn_logit_softcapping\":0"), "config.json: attn_logit_softcapping: must be between"),
    INVALID(GEMMA2(",\"final_logit_softcapping\":1e9"), "config.json: final_logit_softcapping: must be between"),
    UNSUPPORTED(GEMMA2(",\"hidden_activation\":\"gelu\""), "config.json: hidden_activation: 'gelu' is not supported"),
    INVALID(GEMMA3(",\"sliding_window_pattern\":0"), "config.json: sliding_window_pattern: must be between"),
    INVALID(GEMMA3(",\"rope_local_base_freq\":0"), "config.json: rope_local_base_freq: must be between"),
    INVALID(GEMMA3(",\"rope_parameters\":{\"full_attention\":7}"),
            "config.json: rope_parameters: full_attention: must be"),
    INVALID(LLAMA(",\"eos_token_id\":\"</s>\""), "config.json: eos_token_id: must be an integer"),
    INVALID(LLAMA(",\"eos_token_id\":[1,100]"), "config.json: eos_token_id: must be between 0 and"),
    INVALID(LLAMA(",\"eos_token_id\":-2"), "config.json: eos_token_id: must be between 0 and"),
    UNSUPPORTED(LLAMA(",\"eos_token_id\":[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]"),
                "config.json: eos_token_id: more than 16 ids"),
    INVALID(LLAMA(",\"bos_token_id\":100"), "config.json: bos_token_id: must be between"),
    GENERATION("", "generation_config.json: not valid JSON"),
    GENERATION("[]", "generation_config.json: must be a JSON object"),
    GENERATION("{\"eos_token_id\":100}", "generation_config.json: eos_token_id: must be between"),
    GENERATION("{\"temperature\":-1}", "generation_config.json: temperature: must be between"),
    GENERATION("{\"top_p\":-0.1}", "generation_config.json: top_p: must be between"),
    GENERATION("{\"top_k\":1.5}", "generation_config.json: top_k: must be an integer"),
    GENERATION("{\"min_p\":2}", "generation_config.json: min_p: must be between"),
    GENERATION("{\"repetition_penalty\":0}", "generation_config.json: repetition_penalty: must be"),
};

static void what_cannot_be_served_is_refused_and_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const struct refusal *r = &refusals[i];
        int status = describe_both(r->config, r->generation);
        if (status != r->status || !strstr(err.text, r->says))
            fail_msg("%s: status %d, \"%s\" instead of %d, \"%s\"", r->config, status, err.text, r->status, r->says);
    }
}

static void sizes_are_bounded(void **state)
{
    (void)state;
    static const char *const keys[] = {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                                       "num_attention_heads"};
    static const char *const values[] = {"0",    "-1",   "1e3",      "\"8\"", "4294967296", "9223372036854775807",
                                         "null", "true", "257000000"};
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
            char config[512] = "{\"architectures\":[\"LlamaForCausalLM\"]", expected[64];
            for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
                snprintf(config + strlen(config), sizeof config - strlen(config), ",\"%s\":%s", keys[i],
                         i == k ? values[v] : "16");
            strcat(config, "}");
            snprintf(expected, sizeof expected, "config.json: %s: ", keys[k]);
            if (describe_both(config, NULL) != QUIRE_INVALID || strncmp(err.text, expected, strlen(expected)) != 0)
                fail_msg("%s: \"%s\"", config, err.text);
        }
    }
}

/* JSON that Python writes and reads, in unused and in used fields. */
static void as_python_writes_it(void **state)
{
    (void)state;
    must_describe(LLAMA(",\"time_step_limit\":[0.0,Infinity],\"a\":NaN,\"b\":-Infinity,\"c\":1e999,"
                        "\"d\":123456789012345678901234567890,\"e\":\"\\u0000\\ud800\",\"f\":{\"x\":1,\"x\":2}"));
    assert_int_equal(config_read->n_layers, 3);
    must_describe(LLAMA(",\"num_hidden_layers\":4,\"max_position_embeddings\":4096.0,\"eos_token_id\":[7.0]"));
    assert_int_equal(config_read->n_layers, 4);
    assert_int_equal(config_read->max_position, 4096);
    assert_int_equal(config_read->tokens.eos[0], 7);
    assert_int_equal(describe_both(LLAMA(""), "{\"x\":Infinity,\"top_k\":20,\"top_k\":5.0}"), QUIRE_OK);
    assert_int_equal(sampling.top_k, 5);
}

static void deep_nesting_is_refused(void **state)
{
    (void)state;
    char config[4000];
    memset(config, '[', sizeof config - 1);
    config[sizeof config - 1] = '\0';
    assert_int_equal(describe_both(config, NULL), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "config.json: "));
}

static void directories(void **state)
{
    (void)state;
    struct scratch s;
    scratch_open(&s);
    assert_int_equal(model_describe(s.dir, &config_read, &sampling, &err), QUIRE_NOT_FOUND);
    assert_non_null(strstr(err.text, "config.json: cannot be opened"));

    static const char config[] = LLAMA(""), generation[] = "{\"temperature\":0.5}";
    scratch_write(&s, "config.json", config, strlen(config));
    assert_int_equal(model_describe(s.dir, &config_read, &sampling, &err), QUIRE_OK);
    assert_false(sampling.has_temperature);
    model_config_free(config_read);
    scratch_write(&s, "generation_config.json", generation, strlen(generation));
    assert_int_equal(model_describe(s.dir, &config_read, &sampling, &err), QUIRE_OK);
    assert_true(sampling.has_temperature);
    model_config_free(config_read);
    scratch_write(&s, "generation_config.json", "{", 1);
    assert_int_equal(model_describe(s.dir, &config_read, &sampling, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "generation_config.json: not valid JSON"));
    scratch_close(&s);
}

/* If several files are called config.json, the error names the one at fault. */
static void module_files(void **state)
{
    (void)state;
    static const char config[] = "{\"architectures\":[\"BertModel\"]," SIZES "}",
                      modules[] = "[{\"type\": \"Transformer\"}, {\"type\": \"Pooling\", \"path\": \"1_Pooling\"}]";
    static const struct {
        const char *name, *text, *says;
    } broken[] = {
        {"1_Pooling/config.json", "{", "1_Pooling/config.json: not valid JSON"},
        {"1_Pooling/config.json", "[]", "1_Pooling/config.json: must be a JSON object"},
        {"1_Pooling/config.json", "{}", "1_Pooling/config.json: 0 pooling modes"},
        {"1_Pooling/config.json", "{\"pooling_mode_cls_token\": 1}", "1_Pooling/config.json: pooling_mode_cls_token: "},
        {"sentence_bert_config.json", "{", "sentence_bert_config.json: not valid JSON"},
        {"modules.json", "[", "modules.json: not valid JSON"},
    };
    char pooling[80];
    struct scratch s;
    scratch_open(&s);
    snprintf(pooling, sizeof pooling, "%s/1_Pooling", s.dir);
    scratch_write(&s, "config.json", config, strlen(config));
    scratch_write(&s, "modules.json", modules, strlen(modules));
    assert_int_equal(model_describe(s.dir, &config_read, &sampling, &err), QUIRE_NOT_FOUND);
    assert_int_equal(strncmp(err.text, "1_Pooling/config.json: cannot be opened in ", 43), 0);
    assert_int_equal(mkdir(pooling, 0700), 0);
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        static const char cls[] = "{\"pooling_mode_cls_token\": true}";
        scratch_write(&s, "1_Pooling/config.json", cls, strlen(cls));
        scratch_write(&s, broken[i].name, broken[i].text, strlen(broken[i].text));
        assert_int_not_equal(model_describe(s.dir, &config_read, &sampling, &err), QUIRE_OK);
        if (strncmp(err.text, broken[i].says, strlen(broken[i].says)) != 0)
            fail_msg("'%s' does not begin with '%s'", err.text, broken[i].says);
        if (strcmp(broken[i].name, "sentence_bert_config.json") == 0)
            scratch_remove(&s, broken[i].name);
    }
    scratch_remove(&s, "1_Pooling/config.json");
    assert_int_equal(rmdir(pooling), 0);
    scratch_close(&s);
}

/* Ranks that would have no heads, no inner columns or no rows of the head. */
static void numbers_of_ranks(void **state)
{
    static const struct {
        uint32_t inner, vocab;
        const char *possible; /* of 8 */
    } rows[] = {
        {250, 320, "1, 2, 4, 8"}, {128, 57, "1, 2, 4, 8"}, {98, 320, "1, 2, 4"}, /* 7 units */
        {64, 320, "1, 2, 4"},     {30, 320, "1, 2"},       {16, 320, "1"},       {250, 56, "1, 2, 4, 8"},
        {250, 9, "1, 2"},         {250, 2, "1, 2"},        {250, 1, "1"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char config[300];
        snprintf(config, sizeof config,
                 "{\"architectures\":[\"LlamaForCausalLM\"],\"vocab_size\":%u,\"hidden_size\":128,"
                 "\"intermediate_size\":%u,\"num_hidden_layers\":1,\"num_attention_heads\":8,"
                 "\"num_key_value_heads\":2}",
                 rows[i].vocab, rows[i].inner);
        must_describe(config);
        for (uint32_t n = 1; n <= 8; n *= 2) {
            const char number[] = {(char)('0' + n), '\0'};
            char list[64], inner[32], vocab[32];
            snprintf(list, sizeof list, "these numbers of ranks: %s", rows[i].possible);
            snprintf(inner, sizeof inner, "model's intermediate_size %u", rows[i].inner);
            snprintf(vocab, sizeof vocab, "model's vocab_size %u", rows[i].vocab);
            const struct model_desc desc = {.config = config_read, .facts = &facts};
            const int status = model_share_check(&desc, n, &err);
            if (status != (strstr(rows[i].possible, number) ? QUIRE_OK : QUIRE_UNSUPPORTED) ||
                (status != QUIRE_OK &&
                 ((!strstr(err.text, inner) && !strstr(err.text, vocab)) || !strstr(err.text, list))))
                fail_msg("%u ranks of %u and %u: %d %s", n, rows[i].inner, rows[i].vocab, status, err.text);
        }
    }
}

/* Ranks hold whole experts, as many as another or one more, with all of their columns; else all experts, in part. */
static void experts_of_ranks(void **state)
{
    static const uint32_t counts[] = {1, 3, 5, 8, 18, 128};
    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (uint32_t n = 2; n <= 8; n *= 2) {
            char config[320];
            snprintf(config, sizeof config,
                     "{\"architectures\":[\"MixtralForCausalLM\"],\"vocab_size\":100,\"hidden_size\":128,"
                     "\"intermediate_size\":250,\"num_hidden_layers\":1,\"num_attention_heads\":8,"
                     "\"num_key_value_heads\":2,\"num_local_experts\":%u,\"num_experts_per_tok\":1}",
                     counts[i]);
            must_describe(config);
            struct model_desc desc = {.config = config_read, .facts = &facts, .shard = {.n_ranks = n}};
            uint32_t n_columns = 0;
            for (uint32_t r = 0; r < n; r++) {
                assert_int_equal(model_count_of(&desc, r, 0, SIZE_EXPERTS).n, counts[i]);
                n_columns += model_share_of(&desc, r, 0, SIZE_INNER).n;
            }
            assert_int_equal(n_columns, 250);
            desc.shard.whole_experts = true;
            uint32_t at = 0;
            for (uint32_t r = 0; r < n; r++) {
                const struct model_range experts = model_count_of(&desc, r, 0, SIZE_EXPERTS);
                assert_int_equal(experts.first, at);
                assert_true(experts.n == counts[i] / n || experts.n == counts[i] / n + 1);
                assert_int_equal(model_share_of(&desc, r, 0, SIZE_INNER).n, 250);
                at += experts.n;
            }
            assert_int_equal(at, counts[i]);
            const int status = model_share_check(&desc, n, &err);
            assert_int_equal(status, counts[i] < n ? QUIRE_UNSUPPORTED : QUIRE_OK);
            assert_true(status == QUIRE_OK || strstr(err.text, "num_experts"));
        }
}

/* Each layer is one stage's, and no stage has two more than another. */
static void check_deal(uint32_t n_layers, uint32_t n_stages, bool last_has_more)
{
    const uint32_t n = n_layers / n_stages, n_more = n_layers % n_stages;
    uint32_t at = 0, n_between = 0, ends[2] = {0, 0};
    for (uint32_t i = 0; i < n_stages; i++) {
        const struct model_range layers = model_stage_layers(n_layers, i, n_stages, last_has_more);
        assert_int_equal(layers.first, at);
        assert_true(layers.n == n || layers.n == n + 1);
        at += layers.n;
        if (i > 0 && i + 1 < n_stages)
            n_between += layers.n - n;
        else
            ends[i > 0] = layers.n - n;
    }
    assert_int_equal(at, n_layers);
    assert_int_equal(n_between, n_stages > 2 && n_more > n_stages - 2 ? n_stages - 2 : n_stages > 2 ? n_more : 0);
    assert_int_equal(ends[!last_has_more], 0);
}

static void layers_that_do_not_divide(void **state)
{
    (void)state;
    for (uint32_t n_layers = 1; n_layers <= 40; n_layers++)
        for (uint32_t n_stages = 1; n_stages <= 8 && n_stages <= n_layers; n_stages++) {
            check_deal(n_layers, n_stages, false);
            check_deal(n_layers, n_stages, true);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_defaults),
        cmocka_unit_test(model_type_stands_in_for_architectures),
        cmocka_unit_test(dtype_in_both_layouts),
        cmocka_unit_test(mistral_windows),
        cmocka_unit_test(qwen_windows),
        cmocka_unit_test(qwen3_heads),
        cmocka_unit_test(olmo2_norms),
        cmocka_unit_test(layers_of_two_kinds),
        cmocka_unit_test(factors_and_softcaps),
        cmocka_unit_test(long_rope),
        cmocka_unit_test(rope_in_both_layouts),
        cmocka_unit_test(yarn_fields),
        cmocka_unit_test(generation_config_wins),
        cmocka_unit_test(what_cannot_be_served_is_refused_and_named),
        cmocka_unit_test(sizes_are_bounded),
        cmocka_unit_test(as_python_writes_it),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(directories),
        cmocka_unit_test(module_files),
        cmocka_unit_test(numbers_of_ranks),
        cmocka_unit_test(experts_of_ranks),
        cmocka_unit_test(layers_that_do_not_divide),
    };
    return cmocka_run_group_tests_name("engine_describe", tests, NULL, NULL);
}
