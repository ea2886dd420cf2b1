/* Where a step's input lies, in the staging image and on the device. */
#include "engine/forward/forward_internal.h"

/* Lays out the arrays of a length other than ENTRIES, each on a boundary. Returns the end. */
static uint8_t *place_arrays(const struct forward *f, uint8_t *at, struct forward_batch *out)
{
    const uint32_t present = batch_present(f->desc);
    for (uint32_t i = 0; i < BATCH_N_ARRAYS; i++) {
        const struct batch_array *a = &batch_arrays[i];
        uint32_t g;
        if (a->length == BATCH_ENTRIES || !batch_has(a, present))
            continue;
        for (const uint32_t n = batch_groups(a, f->kv->n_groups, &g); g < n; g++) {
            batch_set(out, a, g, at);
            at += layout_align(batch_length(out, a->length) * a->element_bytes);
        }
        if (a->filled == BATCH_PRESET)
            batch_pad(out, a, f->kv->n_groups, 0, out->n_tokens);
    }
    return at;
}

/* Lays out the arrays of ENTRIES, whose groups are packed: rows of all groups have offsets from the first. */
static uint8_t *place_entries(const struct forward *f, uint8_t *at, struct forward_batch *out)
{
    for (uint32_t i = 0; i < BATCH_N_ARRAYS; i++) {
        const struct batch_array *a = &batch_arrays[i];
        uint32_t g;
        if (a->length != BATCH_ENTRIES)
            continue;
        const uint64_t bytes = out->n_entries * a->element_bytes;
        const uint32_t n = batch_groups(a, f->kv->n_groups, &g);
        for (; g < n; g++)
            batch_set(out, a, g, at + g * bytes);
        at += layout_align(n * bytes);
    }
    return at;
}

/* The pieces of a step's input lie one after the other, each on a boundary, no longer than this step needs: one copy moves
 * them all. The same order and rounding as step_layout_make(). Where everything up to the tables begins depends on the first
 * three sizes alone, so that a recorded step finds it; what comes behind is found by offsets in what came before. */
void forward_place(struct forward *f, uint8_t *staging, uint32_t n_tokens, uint32_t n_rows, uint32_t n_outputs,
                   uint32_t n_entries, struct forward_batch *out)
{
    struct k_plan_dims dims[KV_MAX_GROUPS];
    struct k_plan_bytes bytes;
    for (uint32_t g = 0; g < KV_MAX_GROUPS; g++) {
        dims[g] = f->kv->groups[g].dims;
        dims[g].n_tokens = n_tokens;
        dims[g].n_seqs = n_rows;
        dims[g].n_logits = n_outputs;
    }
    step_workspace(f->backend->ops->planner, dims, f->kv->n_groups, &bytes);
    *out = (struct forward_batch){
        .n_tokens = n_tokens, .n_rows = n_rows, .n_outputs = n_outputs, .n_entries = n_entries};
    uint8_t *at = place_arrays(f, staging, out);
    out->group_rows[0] = out->rows;
    out->sample_plan = at;
    at += layout_align(bytes.sample_plan);
    out->attention_plans = at;
    out->attention_plan_stride = layout_align(bytes.attention_plan);
    at += (f->kv->n_groups + 1) * out->attention_plan_stride;
    out->sample_parts = place_entries(f, at, out);
}

void forward_pad(const struct forward *f, struct forward_batch *batch, uint32_t first, uint32_t end)
{
    const uint32_t present = batch_present(f->desc);
    for (uint32_t i = 0; i < BATCH_N_ARRAYS; i++)
        if (batch_arrays[i].length == BATCH_TOKENS && batch_has(&batch_arrays[i], present))
            batch_pad(batch, &batch_arrays[i], f->kv->n_groups, first, end);
}

void *forward_on_device(const struct forward *f, const void *staged)
{
    const uint8_t *at = staged;
    if (f->is_in_place)
        return (void *)(uintptr_t)at;
    uint8_t *first = f->staging[0];
    if (at < first || at >= first + f->layout->input_bytes)
        first = f->staging[1];
    return f->arena_dev + f->layout->input + (at - first);
}

int forward_copy_to_device(struct forward *f, const uint8_t *begin, const uint8_t *end, struct quire_error *err)
{
    return f->is_in_place
               ? QUIRE_OK
               : f->backend->ops->copy_in(f->backend, forward_on_device(f, begin), begin, (uint64_t)(end - begin), err);
}

void forward_fill_output_rows(const struct forward *f, struct forward_batch *batch)
{
    const struct k_attn_row *rows = batch->group_rows[f->kv->layer_group[f->desc->config->n_layers - 1]];
    uint32_t row = 0, n = 0;
    for (uint32_t i = 0; i < batch->n_outputs; i++) {
        uint32_t token = batch->output_tokens[i];
        bool new_row = i == 0;
        for (; token >= rows[row].token + rows[row].n_tokens; row++)
            new_row = true;
        struct k_attn_row *last = new_row ? NULL : &batch->output_rows[n - 1];
        if (last && token == last->token + last->n_tokens)
            last->n_tokens++;
        else
            batch->output_rows[n++] = (struct k_attn_row){
                .token = token,
                .n_tokens = 1,
                .position = rows[row].position + (token - rows[row].token),
                .table = rows[row].table,
            };
    }
    batch->n_output_rows = n;
}
