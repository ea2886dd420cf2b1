/* A step as a pipeline stage computes it: one micro-batch after the other. Stages exchange data in host memory. If a
 * device computes, its residual stream and logits pass through f->stage_buffer, and the host waits for them. */
#include "engine/forward/forward_internal.h"

#include "engine/model/share.h"

#include <string.h>

/* ---- from stage to stage ---- */

/* Waits until the copies from host memory have arrived. */
static int settle(struct forward *f, struct quire_error *err)
{
    const uint64_t taken = f->stage_buffer ? f->stage_buffer->taken : 0;
    return taken ? f->backend->ops->wait(f->backend, taken, err) : QUIRE_OK;
}

static uint64_t piece_of(const struct forward *f, uint64_t n_bytes, uint64_t at)
{
    return n_bytes - at < f->stage_buffer->n_bytes ? n_bytes - at : f->stage_buffer->n_bytes;
}

static int give(struct forward *f, int (*send)(void *context, const void *x, size_t n_bytes, struct quire_error *err),
                const void *x_dev, uint64_t n_bytes, struct quire_error *err)
{
    const struct k_backend_ops *ops = f->backend->ops;
    if (f->is_in_place)
        return send(f->group->context, x_dev, n_bytes, err);
    for (uint64_t at = 0, n; at < n_bytes; at += n) {
        uint64_t there;
        n = piece_of(f, n_bytes, at);
        TRY(ops->copy_out(f->backend, f->stage_buffer->bytes, (const uint8_t *)x_dev + at, n, err));
        TRY(ops->fence(f->backend, &there, err));
        TRY(ops->wait(f->backend, there, err));
        TRY(send(f->group->context, f->stage_buffer->bytes, n, err));
    }
    return QUIRE_OK;
}

static int take(struct forward *f, int (*receive)(void *context, void *x, size_t n_bytes, struct quire_error *err),
                void *x_dev, uint64_t n_bytes, struct quire_error *err)
{
    const struct k_backend_ops *ops = f->backend->ops;
    if (f->is_in_place)
        return receive(f->group->context, x_dev, n_bytes, err);
    for (uint64_t at = 0, n; at < n_bytes; at += n) {
        n = piece_of(f, n_bytes, at);
        TRY(settle(f, err));
        TRY(receive(f->group->context, f->stage_buffer->bytes, n, err));
        TRY(ops->copy_in(f->backend, (uint8_t *)x_dev + at, f->stage_buffer->bytes, n, err));
        TRY(ops->fence(f->backend, &f->stage_buffer->taken, err));
    }
    return QUIRE_OK;
}

int forward_clear_stage(struct forward *f, struct quire_error *err)
{
    if (f->is_in_place || !forward_is_stage(f))
        return QUIRE_OK;
    struct forward_stage_buffer *buffer = f->stage_buffer;
    memset(buffer->bytes, 0, buffer->n_bytes);
    TRY(f->backend->ops->copy_in(f->backend, f->arena_dev + f->layout->residual, buffer->bytes, buffer->n_bytes, err));
    return f->backend->ops->fence(f->backend, &buffer->taken, err);
}

/* This stage's part of a micro-batch whose input is on its way. */
static int compute(struct forward *f, const struct forward_batch *micro, float *logits, struct quire_error *err)
{
    uint8_t *x = f->arena_dev + f->layout->residual;
    const uint64_t n_bytes = (uint64_t)micro->n_tokens * f->desc->config->hidden_size * sizeof(float);
    if (!model_is_first_stage(f->desc))
        TRY(take(f, f->group->receive, x, n_bytes, err));
    TRY(micro->graph ? f->backend->ops->graph_launch(f->backend, micro->graph->graph, err)
                     : forward_compute(f, micro, logits, err));
    return model_is_last_stage(f->desc) ? QUIRE_OK : give(f, f->group->send, x, n_bytes, err);
}

/* ---- micro-batches ---- */

/* Copies the rows of a group that have tokens in [begin, end), with positions counted from `begin`. Returns their
 * number. */
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

/* Arrays of tokens from `begin` on, and whole arrays of table entries. */
static void cut_arrays(const struct forward *f, const struct forward_batch *batch, uint32_t begin,
                       struct forward_batch *out)
{
    const uint32_t present = batch_present(f->desc);
    for (uint32_t i = 0; i < BATCH_N_ARRAYS; i++) {
        const struct batch_array *a = &batch_arrays[i];
        const size_t first = a->length == BATCH_TOKENS ? begin * a->element_bytes : 0;
        uint32_t g;
        if ((a->length != BATCH_TOKENS && a->length != BATCH_ENTRIES) || !batch_has(a, present))
            continue;
        for (const uint32_t n = batch_groups(a, f->kv->n_groups, &g); g < n; g++)
            memcpy(batch_get(out, a, g), (const uint8_t *)batch_get(batch, a, g) + first,
                   batch_length(out, a->length) * a->element_bytes);
    }
}

/* Makes the step's tokens [begin, end) a step of its own. It uses the other image of a step's input, which is free
 * because steps of several ranks do not overlap. The tables are those of the whole step. */
static void cut(struct forward *f, const struct forward_batch *batch, uint32_t begin, uint32_t end,
                uint32_t first_output, uint32_t n_outputs, struct forward_batch *out)
{
    forward_place(f, f->staging[(f->n_begun + 1) % 2], end - begin, batch->n_rows, n_outputs, batch->n_entries, out);
    cut_arrays(f, batch, begin, out);
    for (uint32_t g = 0; g < f->kv->n_groups; g++)
        out->n_rows = cut_rows(batch->group_rows[g], batch->n_rows, begin, end, out->group_rows[g]);
    for (uint32_t i = 0; i < n_outputs; i++)
        out->output_tokens[i] = batch->output_tokens[first_output + i] - begin;
    forward_fill_output_rows(f, out);
}

static int compute_micros(struct forward *f, const struct forward_batch *batch, uint32_t n, struct quire_error *err)
{
    uint32_t begin = 0, first_output = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct forward_batch micro;
        const uint32_t end = (uint32_t)((uint64_t)batch->n_tokens * (i + 1) / n);
        uint32_t n_outputs = 0;
        while (first_output + n_outputs < batch->n_outputs && batch->output_tokens[first_output + n_outputs] < end)
            n_outputs++;
        TRY(settle(f, err)); /* and the input before it has, which was copied sooner */
        cut(f, batch, begin, end, first_output, n_outputs, &micro);
        TRY(forward_plan_attention(f, &micro, err));
        TRY(forward_copy_to_device(f, f->staging[(f->n_begun + 1) % 2], micro.sample_parts, err));
        TRY(compute(f, &micro, f->logits_dev + (size_t)first_output * f->desc->config->vocab_size, err));
        begin = end;
        first_output += n_outputs;
    }
    return QUIRE_OK;
}

/* Once all micro-batches are computed: a stage that gave logits back before would wait for rank 0, which may wait for it. */
static int bring_logits(struct forward *f, uint32_t n, struct quire_error *err)
{
    const struct model_desc *d = f->desc;
    const uint64_t n_bytes = (uint64_t)n * d->config->vocab_size * sizeof *f->logits_dev;
    if (d->shard.n_ranks > 1 && d->shard.rank > 0)
        return QUIRE_OK;
    if (model_is_last_stage(d))
        return n ? give(f, f->group->send_back, f->logits_dev, n_bytes, err) : QUIRE_OK;
    return n && model_is_first_stage(d) ? take(f, f->group->receive_back, f->logits_dev, n_bytes, err) : QUIRE_OK;
}

int forward_compute_staged(struct forward *f, const struct forward_batch *batch, struct quire_error *err)
{
    const uint32_t least = f->backend->ops->planner->micro_batch_tokens;
    const uint32_t n = model_stage_micros(f->desc->shard.n_stages, least, batch->n_tokens);
    TRY(n > 1 ? compute_micros(f, batch, n, err) : compute(f, batch, f->logits_dev, err));
    return bring_logits(f, batch->n_outputs, err);
}
