#include "files/gguf_made.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes config.json and generation_config.json. A property in the GGUF file that a config.json cannot express is
 * rejected by its key, so that the model is never computed without it. */

#define KEY_BYTES 160

struct maker {
    const struct gguf *g;
    json_t *json;
    char arch[32];
    struct quire_error *err;
    int status; /* the first failure; afterwards every call does nothing */
};

static const struct {
    const char *gguf, *transformers, *model_type;
} architectures[] = {{"llama", "LlamaForCausalLM", "llama"},
                     {"qwen2", "Qwen2ForCausalLM", "qwen2"},
                     {"qwen3", "Qwen3ForCausalLM", "qwen3"},
                     {"olmo2", "Olmo2ForCausalLM", "olmo2"}};
#define N_ARCHITECTURES (sizeof architectures / sizeof *architectures)

/* "qwen2.block_count" of "block_count". */
static const char *key_of(const struct maker *m, const char *key, char out[KEY_BYTES])
{
    snprintf(out, KEY_BYTES, "%s.%s", m->arch, key);
    return out;
}

static bool has(const struct maker *m, const char *key)
{
    char full[KEY_BYTES];
    struct gguf_value ignored;
    return gguf_find(m->g, key_of(m, key, full), &ignored);
}

static void set(struct maker *m, const char *name, json_t *value)
{
    if (m->status == QUIRE_OK && json_object_set_new(m->json, name, value) != 0)
        m->status = quire_fail(m->err, QUIRE_NO_MEMORY, "%s: out of memory", gguf_name(m->g));
    else if (m->status != QUIRE_OK)
        json_decref(value);
}

/* Reads a key of the architecture. `must`: the key is required. */
static uint64_t integer(struct maker *m, const char *key, bool must)
{
    char full[KEY_BYTES];
    uint64_t value = 0;
    key_of(m, key, full);
    if (m->status != QUIRE_OK)
        return 0;
    m->status = gguf_u64(m->g, full, &value, m->err);
    if (m->status == QUIRE_OK && value > INT64_MAX)
        m->status = quire_fail(m->err, QUIRE_INVALID, "%s: %s: is too large", gguf_name(m->g), full);
    if (m->status == QUIRE_OK && must && !has(m, key))
        m->status = quire_fail(m->err, QUIRE_INVALID, "%s: %s: is missing", gguf_name(m->g), full);
    return value;
}

static double number(struct maker *m, const char *key, double otherwise)
{
    char full[KEY_BYTES];
    double value = otherwise;
    if (m->status == QUIRE_OK)
        m->status = gguf_f64(m->g, key_of(m, key, full), &value, m->err);
    return value;
}

static void set_integer(struct maker *m, const char *name, const char *key, bool must)
{
    uint64_t value = integer(m, key, must);
    if (must || has(m, key))
        set(m, name, json_integer((json_int_t)value));
}

static bool has_tensor(const struct maker *m, const char *name)
{
    return gguf_find_tensor(m->g, name) != NULL;
}

static void take_architecture(struct maker *m)
{
    struct gguf_text arch = {NULL, 0};
    m->status = gguf_string(m->g, "general.architecture", &arch, m->err);
    if (m->status != QUIRE_OK)
        return;
    for (size_t i = 0; i < N_ARCHITECTURES; i++) {
        if (arch.n != strlen(architectures[i].gguf) || memcmp(arch.data, architectures[i].gguf, arch.n) != 0)
            continue;
        snprintf(m->arch, sizeof m->arch, "%s", architectures[i].gguf);
        /* Mistral is called llama in GGUF. Its first models have a window, which llama does not have. */
        bool mistral = i == 0 && integer(m, "attention.sliding_window", false) > 0;
        set(m, "architectures", json_pack("[s]", mistral ? "MistralForCausalLM" : architectures[i].transformers));
        set(m, "model_type", json_string(mistral ? "mistral" : architectures[i].model_type));
        if (mistral)
            set_integer(m, "sliding_window", "attention.sliding_window", true);
        return;
    }
    char shown[48] = "";
    for (size_t i = 0; i < arch.n && i + 1 < sizeof shown; i++)
        shown[i] = arch.data[i] >= 0x20 && arch.data[i] < 0x7f ? arch.data[i] : '?';
    m->status = quire_fail(m->err, QUIRE_UNSUPPORTED,
                           "%s: general.architecture: '%s' is not supported; supported: llama (Mistral's too), qwen2, "
                           "qwen3, olmo2",
                           gguf_name(m->g), shown);
}

/* ---- keys that make another model of it -------------------------------------------------------------
 * Of those that llama.cpp knows (its llama-arch.cpp), all that could change what a model of these architectures computes, with
 * the values that change nothing. Another value is refused. */

#define ABSENT 1, {0} /* a number of 0, false, or an empty array */
#define UNIT 2, {0, 1}
static const struct {
    const char *key;
    uint32_t n;
    double neutral[2];
} switches[] = {
    /* attention */
    {"attention.causal", 1, {1}},
    {"attention.clamp_kqv", ABSENT},
    {"attention.max_alibi_bias", ABSENT},
    {"attention.alibi", ABSENT},
    {"attention.output_scale", UNIT},
    {"attention.value_scale", UNIT},
    {"attention.temperature_length", ABSENT},
    {"attention.temperature_scale", ABSENT},
    {"attention.relative_buckets_count", ABSENT},
    {"attention.q_lora_rank", ABSENT},
    {"attention.kv_lora_rank", ABSENT},
    {"attention.key_length_mla", ABSENT},
    {"attention.value_length_mla", ABSENT},
    {"attention.output_group_count", ABSENT},
    {"attention.output_lora_rank", ABSENT},
    {"attention.shared_kv_layers", ABSENT},
    {"attention.recurrent_layers", ABSENT},
    {"attention.compress_ratios", ABSENT},
    {"attention.indexer.head_count", ABSENT},
    {"attention.indexer.top_k", ABSENT},
    {"attention.group_norm_groups", ABSENT},
    {"attn_logit_softcapping", ABSENT},
    /* RoPE */
    {"rope.dimension_sections", ABSENT},
    {"rope.scaling.alpha", UNIT},
    {"rope.scaling.attn_factor", 1, {1}},
    {"rope.scaling.yarn_attn_factor", 1, {1}},
    {"rope.scaling.yarn_ext_factor", 2, {1, -1}},
    {"rope.scaling.yarn_log_multiplier", ABSENT},
    /* scales, norms and activations */
    {"logit_scale", UNIT},
    {"embedding_scale", UNIT},
    {"residual_scale", UNIT},
    {"final_logit_softcapping", ABSENT},
    {"router_logit_softcapping", ABSENT},
    {"swiglu_clamp_exp", ABSENT},
    {"swiglu_clamp_shexp", ABSENT},
    {"use_parallel_residual", ABSENT},
    {"norm_before_residual", ABSENT},
    {"swin_norm", ABSENT},
    {"rescale_every_n_layers", ABSENT},
    /* experts */
    {"expert_count", ABSENT},
    {"expert_used_count", ABSENT},
    {"expert_shared_count", ABSENT},
    {"expert_group_count", ABSENT},
    {"expert_group_used_count", ABSENT},
    {"interleave_moe_layer_step", ABSENT},
    {"moe_every_n_layers", ABSENT},
    /* other layers, and other models */
    {"nextn_predict_layers", ABSENT},
    {"n_deepstack_layers", ABSENT},
    {"full_attention_interval", ABSENT},
    {"token_shift_count", ABSENT},
    {"hash_layer_count", ABSENT},
    {"hyper_connection.count", ABSENT},
    {"shortconv.l_cache", ABSENT},
    {"ssm.conv_kernel", ABSENT},
    {"ssm.state_size", ABSENT},
    {"ssm.inner_size", ABSENT},
    {"wkv.head_size", ABSENT},
    {"kda.head_dim", ABSENT},
    {"embedding_length_per_layer_input", ABSENT},
    {"decoder_block_count", ABSENT},
    {"classifier.output_labels", ABSENT},
    {"dense_2_feat_in", ABSENT},
    {"dense_2_feat_out", ABSENT},
    {"dense_3_feat_in", ABSENT},
    {"dense_3_feat_out", ABSENT},
    /* pooling of the vector: 0 none, 3 the last token, which is the pooling of a decoder here */
    {"pooling_type", 2, {0, 3}},
};

static void refuse(struct maker *m, const char *key, const char *why)
{
    if (m->status == QUIRE_OK)
        m->status = quire_fail(m->err, QUIRE_UNSUPPORTED, "%s: %s.%s: is not supported%s", gguf_name(m->g), m->arch,
                               key, why);
}

/* How many of an array's elements are not 0; strings all are not. */
static double n_set(const struct gguf_value *v)
{
    static const uint8_t sizes[GGUF_N_KINDS] = {
        [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
        [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8};
    static const uint8_t zero[8] = {0};
    const size_t size = sizes[v->kind];
    uint64_t n = size ? 0 : v->n;
    for (uint64_t i = 0; size && i < v->n; i++)
        n += memcmp(v->data + i * size, zero, size) != 0;
    return (double)n;
}

/* A scalar of whatever kind as a number; a string is NaN. An array counts as what is set of it. */
static double scalar(const struct maker *m, const char *full, const struct gguf_value *v)
{
    uint64_t whole = 0;
    double value = (double)NAN;
    bool flag = false;
    if (v->is_array)
        return n_set(v);
    if (v->kind == GGUF_STRING)
        return (double)NAN;
    if (v->kind == GGUF_BOOL)
        return gguf_bool(m->g, full, &flag, NULL) == QUIRE_OK ? flag : (double)NAN;
    if (v->kind == GGUF_F32 || v->kind == GGUF_F64)
        return gguf_f64(m->g, full, &value, NULL) == QUIRE_OK ? value : (double)NAN;
    return gguf_u64(m->g, full, &whole, NULL) == QUIRE_OK ? (double)whole : -1.0;
}

static bool find(const struct maker *m, const char *key, double *out)
{
    char full[KEY_BYTES];
    struct gguf_value v;
    if (!gguf_find(m->g, key_of(m, key, full), &v))
        return false;
    *out = scalar(m, full, &v);
    return true;
}

static void refuse_switches(struct maker *m)
{
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
        double value;
        char why[48];
        if (!find(m, switches[i].key, &value) || value == switches[i].neutral[0] ||
            (switches[i].n > 1 && value == switches[i].neutral[1]))
            continue;
        snprintf(why, sizeof why, ", got %g", value);
        refuse(m, switches[i].key, why);
    }
}

/* Rejects values that contradict another key. */
static void refuse_others(struct maker *m)
{
    static const char *const pairs[][2] = {
        {"attention.key_length_swa", "attention.key_length"},
        {"attention.value_length_swa", "attention.value_length"},
        {"rope.dimension_count_swa", "rope.dimension_count"},
        {"embedding_length_out", "embedding_length"},
        {"rope.freq_base_swa", "rope.freq_base"},
    };
    struct gguf_text act = {"silu", 4};
    char full[KEY_BYTES];
    double scale, other, window, context;
    refuse_switches(m);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (find(m, pairs[i][0], &scale) && scale != 0 && (!find(m, pairs[i][1], &other) || scale != other))
            refuse(m, pairs[i][0], " if it differs between layers");
    /* The scale of scores is 1 / sqrt(head_dim); files have it as f32. */
    const double head_dim = find(m, "attention.key_length", &other) ? other
                            : find(m, "embedding_length", &other) && find(m, "attention.head_count", &scale) &&
                                    scale > 0
                                ? other / scale
                                : 0;
    if (find(m, "attention.scale", &scale) && scale != 0 && !(fabs(scale * sqrt(head_dim) - 1) < 1e-6))
        refuse(m, "attention.scale", "; supported: 1 / sqrt(key_length)");
    if (m->status == QUIRE_OK)
        m->status = gguf_string(m->g, key_of(m, "hidden_activation", full), &act, m->err);
    if (!(act.n == 4 && memcmp(act.data, "silu", 4) == 0))
        refuse(m, "hidden_activation", "; supported: silu");
    /* llama with a window is Mistral, whose window is every layer's. */
    if (strcmp(m->arch, "llama") != 0 && find(m, "attention.sliding_window", &window) && window != 0 &&
        !(find(m, "context_length", &context) && window >= context))
        refuse(m, "attention.sliding_window", " for this architecture");
    if (find(m, "attention.sliding_window", &window) && window != 0 &&
        find(m, "attention.sliding_window_pattern", &other) && other > 1)
        refuse(m, "attention.sliding_window_pattern", "; supported: one window for every layer");
    struct gguf_value banned;
    if (gguf_find(m->g, "tokenizer.ggml.suppress_tokens", &banned) && banned.n > 0 && m->status == QUIRE_OK)
        m->status = quire_fail(m->err, QUIRE_UNSUPPORTED, "%s: tokenizer.ggml.suppress_tokens: is not supported",
                               gguf_name(m->g));
}

static void set_sizes(struct maker *m)
{
    struct gguf_value tokens = {.n = 0};
    set_integer(m, "hidden_size", "embedding_length", true);
    set_integer(m, "num_hidden_layers", "block_count", true);
    set_integer(m, "intermediate_size", "feed_forward_length", true);
    set_integer(m, "max_position_embeddings", "context_length", true);
    const uint64_t hidden = integer(m, "embedding_length", true), heads = integer(m, "attention.head_count", true);
    set(m, "num_attention_heads", json_integer((json_int_t)heads));
    set(m, "num_key_value_heads",
        json_integer(
            (json_int_t)(has(m, "attention.head_count_kv") ? integer(m, "attention.head_count_kv", true) : heads)));
    uint64_t head_dim = integer(m, "attention.key_length", false);
    if (!head_dim && heads)
        head_dim = hidden / heads;
    if (has(m, "attention.value_length") && integer(m, "attention.value_length", false) != head_dim &&
        m->status == QUIRE_OK)
        m->status = quire_fail(m->err, QUIRE_UNSUPPORTED, "%s: %s.attention.value_length: must equal key_length",
                               gguf_name(m->g), m->arch);
    set(m, "head_dim", json_integer((json_int_t)head_dim));
    if (has(m, "rope.dimension_count") && head_dim)
        set(m, "partial_rotary_factor", json_real((double)integer(m, "rope.dimension_count", true) / (double)head_dim));
    /* The embedding's rows are the truth: vocab_size may be left out, and tokens may be padded. */
    const struct gguf_tensor *embedding = gguf_find_tensor(m->g, "token_embd.weight");
    gguf_find(m->g, "tokenizer.ggml.tokens", &tokens);
    uint64_t vocab = embedding ? embedding->size[1] : tokens.n;
    set(m, "vocab_size", json_integer((json_int_t)(vocab < INT64_MAX ? vocab : INT64_MAX)));
    char full[KEY_BYTES];
    if (m->status == QUIRE_OK && !has(m, "attention.layer_norm_rms_epsilon"))
        m->status = quire_fail(m->err, QUIRE_INVALID, "%s: %s: is missing", gguf_name(m->g),
                               key_of(m, "attention.layer_norm_rms_epsilon", full));
    set(m, "rms_norm_eps", json_real(number(m, "attention.layer_norm_rms_epsilon", 0)));
}

static bool text_is(struct gguf_text text, const char *what)
{
    return text.n == strlen(what) && memcmp(text.data, what, text.n) == 0;
}

/* A factor without a type is linear; "none" disables scaling, whatever the factor. */
static void set_rope(struct maker *m)
{
    struct gguf_text type = {"linear", 6};
    char full[KEY_BYTES];
    set(m, "rope_theta", json_real(number(m, "rope.freq_base", 10000.0)));
    if (m->status == QUIRE_OK)
        m->status = gguf_string(m->g, key_of(m, "rope.scaling.type", full), &type, m->err);
    double factor = number(m, "rope.scaling.factor", number(m, "rope.scale_linear", 0.0));
    if (m->status != QUIRE_OK || text_is(type, "none") || (text_is(type, "linear") && factor == 0.0))
        return;
    bool yarn = text_is(type, "yarn"), linear = text_is(type, "linear");
    if (!yarn && !linear) {
        m->status = quire_fail(m->err, QUIRE_UNSUPPORTED, "%s: %s.rope.scaling.type: must be none, linear or yarn",
                               gguf_name(m->g), m->arch);
        return;
    }
    json_t *scaling = json_pack("{s:s, s:f}", "rope_type", yarn ? "yarn" : "linear", "factor", factor);
    /* context_length is what the scaling has made of it; config.json's is before a linear one. */
    if (linear && factor >= 1.0)
        set(m, "max_position_embeddings",
            json_integer((json_int_t)((double)integer(m, "context_length", true) / factor)));
    if (yarn && has(m, "rope.scaling.original_context_length"))
        json_object_set_new(scaling, "original_max_position_embeddings",
                            json_integer((json_int_t)integer(m, "rope.scaling.original_context_length", true)));
    if (yarn && has(m, "rope.scaling.yarn_beta_fast"))
        json_object_set_new(scaling, "beta_fast", json_real(number(m, "rope.scaling.yarn_beta_fast", 32)));
    if (yarn && has(m, "rope.scaling.yarn_beta_slow"))
        json_object_set_new(scaling, "beta_slow", json_real(number(m, "rope.scaling.yarn_beta_slow", 1)));
    set(m, "rope_scaling", scaling);
}

/* Token ids that a text may end with: what the keys say, and tokens that are there to end a turn under their usual names. */
static json_t *ends(struct maker *m)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    static const char *const names[] = {"<|im_end|>",      "<|eot_id|>",    "<|eom_id|>",     "<|endoftext|>",
                                        "<|end_of_text|>", "<end_of_turn>", "<|endofprompt|>"};
    struct gguf_value tokens = {.n = 0}, kinds = {.n = 0};
    json_t *list = json_array();
    for (size_t i = 0; i < 3 && m->status == QUIRE_OK; i++) {
        uint64_t id = UINT64_MAX;
        m->status = gguf_u64(m->g, keys[i], &id, m->err);
        if (id <= INT32_MAX)
            json_array_append_new(list, json_integer((json_int_t)id));
    }
    if (m->status == QUIRE_OK)
        m->status = gguf_array(m->g, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, m->err);
    if (m->status == QUIRE_OK)
        m->status = gguf_array(m->g, "tokenizer.ggml.token_type", GGUF_I32, &kinds, m->err);
    const uint8_t *at = tokens.data;
    for (uint64_t i = 0; m->status == QUIRE_OK && i < tokens.n && i <= INT32_MAX; i++) {
        struct gguf_text token = gguf_next_string(&at);
        bool is_control = i < kinds.n && kinds.data[4 * i] == 3, known = false;
        for (size_t k = 0; is_control && k < sizeof names / sizeof *names; k++)
            known = known || text_is(token, names[k]);
        for (size_t k = 0; known && k < json_array_size(list); k++)
            known = json_integer_value(json_array_get(list, k)) != (json_int_t)i;
        if (known)
            json_array_append_new(list, json_integer((json_int_t)i));
    }
    return list;
}

static void set_tokens(struct maker *m)
{
    uint64_t bos = UINT64_MAX;
    set(m, "eos_token_id", ends(m));
    if (m->status == QUIRE_OK)
        m->status = gguf_u64(m->g, "tokenizer.ggml.bos_token_id", &bos, m->err);
    set(m, "bos_token_id", bos <= INT32_MAX ? json_integer((json_int_t)bos) : json_null());
}

static int finish(struct maker *m, struct buffer *out)
{
    char *text = m->status == QUIRE_OK ? json_dumps(m->json, JSON_INDENT(1) | JSON_SORT_KEYS) : NULL;
    if (m->status == QUIRE_OK && (!text || buffer_append(out, text, strlen(text)) != QUIRE_OK))
        m->status = quire_fail(m->err, QUIRE_NO_MEMORY, "%s: out of memory", gguf_name(m->g));
    free(text);
    json_decref(m->json);
    return m->status;
}

int gguf_make_config(const struct gguf *g, struct buffer *out, struct quire_error *err)
{
    struct maker m = {.g = g, .json = json_object(), .err = err, .status = QUIRE_OK};
    take_architecture(&m);
    if (m.status == QUIRE_OK) {
        refuse_others(&m);
        set_sizes(&m);
        set_rope(&m);
        set_tokens(&m);
        set(&m, "tie_word_embeddings", json_boolean(!has_tensor(&m, "output.weight")));
        set(&m, "attention_bias", json_boolean(has_tensor(&m, "blk.0.attn_q.bias")));
        set(&m, "mlp_bias", json_boolean(has_tensor(&m, "blk.0.ffn_up.bias")));
    }
    return finish(&m, out);
}

int gguf_make_generation(const struct gguf *g, struct buffer *out, struct quire_error *err)
{
    static const char *const numbers[][2] = {{"general.sampling.temp", "temperature"},
                                             {"general.sampling.top_p", "top_p"},
                                             {"general.sampling.min_p", "min_p"},
                                             {"general.sampling.penalty_repeat", "repetition_penalty"}};
    struct maker m = {.g = g, .json = json_object(), .err = err, .status = QUIRE_OK};
    struct gguf_value ignored;
    for (size_t i = 0; i < 4 && m.status == QUIRE_OK; i++) {
        double value = 0;
        m.status = gguf_f64(g, numbers[i][0], &value, err);
        if (gguf_find(g, numbers[i][0], &ignored))
            set(&m, numbers[i][1], json_real(value));
    }
    uint64_t top_k = 0;
    if (m.status == QUIRE_OK)
        m.status = gguf_u64(g, "general.sampling.top_k", &top_k, err);
    if (gguf_find(g, "general.sampling.top_k", &ignored))
        set(&m, "top_k", json_integer((json_int_t)(top_k <= INT32_MAX ? top_k : 0)));
    return finish(&m, out);
}
