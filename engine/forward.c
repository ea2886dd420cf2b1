#include "engine/forward.h"

#include "engine/forward_internal.h"

#include <string.h>

/* The pieces of a step's input lie one after the other, each on a boundary, no longer than this
 * step needs: one copy moves them. The same order and rounding as step_layout_make(). */
void forward_begin(struct forward *f, uint32_t n_tokens, uint32_t n_rows, uint32_t n_logits,
                   uint32_t n_entries, struct forward_batch *out)
{
    uint8_t *at = f->staging;
    uint64_t tokens = layout_align(n_tokens * sizeof(uint32_t));
    *out = (struct forward_batch){.n_tokens = n_tokens,
                                  .n_rows = n_rows,
                                  .n_logits = n_logits,
                                  .n_entries = n_entries};
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
    for (uint32_t g = 0; g < f->n_groups; g++) {
        out->tables[g] = (uint32_t *)(void *)at;
        at += layout_align((uint64_t)n_entries * sizeof(uint32_t));
    }
}

/* Where a piece of the staged input lies on the device. */
static void *on_device(const struct forward *f, const void *staged)
{
    return f->arena_dev + f->layout.input + ((const uint8_t *)staged - f->staging);
}

static float *buffer(const struct forward *f, uint64_t offset)
{
    return (float *)(void *)(f->arena_dev + offset);
}

/* The first failure ends the pass. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        int status_ = (call);                                                                      \
        if (status_ != QUIRE_OK)                                                                   \
            return status_;                                                                        \
    } while (0)

static int rmsnorm(struct forward *f, uint32_t n_tokens, const float *add, const float *weight,
                   struct quire_error *err)
{
    const struct k_rmsnorm_args a = {
        .x_dev = buffer(f, f->layout.residual),
        .add_dev = add,
        .weight_dev = weight,
        .out_dev = buffer(f, f->layout.normed),
        .n_tokens = n_tokens,
        .n_cols = f->desc->hidden_size,
        .eps = f->desc->rms_eps,
    };
    return f->backend->ops->rmsnorm(f->backend, &a, err);
}

static int gemm(struct forward *f, uint32_t n_tokens, const struct k_weight *weight,
                const float *bias, const float *x, float *y, struct quire_error *err)
{
    const struct k_gemm_args a = {
        .weight = weight,
        .x_dev = x,
        .bias_dev = bias,
        .y_dev = y,
        .workspace_dev = f->gemm_workspace_dev,
        .n_tokens = n_tokens,
    };
    return f->backend->ops->gemm(f->backend, &a, err);
}

static int attention(struct forward *f, uint32_t l, const struct forward_batch *batch,
                     struct quire_error *err)
{
    const struct layer_weights *w = &f->weights->layers[l];
    uint32_t group = f->layer_group[l];
    const struct k_rope_kv_args rope = {
        .qkv_dev = buffer(f, f->layout.wide),
        .q_norm_dev = w->q_norm,
        .k_norm_dev = w->k_norm,
        .eps = f->desc->rms_eps,
        .cos_sin_dev = buffer(f, f->layout.angles),
        .slots_dev = on_device(f, batch->slots[group]),
        .kv = &f->kv_shape,
        .layer = &f->kv[l],
        .n_tokens = batch->n_tokens,
        .n_q_heads = f->desc->n_q_heads,
    };
    TRY(f->backend->ops->rope_kv(f->backend, &rope, err));
    const struct k_attention_args a = {
        .qkv_dev = rope.qkv_dev,
        .out_dev = buffer(f, f->layout.narrow),
        .rows = batch->rows,
        .rows_dev = on_device(f, batch->rows),
        .tables_dev = on_device(f, batch->tables[group]),
        .kv = &f->kv_shape,
        .layer = &f->kv[l],
        .workspace_dev = f->attention_workspace_dev,
        .n_rows = batch->n_rows,
        .n_tokens = batch->n_tokens,
        .n_q_heads = f->desc->n_q_heads,
        .window = f->desc->window[l],
        .scale = f->scale,
    };
    return f->backend->ops->attention(f->backend, &a, err);
}

/* h enters without the previous layer's last term, which lies in `delta`; the norm adds it. */
static int layer(struct forward *f, uint32_t l, const struct forward_batch *batch,
                 struct quire_error *err)
{
    const struct layer_weights *w = &f->weights->layers[l];
    uint32_t n = batch->n_tokens;
    float *normed = buffer(f, f->layout.normed), *delta = buffer(f, f->layout.delta);
    float *wide = buffer(f, f->layout.wide), *narrow = buffer(f, f->layout.narrow);
    TRY(rmsnorm(f, n, l > 0 ? delta : NULL, w->input_norm, err));
    TRY(gemm(f, n, w->qkv, w->qkv_bias, normed, wide, err));
    TRY(attention(f, l, batch, err));
    TRY(gemm(f, n, w->o, w->o_bias, narrow, delta, err));
    TRY(rmsnorm(f, n, delta, w->post_norm, err));
    TRY(gemm(f, n, w->gate_up, w->gate_up_bias, normed, wide, err));
    const struct k_silu_mul_args silu = {.gate_up_dev = wide,
                                         .out_dev = narrow,
                                         .n_tokens = n,
                                         .n_cols = f->desc->intermediate_size};
    TRY(f->backend->ops->silu_mul(f->backend, &silu, err));
    return gemm(f, n, w->down, w->down_bias, narrow, delta, err);
}

/* Embedding and angles: what comes before the layers. */
static int enter(struct forward *f, const struct forward_batch *batch, struct quire_error *err)
{
    const struct k_embed_args embed = {.table = f->weights->embed,
                                       .ids_dev = on_device(f, batch->ids),
                                       .out_dev = buffer(f, f->layout.residual),
                                       .n_tokens = batch->n_tokens};
    TRY(f->backend->ops->embed(f->backend, &embed, err));
    const struct k_rope_angles_args angles = {
        .positions_dev = on_device(f, batch->positions),
        .inv_freq_dev = f->weights->inv_freq,
        .cos_sin_dev = buffer(f, f->layout.angles),
        .n_tokens = batch->n_tokens,
        .n_freqs = f->desc->head_dim / 2,
        .scale = (float)f->desc->rope_attention_factor,
    };
    return f->backend->ops->rope_angles(f->backend, &angles, err);
}

/* Final norm, logits of the rows that were asked for, and their tokens. */
static int leave(struct forward *f, const struct forward_batch *batch,
                 const struct k_sample_row *rows, struct k_sample_result *results,
                 struct quire_error *err)
{
    if (batch->n_logits == 0)
        return QUIRE_OK;
    TRY(rmsnorm(f, batch->n_tokens, buffer(f, f->layout.delta), f->weights->final_norm, err));
    const struct k_gather_args gather = {.x_dev = buffer(f, f->layout.normed),
                                         .index_dev = on_device(f, batch->logit_tokens),
                                         .out_dev = buffer(f, f->layout.gathered),
                                         .n_rows = batch->n_logits,
                                         .n_cols = f->desc->hidden_size};
    TRY(f->backend->ops->gather(f->backend, &gather, err));
    TRY(gemm(f, batch->n_logits, f->weights->lm_head, NULL, gather.out_dev, f->logits_dev, err));
    const struct k_sample_args sample = {.logits_dev = f->logits_dev,
                                         .rows = rows,
                                         .results = results,
                                         .workspace_dev = f->sample_workspace_dev,
                                         .n_rows = batch->n_logits,
                                         .n_vocab = f->desc->vocab_size};
    return f->backend->ops->sample(f->backend, &sample, err);
}

static uint64_t staged_bytes(const struct forward *f, const struct forward_batch *batch)
{
    const uint32_t *last = batch->tables[f->n_groups - 1];
    return (uint64_t)((const uint8_t *)(last + batch->n_entries) - f->staging);
}

int forward_run(struct forward *f, const struct forward_batch *batch,
                const struct k_sample_row *rows, struct k_sample_result *results,
                uint64_t *ticket, struct quire_error *err)
{
    const struct k_backend_ops *ops = f->backend->ops;
    TRY(ops->step_begin(f->backend, err));
    TRY(ops->copy_in(f->backend, f->arena_dev + f->layout.input, f->staging,
                     staged_bytes(f, batch), err));
    TRY(enter(f, batch, err));
    for (uint32_t l = 0; l < f->desc->n_layers; l++)
        TRY(layer(f, l, batch, err));
    TRY(leave(f, batch, rows, results, err));
    TRY(ops->fence(f->backend, ticket, err));
    return ops->step_end(f->backend, err);
}

int forward_wait(struct forward *f, uint64_t ticket, struct quire_error *err)
{
    return f->backend->ops->wait(f->backend, ticket, err);
}
