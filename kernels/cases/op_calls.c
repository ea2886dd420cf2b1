#include "kernels/cases/op_binding.h"

#include "kernels/args/attention.h"
#include "kernels/args/gemm.h"
#include "kernels/args/kv_copy.h"
#include "kernels/args/moe.h"
#include "kernels/args/norm.h"
#include "kernels/args/rope.h"

#include <math.h>

static float scale_of(const struct op_case *c)
{
    return 1.0f / sqrtf((float)c->head_dim);
}

static int call_embed(struct op_binding *n, uint64_t t, uint32_t count, struct quire_error *err)
{
    const struct k_embed_args args = {n->weight, n->ids + t, n->out + t * n->c->n_cols, count, n->c->into, n->c->scale};
    return n->b->ops->embed(n->b, &args, err);
}

static int call_rmsnorm(struct op_binding *n, uint64_t t, uint32_t count, struct quire_error *err)
{
    uint64_t width = n->d->x_width, at = t * width + (width - n->c->n_cols) / 2;
    const struct k_rmsnorm_args args = {.x_dev = n->x + at,
                                        .add_dev = n->add ? n->add + at : NULL,
                                        .weight_dev = n->vector,
                                        .out_dev = n->out + at,
                                        .n_tokens = count,
                                        .n_cols = n->c->n_cols,
                                        .row_stride = n->c->n_rows,
                                        .into = n->c->into,
                                        .eps = OP_EPS};
    return n->b->ops->rmsnorm(n->b, &args, err);
}

static struct k_gemm_args gemm_args(const struct op_binding *n, uint64_t t, uint32_t count, float *y)
{
    return (struct k_gemm_args){.weight = n->weight,
                                .x_dev = n->x + t * n->c->n_cols,
                                .bias_dev = n->vector,
                                .y_dev = y,
                                .workspace_dev = n->workspace,
                                .n_tokens = count,
                                .unit = n->c->unit};
}

static int call_gemm(struct op_binding *n, uint64_t t, uint32_t count, struct quire_error *err)
{
    const struct op_case *c = n->c;
    const struct k_gemm_args args = gemm_args(n, t, count, n->out + t * c->n_rows);
    return n->b->ops->gemm(n->b, &args, err);
}

static int call_gemm_gated(struct op_binding *n, uint64_t t, uint32_t count, struct quire_error *err)
{
    const struct op_case *c = n->c;
    const struct k_gemm_gated_args args = {
        .gemm = gemm_args(n, t, count, n->gate_up), .out_dev = n->out + t * (c->n_rows / 2), .gate = op_gate(c)};
    return n->b->ops->gemm_gated(n->b, &args, err);
}

static int call_moe_route(struct op_binding *n, uint64_t t, uint32_t count, struct quire_error *err)
{
    const struct op_moe *moe = n->c->moe;
    const struct k_moe_route_args args = {.x_dev = n->x + t * n->c->n_cols,
                                          .router_dev = n->moe->router,
                                          .bias_dev = n->vector,
                                          .correction_dev = n->moe->correction,
                                          .shared_gate_dev = n->moe->gate,
                                          .experts_dev = n->moe->experts_out + t * moe->n_used,
                                          .weights_dev = n->out + t * moe->n_used,
                                          .shared_weights_dev = n->moe->shared_out ? n->moe->shared_out + t : NULL,
                                          .workspace_dev = n->workspace,
                                          .n_tokens = count,
                                          .n_cols = n->c->n_cols,
                                          .n_experts = moe->n_experts,
                                          .n_used = moe->n_used,
                                          .n_groups = moe->n_groups,
                                          .n_groups_used = moe->n_groups_used,
                                          .group_by_best = moe->group_by_best,
                                          .score = moe->score,
                                          .normalize = moe->normalize,
                                          .scale = n->c->scale != 0 ? n->c->scale : 1.0f};
    return n->b->ops->moe_route(n->b, &args, err);
}

static struct k_moe_gemm_args moe_gemm_args(const struct op_binding *n, uint64_t t, uint32_t count, float *y)
{
    const struct op_moe *moe = n->c->moe;
    return (struct k_moe_gemm_args){.weight = n->weight,
                                    .x_dev = n->x + t * n->d->x_width,
                                    .experts_dev = n->ids + t * moe->n_used,
                                    .bias_dev = n->vector,
                                    .y_dev = y,
                                    .workspace_dev = n->workspace,
                                    .n_tokens = count,
                                    .n_used = moe->n_used,
                                    .unit = n->c->unit,
                                    .per_choice = moe->per_choice};
}

static int call_moe_gemm(struct op_binding *n, uint64_t t, uint32_t count, struct quire_error *err)
{
    const struct op_case *c = n->c;
    const struct k_moe_gemm_args args = moe_gemm_args(n, t, count, n->out + t * c->moe->n_used * c->n_rows);
    return n->b->ops->moe_gemm(n->b, &args, err);
}

static int call_moe_gemm_gated(struct op_binding *n, uint64_t t, uint32_t count, struct quire_error *err)
{
    const struct op_case *c = n->c;
    const struct k_moe_gemm_gated_args args = {.gemm = moe_gemm_args(n, t, count, n->gate_up),
                                               .out_dev = n->out + t * c->moe->n_used * (c->n_rows / 2),
                                               .gate = op_gate(c)};
    return n->b->ops->moe_gemm_gated(n->b, &args, err);
}

static int call_moe_combine(struct op_binding *n, uint64_t t, uint32_t count, struct quire_error *err)
{
    const uint64_t n_cols = n->c->n_cols;
    const struct k_moe_combine_args args = {.y_dev = n->x + t * n->d->x_width,
                                            .weights_dev = n->moe->weights + t * n->c->moe->n_used,
                                            .shared_dev = n->moe->shared ? n->moe->shared + t * n_cols : NULL,
                                            .shared_weights_dev = n->moe->shared_weights ? n->moe->shared_weights + t
                                                                                         : NULL,
                                            .out_dev = n->out + t * n_cols,
                                            .n_tokens = count,
                                            .n_used = n->c->moe->n_used,
                                            .n_cols = n->c->n_cols};
    return n->b->ops->moe_combine(n->b, &args, err);
}

static int call_rope_angles(struct op_binding *n, uint64_t t, uint32_t count, struct quire_error *err)
{
    const struct op_case *c = n->c;
    const struct k_rope_angles_args args = {.positions_dev = n->ids + t,
                                            .inv_freq_dev = n->vector,
                                            .cos_sin_dev = n->out + t * c->n_cols * 2,
                                            .n_tokens = count,
                                            .n_freqs = c->n_cols,
                                            .scale = c->scale != 0 ? c->scale : 1.0f,
                                            .exact = c->exact,
                                            .most_position = c->most_position};
    return n->b->ops->rope_angles(n->b, &args, err);
}

static int call_rope_kv(struct op_binding *n, uint64_t t, uint32_t count, struct quire_error *err)
{
    const uint64_t n_angles = n->c->head_dim - n->c->n_fixed, n_q = (uint64_t)n->c->n_q_heads * n->c->head_dim;
    const struct k_rope_kv_args args = {.qkv_dev = n->x + t * n->d->x_width,
                                        .q_norm_dev = n->q_norm,
                                        .k_norm_dev = n->k_norm,
                                        .eps = OP_EPS,
                                        .cos_sin_dev = n->cos_sin ? n->cos_sin + t * n_angles : NULL,
                                        .sink_q_dev = n->sink_q ? n->sink_q + t * n_q : NULL,
                                        .sink_cos_sin_dev = n->sink_cos_sin ? n->sink_cos_sin + t * n_angles : NULL,
                                        .slots_dev = n->slots + t,
                                        .kv = &n->cache->kv,
                                        .layer = &n->cache->layer,
                                        .n_tokens = count,
                                        .n_q_heads = n->c->n_q_heads,
                                        .n_fixed = n->c->n_fixed};
    return n->b->ops->rope_kv(n->b, &args, err);
}

/* The tokens are those of the rows for which the plan was made. */
static int call_attention(struct op_binding *n, uint64_t t, uint32_t count, struct quire_error *err)
{
    (void)t;
    (void)count;
    const struct k_attention_args args = {.qkv_dev = n->x,
                                          .out_dev = n->out,
                                          .rows = n->cache->rows,
                                          .rows_dev = n->cache->rows_dev,
                                          .plan_dev = n->cache->plan_dev,
                                          .tables_dev = n->tables,
                                          .kv = &n->cache->kv,
                                          .layer = &n->cache->layer,
                                          .workspace_dev = n->workspace,
                                          .n_rows = n->cache->n_rows,
                                          .n_tokens = n->n_tokens,
                                          .n_q_heads = n->c->n_q_heads,
                                          .window = n->c->window,
                                          .whole = n->c->whole,
                                          .sink_q_dev = n->sink_q,
                                          .n_sink_positions = n->c->sinks,
                                          .scale = scale_of(n->c),
                                          .softcap = n->c->softcap,
                                          .sinks_dev = n->vector};
    return n->b->ops->attention(n->b, &args, err);
}

static int call_layernorm(struct op_binding *n, uint64_t t, uint32_t count, struct quire_error *err)
{
    uint64_t at = t * n->c->n_cols;
    const struct k_layernorm_args args = {.x_dev = n->x + at,
                                          .add_dev = n->add ? n->add + at : NULL,
                                          .weight_dev = n->vector,
                                          .bias_dev = n->bias,
                                          .out_dev = n->out + at,
                                          .n_tokens = count,
                                          .n_cols = n->c->n_cols,
                                          .eps = OP_EPS};
    return n->b->ops->layernorm(n->b, &args, err);
}

static int call_activate(struct op_binding *n, uint64_t t, uint32_t count, struct quire_error *err)
{
    const struct k_activate_args args = {n->x + t * n->c->n_cols, count, n->c->n_cols, n->c->activation, n->c->scale};
    return n->b->ops->activate(n->b, &args, err);
}

static int call_pool(struct op_binding *n, uint64_t t, uint32_t count, struct quire_error *err)
{
    const struct k_pool_args args = {.x_dev = n->x,
                                     .rows_dev = n->texts + t,
                                     .out_dev = n->out + t * n->c->n_cols,
                                     .n_rows = count,
                                     .n_cols = n->c->n_cols,
                                     .pooling = n->c->pooling,
                                     .normalize = n->c->extra};
    return n->b->ops->pool(n->b, &args, err);
}

static int call_gather(struct op_binding *n, uint64_t t, uint32_t count, struct quire_error *err)
{
    uint32_t n_cols = n->c->n_cols;
    const struct k_gather_args args = {
        .x_dev = n->x, .index_dev = n->ids + t, .out_dev = n->out + t * n_cols, .n_rows = count, .n_cols = n_cols};
    return n->b->ops->gather(n->b, &args, err);
}

static int call_kv_copy(struct op_binding *n, uint64_t t, uint32_t count, struct quire_error *err)
{
    const struct k_kv_copy_args args = {&n->cache->kv, &n->cache->source, &n->cache->layer, n->cache->pairs + t, count};
    return n->b->ops->kv_copy(n->b, &args, err);
}

static int call_sample(struct op_binding *n, uint64_t t, uint32_t count, struct quire_error *err)
{
    return op_sampler_queue(n->sampler, n->x + t * n->c->n_rows, n->d->rows + t, (uint32_t)t, count, err);
}

int (*const op_calls[])(struct op_binding *n, uint64_t t, uint32_t count, struct quire_error *err) = {
#define CALL(NAME, name, text) [K_OP_##NAME] = call_##name,
    K_RECORDED_OPERATIONS(CALL) K_EAGER_OPERATIONS(CALL)
#undef CALL
};
