#include "engine/run/forward.h"

#include "engine/run/forward_internal.h"

#include <string.h>

/* The first failure ends the pass. */
#define TRY(call) \
    do { \
        int status_ = (call); \
        if (status_ != QUIRE_OK) \
            return status_; \
    } while (0)

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

static uint8_t *staging_of(struct forward *f)
{
    return f->staging[f->n_begun % 2];
}

/* A recorded step is larger than it was asked to be: what fills it up goes nowhere and reads nothing. */
static void fill_up(struct forward *f, const struct forward_graph *graph, struct forward_batch *batch)
{
    uint32_t n = graph->n_tokens;
    for (uint32_t i = batch->n_tokens; i < n; i++) {
        batch->ids[i] = batch->positions[i] = 0;
        for (uint32_t g = 0; g < f->n_groups; g++)
            batch->slots[g][i] = K_NO_SLOT;
        batch->rows[i] = (struct k_attn_row){.token = i};
        batch->logit_tokens[i] = i;
        batch->logit_rows[i] = (struct k_attn_row){.token = i};
    }
    batch->graph = graph;
}

/* A step that decodes: a token and a logit row for each row. */
void forward_begin(struct forward *f, uint32_t n_tokens, uint32_t n_rows, uint32_t n_logits, uint32_t n_entries,
                   struct forward_batch *out)
{
    f->n_begun++;
    const struct forward_graph *graph = n_tokens == n_rows && n_tokens == n_logits ? forward_graph_for(f, n_tokens)
                                                                                   : NULL;
    if (graph) {
        forward_place(f, staging_of(f), graph->n_tokens, graph->n_tokens, graph->n_tokens, out);
        out->n_tokens = out->n_rows = out->n_logits = n_tokens;
        fill_up(f, graph, out);
    } else {
        forward_place(f, staging_of(f), n_tokens, n_rows, n_logits, out);
    }
    out->n_entries = n_entries;
}

/* Where a piece of the staged input lies on the device. */
static void *on_device(const struct forward *f, const void *staged)
{
    const uint8_t *at = staged, *first = f->staging[0];
    if (at < first || at >= first + f->layout.input_bytes)
        first = f->staging[1];
    return f->arena_dev + f->layout.input + (at - first);
}

static float *buffer(const struct forward *f, uint64_t offset)
{
    return (float *)(void *)(f->arena_dev + offset);
}

static int rmsnorm(struct forward *f, uint32_t n_tokens, float *x, const float *add, const float *weight,
                   struct quire_error *err)
{
    const struct k_rmsnorm_args a = {
        .x_dev = x,
        .add_dev = add,
        .weight_dev = weight,
        .out_dev = buffer(f, f->layout.normed),
        .n_tokens = n_tokens,
        .n_cols = f->desc->hidden_size,
        .eps = f->desc->rms_eps,
    };
    return f->backend->ops->rmsnorm(f->backend, &a, err);
}

/* What follows a site's product, where a backend computes both at once. */
enum after { AFTER_NOTHING, AFTER_SILU_MUL };

/* The one place that applies a weight. out: [n_tokens, rows of the site], or half of them after SiLU-mul, whose
 * rows lie in `wide` where the backend cannot keep them to itself. */
static int linear(struct forward *f, const struct weight_set *set, enum model_site site, enum after after,
                  uint32_t n_tokens, const float *x, float *out, struct quire_error *err)
{
    const struct k_gemm_args gemm = {
        .weight = set->site[site].matrix,
        .x_dev = x,
        .bias_dev = set->site[site].bias,
        .y_dev = out,
        .workspace_dev = f->gemm_workspace_dev,
        .n_tokens = n_tokens,
    };
    if (after == AFTER_NOTHING)
        return f->backend->ops->gemm(f->backend, &gemm, err);
    struct k_gemm_silu_mul_args fused = {.gemm = gemm, .out_dev = out};
    fused.gemm.y_dev = f->layout.has_gate_up ? buffer(f, f->layout.wide) : NULL;
    return f->backend->ops->gemm_silu_mul(f->backend, &fused, err);
}

static int gather(struct forward *f, const struct forward_batch *batch, const float *x, float *out, uint32_t n_cols,
                  struct quire_error *err)
{
    const struct k_gather_args a = {
        .x_dev = x,
        .index_dev = on_device(f, batch->logit_tokens),
        .out_dev = out,
        .n_rows = batch->n_logits,
        .n_cols = n_cols,
    };
    return f->backend->ops->gather(f->backend, &a, err);
}

static int rope_kv(struct forward *f, uint32_t l, const struct forward_batch *batch, struct quire_error *err)
{
    const struct weight_set *w = &f->weights->layers[l];
    const struct k_rope_kv_args a = {
        .qkv_dev = buffer(f, f->layout.wide),
        .q_norm_dev = w->vector[VECTOR_Q_NORM],
        .k_norm_dev = w->vector[VECTOR_K_NORM],
        .eps = f->desc->rms_eps,
        .cos_sin_dev = buffer(f, f->layout.angles),
        .slots_dev = on_device(f, batch->slots[f->layer_group[l]]),
        .kv = &f->kv_shape,
        .layer = &f->kv[l],
        .n_tokens = batch->n_tokens,
        .n_q_heads = f->desc->n_q_heads,
    };
    return f->backend->ops->rope_kv(f->backend, &a, err);
}

/* The plan of a group's layers, or of the last layer, whose rows are its own. */
static void *attention_plan_of(const struct forward *f, uint32_t l)
{
    uint32_t i = l + 1 == f->desc->n_layers ? f->n_groups : f->layer_group[l];
    return f->attention_plans_dev + i * f->attention_plan_stride;
}

static int plan_attention(struct forward *f, uint32_t l, const struct forward_batch *batch,
                          const struct k_attn_row *rows, uint32_t n_rows, struct quire_error *err)
{
    const struct k_attention_plan_args a = {.rows = rows,
                                            .kv = &f->kv_shape,
                                            .plan_dev = attention_plan_of(f, l),
                                            .n_rows = n_rows,
                                            .n_tokens = batch->n_tokens,
                                            .n_q_heads = f->desc->n_q_heads,
                                            .window = f->desc->window[l]};
    return f->backend->ops->attention_plan(f->backend, &a, err);
}

/* Once for each group that has a layer before the last, and for the last. */
static int plan_all_attention(struct forward *f, const struct forward_batch *batch, struct quire_error *err)
{
    bool planned[KV_MAX_GROUPS] = {false};
    const uint32_t last = f->desc->n_layers - 1;
    for (uint32_t l = 0; l < last; l++) {
        if (planned[f->layer_group[l]])
            continue;
        planned[f->layer_group[l]] = true;
        TRY(plan_attention(f, l, batch, batch->rows, batch->n_rows, err));
    }
    return batch->n_logits ? plan_attention(f, last, batch, batch->logit_rows, batch->n_logit_rows, err) : QUIRE_OK;
}

/* Of the tokens of n_rows rows. */
static int attention(struct forward *f, uint32_t l, const struct forward_batch *batch, const struct k_attn_row *rows,
                     uint32_t n_rows, struct quire_error *err)
{
    const struct k_attention_args a = {
        .qkv_dev = buffer(f, f->layout.wide),
        .out_dev = buffer(f, f->layout.narrow),
        .rows = rows,
        .rows_dev = on_device(f, rows),
        .plan_dev = attention_plan_of(f, l),
        .tables_dev = on_device(f, batch->tables[f->layer_group[l]]),
        .kv = &f->kv_shape,
        .layer = &f->kv[l],
        .workspace_dev = f->attention_workspace_dev,
        .n_rows = n_rows,
        .n_tokens = batch->n_tokens,
        .n_q_heads = f->desc->n_q_heads,
        .window = f->desc->window[l],
        .scale = f->scale,
    };
    return f->backend->ops->attention(f->backend, &a, err);
}

/* The output projection and the MLP of n tokens: x is their residual, heads what attention gave
 * them. What the MLP adds to x is left in `delta`. */
static int output_and_mlp(struct forward *f, uint32_t l, uint32_t n, float *x, const float *heads,
                          struct quire_error *err)
{
    const struct weight_set *w = &f->weights->layers[l];
    float *normed = buffer(f, f->layout.normed), *delta = buffer(f, f->layout.delta);
    float *narrow = buffer(f, f->layout.narrow);
    TRY(linear(f, w, SITE_O, AFTER_NOTHING, n, heads, delta, err));
    TRY(rmsnorm(f, n, x, delta, w->vector[VECTOR_MLP_NORM], err));
    TRY(linear(f, w, SITE_GATE_UP, AFTER_SILU_MUL, n, normed, narrow, err));
    return linear(f, w, SITE_DOWN, AFTER_NOTHING, n, narrow, delta, err);
}

/* The residual enters without the previous layer's last term, which lies in `delta`; the norm adds
 * it. */
static int layer(struct forward *f, uint32_t l, const struct forward_batch *batch, struct quire_error *err)
{
    const struct weight_set *w = &f->weights->layers[l];
    const bool is_last = l + 1 == f->desc->n_layers;
    uint32_t n = batch->n_tokens;
    float *x = buffer(f, f->layout.residual), *wide = buffer(f, f->layout.wide);
    float *narrow = buffer(f, f->layout.narrow), *gathered = buffer(f, f->layout.gathered);
    TRY(rmsnorm(f, n, x, l > 0 ? buffer(f, f->layout.delta) : NULL, w->vector[VECTOR_ATTENTION_NORM], err));
    TRY(linear(f, w, SITE_QKV, AFTER_NOTHING, n, buffer(f, f->layout.normed), wide, err));
    TRY(rope_kv(f, l, batch, err));
    if (!is_last) {
        TRY(attention(f, l, batch, batch->rows, batch->n_rows, err));
        return output_and_mlp(f, l, n, x, narrow, err);
    }
    /* Only the logits read the last layer's output: of a prompt of 512 tokens one is wanted, and
     * the others' share of this layer is 4 % of a model of 24. */
    if (batch->n_logits == 0)
        return QUIRE_OK;
    TRY(attention(f, l, batch, batch->logit_rows, batch->n_logit_rows, err));
    TRY(gather(f, batch, narrow, wide, f->desc->n_q_heads * f->desc->head_dim, err));
    TRY(gather(f, batch, x, gathered, f->desc->hidden_size, err));
    return output_and_mlp(f, l, batch->n_logits, gathered, wide, err);
}

/* Embedding and angles: what comes before the layers. */
static int enter(struct forward *f, const struct forward_batch *batch, struct quire_error *err)
{
    const struct k_embed_args embed = {.table = f->weights->beside->site[SITE_EMBED].matrix,
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

/* Final norm and the logits of the rows that were asked for. */
static int leave(struct forward *f, const struct forward_batch *batch, struct quire_error *err)
{
    const struct weight_set *beside = f->weights->beside;
    const uint32_t n = batch->n_logits;
    if (n == 0)
        return QUIRE_OK;
    TRY(rmsnorm(f, n, buffer(f, f->layout.gathered), buffer(f, f->layout.delta), beside->vector[VECTOR_FINAL_NORM],
                err));
    return linear(f, beside, model_head_site(f->desc), AFTER_NOTHING, n, buffer(f, f->layout.normed), f->logits_dev,
                  err);
}

int forward_compute(struct forward *f, const struct forward_batch *batch, struct quire_error *err)
{
    TRY(enter(f, batch, err));
    for (uint32_t l = 0; l < f->desc->n_layers; l++)
        TRY(layer(f, l, batch, err));
    return leave(f, batch, err);
}

static int sample(struct forward *f, const struct forward_batch *batch, const struct k_sample_row *rows,
                  struct k_sample_result *results, struct quire_error *err)
{
    const struct k_sample_args a = {.logits_dev = f->logits_dev,
                                    .rows = rows,
                                    .results = results,
                                    .sampled_dev = f->sampled_dev,
                                    .workspace_dev = f->sample_workspace_dev,
                                    .n_rows = batch->n_logits,
                                    .n_vocab = f->desc->vocab_size};
    return batch->n_logits ? f->backend->ops->sample(f->backend, &a, err) : QUIRE_OK;
}

/* The attention rows of the tokens whose logits are wanted: runs of neighbours in one row. */
static void fill_logit_rows(struct forward_batch *batch)
{
    uint32_t row = 0, n = 0;
    for (uint32_t i = 0; i < batch->n_logits; i++) {
        uint32_t token = batch->logit_tokens[i];
        bool new_row = i == 0;
        for (; token >= batch->rows[row].token + batch->rows[row].n_tokens; row++)
            new_row = true;
        struct k_attn_row *last = new_row ? NULL : &batch->logit_rows[n - 1];
        if (last && token == last->token + last->n_tokens)
            last->n_tokens++;
        else
            batch->logit_rows[n++] = (struct k_attn_row){
                .token = token,
                .n_tokens = 1,
                .position = batch->rows[row].position + (token - batch->rows[row].token),
                .table = batch->rows[row].table,
            };
    }
    batch->n_logit_rows = n;
}

static int copy_to_device(struct forward *f, const void *begin, const void *end, struct quire_error *err)
{
    uint64_t bytes = (uint64_t)((const uint8_t *)end - (const uint8_t *)begin);
    return f->backend->ops->copy_in(f->backend, on_device(f, begin), begin, bytes, err);
}

static int copy_input(struct forward *f, const struct forward_batch *batch, struct quire_error *err)
{
    TRY(copy_to_device(f, staging_of(f), batch->tables[0] + batch->n_entries, err));
    for (uint32_t g = 1; g < f->n_groups; g++)
        TRY(copy_to_device(f, batch->tables[g], batch->tables[g] + batch->n_entries, err));
    return QUIRE_OK;
}

static int place_tokens(struct forward *f, const struct forward_batch *batch, struct quire_error *err)
{
    const struct k_place_tokens_args a = {.ids_dev = on_device(f, batch->ids),
                                          .sampled_dev = f->sampled_dev,
                                          .sources_dev = on_device(f, batch->sources),
                                          .n = batch->n_sources};
    return batch->n_sources ? f->backend->ops->place_tokens(f->backend, &a, err) : QUIRE_OK;
}

int forward_run(struct forward *f, struct forward_batch *batch, const struct k_sample_row *rows,
                struct k_sample_result *results, uint64_t *ticket, struct quire_error *err)
{
    const struct k_backend_ops *ops = f->backend->ops;
    if (batch->n_logits != batch->n_tokens) /* fewer are wanted than were planned */
        batch->graph = NULL;
    fill_logit_rows(batch);
    TRY(ops->step_begin(f->backend, err));
    TRY(copy_input(f, batch, err));
    TRY(place_tokens(f, batch, err));
    TRY(plan_all_attention(f, batch, err));
    TRY(batch->graph ? ops->graph_launch(f->backend, batch->graph->graph, err) : forward_compute(f, batch, err));
    TRY(sample(f, batch, rows, results, err));
    TRY(ops->fence(f->backend, ticket, err));
    return ops->step_end(f->backend, err);
}

/* ---- the host tier ---------------------------------------------------------------------------- */

/* Pairs of one call. They are compared with each other, so not many. */
#define MAX_RUN 128u

/* How many of the moves are one copy: of the same group and direction, and no block filled twice,
 * because a copy does its pairs in any order. */
static uint32_t fill_run(const struct kv_move *moves, uint32_t n_moves, struct k_block_pair *pairs)
{
    uint32_t n = 0;
    for (; n < n_moves && n < MAX_RUN; n++) {
        const struct kv_move *m = &moves[n];
        pairs[n] = m->to_host ? (struct k_block_pair){.from = m->device_block, .to = m->host_block}
                              : (struct k_block_pair){.from = m->host_block, .to = m->device_block};
        if (m->group != moves[0].group || m->to_host != moves[0].to_host)
            break;
        uint32_t i = 0;
        while (i < n && pairs[i].to != pairs[n].to)
            i++;
        if (i < n)
            break;
    }
    return n;
}

static int copy_run(struct forward *f, const struct kv_move *first, const struct k_block_pair *pairs, uint32_t n_pairs,
                    struct quire_error *err)
{
    for (uint32_t l = 0; l < f->desc->n_layers; l++) {
        if (f->layer_group[l] != first->group)
            continue;
        const struct k_kv_copy_args a = {.kv = &f->kv_shape,
                                         .from = first->to_host ? &f->kv[l] : &f->host_kv[l],
                                         .to = first->to_host ? &f->host_kv[l] : &f->kv[l],
                                         .pairs = pairs,
                                         .n_pairs = n_pairs};
        TRY(f->backend->ops->kv_copy(f->backend, &a, err));
    }
    return QUIRE_OK;
}

int forward_move(struct forward *f, const struct kv_move *moves, uint32_t n_moves, struct quire_error *err)
{
    struct k_block_pair pairs[MAX_RUN];
    if (n_moves == 0)
        return QUIRE_OK;
    TRY(f->backend->ops->step_begin(f->backend, err));
    for (uint32_t at = 0, n; at < n_moves; at += n) {
        n = fill_run(moves + at, n_moves - at, pairs);
        TRY(copy_run(f, &moves[at], pairs, n, err));
    }
    return f->backend->ops->step_end(f->backend, err);
}

int forward_wait(struct forward *f, uint64_t ticket, struct quire_error *err)
{
    return f->backend->ops->wait(f->backend, ticket, err);
}
