#include "engine/forward/layout.h"

#include "engine/forward/batch.h"
#include "engine/model/share.h"
#include "engine/model/tensors.h"
#include "kernels/args/sample.h"

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

int step_layout_make(const struct model_desc *desc, const struct engine_plan *plan, struct step_layout *out,
                     struct quire_error *err)
{
    struct tally t = {0};
    uint64_t n_tokens = plan->max_num_batched_tokens, groups = plan->n_kv_groups;
    uint64_t table = ((uint64_t)plan->max_model_len + plan->block_tokens - 1) / plan->block_tokens;
    uint64_t q = (uint64_t)desc->n_q_heads * desc->head_dim;
    uint64_t qkv = q + 2 * (uint64_t)desc->n_kv_heads * desc->head_dim;
    uint64_t inner = desc->intermediate_size;
    const struct k_plan_dims dims = step_plan_dims(desc, plan);
    struct k_plan_bytes bytes;

    plan->planner->workspace(&dims, &bytes);
    out->has_gate_up = plan->planner->needs_gate_up(&dims) && !desc->encoder;
    out->input = 0;
    const uint64_t lengths[BATCH_N_LENGTHS] = {[BATCH_TOKENS] = n_tokens,
                                               [BATCH_ROWS] = plan->max_num_seqs,
                                               [BATCH_OUTPUTS] = plan->max_logit_rows,
                                               [BATCH_ENTRIES] = plan->max_num_seqs * table};
    take_arrays(&t, lengths, plan->n_kv_groups, batch_present(desc));
    take(&t, bytes.sample_plan, 1, 1);
    for (uint64_t i = 0; i < groups + 1; i++)
        take(&t, bytes.attention_plan, 1, 1);
    take_entries(&t, lengths, plan->n_kv_groups);
    take(&t, bytes.sample_parts, 1, 1);
    out->input_bytes = t.at;
    out->residual = take(&t, n_tokens, desc->hidden_size, sizeof(float));
    out->normed = take(&t, n_tokens, desc->hidden_size, sizeof(float));
    out->wide = take(&t, n_tokens, max64(qkv, out->has_gate_up ? 2 * inner : 0), sizeof(float));
    out->narrow = take(&t, n_tokens, max64(q, inner), sizeof(float));
    out->delta = take(&t, n_tokens, desc->hidden_size, sizeof(float));
    out->angles = take(&t, n_tokens, desc->head_dim, sizeof(float));
    out->gathered = take(&t, plan->max_logit_rows, desc->hidden_size, sizeof(float));
    out->results = take(&t, plan->max_logit_rows, 1, sizeof(struct k_sample_result));
    if (desc->share.n_ranks > 1) {
        const uint64_t n = desc->share.n_ranks;
        out->inputs = take(&t, n_tokens, max64(model_whole_size(desc, SIZE_Q), model_whole_size(desc, SIZE_INNER)),
                           sizeof(float));
        const uint64_t cols = max64(model_share_most(desc, SIZE_Q), model_share_most(desc, SIZE_INNER));
        const uint64_t rows = plan->max_logit_rows + n, vocab = model_share_most(desc, SIZE_VOCAB);
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
    if (!desc->stage.n_stages || is_in_place)
        return 0;
    return (uint64_t)model_stage_micro_most(desc->stage.n_stages, plan->planner->micro_batch_tokens,
                                            plan->max_num_batched_tokens) *
           desc->hidden_size * sizeof(float);
}

uint64_t layout_kv_bytes(const struct model_desc *desc, struct k_format format, uint32_t block_tokens,
                         uint32_t n_blocks)
{
    const struct k_kv_shape kv = {format, desc->n_kv_heads, desc->head_dim, block_tokens};
    return n_blocks * k_kv_block_bytes(&kv);
}

struct k_plan_dims step_plan_dims(const struct model_desc *desc, const struct engine_plan *plan)
{
    uint64_t q = model_whole_size(desc, SIZE_Q), inner = model_whole_size(desc, SIZE_INNER);
    uint64_t widest = max64(max64(desc->hidden_size, inner), q);
    return (struct k_plan_dims){
        .n_tokens = plan->max_num_batched_tokens,
        .n_seqs = plan->max_num_seqs,
        .n_logits = plan->max_logit_rows,
        .n_vocab = desc->vocab_size,
        .n_q_heads = desc->n_q_heads,
        .n_kv_heads = desc->n_kv_heads,
        .head_dim = desc->head_dim,
        .max_gemm_cols = (uint32_t)widest,
        .max_model_len = plan->max_model_len,
        .n_threads = plan->n_threads,
        .not_invariant = plan->not_invariant,
        .n_ranks = desc->share.n_ranks,
    };
}
