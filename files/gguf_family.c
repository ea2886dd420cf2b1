#include "files/gguf_family.h"

#include "base/encoding/little_endian.h"
#include "files/gguf_maker.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct gguf_family families[] = {
    {.arch = "llama",
     .transformers = "MixtralForCausalLM",
     .model_type = "mixtral",
     .when = GGUF_IF_EXPERTS,
     .reads = GGUF_READS_EXPERTS | GGUF_READS_WINDOW,
     .normalizes = true},
    /* Mistral is called llama in GGUF. Its first models have a window, which llama does not have. */
    {.arch = "llama",
     .transformers = "MistralForCausalLM",
     .model_type = "mistral",
     .when = GGUF_IF_WINDOW,
     .reads = GGUF_READS_WINDOW},
    {.arch = "llama", .transformers = "LlamaForCausalLM", .model_type = "llama"},
    {.arch = "qwen2", .transformers = "Qwen2ForCausalLM", .model_type = "qwen2"},
    {.arch = "qwen3", .transformers = "Qwen3ForCausalLM", .model_type = "qwen3"},
    {.arch = "qwen2moe",
     .transformers = "Qwen2MoeForCausalLM",
     .model_type = "qwen2_moe",
     .reads = GGUF_READS_EXPERTS | GGUF_READS_EXPERT_SIZES | GGUF_READS_SHARED_EXPERT,
     .shared_key = "shared_expert_intermediate_size"},
    {.arch = "qwen3moe",
     .transformers = "Qwen3MoeForCausalLM",
     .model_type = "qwen3_moe",
     .reads = GGUF_READS_EXPERTS | GGUF_READS_EXPERT_SIZES,
     .normalizes = true},
    {.arch = "olmoe", .transformers = "OlmoeForCausalLM", .model_type = "olmoe", .reads = GGUF_READS_EXPERTS},
    {.arch = "olmo2",
     .transformers = "Olmo3ForCausalLM",
     .model_type = "olmo3",
     .when = GGUF_IF_WINDOW,
     .reads = GGUF_READS_PATTERN,
     .pattern = 4},
    {.arch = "olmo2", .transformers = "Olmo2ForCausalLM", .model_type = "olmo2"},
    {.arch = "smollm3", .transformers = "SmolLM3ForCausalLM", .model_type = "smollm3"},
    {.arch = "granite", .transformers = "GraniteForCausalLM", .model_type = "granite", .reads = GGUF_READS_SCALES},
    {.arch = "granitemoe",
     .transformers = "GraniteMoeSharedForCausalLM",
     .model_type = "granitemoeshared",
     .when = GGUF_IF_SHARED_EXPERT,
     .reads = GGUF_READS_SCALES | GGUF_READS_EXPERTS | GGUF_READS_SHARED_EXPERT,
     .normalizes = true,
     .shared_key = "shared_intermediate_size"},
    {.arch = "granitemoe",
     .transformers = "GraniteMoeForCausalLM",
     .model_type = "granitemoe",
     .reads = GGUF_READS_SCALES | GGUF_READS_EXPERTS,
     .normalizes = true},
    {.arch = "gpt-oss",
     .transformers = "GptOssForCausalLM",
     .model_type = "gpt_oss",
     .reads = GGUF_READS_EXPERTS | GGUF_READS_PATTERN | GGUF_READS_WHOLE_YARN,
     .normalizes = true,
     .window = 128,
     .pattern = 2},
    {.arch = "gemma", .transformers = "GemmaForCausalLM", .model_type = "gemma"},
    {.arch = "gemma2",
     .transformers = "Gemma2ForCausalLM",
     .model_type = "gemma2",
     .reads = GGUF_READS_PATTERN | GGUF_READS_SOFTCAP | GGUF_READS_LOGIT_SOFTCAP | GGUF_READS_QUERY_SCALE,
     .window = 4096,
     .pattern = 2,
     .wide_layers = 46,
     .softcap = 50,
     .logit_softcap = 30},
    {.arch = "gemma3",
     .transformers = "Gemma3ForCausalLM",
     .model_type = "gemma3_text",
     .reads = GGUF_READS_PATTERN | GGUF_READS_LOGIT_SOFTCAP | GGUF_READS_QUERY_SCALE | GGUF_READS_LOCAL_ROPE,
     .pattern = 6,
     .wide_layers = 62},
    {.arch = "phi3",
     .transformers = "Phi3ForCausalLM",
     .model_type = "phi3",
     .reads = GGUF_READS_WINDOW | GGUF_READS_LONG_ROPE},
};
#define N_FAMILIES (sizeof families / sizeof *families)

/* A file that asks for more layers is refused when its config.json is read; lists of layers end here. */
#define MAX_LAYERS 1024u

/* ---- which family --------------------------------------------------------------------------------------- */

static bool is_positive(const struct gguf *g, const char *arch, const char *key)
{
    char full[GGUF_KEY_BYTES];
    uint64_t value = 0;
    snprintf(full, sizeof full, "%s.%s", arch, key);
    return gguf_u64(g, full, &value, NULL) == QUIRE_OK && value > 0;
}

static bool holds(const struct gguf *g, const struct gguf_family *family)
{
    switch (family->when) {
    case GGUF_ALWAYS: break;
    case GGUF_IF_EXPERTS: return is_positive(g, family->arch, "expert_count");
    case GGUF_IF_SHARED_EXPERT: return is_positive(g, family->arch, "expert_shared_feed_forward_length");
    case GGUF_IF_WINDOW: return is_positive(g, family->arch, "attention.sliding_window");
    }
    return true;
}

static int refuse_architecture(const struct gguf *g, struct gguf_text arch, struct quire_error *err)
{
    char shown[48] = "", supported[256] = "";
    for (size_t i = 0; i < arch.n && i + 1 < sizeof shown; i++)
        shown[i] = arch.data[i] >= 0x20 && arch.data[i] < 0x7f ? arch.data[i] : '?';
    for (size_t i = 0, at = 0; i < N_FAMILIES; i++)
        if (i == 0 || strcmp(families[i].arch, families[i - 1].arch) != 0)
            at += (size_t)snprintf(supported + at, sizeof supported - at, "%s%s", i ? ", " : "", families[i].arch);
    return quire_fail(err, QUIRE_UNSUPPORTED, "%s: general.architecture: '%s' is not supported; supported: %s",
                      gguf_name(g), shown, supported);
}

int gguf_family_find(const struct gguf *g, const struct gguf_family **out, struct quire_error *err)
{
    struct gguf_text arch = {NULL, 0};
    const int status = gguf_string(g, "general.architecture", &arch, err);
    if (status != QUIRE_OK)
        return status;
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (arch.data && maker_text_is(arch, families[i].arch) && holds(g, &families[i])) {
            *out = &families[i];
            return QUIRE_OK;
        }
    return refuse_architecture(g, arch, err);
}

/* ---- windows -------------------------------------------------------------------------------------------- */

/* attention.sliding_window_pattern: a flag for each layer, or the number of layers of which the last has no window. */
static bool slides(const struct gguf_value *flags, uint64_t pattern, uint64_t layer)
{
    if (flags->n == 0)
        return pattern == 0 || layer % pattern < pattern - 1;
    return layer < flags->n && flags->data[layer] != 0;
}

static void set_pattern(struct gguf_maker *m, uint64_t window)
{
    static const char key[] = "attention.sliding_window_pattern";
    char full[GGUF_KEY_BYTES];
    struct gguf_value flags = {.n = 0};
    uint64_t pattern = m->family->pattern;
    const uint64_t n_layers = maker_integer(m, "block_count", true);
    if (gguf_find(m->g, maker_key(m, key, full), &flags) && !(flags.is_array && flags.kind == GGUF_BOOL)) {
        flags.n = 0;
        pattern = maker_integer(m, key, true);
    } else if (flags.n > 0 && flags.n < n_layers) {
        maker_fail(m, QUIRE_INVALID, key, "must have a flag for each of block_count layers");
    }
    json_t *types = json_array();
    for (uint64_t l = 0; l < n_layers && l < MAX_LAYERS; l++)
        json_array_append_new(
            types, json_string(window && slides(&flags, pattern, l) ? "sliding_attention" : "full_attention"));
    maker_set(m, "layer_types", types);
}

static void set_windows(struct gguf_maker *m)
{
    const uint64_t window = maker_has(m, "attention.sliding_window")
                                ? maker_integer(m, "attention.sliding_window", true)
                                : m->family->window;
    if (!(m->family->reads & (GGUF_READS_WINDOW | GGUF_READS_PATTERN)))
        return;
    maker_set(m, "sliding_window", window ? json_integer((json_int_t)window) : json_null());
    if (m->family->reads & GGUF_READS_PATTERN)
        set_pattern(m, window);
}

/* ---- experts -------------------------------------------------------------------------------------------- */

/* Layers that have an MLP. */
static json_t *layers_without(struct gguf_maker *m)
{
    json_t *out = json_array();
    const uint64_t n_layers = maker_integer(m, "block_count", true);
    for (uint64_t l = 0; l < n_layers && l < MAX_LAYERS; l++) {
        char router[64], gate[64];
        snprintf(router, sizeof router, "blk.%u.ffn_gate_inp.weight", (unsigned)l);
        snprintf(gate, sizeof gate, "blk.%u.ffn_gate.weight", (unsigned)l);
        if (!maker_has_tensor(m, router) && maker_has_tensor(m, gate))
            json_array_append_new(out, json_integer((json_int_t)l));
    }
    return out;
}

static void refuse_other_norm(struct gguf_maker *m)
{
    char full[GGUF_KEY_BYTES];
    bool normalizes = m->family->normalizes;
    if (m->status == QUIRE_OK)
        m->status = gguf_bool(m->g, maker_key(m, "expert_weights_norm", full), &normalizes, m->err);
    if (normalizes != m->family->normalizes)
        maker_fail(m, QUIRE_UNSUPPORTED, "expert_weights_norm",
                   normalizes ? "true is not supported for this architecture"
                              : "false is not supported for this architecture");
}

static void set_experts(struct gguf_maker *m)
{
    const uint64_t n = maker_integer(m, "expert_count", true), used = maker_integer(m, "expert_used_count", true);
    const uint64_t inner = maker_integer(m, "feed_forward_length", false);
    uint64_t own = maker_integer(m, "expert_feed_forward_length", false);
    refuse_other_norm(m);
    maker_set(m, "num_experts", json_integer((json_int_t)n));
    maker_set(m, "num_experts_per_tok", json_integer((json_int_t)used));
    if (m->family->reads & GGUF_READS_SHARED_EXPERT) {
        const uint64_t shared = maker_integer(m, "expert_shared_feed_forward_length", false);
        maker_set(m, m->family->shared_key, json_integer((json_int_t)(shared ? shared : inner)));
    }
    if (!(m->family->reads & GGUF_READS_EXPERT_SIZES)) {
        if (own)
            maker_set(m, "intermediate_size", json_integer((json_int_t)own));
        maker_set(m, "norm_topk_prob", json_boolean(m->family->normalizes));
        return;
    }
    if (!own && used)
        own = inner / used;
    maker_set(m, "moe_intermediate_size", json_integer((json_int_t)own));
    maker_set(m, "norm_topk_prob", json_boolean(m->family->normalizes));
    maker_set(m, "mlp_only_layers", layers_without(m));
    maker_set(m, "qkv_bias", json_boolean(maker_has_tensor(m, "blk.0.attn_q.bias")));
    if (inner == 0) /* no layer has an MLP */
        maker_set(m, "intermediate_size", json_integer((json_int_t)own));
}

/* ---- scales --------------------------------------------------------------------------------------------- */

static void set_softcap(struct gguf_maker *m, const char *key, double otherwise)
{
    const double cap = maker_number(m, key, otherwise);
    maker_set(m, key, cap != 0 ? json_real(cap) : json_null());
}

/* 0 is 1, as in llama.cpp. */
static void set_multiplier(struct gguf_maker *m, const char *key, const char *name, double otherwise)
{
    const double value = maker_number(m, key, 0);
    maker_set(m, name, json_real(value != 0 ? value : otherwise));
}

static double usual_scale(double head_dim)
{
    return head_dim > 0 ? 1 / sqrt(head_dim) : 1;
}

static void set_granite(struct gguf_maker *m)
{
    set_multiplier(m, "embedding_scale", "embedding_multiplier", 1);
    set_multiplier(m, "residual_scale", "residual_multiplier", 1);
    set_multiplier(m, "logit_scale", "logits_scaling", 1);
    set_multiplier(m, "attention.scale", "attention_multiplier", usual_scale((double)maker_head_dim(m)));
}

/* Sets query_pre_attn_scalar, for which GGUF has no key. It is the size of a head; the largest model uses
 * hidden_size / heads. */
static void set_query_scale(struct gguf_maker *m)
{
    const double scale = maker_number(m, "attention.scale", 0);
    const uint64_t heads = maker_integer(m, "attention.head_count", true);
    double scalar = (double)maker_head_dim(m);
    if (maker_integer(m, "block_count", true) == m->family->wide_layers && heads)
        scalar = (double)(maker_integer(m, "embedding_length", true) / heads);
    maker_set(m, "query_pre_attn_scalar", json_real(scale != 0 ? 1 / (scale * scale) : scalar));
}

/* ---- factors of RoPE that are tensors ------------------------------------------------------------------- */

/* NULL: the file has no such tensor, or it is no list of numbers. */
static json_t *factors(struct gguf_maker *m, const char *name)
{
    const struct gguf_tensor *t = gguf_find_tensor(m->g, name);
    if (!t || t->type != 0 || t->n_dims != 1 || t->size[0] > MAX_LAYERS)
        return NULL;
    json_t *out = json_array();
    for (uint64_t i = 0; i < t->size[0]; i++) {
        const uint32_t bits = le_load_u32(t->data + 4 * i);
        float factor;
        memcpy(&factor, &bits, sizeof factor);
        json_array_append_new(out, json_real(isfinite(factor) ? (double)factor : 0));
    }
    return out;
}

static void set_long_rope(struct gguf_maker *m)
{
    static const char *const names[] = {"rope_factors_long.weight", "rope_factors_short.weight"};
    json_t *of[2] = {factors(m, names[0]), factors(m, names[1])};
    if (of[0] && of[1]) {
        json_t *scaling = json_pack("{s:s, s:o, s:o}", "rope_type", "longrope", "long_factor", of[0], "short_factor",
                                    of[1]);
        const double attention = maker_number(m, "rope.scaling.attn_factor", 0);
        if (attention != 0)
            json_object_set_new(scaling, "attention_factor", json_real(attention));
        maker_set(m, "rope_scaling", scaling);
        if (maker_has(m, "rope.scaling.original_context_length"))
            maker_set(m, "original_max_position_embeddings",
                      json_integer((json_int_t)maker_integer(m, "rope.scaling.original_context_length", true)));
        return;
    }
    json_decref(of[0]);
    json_decref(of[1]);
    for (size_t i = 0; i < 2 && m->status == QUIRE_OK; i++)
        if (maker_has_tensor(m, names[i]) || maker_has_tensor(m, names[1 - i]))
            m->status = quire_fail(
                m->err, QUIRE_INVALID,
                "%s: tensor '%s': must be there with the other list of factors, and hold F32 numbers", gguf_name(m->g),
                names[i]);
}

void gguf_family_config(struct gguf_maker *m)
{
    const uint32_t reads = m->family->reads;
    set_windows(m);
    if (reads & GGUF_READS_EXPERTS)
        set_experts(m);
    if (reads & GGUF_READS_SOFTCAP)
        set_softcap(m, "attn_logit_softcapping", m->family->softcap);
    if (reads & GGUF_READS_LOGIT_SOFTCAP)
        set_softcap(m, "final_logit_softcapping", m->family->logit_softcap);
    if (reads & GGUF_READS_SCALES)
        set_granite(m);
    if (reads & GGUF_READS_QUERY_SCALE)
        set_query_scale(m);
    if (reads & GGUF_READS_LOCAL_ROPE)
        maker_set(m, "rope_local_base_freq", json_real(maker_number(m, "rope.freq_base_swa", 10000)));
    if (reads & GGUF_READS_LONG_ROPE)
        set_long_rope(m);
}
