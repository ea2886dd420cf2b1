/* The memory plan: every arena to the byte, by arithmetic on the description and the options. */

#include "base/size.h"
#include "engine/plan.h"
#include "engine/model/share.h"
#include "engine/ranks/parts.h"
#include "engine/grammar/constraints.h"
#include "engine/run/draft_scratch.h"
#include "base/host_memory.h"
#include "engine/run/schedule.h"
#include "engine/run/speculate.h"
#include "engine/forward/layout.h"
#include "kernels/quant.h"
#include "kernels/open.h"
#include "engine/model/tensors.h"
#include "kernels/kv.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* vLLM's 16. Bits do not depend on it; a larger block shares less, a smaller one makes longer
 * tables. */
#define DEFAULT_BLOCK_TOKENS 16u
/* vLLM runs 256 at once. A CPU's GEMMs reach their arithmetic limit far earlier, each sequence
 * more only slows the others down, and 256 rows of logits of a 152k vocabulary are 156 MB. */
#define DEFAULT_CPU_SEQS 64u
#define DEFAULT_SEQS 256u
/* The size of a step is the time that a running sequence waits while another request's prompt is computed. 512
 * tokens already use each weight 512 times, which is all that a CPU can gain. 2,048 would only make the wait four
 * times as long. */
#define DEFAULT_CPU_BATCHED_TOKENS 512u
#define DEFAULT_BATCHED_TOKENS 2048u
/* Prompt logprobs go at least this many positions a step. */
#define MIN_LOGIT_ROWS 64u

#define MAX_SEQS 65536u
#define MAX_BATCHED_TOKENS (1u << 20)
#define MAX_HOST_BLOCKS (1u << 30) /* the most that memory/ counts */
#define MAX_MODEL_LEN (1u << 26) /* as far as k_sincos is defined */

/* Default KV memory: two fifths of the memory that is free after the weights, at most 4 GiB, because a server must
 * not take a shared machine's memory without an option. */
#define KV_SHARE_NUMERATOR 2u
#define KV_SHARE_DENOMINATOR 5u
#define KV_DEFAULT_CAP ((uint64_t)4 << 30)

/* A GPU's memory: what vLLM takes by default. */
#define DEFAULT_GPU_UTILIZATION 0.9
/* Memory that the driver takes: a context and our modules, if no GPU can be queried; and space for recorded graphs,
 * which come after the plan. The value is an assumption. The engine prints the measured value at start. */
#define ASSUMED_CONTEXT_BYTES ((uint64_t)640 << 20)
#define MAX_GRAPH_RESERVE_BYTES ((uint64_t)256 << 20)
#define GRAPH_RESERVE_SHARE 64u /* part of a small GPU's memory */

static uint64_t saturating_mul(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t saturating_add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* ---- dtypes and limits --------------------------------------------------------------------- */

/* False when the name is of no dtype. */
static bool dtype_from_name(const char *name, enum k_dtype *out)
{
    static const struct {
        const char *name;
        enum k_dtype dtype;
    } names[] = {
        {"float32", K_F32}, {"float", K_F32}, {"fp32", K_F32},      {"float16", K_F16},
        {"half", K_F16},    {"fp16", K_F16},  {"bfloat16", K_BF16}, {"bf16", K_BF16},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i].name) == 0) {
            *out = names[i].dtype;
            return true;
        }
    return false;
}

/* Accepts vLLM's names, where fp8 also means e4m3, and the names that a plan reports. The scales here are always of
 * the kind that vLLM calls per_token_head. */
static bool kv_kind_from_name(const char *name, enum k_dtype *out)
{
    static const struct {
        const char *name;
        enum k_dtype kind;
    } names[] = {
        {"int8", K_INT},      {"int8_per_token_head", K_INT}, {"fp8", K_E4M3},      {"fp8_per_token_head", K_E4M3},
        {"fp8_e4m3", K_E4M3}, {"float8_e4m3", K_E4M3},        {"fp8_e5m2", K_E5M2}, {"float8_e5m2", K_E5M2}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i].name) == 0) {
            *out = names[i].kind;
            return true;
        }
    return dtype_from_name(name, out) && *out != K_BF16;
}

static bool is_auto(const char *name)
{
    return !name || strcmp(name, "auto") == 0;
}

/* The values of --activation-dtype; auto: the activations that the weights were made for. */
enum activations { ACTIVATIONS_F32, ACTIVATIONS_BF16, ACTIVATIONS_INT8 };

static int plan_activations(const struct engine_options *o, const struct model_desc *desc, enum activations *out,
                            struct quire_error *err)
{
    const struct k_format weights = model_weight_format(desc);
    const bool has_blocks = k_blocks_of(weights.packing) != NULL;
    enum k_dtype dtype;
    *out = ACTIVATIONS_F32;
    if (is_auto(o->activation_dtype)) {
        /* A form that was asked for has its own activations. */
        if ((has_blocks || desc->facts->int8_activations) && is_auto(o->gemm_form))
            *out = ACTIVATIONS_INT8;
        return QUIRE_OK;
    }
    if (strcmp(o->activation_dtype, "int8") == 0) {
        *out = ACTIVATIONS_INT8;
        if (k_format_is_integers(weights))
            return QUIRE_OK;
        return quire_fail(
            err, QUIRE_UNSUPPORTED,
            "--activation-dtype int8 takes weights of integers (int4, int8, MXFP4, GGUF's), and these are %s: "
            "leave it out",
            k_format_name(weights));
    }
    if (!dtype_from_name(o->activation_dtype, &dtype) || dtype == K_F16)
        return quire_fail(err, QUIRE_INVALID,
                          "--activation-dtype: must be auto, float32, int8 or bfloat16, got '%.40s'",
                          o->activation_dtype);
    if (dtype == K_F32)
        return QUIRE_OK;
    *out = ACTIVATIONS_BF16;
    if (k_format_is_plain(weights) && weights.kind == K_BF16)
        return QUIRE_OK;
    return quire_fail(err, QUIRE_UNSUPPORTED,
                      "--activation-dtype bfloat16 takes bfloat16 weights, and these are %s: leave it out",
                      k_format_name(weights));
}

int engine_plan_form(const struct engine_options *o, const struct model_desc *desc, enum k_gemm_form *out,
                     struct quire_error *err)
{
    const struct k_format weights = model_weight_format(desc);
    const char *form = o->gemm_form ? o->gemm_form : "auto";
    enum activations activations;
    bool lane = strcmp(form, "lane") == 0, tile = strcmp(form, "tile") == 0, mma = strcmp(form, "mma") == 0;
    *out = lane ? K_FORM_LANE : tile ? K_FORM_TILE : mma ? K_FORM_MMA : K_FORM_AUTO;
    if (*out == K_FORM_AUTO && strcmp(form, "auto") != 0)
        return quire_fail(err, QUIRE_INVALID, "--gemm-form: must be auto, lane, tile or mma, got '%.40s'", form);
    int status = plan_activations(o, desc, &activations, err);
    if (status != QUIRE_OK)
        return status;
    if (activations == ACTIVATIONS_BF16 && (lane || mma))
        return quire_fail(err, QUIRE_INVALID,
                          "--activation-dtype bfloat16 is for the tile form: leave --gemm-form %s out", form);
    if (activations == ACTIVATIONS_INT8 && *out != K_FORM_AUTO)
        return quire_fail(err, QUIRE_INVALID, "--activation-dtype int8 is a form of its own: leave --gemm-form %s out",
                          form);
    if ((tile || mma) && (weights.kind == K_F32 || !k_format_is_plain(weights)))
        return quire_fail(err, QUIRE_UNSUPPORTED,
                          "--gemm-form %s takes bfloat16 or float16 weights, and these are %s: use lane", form,
                          k_format_name(weights));
    if ((tile || mma || activations == ACTIVATIONS_BF16) && desc->facts->needs_lanes)
        return quire_fail(
            err, QUIRE_UNSUPPORTED,
            "%s weights, and some of this model's matrices are others (the first: %s is %s): leave it out",
            activations == ACTIVATIONS_BF16 ? "--activation-dtype bfloat16 takes bfloat16"
            : tile                          ? "--gemm-form tile takes bfloat16 or float16"
                                            : "--gemm-form mma takes bfloat16 or float16",
            desc->facts->lanes_matrix, k_format_name(desc->facts->lanes_format));
    if (activations == ACTIVATIONS_BF16)
        *out = K_FORM_TILE_BF16;
    else if (activations == ACTIVATIONS_INT8)
        *out = K_FORM_INT8;
    else if (k_format_is_quantized(weights) || desc->facts->needs_lanes)
        *out = K_FORM_LANE;
    return QUIRE_OK;
}

int engine_plan_invariance(const struct engine_options *o, bool *off, struct quire_error *err)
{
    const char *invariance = o->invariance ? o->invariance : "strict";
    *off = strcmp(invariance, "off") == 0;
    if (!*off && strcmp(invariance, "strict") != 0)
        return quire_fail(err, QUIRE_INVALID, "--invariance: must be strict or off, got '%.40s'", invariance);
    return QUIRE_OK;
}

/* kind: what it is unless it was asked for. */
static int plan_kv_format(const struct engine_options *o, const struct model_desc *desc, enum k_dtype kind,
                          struct engine_plan *p, struct quire_error *err)
{
    if (!is_auto(o->kv_cache_dtype) && !kv_kind_from_name(o->kv_cache_dtype, &kind))
        return quire_fail(err, QUIRE_UNSUPPORTED,
                          "--kv-cache-dtype: must be auto, float16, float32, int8, fp8, fp8_e4m3 or fp8_e5m2, got"
                          " '%.40s'",
                          o->kv_cache_dtype);
    p->kv_format = k_kv_format(kind);
    if (k_format_is_plain(p->kv_format))
        return QUIRE_OK;
    if (model_reads_whole(desc->config))
        return quire_fail(err, QUIRE_INVALID,
                          "--kv-cache-dtype %s: a model that reads whole texts has no KV cache:"
                          " leave it out",
                          o->kv_cache_dtype);
    return QUIRE_OK;
}

static int plan_dtypes(const struct engine_options *o, const struct model_desc *desc, struct engine_plan *p,
                       struct quire_error *err)
{
    enum k_dtype asked = desc->facts->dtype;
    if (!is_auto(o->dtype) && !dtype_from_name(o->dtype, &asked))
        return quire_fail(err, QUIRE_INVALID, "--dtype: must be auto, float32, float16 or bfloat16, got '%.40s'",
                          o->dtype);
    if (asked != desc->facts->dtype && asked != K_F32)
        return quire_fail(err, QUIRE_UNSUPPORTED,
                          "--dtype %s: the weights are stored as %s and are used as stored; leave"
                          " --dtype out, or give float32 for an f32 KV cache",
                          k_dtype_name(asked), k_dtype_name(desc->facts->dtype));
    p->weight_format = model_weight_format(desc);
    int status = plan_kv_format(o, desc, asked == K_F32 ? K_F32 : K_F16, p, err);
    if (status == QUIRE_OK)
        status = engine_plan_form(o, desc, &p->gemm_form, err);
    if (status == QUIRE_OK)
        status = engine_plan_invariance(o, &p->not_invariant, err);
    p->not_invariant = p->not_invariant && p->gemm_form != K_FORM_LANE && k_format_is_plain(p->weight_format) &&
                       p->weight_format.kind != K_F32;
    return status;
}

static int check_limit(const char *flag, uint32_t value, uint32_t max, struct quire_error *err)
{
    if (value <= max)
        return QUIRE_OK;
    return quire_fail(err, QUIRE_INVALID, "--%s: must be at most %u, got %u", flag, max, value);
}

/* A text that is computed in one step must fit one. Longer ones would be cut, to other vectors: not because of an option that
 * is about speed. */
static int fit_whole_texts(const struct engine_options *o, struct engine_plan *p, struct quire_error *err)
{
    if (!o->max_num_batched_tokens && p->max_model_len > p->max_num_batched_tokens &&
        p->max_model_len <= MAX_BATCHED_TOKENS)
        p->max_num_batched_tokens = p->max_model_len;
    if (p->max_model_len <= p->max_num_batched_tokens)
        return QUIRE_OK;
    return quire_fail(
        err, QUIRE_INVALID,
        "--max-num-batched-tokens %u is less than the %u tokens of a text, and this model reads a text in one "
        "step: leave it out, or give --max-model-len, where texts are cut then",
        p->max_num_batched_tokens, p->max_model_len);
}

static int plan_limits(const struct engine_options *o, const struct model_desc *desc, struct engine_plan *p,
                       struct quire_error *err)
{
    bool cpu = p->planner->on_host;
    p->block_tokens = o->block_size ? o->block_size : DEFAULT_BLOCK_TOKENS;
    if (p->block_tokens < 8 || p->block_tokens > 128 || (p->block_tokens & (p->block_tokens - 1)))
        return quire_fail(err, QUIRE_INVALID, "--block-size: must be 8, 16, 32, 64 or 128, got %u", p->block_tokens);
    p->max_num_seqs = o->max_num_seqs ? o->max_num_seqs : cpu ? DEFAULT_CPU_SEQS : DEFAULT_SEQS;
    p->max_num_batched_tokens = o->max_num_batched_tokens ? o->max_num_batched_tokens
                                : cpu                     ? DEFAULT_CPU_BATCHED_TOKENS
                                                          : DEFAULT_BATCHED_TOKENS;
    p->max_logit_rows = p->max_num_seqs;
    uint32_t wanted = p->max_num_batched_tokens < MIN_LOGIT_ROWS ? p->max_num_batched_tokens : MIN_LOGIT_ROWS;
    if (p->max_logit_rows < wanted)
        p->max_logit_rows = wanted;
    p->n_threads = o->n_threads;

    if (o->max_model_len > desc->config->max_position && !desc->config->streaming.window)
        return quire_fail(err, QUIRE_INVALID,
                          "--max-model-len %u is longer than the %u positions the model was made"
                          " for (config.json: max_position_embeddings); --attention-window and --attention-sinks"
                          " allow more",
                          o->max_model_len, desc->config->max_position);
    p->max_model_len = o->max_model_len ? o->max_model_len : desc->config->max_position;
    if (p->max_model_len > MAX_MODEL_LEN)
        p->max_model_len = MAX_MODEL_LEN;
    int status = model_reads_whole(desc->config) ? fit_whole_texts(o, p, err) : QUIRE_OK;
    if (status == QUIRE_OK && !p->n_threads)
        status = k_backend_threads(&(struct k_backend_options){.cpu_bind = o->cpu_bind}, &p->n_threads, err);
    if (status == QUIRE_OK)
        status = check_limit("max-num-seqs", p->max_num_seqs, MAX_SEQS, err);
    if (status == QUIRE_OK)
        status = check_limit("max-num-batched-tokens", p->max_num_batched_tokens, MAX_BATCHED_TOKENS, err);
    if (status == QUIRE_OK)
        status = check_limit("threads", p->n_threads, K_MAX_THREADS, err);
    if (status == QUIRE_OK)
        status = check_limit("max-model-len", o->max_model_len, MAX_MODEL_LEN, err);
    return status;
}

/* ---- KV ------------------------------------------------------------------------------------- */

static bool has_attention(const struct model_desc *desc, uint32_t layer)
{
    return model_block_of(desc, layer, BLOCK_ATTENTION) != NULL;
}

/* The largest number of layers of this one's group in any stage. */
static uint32_t most_layers(const struct model_desc *desc, uint32_t layer)
{
    const uint32_t n_stages = desc->shard.n_stages ? desc->shard.n_stages : 1;
    uint32_t most = 0;
    for (uint32_t i = 0; i < n_stages; i++) {
        const struct model_range layers = model_stage_layers(desc->config->n_layers, i, n_stages,
                                                             desc->shard.last_has_more);
        uint32_t n = 0;
        for (uint32_t l = layers.first; l < layers.first + layers.n; l++)
            n += has_attention(desc, l) && model_same_kv(desc, l, layer);
        most = n > most ? n : most;
    }
    return most;
}

static uint32_t group_of(const struct model_desc *desc, const struct engine_plan *p, uint32_t layer)
{
    uint32_t g = 0;
    while (g < p->n_kv_groups && !model_same_kv(desc, p->groups[g].layer, layer))
        g++;
    return g;
}

/* Layers with the same window, sinks and heads form a group, in order of the first layer of each: the model's, of which
 * a stage has some. */
static int plan_groups(const struct model_desc *desc, struct engine_plan *p, struct quire_error *err)
{
    p->n_kv_groups = 0;
    p->kv_block_bytes = 0;
    for (uint32_t l = 0; l < desc->config->n_layers; l++) {
        if (!has_attention(desc, l))
            continue;
        const struct k_kv_shape kv = layout_kv_shape(desc, l, p);
        const uint64_t layer_bytes = layout_kv_block_bytes(desc, l, p);
        const uint32_t g = group_of(desc, p, l);
        int status = k_kv_check(&kv, err);
        if (status != QUIRE_OK)
            return status;
        if (g == KV_MAX_GROUPS)
            return quire_fail(err, QUIRE_UNSUPPORTED,
                              "config.json: the layers have more than %d different windows or shapes of K and V",
                              KV_MAX_GROUPS);
        if (g == p->n_kv_groups) {
            p->groups[g].layer = l;
            p->groups[g].window = model_window(desc, l);
            p->groups[g].n_sinks = model_sinks(desc, l);
            p->groups[g].n_layers = 0;
            p->groups[g].block_bytes = 0;
            p->groups[g].most_bytes = most_layers(desc, l) * layer_bytes;
            p->n_kv_groups++;
        }
        if (l < model_first_layer(desc) || l >= model_end_layer(desc))
            continue;
        p->groups[g].n_layers++;
        p->groups[g].block_bytes += layer_bytes;
        p->kv_block_bytes += layer_bytes;
    }
    return QUIRE_OK;
}

/* A draft model's layers form one group of full attention, regardless of their windows: it may compute a position
 * long after the model did, when a window's blocks would be gone. Its K and V use the model's KV format. The format
 * that fits twice the tokens for the model does so for the draft model too, and the error of 8 bits only affects
 * guesses, never answers. */
static int plan_draft_group(const struct engine_draft *draft, struct engine_plan *p, struct quire_error *err)
{
    uint32_t g = p->n_kv_groups;
    if (g == KV_MAX_GROUPS)
        return quire_fail(err, QUIRE_UNSUPPORTED,
                          "--speculative-config: model: a draft model's KV cache is a group of its own, but the"
                          " model's layers have %u groups already, by window and shape: at most %d in all",
                          g, KV_MAX_GROUPS);
    p->groups[g].window = p->groups[g].n_sinks = 0;
    p->groups[g].n_layers = draft->desc->config->n_layers;
    p->groups[g].block_bytes = 0;
    for (uint32_t l = 0; l < draft->desc->config->n_layers; l++)
        p->groups[g].block_bytes += layout_kv_block_bytes(draft->desc, l, p);
    p->groups[g].most_bytes = p->groups[g].block_bytes;
    p->kv_block_bytes += p->groups[g].block_bytes;
    p->n_draft_blocks = p->max_num_seqs * ((draft->n_tokens + p->block_tokens - 1) / p->block_tokens);
    p->bytes[PLAN_DRAFT_WEIGHTS] = p->planner->on_host ? draft->weight_bytes : draft->desc->shard.device_bytes;
    return QUIRE_OK;
}

static struct kv_config kv_shape(const struct engine_plan *p)
{
    struct kv_config config = {.block_tokens = p->block_tokens, .n_groups = engine_plan_n_groups(p)};
    for (uint32_t g = 0; g < config.n_groups; g++) {
        config.groups[g].window = p->groups[g].window;
        config.groups[g].sinks = p->groups[g].n_sinks;
    }
    return config;
}

uint32_t engine_plan_request_blocks(const struct engine_plan *p, uint32_t group, uint32_t n_tokens)
{
    struct kv_config config = kv_shape(p);
    return kv_blocks_needed(&config, group, n_tokens, p->max_num_batched_tokens * (engine_plan_overlap_depth(p) + 1));
}

/* Blocks of a group when a full group has n: a window bounds what max_num_seqs sequences can
 * hold. */
static uint64_t group_blocks(const struct engine_plan *p, uint32_t group, uint64_t n)
{
    if (!p->groups[group].window)
        return n;
    uint64_t most = (uint64_t)p->max_num_seqs * engine_plan_request_blocks(p, group, p->max_model_len);
    return n < most ? n : most;
}

/* own: of this stage, and not of the one that has most. */
static uint64_t bytes_with(const struct engine_plan *p, uint64_t n, bool own)
{
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < engine_plan_n_groups(p); g++)
        bytes = saturating_add(
            bytes, saturating_mul(group_blocks(p, g, n), own ? p->groups[g].block_bytes : p->groups[g].most_bytes));
    return bytes;
}

/* The most blocks that slots, which are 32-bit, can name. */
static uint64_t max_blocks(const struct engine_plan *p)
{
    return UINT32_MAX / p->block_tokens - p->n_draft_blocks;
}

static uint64_t blocks_within(const struct engine_plan *p, uint64_t bytes, bool own)
{
    uint64_t low = 0, high = max_blocks(p);
    while (low < high) {
        uint64_t middle = low + (high - low + 1) / 2;
        if (bytes_with(p, middle, own) <= bytes)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* A model that reads whole texts holds one for the step that computes it, and caches none: the tokens of the steps in
 * flight, of each sequence a block that is not full. */
static uint64_t bytes_of_steps(const struct engine_plan *p)
{
    const uint64_t n_steps = engine_plan_overlap_depth(p) + 1, n_tokens = p->max_num_batched_tokens;
    const uint64_t n_seqs = p->max_num_seqs < n_tokens ? p->max_num_seqs : n_tokens;
    return bytes_with(p, n_steps * (n_tokens / p->block_tokens + n_seqs), true);
}

/* The KV size at which every sequence has full length. More memory would only serve as cache. */
static uint64_t useful_bytes(const struct engine_plan *p, const struct model_desc *desc)
{
    uint64_t bytes = 0;
    if (model_reads_whole(desc->config))
        return bytes_of_steps(p);
    for (uint32_t g = 0; g < engine_plan_n_groups(p); g++)
        bytes = saturating_add(
            bytes, saturating_mul(saturating_mul(p->max_num_seqs, engine_plan_request_blocks(p, g, p->max_model_len)),
                                  p->groups[g].most_bytes));
    return bytes;
}

/* All that the budget leaves: what no sequence needs caches prefixes. */
static uint64_t device_kv_bytes(const struct engine_plan *p)
{
    uint64_t used = p->bytes[PLAN_WEIGHTS];
    const uint64_t parts[] = {
        p->bytes[PLAN_PARAMS], p->bytes[PLAN_ACTIVATIONS],   p->bytes[PLAN_LOGITS],     p->bytes[PLAN_WORKSPACE],
        p->driver_bytes,       p->bytes[PLAN_DRAFT_WEIGHTS], p->bytes[PLAN_DRAFT_MODEL]};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        used = saturating_add(used, parts[i]);
    return p->device_budget > used ? p->device_budget - used : 0;
}

static uint64_t default_kv_bytes(const struct engine_plan *p, const struct model_desc *desc)
{
    const uint64_t useful = useful_bytes(p, desc);
    if (p->device_memory) {
        const uint64_t room = device_kv_bytes(p);
        return model_reads_whole(desc->config) && useful < room ? useful : room;
    }
    uint64_t available = host_memory_available() / p->n_ranks; /* the others want as much */
    uint64_t weights = saturating_add(saturating_add(p->bytes[PLAN_WEIGHTS], p->bytes[PLAN_DRAFT_WEIGHTS]),
                                      p->bytes[PLAN_REPACKED]);
    uint64_t left = available > weights ? available - weights : 0;
    uint64_t bytes = left / KV_SHARE_DENOMINATOR * KV_SHARE_NUMERATOR;
    if (bytes > KV_DEFAULT_CAP)
        bytes = KV_DEFAULT_CAP;
    return bytes < useful ? bytes : useful;
}

static bool holds_one(const struct engine_plan *p, uint64_t n, uint32_t n_tokens)
{
    for (uint32_t g = 0; g < engine_plan_n_groups(p); g++)
        if (engine_plan_request_blocks(p, g, n_tokens) > group_blocks(p, g, n))
            return false;
    return true;
}

/* The longest request that n blocks serve. */
static uint32_t longest_served(const struct engine_plan *p, uint64_t n)
{
    uint32_t low = 0, high = p->max_model_len;
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        if (holds_one(p, n, middle))
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* The pool must hold one request of max_model_len. If the option is not set, max_model_len is reduced instead. */
static int fit_model_len(const struct engine_options *o, const struct model_desc *desc, struct engine_plan *p,
                         uint64_t n, struct quire_error *err)
{
    if (holds_one(p, n, p->max_model_len))
        return QUIRE_OK;
    uint32_t longest = longest_served(p, n), needed = 0;
    for (uint32_t g = 0; g < engine_plan_n_groups(p); g++) {
        uint32_t blocks = engine_plan_request_blocks(p, g, p->max_model_len);
        needed = blocks > needed ? blocks : needed;
    }
    const char *flag = o->num_kv_blocks     ? "--num-kv-blocks"
                       : o->kv_cache_memory ? "--kv-cache-memory"
                       : p->device_memory   ? "--gpu-memory-utilization"
                                            : "free memory";
    if (longest == 0)
        return quire_fail(err, QUIRE_INVALID,
                          "no request fits the KV cache: a block of %u tokens takes %s, and"
                          " %s gives %llu blocks; raise %s",
                          p->block_tokens, quire_size(p->kv_block_bytes).text, flag, (unsigned long long)n,
                          o->num_kv_blocks ? flag : "--kv-cache-memory");
    /* Whole texts would be cut: see fit_whole_texts(). The length chooses the factors of a
     * long RoPE for all ranks, so it must not shrink here. */
    if (o->max_model_len || model_reads_whole(desc->config) || desc->config->ropes[0].is_long)
        return quire_fail(err, QUIRE_INVALID,
                          "--max-model-len %u needs %u blocks of %u tokens, %s gives %llu: lower it"
                          " to %u or raise %s",
                          p->max_model_len, needed, p->block_tokens, flag, (unsigned long long)n, longest,
                          o->num_kv_blocks ? flag : "--kv-cache-memory");
    p->max_model_len = longest;
    return QUIRE_OK;
}

static int plan_kv(const struct engine_options *o, const struct model_desc *desc, struct engine_plan *p,
                   struct quire_error *err)
{
    if (o->num_kv_blocks && o->kv_cache_memory)
        return quire_fail(err, QUIRE_INVALID, "--num-kv-blocks and --kv-cache-memory both size the KV cache: give one");
    uint64_t n = o->num_kv_blocks;
    if (n > max_blocks(p))
        return quire_fail(err, QUIRE_INVALID, "--num-kv-blocks: must be at most %llu with blocks of %u, got %llu",
                          (unsigned long long)max_blocks(p), p->block_tokens, (unsigned long long)n);
    if (!n && o->kv_cache_memory)
        n = blocks_within(p, o->kv_cache_memory, false);
    else if (!n) /* with a GPU's weights: engine_plan_fit_all() considers the other ranks */
        n = blocks_within(p, default_kv_bytes(p, desc), p->device_memory > 0);
    int status = fit_model_len(o, desc, p, n, err);
    if (status != QUIRE_OK)
        return status;
    p->bytes[PLAN_KV] = 0;
    for (uint32_t g = 0; g < engine_plan_n_groups(p); g++) {
        p->groups[g].n_blocks = (uint32_t)group_blocks(p, g, n);
        p->bytes[PLAN_KV] = saturating_add(p->bytes[PLAN_KV],
                                           saturating_mul(p->groups[g].n_blocks, p->groups[g].block_bytes));
    }
    if (p->bytes[PLAN_KV] > (uint64_t)INT64_MAX)
        return quire_fail(err, QUIRE_INVALID, "--num-kv-blocks %u: needs more memory than exists", o->num_kv_blocks);
    return QUIRE_OK;
}

/* The host tier: swap_space shared out as the device's memory is, so that every group keeps as long a
 * past. */
static int plan_swap(const struct engine_options *o, struct engine_plan *p, struct quire_error *err)
{
    p->bytes[PLAN_SWAP] = 0;
    if (!o->swap_space)
        return QUIRE_OK;
    if (!o->prefix_caching)
        return quire_fail(err, QUIRE_INVALID,
                          "--swap-space keeps blocks of the prefix cache, which is off: leave"
                          " --no-enable-prefix-caching out, or --swap-space");
    uint64_t most_bytes = 0; /* largest KV cache of any stage */
    for (uint32_t g = 0; g < engine_plan_n_groups(p); g++)
        most_bytes += p->groups[g].n_blocks * p->groups[g].most_bytes;
    for (uint32_t g = 0; g < engine_plan_n_groups(p); g++) {
        unsigned __int128 share = (unsigned __int128)o->swap_space * p->groups[g].n_blocks;
        uint64_t n = (uint64_t)(share / most_bytes);
        if (n == 0)
            return quire_fail(err, QUIRE_INVALID,
                              "--swap-space: %s is less than one block of a KV group: at least %s is needed",
                              quire_size(o->swap_space).text, quire_size(most_bytes / p->groups[g].n_blocks + 1).text);
        p->groups[g].n_host_blocks = (uint32_t)(n < MAX_HOST_BLOCKS ? n : MAX_HOST_BLOCKS);
        p->bytes[PLAN_SWAP] += p->groups[g].n_host_blocks * p->groups[g].block_bytes;
    }
    return QUIRE_OK;
}

/* ---- the rest -------------------------------------------------------------------------------- */

static int plan_arenas(const struct model_desc *desc, struct engine_plan *p, struct quire_error *err)
{
    struct step_layout layout;
    struct k_plan_bytes workspace;
    int status = step_layout_make(desc, p, &layout, err);
    if (status != QUIRE_OK)
        return status;
    step_plan_workspace(desc, p, &workspace);
    p->bytes[PLAN_PARAMS] = model_param_floats(desc) * sizeof(float);
    p->bytes[PLAN_ACTIVATIONS] = layout.total;
    const struct model_outputs *outputs = &desc->config->outputs;
    const uint64_t logits = (uint64_t)p->max_logit_rows * desc->config->vocab_size,
                   vectors = (uint64_t)p->max_num_seqs * outputs->vector_size;
    p->bytes[PLAN_LOGITS] = (outputs->kind == OUTPUT_TOKENS ? logits : vectors) * sizeof(float) +
                            layout_align(p->max_logit_rows * sizeof(uint32_t));
    p->bytes[PLAN_WORKSPACE] = layout_align(workspace.gemm) + layout_align(workspace.attention) +
                               layout_align(workspace.sample) + layout_align(workspace.moe) + workspace.group;
    p->bytes[PLAN_STAGE_BUFFER] = layout_stage_buffer_bytes(desc, p);
    return QUIRE_OK;
}

/* The draft model's own groups, by window, as its layers are computed. */
static int plan_of_draft_groups(const struct engine_plan *plan, const struct model_desc *desc, struct engine_plan *out,
                                struct quire_error *err)
{
    const uint32_t g = plan->n_kv_groups;
    int status = plan_groups(desc, out, err);
    if (status != QUIRE_OK)
        quire_error_prefix(err, "--speculative-config: model");
    for (uint32_t i = 0; status == QUIRE_OK && i < out->n_kv_groups; i++) {
        out->groups[i].n_blocks = plan->groups[g].n_blocks + plan->n_draft_blocks;
        out->groups[i].n_host_blocks = plan->groups[g].n_host_blocks;
    }
    return status;
}

int engine_plan_of_draft(const struct engine_plan *plan, const struct engine_draft *draft, struct engine_plan *out,
                         struct quire_error *err)
{
    *out = *plan;
    out->n_draft_blocks = 0;
    out->bytes[PLAN_DRAFT_WEIGHTS] = out->bytes[PLAN_DRAFT_MODEL] = 0;
    out->bytes[PLAN_WEIGHTS] = plan->bytes[PLAN_DRAFT_WEIGHTS];
    out->weight_format = model_weight_format(draft->desc);
    out->max_logit_rows = plan->max_num_seqs; /* one token of each sequence is drawn */
    int status = plan_of_draft_groups(plan, draft->desc, out, err);
    return status == QUIRE_OK ? plan_arenas(draft->desc, out, err) : status;
}

/* The draft model's memory in addition to its share of the KV cache. */
static int plan_draft_arenas(const struct engine_draft *draft, struct engine_plan *p, struct quire_error *err)
{
    struct engine_plan own;
    int status = engine_plan_of_draft(p, draft, &own, err);
    p->bytes[PLAN_DRAFT_MODEL] = own.bytes[PLAN_PARAMS] + own.bytes[PLAN_ACTIVATIONS] + own.bytes[PLAN_LOGITS] +
                                 own.bytes[PLAN_WORKSPACE] + p->n_draft_blocks * p->groups[p->n_kv_groups].block_bytes;
    return status;
}

static int plan_all_arenas(const struct model_desc *desc, const struct engine_draft *draft, struct engine_plan *p,
                           struct quire_error *err)
{
    int status = plan_arenas(desc, p, err);
    return status == QUIRE_OK && draft ? plan_draft_arenas(draft, p, err) : status;
}

enum place { PLACE_APART, PLACE_ON_DEVICE, PLACE_ON_HOST };

static uint64_t bytes_in(const struct engine_plan *p, bool on_device, bool on_host)
{
#define PLACE_OF(name, place) PLACE_##place,
    static const enum place places[] = {PLAN_MEMORY(PLACE_OF)};
    uint64_t bytes = 0;
    for (size_t i = 0; i < PLAN_N_MEMORY; i++)
        if ((on_device && places[i] == PLACE_ON_DEVICE) || (on_host && places[i] == PLACE_ON_HOST))
            bytes = saturating_add(bytes, p->bytes[i]);
    return bytes;
}

uint64_t engine_plan_total_bytes(const struct engine_plan *p)
{
    return bytes_in(p, true, true);
}

uint64_t engine_plan_host_bytes(const struct engine_plan *p)
{
    return bytes_in(p, false, true);
}

uint64_t engine_plan_device_bytes(const struct engine_plan *p)
{
    return bytes_in(p, true, !p->device_memory);
}

static const char *device_name(const struct engine_options *o)
{
    return is_auto(o->device) ? "cpu" : o->device;
}

const struct k_planner *engine_plan_planner(const struct engine_options *o)
{
    const struct k_device *gpu = k_device_find(device_name(o));
    return gpu ? gpu->planner : k_planner_find(device_name(o));
}

/* The GPUs that can be planned without owning one, for errors. */
static const char *known_gpus(char out[256])
{
    const struct k_device *known;
    out[0] = 0;
    for (uint32_t i = 0; (known = k_device_at(i)) != NULL; i++)
        snprintf(out + strlen(out), 256 - strlen(out), "%s%s", i ? ", " : "", known->name);
    return out;
}

static int fail_device(const char *device, struct quire_error *err)
{
    char names[256];
    const bool is_amd = strncasecmp(device, "mi", 2) == 0 || strncasecmp(device, "gfx", 3) == 0 ||
                        strncasecmp(device, "rocm", 4) == 0 || strncasecmp(device, "rx", 2) == 0;
    if (is_amd)
        return quire_fail(err, QUIRE_UNSUPPORTED,
                          "--device %.40s: AMD GPUs are not supported; supported are CPUs and NVIDIA GPUs: %s", device,
                          known_gpus(names));
    return quire_fail(err, QUIRE_INVALID,
                      "--device: must be auto, ref, cpu, cuda or cuda:N, or for a plan one of %s; got '%.40s'",
                      known_gpus(names), device);
}

uint64_t engine_plan_graph_reserve_bytes(const struct engine_plan *plan)
{
    const uint64_t share = plan->device_memory / GRAPH_RESERVE_SHARE;
    return share < MAX_GRAPH_RESERVE_BYTES ? share : MAX_GRAPH_RESERVE_BYTES;
}

/* Which backend's memory, and how much of a GPU's there is. */
static int plan_device(const struct engine_options *o, const struct model_desc *desc,
                       const struct engine_device *at_hand, struct engine_plan *p, struct quire_error *err)
{
    const char *device = device_name(o);
    struct engine_device named;
    p->gpu = k_device_find(device);
    if (p->gpu) {
        named = (struct engine_device){.planner = p->gpu->planner, .memory = p->gpu->memory_bytes};
        named.available = named.memory - ASSUMED_CONTEXT_BYTES;
        at_hand = &named;
    }
    p->planner = at_hand ? at_hand->planner : k_planner_find(device);
    if (!p->planner)
        return fail_device(device, err);
    if (p->planner->on_host)
        return QUIRE_OK;
    double share = o->gpu_memory_utilization > 0 ? o->gpu_memory_utilization : DEFAULT_GPU_UTILIZATION;
    if (!(share <= 1))
        return quire_fail(err, QUIRE_INVALID, "--gpu-memory-utilization: must be above 0 and at most 1");
    if (!at_hand) {
        char names[256];
        return quire_fail(err, QUIRE_INVALID, "--device cuda: no GPU is given for the memory plan: name one: %s",
                          known_gpus(names));
    }
    p->device_memory = at_hand->memory;
    p->device_budget = (uint64_t)((double)at_hand->memory * share);
    p->driver_bytes = at_hand->memory - at_hand->available + engine_plan_graph_reserve_bytes(p);
    p->bytes[PLAN_WEIGHTS] = desc->shard.device_bytes;
    return QUIRE_OK;
}

/* This rank's message buffers in shared memory: for the whole group, and for the parts that contain this rank. */
static uint64_t plan_messages(const struct engine_options *o, const struct model_desc *desc,
                              const struct engine_plan *p)
{
    const uint32_t n_places = p->n_ranks / p->n_stages;
    const uint32_t rank = desc->shard.stage * n_places + desc->shard.rank;
    if (p->n_ranks == 1)
        return 0;
    return o->message_bytes ? o->message_bytes
                            : collective_shared_bytes(rank, 1 + parts_count(rank, p->n_ranks, p->n_stages));
}

/* Memory that loading a model takes beside its files. */
static uint64_t loading_bytes(const struct model_desc *desc)
{
    return desc->shard.repacked_rows_bytes + desc->facts->copied_bytes;
}

/* What a window and sinks exclude. */
static int check_streaming(const struct model_desc *desc, const struct engine_draft *draft, struct quire_error *err)
{
    if (!desc->config->streaming.window)
        return QUIRE_OK;
    if (draft)
        return quire_fail(err, QUIRE_UNSUPPORTED,
                          "--attention-window: a draft model keeps the KV of all positions: leave it out of "
                          "--speculative-config, or use the method ngram");
    return QUIRE_OK;
}

int engine_plan_make_on(const struct engine_options *options, const struct model_desc *desc, uint64_t weight_bytes,
                        const struct engine_draft *draft, const struct engine_device *device, struct engine_plan *out,
                        struct quire_error *err)
{
    struct sched_config schedule; /* not used here: the plan fails for options that the engine would reject */
    memset(out, 0, sizeof *out);
    out->bytes[PLAN_WEIGHTS] = weight_bytes;
    out->n_stages = desc->shard.n_stages ? desc->shard.n_stages : 1;
    out->n_ranks = (desc->shard.n_ranks > 1 ? desc->shard.n_ranks : 1) * out->n_stages;
    out->bytes[PLAN_MESSAGES] = plan_messages(options, desc, out);
    out->bytes[PLAN_REPACKED_ROWS] = loading_bytes(desc) + (draft ? loading_bytes(draft->desc) : 0);
    int status = schedule_config(options, &schedule, err);
    if (status == QUIRE_OK)
        status = plan_device(options, desc, device, out, err);
    if (status == QUIRE_OK)
        status = check_streaming(desc, draft, err);
    if (status == QUIRE_OK)
        status = plan_dtypes(options, desc, out, err);
    if (status == QUIRE_OK && out->gemm_form == K_FORM_INT8 && out->planner->on_host)
        out->bytes[PLAN_REPACKED] = desc->shard.repacked_bytes + (draft ? draft->desc->shard.repacked_bytes : 0);
    if (status == QUIRE_OK)
        status = plan_limits(options, desc, out, err);
    if (status == QUIRE_OK)
        status = plan_groups(desc, out, err);
    if (status == QUIRE_OK && draft)
        status = plan_draft_group(draft, out, err);
    if (status == QUIRE_OK && out->device_memory) /* its KV cache is what the arenas leave */
        status = plan_all_arenas(desc, draft, out, err);
    if (status == QUIRE_OK)
        status = plan_kv(options, desc, out, err);
    if (status == QUIRE_OK)
        status = plan_swap(options, out, err);
    if (status == QUIRE_OK) /* again: max_model_len may have given way to the KV cache */
        status = plan_all_arenas(desc, draft, out, err);
    if (status == QUIRE_OK)
        out->bytes[PLAN_DRAFTS] = speculate_bytes(&engine_step_options(options)->speculative, out) +
                                  draft_scratch_bytes(out->max_num_seqs, engine_plan_overlap_depth(out));
    if (status == QUIRE_OK && options->grammars && desc->config->outputs.kind == OUTPUT_TOKENS)
        out->bytes[PLAN_MASKS] = constraints_bytes(desc->config->vocab_size, out->max_logit_rows, out->max_num_seqs);
    return status;
}

int engine_plan_make(const struct engine_options *options, const struct model_desc *desc, uint64_t weight_bytes,
                     struct engine_plan *out, struct quire_error *err)
{
    return engine_plan_make_on(options, desc, weight_bytes, NULL, NULL, out, err);
}
