#include "files/gguf_family.h"
#include "files/gguf_maker.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The table lists the keys of llama.cpp (its llama-arch.cpp) that could change the computation of a model of these
 * architectures, with the values that leave it unchanged. Another value is refused. */

#define ABSENT 1, {0} /* a number of 0, false, or an empty array */
#define UNIT 2, {0, 1}
static const struct {
    const char *key;
    uint32_t unless; /* enum gguf_reads: a family that reads the key */
    uint32_t n;
    double neutral[2];
} switches[] = {
    /* attention */
    {"attention.causal", 0, 1, {1}},
    {"attention.clamp_kqv", 0, ABSENT},
    {"attention.max_alibi_bias", 0, ABSENT},
    {"attention.alibi", 0, ABSENT},
    {"attention.output_scale", 0, UNIT},
    {"attention.value_scale", 0, UNIT},
    {"attention.temperature_length", 0, ABSENT},
    {"attention.temperature_scale", 0, ABSENT},
    {"attention.relative_buckets_count", 0, ABSENT},
    {"attention.q_lora_rank", 0, ABSENT},
    {"attention.kv_lora_rank", 0, ABSENT},
    {"attention.key_length_mla", 0, ABSENT},
    {"attention.value_length_mla", 0, ABSENT},
    {"attention.output_group_count", 0, ABSENT},
    {"attention.output_lora_rank", 0, ABSENT},
    {"attention.shared_kv_layers", 0, ABSENT},
    {"attention.recurrent_layers", 0, ABSENT},
    {"attention.compress_ratios", 0, ABSENT},
    {"attention.indexer.head_count", 0, ABSENT},
    {"attention.indexer.top_k", 0, ABSENT},
    {"attention.group_norm_groups", 0, ABSENT},
    {"attn_logit_softcapping", GGUF_READS_SOFTCAP, ABSENT},
    /* RoPE */
    {"rope.dimension_sections", 0, ABSENT},
    {"rope.scaling.alpha", 0, UNIT},
    {"rope.scaling.attn_factor", GGUF_READS_LONG_ROPE, 1, {1}},
    {"rope.scaling.yarn_ext_factor", 0, 2, {1, -1}},
    {"rope.scaling.yarn_log_multiplier", 0, ABSENT},
    /* scales, norms and activations */
    {"logit_scale", GGUF_READS_SCALES, UNIT},
    {"embedding_scale", GGUF_READS_SCALES, UNIT},
    {"residual_scale", GGUF_READS_SCALES, UNIT},
    {"final_logit_softcapping", GGUF_READS_LOGIT_SOFTCAP, ABSENT},
    {"router_logit_softcapping", 0, ABSENT},
    {"swiglu_clamp_exp", 0, ABSENT},
    {"swiglu_clamp_shexp", 0, ABSENT},
    {"use_parallel_residual", 0, ABSENT},
    {"norm_before_residual", 0, ABSENT},
    {"swin_norm", 0, ABSENT},
    {"rescale_every_n_layers", 0, ABSENT},
    /* experts */
    {"expert_count", GGUF_READS_EXPERTS, ABSENT},
    {"expert_used_count", GGUF_READS_EXPERTS, ABSENT},
    {"expert_shared_count", 0, ABSENT},
    {"expert_group_count", 0, ABSENT},
    {"expert_group_used_count", 0, ABSENT},
    {"expert_weights_scale", 0, UNIT},
    {"expert_gating_func", 0, 2, {0, 1}}, /* unknown, or a softmax */
    {"leading_dense_block_count", 0, ABSENT},
    {"interleave_moe_layer_step", 0, ABSENT},
    {"moe_every_n_layers", 0, ABSENT},
    /* other layers, and other models */
    {"nextn_predict_layers", 0, ABSENT},
    {"n_deepstack_layers", 0, ABSENT},
    {"full_attention_interval", 0, ABSENT},
    {"token_shift_count", 0, ABSENT},
    {"hash_layer_count", 0, ABSENT},
    {"hyper_connection.count", 0, ABSENT},
    {"shortconv.l_cache", 0, ABSENT},
    {"ssm.conv_kernel", 0, ABSENT},
    {"ssm.state_size", 0, ABSENT},
    {"ssm.inner_size", 0, ABSENT},
    {"wkv.head_size", 0, ABSENT},
    {"kda.head_dim", 0, ABSENT},
    {"embedding_length_per_layer_input", 0, ABSENT},
    {"decoder_block_count", 0, ABSENT},
    {"classifier.output_labels", 0, ABSENT},
    {"dense_2_feat_in", 0, ABSENT},
    {"dense_2_feat_out", 0, ABSENT},
    {"dense_3_feat_in", 0, ABSENT},
    {"dense_3_feat_out", 0, ABSENT},
    /* pooling of the vector: 0 is no pooling; 3 is the last token, as Quire pools a decoder */
    {"pooling_type", 0, 2, {0, 3}},
};

static void refuse(struct gguf_maker *m, const char *key, const char *why)
{
    char says[96];
    snprintf(says, sizeof says, "is not supported%s", why);
    maker_fail(m, QUIRE_UNSUPPORTED, key, says);
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

/* A scalar of whatever kind as a number; a string is NaN. An array of different numbers counts as what is set of it. */
static double scalar(const struct gguf_maker *m, const char *full, const struct gguf_value *v)
{
    uint64_t whole = 0;
    double value = (double)NAN;
    bool flag = false;
    if (v->is_array)
        return gguf_f64(m->g, full, &value, NULL) == QUIRE_OK ? value : n_set(v);
    if (v->kind == GGUF_STRING)
        return (double)NAN;
    if (v->kind == GGUF_BOOL)
        return gguf_bool(m->g, full, &flag, NULL) == QUIRE_OK ? flag : (double)NAN;
    if (v->kind == GGUF_F32 || v->kind == GGUF_F64)
        return gguf_f64(m->g, full, &value, NULL) == QUIRE_OK ? value : (double)NAN;
    return gguf_u64(m->g, full, &whole, NULL) == QUIRE_OK ? (double)whole : -1.0;
}

static bool find(const struct gguf_maker *m, const char *key, double *out)
{
    char full[GGUF_KEY_BYTES];
    struct gguf_value v;
    if (!gguf_find(m->g, maker_key(m, key, full), &v))
        return false;
    *out = scalar(m, full, &v);
    return true;
}

static void refuse_switches(struct gguf_maker *m)
{
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
        double value;
        char why[48];
        if ((m->family->reads & switches[i].unless) || !find(m, switches[i].key, &value) ||
            value == switches[i].neutral[0] || (switches[i].n > 1 && value == switches[i].neutral[1]))
            continue;
        snprintf(why, sizeof why, ", got %g", value);
        refuse(m, switches[i].key, why);
    }
}

static bool is_set(const struct gguf_maker *m, const char *key, double *out)
{
    return find(m, key, out) && *out != 0;
}

/* Accepts one window for every layer. A window of a whole context changes nothing. */
static void refuse_windows(struct gguf_maker *m)
{
    double window, pattern, context;
    if (!is_set(m, "attention.sliding_window", &window) || (m->family->reads & GGUF_READS_PATTERN))
        return;
    if (!(m->family->reads & GGUF_READS_WINDOW) && !(find(m, "context_length", &context) && window >= context))
        refuse(m, "attention.sliding_window", " for this architecture");
    if (find(m, "attention.sliding_window_pattern", &pattern) && pattern > 1)
        refuse(m, "attention.sliding_window_pattern", "; supported: one window for every layer");
}

/* Rejects values that contradict another key. */
void gguf_refuse_others(struct gguf_maker *m)
{
    static const struct {
        const char *key, *other;
        uint32_t unless;
    } pairs[] = {
        {"attention.key_length_swa", "attention.key_length", 0},
        {"attention.value_length_swa", "attention.value_length", 0},
        {"rope.dimension_count_swa", "rope.dimension_count", 0},
        {"embedding_length_out", "embedding_length", 0},
        {"rope.freq_base_swa", "rope.freq_base", GGUF_READS_LOCAL_ROPE},
    };
    double value, other;
    refuse_switches(m);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (!(m->family->reads & pairs[i].unless) && is_set(m, pairs[i].key, &value) &&
            (!find(m, pairs[i].other, &other) || value != other))
            refuse(m, pairs[i].key, " if it differs between layers");
    /* The scale of scores is 1 / sqrt(head_dim); files have it as f32. */
    if (!(m->family->reads & (GGUF_READS_SCALES | GGUF_READS_QUERY_SCALE)) && is_set(m, "attention.scale", &value) &&
        !(fabs(value * sqrt((double)maker_head_dim(m)) - 1) < 1e-6))
        refuse(m, "attention.scale", "; supported: 1 / sqrt(key_length)");
    if (!maker_text_is(maker_text(m, "hidden_activation", "silu"), "silu"))
        refuse(m, "hidden_activation", "; supported: silu");
    refuse_windows(m);
    struct gguf_value banned;
    if (gguf_find(m->g, "tokenizer.ggml.suppress_tokens", &banned) && banned.n > 0 && m->status == QUIRE_OK)
        m->status = quire_fail(m->err, QUIRE_UNSUPPORTED, "%s: tokenizer.ggml.suppress_tokens: is not supported",
                               gguf_name(m->g));
}
