#include "engine/model/architectures/architecture.h"

#include "base/encoding/json.h"

#include <stdio.h>
#include <string.h>

#define CONFIG "config.json"

static const struct model_expert_rules mixtral_experts = {
    .default_experts = 8, .default_used = 2, .names = EXPERTS_W1, .normalizes = true};
static const struct model_expert_rules qwen2_experts = {.default_experts = 60,
                                                        .default_used = 4,
                                                        .default_inner = 1408,
                                                        .default_shared = 5632,
                                                        .shared_key = "shared_expert_intermediate_size",
                                                        .shared_gate = true,
                                                        .may_skip_layers = true};
static const struct model_expert_rules qwen3_experts = {
    .default_experts = 128, .default_used = 8, .default_inner = 768, .may_skip_layers = true};
static const struct model_expert_rules olmo_experts = {.default_experts = 64, .default_used = 8};
static const struct model_expert_rules gpt_oss_experts = {.default_experts = 128,
                                                          .default_used = 4,
                                                          .names = EXPERTS_TRANSPOSED,
                                                          .router = ROUTER_TOP_SOFTMAX,
                                                          .default_limit = 7};
static const struct model_expert_rules granite_experts = {
    .default_experts = 8, .default_used = 2, .names = EXPERTS_LINEAR, .router = ROUTER_TOP_SOFTMAX};
static const struct model_expert_rules granite_shared_experts = {.default_experts = 8,
                                                                 .default_used = 2,
                                                                 .shared_key = "shared_intermediate_size",
                                                                 .names = EXPERTS_LINEAR,
                                                                 .router = ROUTER_TOP_SOFTMAX};
static const struct model_expert_rules glm4_experts = {
    .default_experts = 128, .default_used = 8, .default_inner = 1408, .router = ROUTER_SIGMOID, .deepseek = true};

/* Fields that all encoders here share. */
#define ENCODER \
    .default_max_position = 512, .default_bos = -1, .default_eos = -1, .default_rms_eps = 1e-12, .encoder = true

#define GRANITE \
    .default_max_position = 2048, .default_bos = 1, .default_eos = 2, .reads_attention_bias = true, \
    .reads_multipliers = true

static const struct architecture architectures[] = {
    {.name = "LlamaForCausalLM",
     .model_type = "llama",
     .default_max_position = 2048,
     .default_bos = 1,
     .default_eos = 2,
     .reads_attention_bias = true,
     .reads_mlp_bias = true},
    {.name = "MistralForCausalLM",
     .model_type = "mistral",
     .default_kv_heads = 8,
     .default_max_position = 131072,
     .default_bos = 1,
     .default_eos = 2,
     .window = WINDOW_EVERY_LAYER},
    {.name = "Qwen2ForCausalLM",
     .model_type = "qwen2",
     .default_kv_heads = 32,
     .default_max_position = 32768,
     .default_bos = -1,
     .default_eos = -1,
     .qkv_bias = true,
     .window = WINDOW_UPPER_LAYERS},
    {.name = "Qwen3ForCausalLM",
     .model_type = "qwen3",
     .default_kv_heads = 32,
     .default_head_dim = 128,
     .default_max_position = 32768,
     .default_bos = -1,
     .default_eos = -1,
     .reads_attention_bias = true,
     .head_norm = HEAD_NORM_EACH,
     .window = WINDOW_UPPER_LAYERS},
    {.name = "Olmo2ForCausalLM",
     .model_type = "olmo2",
     .default_max_position = 2048,
     .default_bos = -1,
     .default_eos = 50279,
     .default_rms_eps = 1e-5,
     .reads_attention_bias = true,
     .norm_place = NORM_POST,
     .head_norm = HEAD_NORM_ALL},
    {.name = "MixtralForCausalLM",
     .model_type = "mixtral",
     .default_kv_heads = 8,
     .default_max_position = 131072,
     .default_bos = 1,
     .default_eos = 2,
     .default_rms_eps = 1e-5,
     .window = WINDOW_EVERY_LAYER_OR_NONE,
     .rope = {.theta = 1e6},
     .experts = &mixtral_experts},
    {.name = "Qwen2MoeForCausalLM",
     .model_type = "qwen2_moe",
     .default_kv_heads = 16,
     .default_max_position = 32768,
     .default_bos = -1,
     .default_eos = -1,
     .qkv_bias = true,
     .window = WINDOW_REFUSED,
     .experts = &qwen2_experts},
    {.name = "Qwen3MoeForCausalLM",
     .model_type = "qwen3_moe",
     .default_kv_heads = 4,
     .default_max_position = 32768,
     .default_bos = -1,
     .default_eos = -1,
     .reads_attention_bias = true,
     .head_norm = HEAD_NORM_EACH,
     .window = WINDOW_REFUSED,
     .experts = &qwen3_experts},
    {.name = "OlmoeForCausalLM",
     .model_type = "olmoe",
     .default_max_position = 4096,
     .default_bos = -1,
     .default_eos = 50279,
     .default_rms_eps = 1e-5,
     .reads_attention_bias = true,
     .head_norm = HEAD_NORM_ALL,
     .experts = &olmo_experts},
    {.name = "GptOssForCausalLM",
     .model_type = "gpt_oss",
     .default_kv_heads = 8,
     .default_head_dim = 64,
     .default_max_position = 131072,
     .default_bos = -1,
     .default_eos = -1,
     .default_rms_eps = 1e-5,
     .reads_attention_bias = true,
     .attention_bias = true,
     .sinks = true,
     .window = WINDOW_PATTERN,
     .default_window = 128,
     .window_pattern = 2,
     .rope = {.theta = 150000.0, .is_scaled = true},
     .experts = &gpt_oss_experts},
    {.name = "GraniteMoeForCausalLM", .model_type = "granitemoe", GRANITE, .experts = &granite_experts},
    {.name = "GraniteMoeSharedForCausalLM",
     .model_type = "granitemoeshared",
     GRANITE,
     .experts = &granite_shared_experts},
    {.name = "Glm4MoeForCausalLM",
     .model_type = "glm4_moe",
     .default_kv_heads = 8,
     .default_max_position = 131072,
     .default_bos = -1,
     .default_eos = -1,
     .default_rms_eps = 1e-5,
     .reads_attention_bias = true,
     .no_o_bias = true,
     .head_norm = HEAD_NORM_EACH,
     .reads_head_norm = true,
     .rope = {.partial = true, .default_share = 0.5},
     .experts = &glm4_experts},
    {.name = "SmolLM3ForCausalLM",
     .model_type = "smollm3",
     .default_kv_heads = 4,
     .default_max_position = 32768,
     .default_bos = 128000,
     .default_eos = 128001,
     .reads_attention_bias = true,
     .reads_mlp_bias = true,
     .window = WINDOW_LAYER_TYPES,
     .rope = {.theta = 2000000.0, .no_rope_interval = 4},
     .tied = true},
    {.name = "Olmo3ForCausalLM",
     .model_type = "olmo3",
     .default_max_position = 2048,
     .default_bos = -1,
     .default_eos = 50279,
     .default_rms_eps = 1e-5,
     .reads_attention_bias = true,
     .norm_place = NORM_POST,
     .head_norm = HEAD_NORM_ALL,
     .window = WINDOW_PATTERN,
     .window_pattern = 4,
     .rope = {.theta = 500000.0, .by_window = true}},
    {.name = "Phi3ForCausalLM",
     .model_type = "phi3",
     .default_max_position = 4096,
     .default_bos = 1,
     .default_eos = 32000,
     .default_rms_eps = 1e-5,
     .window = WINDOW_EVERY_LAYER_OR_NONE,
     .rope = {.partial = true},
     .fused = true},
    {.name = "GraniteForCausalLM", .model_type = "granite", GRANITE, .reads_mlp_bias = true},
    {.name = "GemmaForCausalLM",
     .model_type = "gemma",
     .default_kv_heads = 16,
     .default_head_dim = 256,
     .default_max_position = 8192,
     .default_bos = 2,
     .default_eos = 1,
     .reads_attention_bias = true,
     .tied = true,
     .gemma = true},
    {.name = "Gemma2ForCausalLM",
     .model_type = "gemma2",
     .default_kv_heads = 4,
     .default_head_dim = 256,
     .default_max_position = 8192,
     .default_bos = 2,
     .default_eos = 1,
     .reads_attention_bias = true,
     .norm_place = NORM_BOTH,
     .window = WINDOW_PATTERN,
     .window_pattern = 2,
     .tied = true,
     .gemma = true,
     .default_query_scalar = 256,
     .default_softcap = 50,
     .default_logit_softcap = 30},
    {.name = "Gemma3ForCausalLM",
     .model_type = "gemma3_text",
     .default_kv_heads = 4,
     .default_head_dim = 256,
     .default_max_position = 131072,
     .default_bos = 2,
     .default_eos = 1,
     .reads_attention_bias = true,
     .norm_place = NORM_BOTH,
     .head_norm = HEAD_NORM_EACH,
     .window = WINDOW_PATTERN,
     .window_pattern = 6,
     .rope = {.theta = 1000000.0, .by_window = true, .local_theta = 10000.0},
     .tied = true,
     .gemma = true,
     .default_query_scalar = 256},
    {.name = "BertModel", .model_type = "bert", ENCODER},
    {.name = "BertForSequenceClassification", .model_type = "bert", ENCODER, .classifier = true},
    {.name = "RobertaModel", .model_type = "roberta", ENCODER, .roberta = true},
    {.name = "RobertaForSequenceClassification", .model_type = "roberta", ENCODER, .roberta = true, .classifier = true},
    {.name = "XLMRobertaModel", .model_type = "xlm-roberta", ENCODER, .roberta = true},
    {.name = "XLMRobertaForSequenceClassification",
     .model_type = "xlm-roberta",
     ENCODER,
     .roberta = true,
     .classifier = true},
};
#define N_ARCHITECTURES (sizeof architectures / sizeof architectures[0])

int architecture_find(const json_t *config, const struct architecture **out, struct quire_error *err)
{
    json_t *list = NULL;
    const char *name = NULL, *model_type = NULL, *field = "architectures";
    char shown[64];
    int status = quire_json_array(config, CONFIG, "architectures", &list, err);
    if (status == QUIRE_OK)
        status = quire_json_string(config, CONFIG, "model_type", &model_type, err);
    if (status != QUIRE_OK)
        return status;
    if (list && json_array_size(list) > 0) {
        if (!json_is_string(json_array_get(list, 0)))
            return quire_fail(err, QUIRE_INVALID, CONFIG ": architectures: must hold strings");
        name = json_string_value(json_array_get(list, 0));
    } else if (model_type) {
        field = "model_type";
    } else {
        return quire_fail(err, QUIRE_INVALID, CONFIG ": architectures: is missing");
    }
    for (size_t i = 0; i < N_ARCHITECTURES; i++) {
        if (strcmp(name ? name : model_type, name ? architectures[i].name : architectures[i].model_type) == 0) {
            *out = &architectures[i];
            return QUIRE_OK;
        }
    }
    char supported[1024] = "";
    for (size_t i = 0, at = 0; i < N_ARCHITECTURES && at < sizeof supported; i++)
        at += (size_t)snprintf(supported + at, sizeof supported - at, "%s%s", i ? ", " : "", architectures[i].name);
    return quire_fail(err, QUIRE_UNSUPPORTED, CONFIG ": %s: '%s' is not supported; supported: %s", field,
                      model_shown(name ? name : model_type, shown, sizeof shown), supported);
}
