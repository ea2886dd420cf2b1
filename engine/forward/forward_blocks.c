#include "engine/forward/forward_internal.h"
#include "kernels/args/gemm.h"
#include "kernels/args/moe.h"
#include "kernels/args/norm.h"
#include "kernels/args/rope.h"

#include <assert.h>

static float *buffer(const struct forward *f, uint64_t offset)
{
    return (float *)(void *)(f->arena_dev + offset);
}

/* A step on its way through the blocks. */
struct pass {
    struct forward *f;
    const struct forward_batch *batch;
    struct quire_error *err;
    uint32_t layer;
    const struct weight_set *weights; /* of the layer */
    uint32_t n;       /* tokens: the step's, and from the last layer's attention on those whose logits are wanted */
    float *x;         /* [n, H] the residual stream, but for what is due */
    const float *plain; /* the output of the operation that followed a GEMM; NULL for operations that only GEMMs read */
    const float *due; /* [n, H] what the block before adds to x, left to the next norm; NULL: nothing */
    bool out_is_part, due_is_part; /* a linear's output, and due: this rank's part of a sum, with a bias behind it */
    const float *part_bias;
    float *logits; /* or vectors */
};

/* ---- one operation each ---------------------------------------------------------------------- */

/* The one place that norms: of n tokens what a says. */
static int norm(struct pass *p, enum model_norm kind, enum model_vector weight, struct k_rmsnorm_args a)
{
    assert(kind == NORM_RMS);
    (void)kind;
    a.weight_dev = p->weights->vector[weight];
    a.n_tokens = p->n;
    a.eps = p->f->desc->config->rms_eps;
    return p->f->backend->ops->rmsnorm(p->f->backend, &a, p->err);
}

/* x += what is due; normed = norm(x), for GEMMs alone or as floats. */
static int norm_x(struct pass *p, enum model_norm kind, enum model_vector weight, bool for_gemm)
{
    const struct k_rmsnorm_args a = {.x_dev = p->x,
                                     .add_dev = p->due,
                                     .add_is_part = p->due && p->due_is_part,
                                     .add_bias_dev = p->part_bias,
                                     .out_dev = buffer(p->f, p->f->layout->normed),
                                     .n_cols = p->f->desc->config->hidden_size,
                                     .for_gemm = for_gemm};
    p->due = NULL;
    p->plain = for_gemm ? NULL : a.out_dev;
    return norm(p, kind, weight, a);
}

/* x += norm(delta) */
static int norm_into_x(struct pass *p, enum model_norm kind, enum model_vector weight, float *delta)
{
    assert(!p->due);
    return norm(p, kind, weight,
                (struct k_rmsnorm_args){
                    .x_dev = delta, .out_dev = p->x, .n_cols = p->f->desc->config->hidden_size, .into = true});
}

/* x = norm(x + add) */
static int layer_norm(struct pass *p, enum model_vector weight, enum model_vector bias, const float *add)
{
    const struct k_layernorm_args a = {.x_dev = p->x,
                                       .add_dev = add,
                                       .weight_dev = p->weights->vector[weight],
                                       .bias_dev = p->weights->vector[bias],
                                       .out_dev = p->x,
                                       .n_tokens = p->n,
                                       .n_cols = p->f->desc->config->hidden_size,
                                       .eps = p->f->desc->config->rms_eps};
    return p->f->backend->ops->layernorm(p->f->backend, &a, p->err);
}

/* Returns whether only GEMMs read x. That is true for everything except the residual stream and an activation's
 * output. */
static bool is_for_gemm(const struct pass *p, const float *x)
{
    return x != p->x && x != p->plain;
}

/* by: of kinds that have a number */
static int activate(struct pass *p, enum k_activation kind, float *x, uint32_t n_cols, float by)
{
    const struct k_activate_args a = {.x_dev = x, .n_tokens = p->n, .n_cols = n_cols, .activation = kind, .by = by};
    p->plain = x;
    return p->f->backend->ops->activate(p->f->backend, &a, p->err);
}

/* The size whose columns are the input of a site. */
static enum model_size input_of(const struct pass *p, const struct site_weight *weight)
{
    const struct site_weight *site = p->weights->site;
    return weight == &site[SITE_O] ? SIZE_HEADS : weight == &site[SITE_SHARED_DOWN] ? SIZE_SHARED_INNER : SIZE_INNER;
}

/* A site whose input is distributed over the ranks by columns. */
static int linear_shared(struct pass *p, const struct site_weight *weight, struct k_gemm_args gemm)
{
    struct forward *f = p->f;
    const enum model_size size = input_of(p, weight);
    if (weight->cut == CUT_GATHERED) {
        float *all = buffer(f, f->layout->inputs);
        TRY(forward_gather(f, p->n, p->layer, size, gemm.x_dev, all, p->err));
        gemm.x_dev = all;
        gemm.x_for_gemm = false;
        return f->backend->ops->gemm(f->backend, &gemm, p->err);
    }
    gemm.n_whole = model_whole_size(f->desc, p->layer, size);
    gemm.first_col = model_share_of(f->desc, f->desc->shard.rank, p->layer, size).first;
    gemm.bias_dev = NULL;
    p->out_is_part = true;
    p->part_bias = weight->bias;
    return f->backend->ops->gemm(f->backend, &gemm, p->err);
}

/* The sum over ranks of a block's output, unless a norm computes it. */
static int complete(struct pass *p, float *out, bool *is_part)
{
    if (!*is_part)
        return QUIRE_OK;
    *is_part = false;
    return p->n ? forward_reduce(p->f, out, p->n, p->f->desc->config->hidden_size, p->part_bias, p->err) : QUIRE_OK;
}

/* The only function that applies a weight. It covers n tokens, and the following operation if the backend computes
 * both at once. out: [n, rows of the site], or half of the rows after an activation that multiplies one half by the
 * other. In that case `wide` holds all rows if the backend needs memory for them. */
static int linear(struct pass *p, const struct site_weight *weight, enum model_activation activation, const float *x,
                  float *out)
{
    struct forward *f = p->f;
    struct k_gate gate = {.kind = K_GATE_SILU};
    const struct k_gemm_args gemm = {
        .weight = weight->matrix,
        .x_dev = x,
        .bias_dev = weight->bias,
        .y_dev = out,
        .workspace_dev = f->workspace_dev,
        .n_tokens = p->n,
        .unit = weight->unit,
        .x_for_gemm = is_for_gemm(p, x),
    };
    if (weight->cut >= CUT_COLS)
        return linear_shared(p, weight, gemm);
    switch (activation) {
    case ACTIVATION_NONE: return f->backend->ops->gemm(f->backend, &gemm, p->err);
    case ACTIVATION_GELU:
        TRY(f->backend->ops->gemm(f->backend, &gemm, p->err));
        return activate(p, K_ACT_GELU, out, model_size_of(f->desc, p->layer, SIZE_INNER), 0);
    case ACTIVATION_SILU_MUL: break;
    case ACTIVATION_GELU_TANH_MUL: gate.kind = K_GATE_GELU_TANH; break;
    }
    struct k_gemm_gated_args fused = {.gemm = gemm, .out_dev = out, .gate = gate, .for_gemm = true};
    fused.gemm.y_dev = f->layout->has_gate_up ? buffer(f, f->layout->wide) : NULL;
    return f->backend->ops->gemm_gated(f->backend, &fused, p->err);
}

static int gather(struct pass *p, const float *x, float *out, uint32_t n_cols, bool for_gemm)
{
    const struct k_gather_args a = {
        .x_dev = x,
        .index_dev = forward_on_device(p->f, p->batch->output_tokens),
        .out_dev = out,
        .n_rows = p->batch->n_outputs,
        .n_cols = n_cols,
        .for_gemm = for_gemm,
    };
    return p->f->backend->ops->gather(p->f->backend, &a, p->err);
}

/* Over all heads of q, and all of k: parts of the rows of qkv, in place. */
static int norm_all_heads(struct pass *p)
{
    const struct forward_kv_group *g = forward_group_of(p->f, p->layer);
    const uint32_t n_q = g->n_q_heads * g->shape.head_dim, n_k = g->shape.n_kv_heads * g->shape.head_dim,
                   n_v = g->shape.n_kv_heads * g->shape.v_dim;
    float *q = buffer(p->f, p->f->layout->wide), *k = q + n_q;
    struct k_rmsnorm_args a = {.x_dev = q, .out_dev = q, .n_cols = n_q, .row_stride = n_q + n_k + n_v};
    TRY(norm(p, NORM_RMS, VEC_Q_NORM, a));
    a.x_dev = a.out_dev = k;
    a.n_cols = n_k;
    return norm(p, NORM_RMS, VEC_K_NORM, a);
}

/* The norm of each head is rope_kv()'s own. */
static int rope_kv(struct pass *p, const struct model_attention *attention)
{
    struct forward *f = p->f;
    const struct forward_kv_group *group = forward_group_of(f, p->layer);
    const bool each = attention->head_norm == HEAD_NORM_EACH;
    if (attention->head_norm == HEAD_NORM_ALL)
        TRY(norm_all_heads(p));
    const struct k_rope_kv_args a = {
        .qkv_dev = buffer(f, f->layout->wide),
        .q_norm_dev = each ? p->weights->vector[VEC_Q_NORM] : NULL,
        .k_norm_dev = each ? p->weights->vector[VEC_K_NORM] : NULL,
        .eps = f->desc->config->rms_eps,
        .cos_sin_dev = buffer(f, f->layout->angles[attention->rope]),
        .sink_q_dev = group->n_sinks ? buffer(f, f->layout->sink_q) : NULL,
        .sink_cos_sin_dev = group->n_sinks ? buffer(f, f->layout->sink_angles[attention->rope]) : NULL,
        .slots_dev = forward_on_device(f, p->batch->slots[f->kv->layer_group[p->layer]]),
        .kv = &group->shape,
        .layer = &f->kv->layers[p->layer],
        .n_tokens = p->n,
        .n_q_heads = group->n_q_heads,
        .n_fixed = attention->k_dim - f->desc->config->ropes[attention->rope].dim,
    };
    return f->backend->ops->rope_kv(f->backend, &a, p->err);
}

/* ---- attention's plan ------------------------------------------------------------------------ */

/* The plan of a group's layers, or of the last layer, whose rows are its own. */
static void *attention_plan_of(const struct forward *f, const struct forward_batch *batch, uint32_t l)
{
    uint32_t i = l + 1 == f->desc->config->n_layers && forward_narrows(f) ? f->kv->n_groups : f->kv->layer_group[l];
    return batch->attention_plans + i * batch->attention_plan_stride;
}

static int plan_layer(struct forward *f, uint32_t l, const struct forward_batch *batch, const struct k_attn_row *rows,
                      uint32_t n_rows, struct quire_error *err)
{
    const struct forward_kv_group *group = forward_group_of(f, l);
    const struct k_attention_plan_args a = {.rows = rows,
                                            .kv = &group->shape,
                                            .plan = attention_plan_of(f, batch, l),
                                            .n_rows = n_rows,
                                            .n_tokens = batch->n_tokens,
                                            .n_q_heads = group->n_q_heads,
                                            .window = group->window,
                                            .whole = f->desc->config->encoder != NULL};
    return f->backend->ops->attention_plan(f->backend, &a, err);
}

int forward_plan_attention(struct forward *f, const struct forward_batch *batch, struct quire_error *err)
{
    bool planned[KV_MAX_GROUPS] = {false};
    const uint32_t end = model_end_layer(f->desc);
    const bool narrows = forward_narrows(f) && model_is_last_stage(f->desc);
    const uint32_t last = narrows ? end - 1 : end;
    for (uint32_t l = model_first_layer(f->desc); l < last; l++) {
        if (planned[f->kv->layer_group[l]])
            continue;
        planned[f->kv->layer_group[l]] = true;
        TRY(plan_layer(f, l, batch, batch->group_rows[f->kv->layer_group[l]], batch->n_rows, err));
    }
    return batch->n_outputs && narrows ? plan_layer(f, last, batch, batch->output_rows, batch->n_output_rows, err)
                                       : QUIRE_OK;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Attention for the tokens of n_rows rows; the heads' outputs go to `narrow`. */
static int attend(struct pass *p, const struct model_attention *attention, const struct k_attn_row *rows,
                  uint32_t n_rows)
{
    struct forward *f = p->f;
    const struct forward_kv_group *group = forward_group_of(f, p->layer);
    const struct k_attention_args a = {
        .qkv_dev = buffer(f, f->layout->wide),
        .out_dev = buffer(f, f->layout->narrow),
        .for_gemm = p->layer + 1 < f->desc->config->n_layers ||
                    !forward_narrows(f), /* the last one's is gathered first */
        .rows = rows,
        .rows_dev = forward_on_device(f, rows),
        .plan_dev = forward_on_device(f, attention_plan_of(f, p->batch, p->layer)),
        .tables_dev = forward_on_device(f, p->batch->tables[0]),
        .kv = &group->shape,
        .layer = &f->kv->layers[p->layer],
        .workspace_dev = f->attention_workspace_dev,
        .n_rows = n_rows,
        .n_tokens = p->n,
        .n_q_heads = group->n_q_heads,
        .window = group->window,
        .whole = attention->mask == MASK_NONE,
        .sink_q_dev = group->n_sinks ? buffer(f, f->layout->sink_q) : NULL,
        .n_sink_positions = group->n_sinks,
        .scale = attention->scale,
        .softcap = attention->softcap,
        .sinks_dev = p->weights->vector[VEC_SINKS],
    };
    return f->backend->ops->attention(f->backend, &a, p->err);
}

/* From here on only the tokens whose logits are wanted: of a prompt of 512 tokens one is, and the others' share of the
 * last layer is 4 % of a model of 24. Their heads go to `wide`. */
static int narrow_to_logits(struct pass *p, const struct model_attention *attention)
{
    struct forward *f = p->f;
    float *gathered = buffer(f, f->layout->gathered);
    assert(!p->due);
    TRY(attend(p, attention, p->batch->output_rows, p->batch->n_output_rows));
    TRY(gather(p, buffer(f, f->layout->narrow), buffer(f, f->layout->wide),
               model_size_of(f->desc, p->layer, SIZE_HEADS), true));
    TRY(gather(p, p->x, gathered, f->desc->config->hidden_size, false));
    p->x = gathered;
    return QUIRE_OK;
}

static int attention(struct pass *p, const struct model_block *block, const float *in, float *out)
{
    struct forward *f = p->f;
    float *wide = buffer(f, f->layout->wide), *narrow = buffer(f, f->layout->narrow);
    TRY(linear(p, &p->weights->site[SITE_QKV], ACTIVATION_NONE, in, wide));
    TRY(rope_kv(p, &block->attention));
    if (p->layer + 1 < f->desc->config->n_layers || !forward_narrows(f)) {
        TRY(attend(p, &block->attention, p->batch->group_rows[f->kv->layer_group[p->layer]], p->batch->n_rows));
        return linear(p, &p->weights->site[SITE_O], ACTIVATION_NONE, narrow, out);
    }
    TRY(forward_note(f, p->x, p->n, p->err)); /* all tokens; sampled tokens are checked again at the end */
    if (p->batch->n_outputs > 0)
        TRY(narrow_to_logits(p, &block->attention));
    p->n = p->batch->n_outputs;
    return p->n ? linear(p, &p->weights->site[SITE_O], ACTIVATION_NONE, wide, out) : QUIRE_OK;
}

static int mlp(struct pass *p, const struct model_block *block, const float *in, float *out)
{
    float *narrow = buffer(p->f, p->f->layout->narrow);
    TRY(linear(p, &p->weights->site[SITE_GATE_UP], block->mlp.activation, in, narrow));
    return linear(p, &p->weights->site[SITE_DOWN], ACTIVATION_NONE, narrow, out);
}

static const enum k_route_score route_scores[] = {
    [ROUTER_SOFTMAX] = K_ROUTE_SOFTMAX,
    [ROUTER_TOP_SOFTMAX] = K_ROUTE_TOP_SOFTMAX,
    [ROUTER_SIGMOID] = K_ROUTE_SIGMOID,
};

/* The router reads x as floats. */
static int route(struct pass *p, const struct model_experts *e, const float *in)
{
    struct forward *f = p->f;
    const struct k_moe_route_args a = {
        .x_dev = in,
        .router_dev = p->weights->vector[VEC_ROUTER],
        .bias_dev = p->weights->vector[VEC_ROUTER_BIAS],
        .correction_dev = p->weights->vector[VEC_CORRECTION],
        .shared_gate_dev = p->weights->vector[VEC_SHARED_GATE],
        .experts_dev = (uint32_t *)(void *)buffer(f, f->layout->experts),
        .weights_dev = buffer(f, f->layout->expert_weights),
        .shared_weights_dev = buffer(f, f->layout->shared_weights),
        .workspace_dev = f->moe_workspace_dev,
        .n_tokens = p->n,
        .n_cols = f->desc->config->hidden_size,
        .n_experts = e->n_experts,
        .n_used = e->n_used,
        .n_groups = e->n_groups,
        .n_groups_used = e->n_groups_used,
        .score = route_scores[e->router],
        .normalize = e->normalize,
        .scale = e->scale,
    };
    TRY(f->backend->ops->moe_route(f->backend, &a, p->err));
    forward_count_experts(f, p->layer, a.experts_dev, p->n * e->n_used);
    return QUIRE_OK;
}

/* A site's matrix of each token's experts. */
static struct k_moe_gemm_args choices_of(const struct pass *p, const struct model_experts *e,
                                         const struct site_weight *site, const float *x, float *y)
{
    const struct forward *f = p->f;
    return (struct k_moe_gemm_args){
        .weight = site->matrix,
        .x_dev = x,
        .experts_dev = (const uint32_t *)(const void *)buffer(f, f->layout->experts),
        .bias_dev = site->bias,
        .y_dev = y,
        .workspace_dev = f->moe_workspace_dev,
        .n_tokens = p->n,
        .n_used = e->n_used,
        .first_expert = model_count_of(f->desc, f->desc->shard.rank, p->layer, SIZE_EXPERTS).first,
        .unit = site->unit};
}

/* The choices' last GEMM. Ranks hold columns of each expert, or whole experts, and each choice is a sum over ranks. */
static int experts_down(struct pass *p, const struct model_experts *e, const float *x, float *y)
{
    struct forward *f = p->f;
    const struct site_weight *site = &p->weights->site[SITE_DOWN];
    const uint32_t n_choices = p->n * e->n_used;
    struct k_moe_gemm_args a = choices_of(p, e, site, x, y);
    a.per_choice = true;
    a.x_for_gemm = true;
    if (site->cut == CUT_GATHERED && !f->desc->shard.whole_experts) {
        float *all = buffer(f, f->layout->inputs);
        TRY(forward_gather(f, n_choices, p->layer, SIZE_INNER, x, all, p->err));
        a.x_dev = all;
        a.x_for_gemm = false;
        return f->backend->ops->moe_gemm(f->backend, &a, p->err);
    }
    if (site->cut == CUT_COLS) {
        a.n_whole = model_whole_size(f->desc, p->layer, SIZE_INNER);
        a.first_col = model_share_of(f->desc, f->desc->shard.rank, p->layer, SIZE_INNER).first;
    }
    TRY(f->backend->ops->moe_gemm(f->backend, &a, p->err));
    return forward_is_shared(f) ? forward_reduce(f, y, n_choices, f->desc->config->hidden_size, NULL, p->err)
                                : QUIRE_OK;
}

/* The shared expert's output goes to out, to which the others are added. */
static int experts(struct pass *p, const struct model_block *block, const float *in, float *out)
{
    struct forward *f = p->f;
    const struct model_experts *e = &block->experts;
    const struct site_weight *site = p->weights->site;
    float *narrow = buffer(f, f->layout->narrow), *choices = buffer(f, f->layout->choices);
    if (e->shared_size > 0) {
        TRY(linear(p, &site[SITE_SHARED_GATE_UP], ACTIVATION_SILU_MUL, in, narrow));
        TRY(linear(p, &site[SITE_SHARED_DOWN], ACTIVATION_NONE, narrow, out));
        TRY(complete(p, out, &p->out_is_part));
    }
    TRY(route(p, e, in));
    const struct k_moe_gemm_gated_args gate_up = {
        .gemm = choices_of(p, e, &site[SITE_GATE_UP], in, f->layout->has_gate_up ? buffer(f, f->layout->wide) : NULL),
        .out_dev = narrow,
        .gate = {.kind = e->limit > 0 ? K_GATE_CLAMPED : K_GATE_SILU, .limit = e->limit},
        .for_gemm = true};
    TRY(f->backend->ops->moe_gemm_gated(f->backend, &gate_up, p->err));
    TRY(experts_down(p, e, narrow, choices));
    const struct k_moe_combine_args sum = {.y_dev = choices,
                                           .weights_dev = buffer(f, f->layout->expert_weights),
                                           .shared_dev = e->shared_size > 0 ? out : NULL,
                                           .shared_weights_dev = e->shared_gate ? buffer(f, f->layout->shared_weights)
                                                                                : NULL,
                                           .out_dev = out,
                                           .n_tokens = p->n,
                                           .n_used = e->n_used,
                                           .n_cols = f->desc->config->hidden_size};
    return f->backend->ops->moe_combine(f->backend, &sum, p->err);
}

/* A block writes to out what is to be added to x. */
struct block_kind {
    int (*run)(struct pass *p, const struct model_block *block, const float *in, float *out);
    enum model_vector norm, norm_bias, post_norm;
};
static const struct block_kind block_kinds[] = {
    [BLOCK_ATTENTION] = {attention, VEC_ATTENTION_NORM, VEC_ATTENTION_NORM_BIAS, VEC_ATTENTION_POST_NORM},
    [BLOCK_MLP] = {mlp, VEC_MLP_NORM, VEC_MLP_NORM_BIAS, VEC_MLP_POST_NORM},
    [BLOCK_EXPERTS] = {experts, VEC_MLP_NORM, VEC_MLP_NORM_BIAS, VEC_MLP_POST_NORM},
};

/* What a block adds, times the model's factor. A factor applies to the sum over ranks. */
static int scale_delta(struct pass *p, float *delta)
{
    const float by = p->f->desc->config->factors.residual;
    if (by == 0)
        return QUIRE_OK;
    TRY(complete(p, delta, &p->out_is_part));
    return p->n ? activate(p, K_ACT_SCALE, delta, p->f->desc->config->hidden_size, by) : QUIRE_OK;
}

static int run_block(struct pass *p, const struct model_block *block)
{
    const struct block_kind *kind = &block_kinds[block->kind];
    float *delta = buffer(p->f, p->f->layout->delta);
    if (block->place == NORM_SUM) {
        TRY(kind->run(p, block, p->x, delta));
        TRY(complete(p, delta, &p->out_is_part));
        return layer_norm(p, kind->norm, kind->norm_bias, delta);
    }
    if (block->place == NORM_POST) {
        TRY(kind->run(p, block, p->x, delta));
        TRY(complete(p, delta, &p->out_is_part));
        return p->n ? norm_into_x(p, block->norm, kind->norm, delta) : QUIRE_OK;
    }
    TRY(norm_x(p, block->norm, kind->norm, block->kind != BLOCK_EXPERTS));
    p->out_is_part = false;
    TRY(kind->run(p, block, buffer(p->f, p->f->layout->normed), delta));
    if (block->place == NORM_BOTH) {
        TRY(complete(p, delta, &p->out_is_part));
        return p->n ? norm_into_x(p, block->norm, kind->post_norm, delta) : QUIRE_OK;
    }
    TRY(scale_delta(p, delta));
    p->due = delta;
    p->due_is_part = p->out_is_part;
    return QUIRE_OK;
}

/* ---- the pass -------------------------------------------------------------------------------- */

/* Adds an encoder's token-type and position embeddings to its word embeddings. */
static int embed_places(struct pass *p)
{
    struct forward *f = p->f;
    const struct weight_set *beside = f->weights->beside;
    struct k_embed_args a = {.table = beside->site[SITE_SEGMENTS].matrix,
                             .ids_dev = forward_on_device(f, p->batch->segments),
                             .out_dev = p->x,
                             .n_tokens = p->n,
                             .into = true};
    if (a.table)
        TRY(f->backend->ops->embed(f->backend, &a, p->err));
    a.table = beside->site[SITE_POSITIONS].matrix;
    a.ids_dev = forward_on_device(f, p->batch->positions);
    TRY(f->backend->ops->embed(f->backend, &a, p->err));
    p->weights = beside;
    return layer_norm(p, VEC_EMBED_NORM, VEC_EMBED_NORM_BIAS, NULL);
}

static int embed(struct pass *p)
{
    struct forward *f = p->f;
    const struct k_embed_args a = {.table = f->weights->beside->site[SITE_EMBED].matrix,
                                   .ids_dev = forward_on_device(f, p->batch->ids),
                                   .out_dev = p->x,
                                   .n_tokens = p->n,
                                   .scale = f->desc->config->factors.embedding};
    TRY(f->backend->ops->embed(f->backend, &a, p->err));
    return f->desc->config->encoder ? embed_places(p) : QUIRE_OK;
}

static int make_angles(struct pass *p)
{
    struct forward *f = p->f;
    for (uint32_t i = 0; i < f->desc->config->n_ropes; i++) {
        const struct model_rope *rope = &f->desc->config->ropes[i];
        const struct model_streaming *streaming = &f->desc->config->streaming;
        struct k_rope_angles_args angles = {
            .positions_dev = forward_on_device(f, p->batch->positions),
            .inv_freq_dev = f->weights->inv_freq[i],
            .cos_sin_dev = buffer(f, f->layout->angles[i]),
            .n_tokens = p->n,
            .n_freqs = rope->dim / 2,
            .scale = (float)rope->attention_factor,
            .exact = streaming->window > 0,
        };
        TRY(f->backend->ops->rope_angles(f->backend, &angles, p->err));
        if (streaming->n_sinks == 0)
            continue;
        angles.cos_sin_dev = buffer(f, f->layout->sink_angles[i]);
        angles.most_position = streaming->n_sinks + streaming->window - 1;
        TRY(f->backend->ops->rope_angles(f->backend, &angles, p->err));
    }
    return QUIRE_OK;
}

/* The mean of each row's tokens, or those that the last layer went on with; as they are, or of length 1. */
static int pool(struct pass *p, float *out, bool normalize)
{
    const struct k_pool_args a = {
        .x_dev = p->x,
        .rows_dev = forward_on_device(p->f, p->batch->pool_rows),
        .out_dev = out,
        .n_rows = p->batch->n_outputs,
        .n_cols = p->f->desc->config->hidden_size,
        .pooling = K_POOL_MEAN, /* the first or the last pools one token */
        .normalize = normalize,
    };
    return p->f->backend->ops->pool(p->f->backend, &a, p->err);
}

/* Applies the Dense modules of sentence-transformers to the pooled vectors. */
static int pool_dense(struct pass *p, float *out)
{
    struct forward *f = p->f;
    float *pooled = buffer(f, f->layout->gathered);
    TRY(pool(p, pooled, false));
    p->n = p->batch->n_outputs;
    p->plain = pooled;
    TRY(linear(p, &p->weights->site[SITE_DENSE], ACTIVATION_NONE, pooled, out));
    if (f->desc->config->outputs.dense.tanh)
        TRY(activate(p, K_ACT_TANH, out, f->desc->config->outputs.vector_size, 0));
    if (!f->desc->config->outputs.normalize)
        return QUIRE_OK;
    const struct k_pool_args a = {.x_dev = out,
                                  .rows_dev = forward_on_device(f, p->batch->vector_rows),
                                  .out_dev = out,
                                  .n_rows = p->n,
                                  .n_cols = f->desc->config->outputs.vector_size,
                                  .pooling = K_POOL_MEAN,
                                  .normalize = true};
    return f->backend->ops->pool(f->backend, &a, p->err);
}

/* A classifier's: the first token, a layer with tanh, and the labels' logits. */
static int classify(struct pass *p)
{
    struct forward *f = p->f;
    float *first = buffer(f, f->layout->gathered), *pooled = buffer(f, f->layout->delta);
    TRY(pool(p, first, false));
    p->n = p->batch->n_outputs;
    p->plain = first;
    TRY(linear(p, &p->weights->site[SITE_POOLER], ACTIVATION_NONE, first, pooled));
    TRY(activate(p, K_ACT_TANH, pooled, f->desc->config->hidden_size, 0));
    return linear(p, &p->weights->site[SITE_CLASSIFIER], ACTIVATION_NONE, pooled, p->logits);
}

/* Turns the last layer's x into vectors. A decoder's final norm comes first. */
static int give_vectors(struct pass *p)
{
    struct forward *f = p->f;
    if (p->batch->n_outputs == 0)
        return QUIRE_OK;
    if (f->desc->config->outputs.kind == OUTPUT_SCORES)
        return classify(p);
    if (!f->desc->config->encoder) {
        float *normed = buffer(f, f->layout->normed);
        const struct k_rmsnorm_args a = {
            .x_dev = p->x, .add_dev = p->due, .out_dev = normed, .n_cols = f->desc->config->hidden_size};
        TRY(norm(p, f->desc->config->final_norm, VEC_FINAL_NORM, a));
        p->x = normed;
    }
    return f->desc->config->outputs.dense.size > 0 ? pool_dense(p, p->logits)
                                                   : pool(p, p->logits, f->desc->config->outputs.normalize);
}

/* The model's factors of n rows of logits, of this rank's part of the vocabulary. */
static int scale_logits(struct pass *p, float *logits)
{
    const struct model_factors *factors = &p->f->desc->config->factors;
    const uint32_t n_cols =
        model_share_of(p->f->desc, p->f->desc->shard.rank, p->f->desc->config->n_layers, SIZE_VOCAB).n;
    if (factors->logits > 0)
        TRY(activate(p, K_ACT_SCALE, logits, n_cols, factors->logits));
    return factors->logit_softcap > 0 ? activate(p, K_ACT_SOFTCAP, logits, n_cols, factors->logit_softcap) : QUIRE_OK;
}

/* Computes this rank's rows of the head, then collects the rows of all ranks. */
static int make_logits(struct pass *p)
{
    struct forward *f = p->f;
    const bool is_shared = f->desc->shard.n_ranks > 1;
    float *own = is_shared ? forward_own_logits(f) : p->logits;
    TRY(linear(p, &f->weights->head, ACTIVATION_NONE, buffer(f, f->layout->normed), own));
    TRY(scale_logits(p, own));
    return is_shared ? forward_gather_logits(f, p->n, p->logits, p->err) : QUIRE_OK;
}

/* For a stage that is not the last: adds the last block's output to x, with the same operation that adds it before a
 * following block. The normalized result of that operation is not used here. */
static int leave_x(struct pass *p)
{
    const struct model_layer *layer = &p->f->desc->config->layers[p->layer - 1];
    const struct model_block *last = &layer->blocks[layer->n_blocks - 1];
    if (p->due)
        TRY(norm_x(p, last->norm, block_kinds[last->kind].norm, true));
    return forward_note(p->f, p->x, p->n, p->err);
}

int forward_compute(struct forward *f, const struct forward_batch *batch, float *logits, struct quire_error *err)
{
    const uint32_t end = model_end_layer(f->desc);
    struct pass p = {.f = f,
                     .batch = batch,
                     .err = err,
                     .layer = model_first_layer(f->desc),
                     .n = batch->n_tokens,
                     .x = buffer(f, f->layout->residual),
                     .logits = logits};
    if (model_is_first_stage(f->desc))
        TRY(embed(&p));
    TRY(make_angles(&p));
    for (; p.layer < end; p.layer++) {
        const struct model_layer *layer = &f->desc->config->layers[p.layer];
        p.weights = &f->weights->layers[p.layer];
        for (uint32_t i = 0; i < layer->n_blocks && p.n > 0; i++)
            TRY(run_block(&p, &layer->blocks[i]));
    }
    if (!model_is_last_stage(f->desc))
        return leave_x(&p);
    if (p.n == 0)
        return QUIRE_OK;
    p.weights = f->weights->beside;
    if (f->desc->config->outputs.kind != OUTPUT_TOKENS)
        return give_vectors(&p);
    TRY(norm_x(&p, f->desc->config->final_norm, VEC_FINAL_NORM, true));
    TRY(forward_note(f, p.x, p.n, err));
    return make_logits(&p);
}
