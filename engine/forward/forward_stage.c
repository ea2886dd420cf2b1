/* A step as a stage of a pipeline computes it: micro-batch by micro-batch. In host memory,
 * where a step is computed when its call returns. */
#include "engine/forward/forward_internal.h"

#include "engine/model/share.h"

#include <string.h>

/* What lies in tokens [begin, end) of a group's rows, counted from `begin`. Returns how many. */
static uint32_t cut_rows(const struct k_attn_row *rows, uint32_t n_rows, uint32_t begin, uint32_t end,
                         struct k_attn_row *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_rows; i++) {
        const uint32_t from = rows[i].token > begin ? rows[i].token : begin;
        const uint32_t row_end = rows[i].token + rows[i].n_tokens, to = row_end < end ? row_end : end;
        if (from >= to)
            continue;
        out[n] = rows[i];
        out[n].token = from - begin;
        out[n].n_tokens = to - from;
        out[n++].position = rows[i].position + (from - rows[i].token);
    }
    return n;
}

/* The step's tokens [begin, end) as a step of their own, in the room of the arena that a device's input would have. Their
 * tables are the step's. */
static void cut(struct forward *f, const struct forward_batch *batch, uint32_t begin, uint32_t end,
                uint32_t first_logit, uint32_t n_logits, struct forward_batch *out)
{
    forward_place(f, f->arena_dev + f->layout.input, end - begin, batch->n_rows, n_logits, 0, out);
    out->n_entries = batch->n_entries;
    out->ids = batch->ids + begin;
    out->positions = batch->positions + begin;
    for (uint32_t g = 0; g < f->n_groups; g++) {
        out->slots[g] = batch->slots[g] + begin;
        out->tables[g] = batch->tables[g];
        out->n_rows = cut_rows(batch->group_rows[g], batch->n_rows, begin, end, out->group_rows[g]);
    }
    for (uint32_t i = 0; i < n_logits; i++)
        out->logit_tokens[i] = batch->logit_tokens[first_logit + i] - begin;
    forward_fill_logit_rows(f, out);
}

static int compute_micros(struct forward *f, const struct forward_batch *batch, uint32_t n, struct quire_error *err)
{
    uint32_t begin = 0, first_logit = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct forward_batch micro;
        const uint32_t end = (uint32_t)((uint64_t)batch->n_tokens * (i + 1) / n);
        uint32_t n_logits = 0;
        while (first_logit + n_logits < batch->n_logits && batch->logit_tokens[first_logit + n_logits] < end)
            n_logits++;
        cut(f, batch, begin, end, first_logit, n_logits, &micro);
        TRY(forward_plan_attention(f, &micro, err));
        TRY(forward_compute(f, &micro, f->logits_dev + (size_t)first_logit * f->desc->vocab_size, err));
        begin = end;
        first_logit += n_logits;
    }
    return QUIRE_OK;
}

/* Once all micro-batches are computed: a stage that gave logits back before would wait for rank 0, which may wait for it. */
static int bring_logits(struct forward *f, uint32_t n, struct quire_error *err)
{
    const struct model_desc *d = f->desc;
    const size_t row = d->vocab_size * sizeof *f->logits_dev;
    if (d->share.n_ranks > 1 && d->share.rank > 0)
        return QUIRE_OK;
    if (model_is_last_stage(d))
        return n ? f->group.send_back(f->group.context, f->logits_dev, n * row, err) : QUIRE_OK;
    return n && model_is_first_stage(d) ? f->group.receive_back(f->group.context, f->logits_dev, n * row, err)
                                        : QUIRE_OK;
}

int forward_compute_staged(struct forward *f, const struct forward_batch *batch, struct quire_error *err)
{
    const uint32_t n = model_stage_micros(f->desc->stage.n_stages, batch->n_tokens);
    TRY(n > 1 ? compute_micros(f, batch, n, err) : forward_compute(f, batch, f->logits_dev, err));
    return bring_logits(f, batch->n_logits, err);
}
