/* Where a step's input lies, in the staging image and on the device. */
#include "engine/forward/forward_internal.h"

/* The pieces of a step's input lie one after the other, each on a boundary, no longer than this step needs: one copy moves
 * them all. The same order and rounding as step_layout_make(). Where everything up to the tables begins depends on the first
 * three sizes alone, so that a recorded step finds it; what comes behind is found by offsets in what came before. */
void forward_place(struct forward *f, uint8_t *staging, uint32_t n_tokens, uint32_t n_rows, uint32_t n_logits,
                   uint32_t n_entries, struct forward_batch *out)
{
    uint8_t *at = staging;
    const uint64_t tokens = layout_align(n_tokens * sizeof(uint32_t));
    const uint64_t rows = layout_align(n_rows * sizeof(struct k_attn_row));
    struct k_plan_dims dims = f->dims;
    struct k_plan_bytes bytes;
    dims.n_tokens = n_tokens;
    dims.n_seqs = n_rows;
    dims.n_logits = n_logits;
    f->backend->ops->planner->workspace(&dims, &bytes);
    *out = (struct forward_batch){.n_tokens = n_tokens, .n_rows = n_rows, .n_logits = n_logits, .n_entries = n_entries};
    out->ids = (uint32_t *)(void *)at;
    at += tokens;
    out->positions = (uint32_t *)(void *)at;
    at += tokens;
    if (f->desc->encoder) {
        out->segments = (uint32_t *)(void *)at;
        at += tokens;
    }
    for (uint32_t g = 0; g < f->n_groups; g++, at += tokens)
        out->slots[g] = (uint32_t *)(void *)at;
    out->rows = (struct k_attn_row *)(void *)at;
    for (uint32_t g = 0; g < f->n_groups; g++, at += rows)
        out->group_rows[g] = (struct k_attn_row *)(void *)at;
    out->logit_tokens = (uint32_t *)(void *)at;
    at += layout_align(n_logits * sizeof(uint32_t));
    if (f->desc->pooling != POOLING_NONE) {
        out->pool_rows = (struct k_pool_row *)(void *)at;
        at += layout_align(n_logits * sizeof(struct k_pool_row));
    }
    if (f->desc->dense_size > 0) {
        out->vector_rows = (struct k_pool_row *)(void *)at;
        at += layout_align(n_logits * sizeof(struct k_pool_row));
    }
    out->logit_rows = (struct k_attn_row *)(void *)at;
    at += layout_align(n_logits * sizeof(struct k_attn_row));
    out->sources = (struct k_token_source *)(void *)at;
    at += layout_align(n_rows * sizeof(struct k_token_source));
    out->sample_plan = at;
    at += layout_align(bytes.sample_plan);
    out->attention_plans = at;
    out->attention_plan_stride = layout_align(bytes.attention_plan);
    at += (f->n_groups + 1) * out->attention_plan_stride;
    for (uint32_t g = 0; g < f->n_groups; g++)
        out->tables[g] = (uint32_t *)(void *)at + (uint64_t)g * n_entries;
    out->sample_parts = at + layout_align((uint64_t)f->n_groups * n_entries * sizeof(uint32_t));
}

void *forward_on_device(const struct forward *f, const void *staged)
{
    const uint8_t *at = staged;
    uint8_t *first = f->staging[0];
    if (at < first || at >= first + f->layout.input_bytes)
        first = f->staging[1];
    return (f->is_in_place ? first : f->arena_dev + f->layout.input) + (at - first);
}
