#include "engine/forward/layout.h"

#include "engine/forward/batch.h"
#include "engine/model/share.h"
#include "engine/model/tensors.h"
#include "kernels/args/sample.h"
#include "memory/kv_cache.h"

/* Adds up pieces; an overflow sticks. */
struct tally {
    uint64_t at;
    bool overflow;
};

/* Room for a × b × c bytes on a boundary; returns where it begins. */
static uint64_t take(struct tally *t, uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t begin = t->at, bytes, end;
    if (__builtin_mul_overflow(a, b, &bytes) || __builtin_mul_overflow(bytes, c, &bytes) ||
        bytes > UINT64_MAX - LAYOUT_ALIGN || __builtin_add_overflow(begin, layout_align(bytes), &end))
        t->overflow = true;
    else
        t->at = end;
    return begin;
}

static uint64_t max64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* [Q + K + V] of the layer that has most. */
static uint64_t widest_qkv(const struct model_desc *desc)
{
    uint64_t most = 0;
    for (uint32_t l = model_first_layer(desc); l < model_end_layer(desc); l++)
        most = max64(most, (uint64_t)model_size_of(desc, l, SIZE_Q) + model_size_of(desc, l, SIZE_K) +
                               model_size_of(desc, l, SIZE_V));
    return most;
}

/* [I] of the MLP, or [C, I] of the experts, or [I] of the shared expert, that has most. */
static uint64_t widest_inner(const struct model_desc *desc)
{
    uint64_t most = 0;
    for (uint32_t l = model_first_layer(desc); l < model_end_layer(desc); l++) {
        const uint64_t n_used = max64(1, model_size_of(desc, l, SIZE_USED));
        most = max64(most,
                     max64(n_used * model_size_of(desc, l, SIZE_INNER), model_size_of(desc, l, SIZE_SHARED_INNER)));
    }
    return most;
}

/* The widest input of a matrix that ranks divide by columns: whole, or as the rank with most of it has it. Experts that
 * ranks hold whole have none. */
static uint64_t widest_shared(const struct model_desc *desc,
                              uint32_t (*of)(const struct model_desc *desc, uint32_t layer, enum model_size size))
{
    uint64_t most = 0;
    for (uint32_t l = model_first_layer(desc); l < model_end_layer(desc); l++) {
        const uint64_t n_used = max64(1, model_size_of(desc, l, SIZE_USED));
        const bool is_whole = desc->shard.whole_experts && model_block_of(desc, l, BLOCK_EXPERTS);
        most = max64(most, max64(of(desc, l, SIZE_HEADS), of(desc, l, SIZE_SHARED_INNER)));
        most = max64(most, is_whole ? 0 : n_used * of(desc, l, SIZE_INNER));
    }
    return most;
}

/* A step's arrays, in the order and with the rounding of forward_place(). */
static void take_arrays(struct tally *t, const uint64_t lengths[BATCH_N_LENGTHS], uint32_t n_groups, uint32_t present)
{
    for (uint32_t i = 0; i < BATCH_N_ARRAYS; i++) {
        const struct batch_array *a = &batch_arrays[i];
        uint32_t g;
        if (a->length != BATCH_ENTRIES && batch_has(a, present))
            for (const uint32_t n = batch_groups(a, n_groups, &g); g < n; g++)
                take(t, lengths[a->length], 1, a->element_bytes);
    }
}

static void take_entries(struct tally *t, const uint64_t lengths[BATCH_N_LENGTHS], uint32_t n_groups)
{
    for (uint32_t i = 0; i < BATCH_N_ARRAYS; i++) {
        uint32_t g;
        if (batch_arrays[i].length == BATCH_ENTRIES)
            take(t, lengths[BATCH_ENTRIES], batch_groups(&batch_arrays[i], n_groups, &g),
                 batch_arrays[i].element_bytes);
    }
}

/* A step's whole input, as forward_place() lays it out. */
static void take_input(struct tally *t, const struct model_desc *desc, const struct engine_plan *plan,
                       const struct k_plan_bytes *bytes)
{
    const uint64_t table = ((uint64_t)plan->max_model_len + plan->block_tokens - 1) / plan->block_tokens;
    const uint64_t lengths[BATCH_N_LENGTHS] = {[BATCH_TOKENS] = plan->max_num_batched_tokens,
                                               [BATCH_ROWS] = plan->max_num_seqs,
                                               [BATCH_OUTPUTS] = plan->max_logit_rows,
                                               [BATCH_ENTRIES] = plan->max_num_seqs * table};
    take_arrays(t, lengths, plan->n_kv_groups, batch_present(desc));
    take(t, bytes->sample_plan, 1, 1);
    for (uint32_t i = 0; i < plan->n_kv_groups + 1; i++)
        take(t, bytes->attention_plan, 1, 1);
    take_entries(t, lengths, plan->n_kv_groups);
    take(t, bytes->sample_parts, 1, 1);
}

int step_layout_make(const struct model_desc *desc, const struct engine_plan *plan, struct step_layout *out,
                     struct quire_error *err)
{
    struct tally t = {0};
    const uint64_t n_tokens = plan->max_num_batched_tokens;
    const uint64_t heads = model_largest(desc, SIZE_HEADS), inner = widest_inner(desc);
    const uint32_t n_sinks = desc->config->streaming.n_sinks;
    const uint64_t n_used = model_largest(desc, SIZE_USED);
    const uint64_t qkv = widest_qkv(desc);
    const struct k_plan_dims dims = step_plan_dims(desc, plan, 0);
    struct k_plan_bytes bytes;

    step_plan_workspace(desc, plan, &bytes);
    out->has_gate_up = plan->planner->needs_gate_up(&dims) && !desc->config->encoder;
    out->input = 0;
    take_input(&t, desc, plan, &bytes);
    out->input_bytes = t.at;
    out->residual = take(&t, n_tokens, desc->config->hidden_size, sizeof(float));
    out->normed = take(&t, n_tokens, desc->config->hidden_size, sizeof(float));
    out->wide = take(&t, n_tokens, max64(qkv, out->has_gate_up ? 2 * inner : 0), sizeof(float));
    out->narrow = take(&t, n_tokens, max64(heads, inner), sizeof(float));
    out->delta = take(&t, n_tokens, desc->config->hidden_size, sizeof(float));
    out->experts = take(&t, n_tokens, n_used, sizeof(uint32_t));
    out->expert_weights = take(&t, n_tokens, n_used, sizeof(float));
    out->shared_weights = take(&t, n_tokens, model_largest(desc, SIZE_SHARED_INNER) > 0, sizeof(float));
    out->choices = take(&t, n_tokens, n_used * desc->config->hidden_size, sizeof(float));
    for (uint32_t i = 0; i < desc->config->n_ropes; i++)
        out->angles[i] = take(&t, n_tokens, desc->config->ropes[i].dim, sizeof(float));
    for (uint32_t i = 0; i < desc->config->n_ropes; i++)
        out->sink_angles[i] = take(&t, n_tokens, n_sinks > 0 ? desc->config->ropes[i].dim : 0, sizeof(float));
    out->sink_q = take(&t, n_tokens, n_sinks > 0 ? model_largest(desc, SIZE_Q) : 0, sizeof(float));
    out->gathered = take(&t, plan->max_logit_rows, desc->config->hidden_size, sizeof(float));
    out->results = take(&t, plan->max_logit_rows, 1, sizeof(struct k_sample_result));
    if (desc->shard.n_ranks > 1) {
        const uint64_t n = desc->shard.n_ranks;
        out->inputs = take(&t, n_tokens, widest_shared(desc, model_whole_size), sizeof(float));
        const uint64_t cols = widest_shared(desc, model_share_most);
        const uint64_t rows = plan->max_logit_rows + n,
                       vocab = model_share_most(desc, desc->config->n_layers, SIZE_VOCAB);
        out->shared = take(&t, max64(n * n_tokens * cols, rows * vocab), 1, sizeof(float));
        out->digest = take(&t, 1, 1, sizeof(uint64_t));
    }
    out->total = t.at;
    if (t.overflow)
        return quire_fail(err, QUIRE_INVALID,
                          "--max-num-batched-tokens %u with --max-num-seqs %u needs buffers larger"
                          " than any memory",
                          plan->max_num_batched_tokens, plan->max_num_seqs);
    return QUIRE_OK;
}

uint64_t layout_stage_buffer_bytes(const struct model_desc *desc, const struct engine_plan *plan)
{
    const bool is_in_place = plan->planner->on_host && plan->planner->overlap_depth == 0;
    if (!desc->shard.n_stages || is_in_place)
        return 0;
    return (uint64_t)model_stage_micro_most(desc->shard.n_stages, plan->planner->micro_batch_tokens,
                                            plan->max_num_batched_tokens) *
           desc->config->hidden_size * sizeof(float);
}

struct k_kv_shape layout_kv_shape(const struct model_desc *desc, uint32_t layer, const struct engine_plan *plan)
{
    const struct model_heads heads = model_heads_of(desc, layer);
    return (struct k_kv_shape){.format = plan->kv_format,
                               .n_kv_heads = heads.n_kv,
                               .head_dim = heads.k_dim,
                               .block_tokens = plan->block_tokens,
                               .v_dim = heads.v_dim};
}

uint64_t layout_kv_block_bytes(const struct model_desc *desc, uint32_t layer, const struct engine_plan *plan)
{
    const struct k_kv_shape kv = layout_kv_shape(desc, layer, plan);
    return k_kv_block_bytes(&kv) + k_kv_v_block_bytes(&kv);
}

struct k_plan_dims step_plan_dims(const struct model_desc *desc, const struct engine_plan *plan, uint32_t group)
{
    const uint64_t heads = model_largest_whole(desc, SIZE_HEADS), inner = model_largest_whole(desc, SIZE_INNER);
    const uint64_t hidden = desc->config->hidden_size;
    const uint64_t widest = max64(max64(hidden, max64(inner, model_largest_whole(desc, SIZE_SHARED_INNER))), heads);
    const struct model_heads of = group < plan->n_kv_groups ? model_heads_of(desc, plan->groups[group].layer)
                                                            : (struct model_heads){0};
    return (struct k_plan_dims){
        .n_tokens = plan->max_num_batched_tokens,
        .n_seqs = plan->max_num_seqs,
        .n_logits = plan->max_logit_rows,
        .n_vocab = desc->config->vocab_size,
        .n_q_heads = of.n_q,
        .n_kv_heads = of.n_kv,
        .head_dim = of.k_dim,
        .max_gemm_cols = (uint32_t)widest,
        .max_model_len = plan->max_model_len,
        .window = group < plan->n_kv_groups ? plan->groups[group].window : 0,
        .n_threads = plan->n_threads,
        .not_invariant = plan->not_invariant,
        .n_ranks = desc->shard.n_ranks,
        .n_experts = model_largest_whole(desc, SIZE_EXPERTS),
        .n_used = model_largest_whole(desc, SIZE_USED),
        .expert_rows = (uint32_t)max64(2 * inner, hidden),
        .choice_cols = (uint32_t)inner,
    };
}

void step_workspace(const struct k_planner *planner, const struct k_plan_dims *dims, uint32_t n,
                    struct k_plan_bytes *out)
{
    planner->workspace(dims, out);
    for (uint32_t i = 1; i < n; i++) {
        struct k_plan_bytes of;
        planner->workspace(&dims[i], &of);
        out->gemm = max64(out->gemm, of.gemm);
        out->attention = max64(out->attention, of.attention);
        out->attention_plan = max64(out->attention_plan, of.attention_plan);
        out->sample = max64(out->sample, of.sample);
        out->sample_plan = max64(out->sample_plan, of.sample_plan);
        out->sample_parts = max64(out->sample_parts, of.sample_parts);
        out->moe = max64(out->moe, of.moe);
        out->group = max64(out->group, of.group);
    }
}

void step_plan_workspace(const struct model_desc *desc, const struct engine_plan *plan, struct k_plan_bytes *out)
{
    struct k_plan_dims dims[KV_MAX_GROUPS];
    for (uint32_t g = 0; g < KV_MAX_GROUPS; g++)
        dims[g] = step_plan_dims(desc, plan, g);
    step_workspace(plan->planner, dims, plan->n_kv_groups, out);
}
