/* Where a step's input lies, in the staging image and on the device. */
#include "engine/forward/forward_internal.h"

/* The pieces of a step's input lie one after the other, each on a boundary, no longer than this
 * step needs: one copy moves them, and one more for each further group's tables, whose place is fixed. The same
 * order and rounding as step_layout_make(). Where everything lies depends on the three sizes alone, so that a
 * recorded step finds it. */
void forward_place(struct forward *f, uint8_t *staging, uint32_t n_tokens, uint32_t n_rows, uint32_t n_logits,
                   struct forward_batch *out)
{
    uint8_t *at = staging;
    uint64_t tokens = layout_align(n_tokens * sizeof(uint32_t));
    *out = (struct forward_batch){.n_tokens = n_tokens, .n_rows = n_rows, .n_logits = n_logits};
    out->ids = (uint32_t *)(void *)at;
    at += tokens;
    out->positions = (uint32_t *)(void *)at;
    at += tokens;
    for (uint32_t g = 0; g < f->n_groups; g++, at += tokens)
        out->slots[g] = (uint32_t *)(void *)at;
    out->rows = (struct k_attn_row *)(void *)at;
    at += layout_align(n_rows * sizeof(struct k_attn_row));
    out->logit_tokens = (uint32_t *)(void *)at;
    at += layout_align(n_logits * sizeof(uint32_t));
    out->logit_rows = (struct k_attn_row *)(void *)at;
    at += layout_align(n_logits * sizeof(struct k_attn_row));
    out->sources = (struct k_token_source *)(void *)at;
    at += layout_align(n_rows * sizeof(struct k_token_source));
    out->tables[0] = (uint32_t *)(void *)at;
    for (uint32_t g = 1; g < f->n_groups; g++)
        out->tables[g] = (uint32_t *)(void *)(staging + f->layout.tables[g]);
}

void *forward_on_device(const struct forward *f, const void *staged)
{
    const uint8_t *at = staged, *first = f->staging[0];
    if (at < first || at >= first + f->layout.input_bytes)
        first = f->staging[1];
    return f->arena_dev + f->layout.input + (at - first);
}
