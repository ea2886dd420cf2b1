/* The inputs of mixtures of experts. The matrices of all experts lie one below the other. */
#include "kernels/cases/op_data.h"
#include "kernels/quant.h"

#include <stdlib.h>

static float *floats(uint64_t n, uint64_t *state)
{
    float *p = malloc((n ? n : 1) * sizeof *p);
    for (uint64_t i = 0; p && i < n; i++)
        p[i] = op_random_value(state, VALUES_PLAIN);
    return p;
}

/* Rising and distinct in each token. Expert 0 is popular, and the last one is not used. */
static bool make_choices(const struct op_case *c, struct op_data *d, uint64_t *state)
{
    const uint32_t n_experts = c->moe->n_experts > c->moe->n_used ? c->moe->n_experts - 1 : c->moe->n_experts;
    d->ids = malloc((uint64_t)op_n_tokens(c) * c->moe->n_used * sizeof *d->ids);
    for (uint64_t t = 0; d->ids && t < op_n_tokens(c); t++) {
        uint32_t n = 0;
        for (uint32_t e = 0; e < n_experts && n < c->moe->n_used; e++) {
            const uint32_t wanted = c->moe->n_used - n, left = n_experts - e;
            if ((e == 0 && t % 3 != 0) || op_random(state) % left < wanted)
                d->ids[t * c->moe->n_used + n++] = e;
        }
    }
    return d->ids != NULL;
}

/* Ties: every fifth expert has the row of the one before it. */
static bool make_router(const struct op_case *c, struct op_data *d, uint64_t *state)
{
    const uint64_t n_cols = c->n_cols;
    d->moe->router = floats(c->moe->n_experts * n_cols, state);
    for (uint64_t e = 4; d->moe->router && !c->extra && e < c->moe->n_experts; e += 5)
        for (uint64_t k = 0; k < n_cols; k++)
            d->moe->router[e * n_cols + k] = d->moe->router[(e - 1) * n_cols + k];
    if (!c->extra)
        return d->moe->router != NULL;
    d->vector = floats(c->moe->n_experts, state);
    d->moe->correction = floats(c->moe->n_experts, state);
    d->moe->gate = floats(n_cols, state);
    return d->moe->router && d->vector && d->moe->correction && d->moe->gate;
}

static bool make_sum(const struct op_case *c, struct op_data *d, uint64_t *state)
{
    const uint64_t n_tokens = op_n_tokens(c);
    if (!(d->moe->weights = floats(n_tokens * c->moe->n_used, state)))
        return false;
    if ((c->extra || c->into) && !(d->moe->shared = floats(n_tokens * c->n_cols, state)))
        return false;
    return !c->into || (d->moe->shared_weights = floats(n_tokens, state));
}

bool op_moe_make(const struct op_case *c, struct op_data *d, uint64_t *state)
{
    if (c->moe && !(d->moe = calloc(1, sizeof *d->moe)))
        return false;
    switch (c->op) {
    case K_OP_MOE_ROUTE: return make_router(c, d, state);
    case K_OP_MOE_GEMM:
    case K_OP_MOE_GEMM_GATED: return make_choices(c, d, state);
    case K_OP_MOE_COMBINE: return make_sum(c, d, state);
    default: return true;
    }
}

void op_moe_free(struct op_data *d)
{
    if (!d->moe)
        return;
    float *const all[] = {d->moe->router,  d->moe->correction, d->moe->gate,
                          d->moe->weights, d->moe->shared,     d->moe->shared_weights};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
    free(d->moe);
}

struct k_weight_view op_expert_view(const struct op_case *c, const struct k_weight_view *all, uint32_t expert)
{
    struct k_weight_view v = *all;
    const uint64_t first = (uint64_t)expert * c->n_rows;
    const uint64_t groups = v.format.group ? (v.n_cols + v.format.group - 1) / v.format.group : 1;
    v.n_rows = c->n_rows;
    v.data = (const char *)v.data + first * v.row_stride_bytes;
    if (v.scales)
        v.scales = (const char *)v.scales + k_scale_row(all, (uint32_t)first) * groups * k_dtype_bytes(v.format.scale);
    if (v.zero_points)
        v.zero_points += first * groups;
    return v;
}

void op_moe_choice(const struct op_case *c, const struct op_data *d, uint64_t choice, struct op_case *one,
                   struct op_data *of)
{
    const uint32_t expert = d->ids[choice];
    const uint64_t row = (uint64_t)expert * c->n_rows;
    *one = *c;
    one->op = c->op == K_OP_MOE_GEMM ? K_OP_GEMM : K_OP_GEMM_GATED;
    one->n_tokens = 1;
    one->moe = NULL;
    *of = (struct op_data){.x_width = c->n_cols,
                           .x = d->x + (c->moe->per_choice ? choice : choice / c->moe->n_used) * c->n_cols,
                           .vector = d->vector ? d->vector + row : NULL};
    if (op_is_quantized(c))
        of->parts[0] = op_expert_view(c, &d->parts[0], expert);
    else
        of->weights = d->weights + row * c->n_cols * k_dtype_bytes(c->dtype);
}
