/* Mixtures of experts (docs/internals/numerics.md §20). The router and the combination serve cpu, too; the experts'
 * GEMMs are one GEMM for each choice. */
#include "kernels/args/moe.h"
#include "kernels/math/exp.h"
#include "kernels/math/lane_sum.h"
#include "kernels/ref/lanes.h"
#include "kernels/ref/ref.h"

#include <math.h>

#define ROWS 4u /* experts whose sums are made together: one chain of fmas waits for itself */

/* ---- the router ------------------------------------------------------------------------------ */

/* Lane sums of n <= ROWS neighbouring rows with x. */
static void dot_rows(const float *rows, const float *x, uint32_t n_cols, uint32_t n, float *out)
{
    struct ref_lanes s[ROWS] = {ref_zero(), ref_zero(), ref_zero(), ref_zero()};
    const uint32_t full = n_cols - n_cols % K_LANES;
    const float *row[ROWS];
    for (uint32_t i = 0; i < ROWS; i++)
        row[i] = rows + (uint64_t)(i < n ? i : 0) * n_cols;
    for (uint32_t k = 0; k < full; k += K_LANES)
        for (uint32_t i = 0; i < ROWS; i++)
            s[i] = ref_fma(ref_load_f32(row[i] + k), ref_load_f32(x + k), s[i]);
    for (uint32_t i = 0; i < n; i++) {
        if (full < n_cols) {
            float w[K_LANES] = {0}, v[K_LANES] = {0};
            memcpy(w, row[i] + full, (n_cols - full) * sizeof *w);
            memcpy(v, x + full, (n_cols - full) * sizeof *v);
            s[i] = ref_fma(ref_load_f32(w), ref_load_f32(v), s[i]);
        }
        out[i] = ref_fold(s[i]);
    }
}

static float sigmoid(float x)
{
    return 1.0f / (1.0f + k_exp(-x));
}

/* Units: of each token the experts, ROWS at a time. */
static void logits_task(void *context, struct k_piece piece)
{
    const struct k_moe_route_args *a = context;
    const uint64_t per_token = (a->n_experts + ROWS - 1) / ROWS;
    uint64_t begin, end;
    k_pool_share(a->n_tokens * per_token, piece, &begin, &end);
    for (uint64_t unit = begin; unit < end; unit++) {
        const uint64_t t = unit / per_token;
        const uint32_t e = (uint32_t)(unit % per_token) * ROWS, n = a->n_experts - e < ROWS ? a->n_experts - e : ROWS;
        float *logits = (float *)a->workspace_dev + t * a->n_experts + e;
        dot_rows(a->router_dev + (uint64_t)e * a->n_cols, a->x_dev + t * a->n_cols, a->n_cols, n, logits);
        for (uint32_t i = 0; a->bias_dev && i < n; i++)
            logits[i] += a->bias_dev[e + i];
    }
}

/* Plain lane sum. */
static float sum_of(const float *p, uint32_t n)
{
    float lanes[K_LANES] = {0};
    for (uint32_t i = 0; i < n; i++)
        lanes[i % K_LANES] += p[i];
    return k_lane_fold(lanes);
}

static void make_scores(enum k_route_score kind, const float *logits, uint32_t n, float *scores)
{
    float most = -INFINITY;
    for (uint32_t e = 0; e < n; e++)
        most = logits[e] > most ? logits[e] : most;
    for (uint32_t e = 0; e < n; e++)
        scores[e] = kind == K_ROUTE_SOFTMAX   ? k_exp(logits[e] - most)
                    : kind == K_ROUTE_SIGMOID ? sigmoid(logits[e])
                                              : logits[e];
    if (kind != K_ROUTE_SOFTMAX)
        return;
    const float sum = sum_of(scores, n);
    for (uint32_t e = 0; e < n; e++)
        scores[e] /= sum;
}

/* Marks the n largest of all that are still 0 in taken, the lower number first among equals. */
static void take_largest(const float *c, uint32_t n_all, uint32_t n, bool *taken)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t best = n_all;
        for (uint32_t e = 0; e < n_all; e++)
            if (!taken[e] && (best == n_all || c[e] > c[best]))
                best = e;
        taken[best] = true;
    }
}

/* Of the experts outside the groups that are kept `barred` becomes true. */
static void bar_groups(const struct k_moe_route_args *a, const float *c, bool *barred)
{
    const uint32_t size = a->n_experts / a->n_groups;
    float scores[K_MOE_MAX_EXPERTS];
    bool kept[K_MOE_MAX_EXPERTS] = {false};
    for (uint32_t g = 0; g < a->n_groups; g++) {
        float best = -INFINITY, second = -INFINITY;
        for (uint32_t e = g * size; e < (g + 1) * size; e++) {
            second = c[e] > best ? best : c[e] > second ? c[e] : second;
            best = c[e] > best ? c[e] : best;
        }
        scores[g] = a->group_by_best ? best : best + second;
    }
    take_largest(scores, a->n_groups, a->n_groups_used, kept);
    for (uint32_t e = 0; e < a->n_experts; e++)
        barred[e] = !kept[e / size];
}

static void choose(const struct k_moe_route_args *a, const float *scores, uint32_t *experts)
{
    float c[K_MOE_MAX_EXPERTS];
    bool barred[K_MOE_MAX_EXPERTS] = {false}, taken[K_MOE_MAX_EXPERTS];
    for (uint32_t e = 0; e < a->n_experts; e++)
        c[e] = a->correction_dev ? scores[e] + a->correction_dev[e] : scores[e];
    if (a->n_groups > 1)
        bar_groups(a, c, barred);
    memcpy(taken, barred, sizeof taken);
    take_largest(c, a->n_experts, a->n_used, taken);
    for (uint32_t e = 0, n = 0; e < a->n_experts && n < a->n_used; e++)
        if (taken[e] && !barred[e])
            experts[n++] = e;
}

/* The sum begins with the first weight. */
static void divide_by_sum(float *w, uint32_t n, float add)
{
    float sum = w[0];
    for (uint32_t i = 1; i < n; i++)
        sum += w[i];
    sum = add != 0 ? sum + add : sum;
    for (uint32_t i = 0; i < n; i++)
        w[i] /= sum;
}

static void make_weights(const struct k_moe_route_args *a, const float *scores, const uint32_t *experts, float *w)
{
    float most = -INFINITY;
    for (uint32_t i = 0; i < a->n_used; i++) {
        w[i] = scores[experts[i]];
        most = w[i] > most ? w[i] : most;
    }
    if (a->score == K_ROUTE_TOP_SOFTMAX) {
        for (uint32_t i = 0; i < a->n_used; i++)
            w[i] = k_exp(w[i] - most);
        divide_by_sum(w, a->n_used, 0);
    }
    if (a->normalize)
        divide_by_sum(w, a->n_used, a->score == K_ROUTE_SIGMOID ? 1e-20f : 0);
    for (uint32_t i = 0; a->scale != 1 && i < a->n_used; i++)
        w[i] *= a->scale;
}

static void route_token(const struct k_moe_route_args *a, uint64_t t)
{
    const float *logits = (const float *)a->workspace_dev + t * a->n_experts;
    uint32_t *experts = a->experts_dev + t * a->n_used;
    float *weights = a->weights_dev + t * a->n_used, scores[K_MOE_MAX_EXPERTS];
    bool is_nan = false;
    for (uint32_t e = 0; e < a->n_experts; e++)
        is_nan |= isnan(logits[e]);
    if (is_nan) {
        for (uint32_t i = 0; i < a->n_used; i++) {
            experts[i] = i;
            weights[i] = NAN;
        }
    } else {
        make_scores(a->score, logits, a->n_experts, scores);
        choose(a, scores, experts);
        make_weights(a, scores, experts, weights);
    }
    if (a->shared_gate_dev) {
        dot_rows(a->shared_gate_dev, a->x_dev + t * a->n_cols, a->n_cols, 1, &a->shared_weights_dev[t]);
        a->shared_weights_dev[t] = sigmoid(a->shared_weights_dev[t]);
    }
}

static void route_task(void *context, struct k_piece piece)
{
    uint64_t begin, end;
    const struct k_moe_route_args *a = context;
    k_pool_share(a->n_tokens, piece, &begin, &end);
    for (uint64_t t = begin; t < end; t++)
        route_token(a, t);
}

int ref_moe_route(struct k_backend *b, const struct k_moe_route_args *a, struct quire_error *err)
{
    int status = k_check_route(a, err);
    if (status != QUIRE_OK)
        return status;
    struct k_moe_route_args args = *a;
    host_run(b, (uint64_t)a->n_tokens * a->n_experts * a->n_cols, logits_task, &args);
    host_run(b, (uint64_t)a->n_tokens * a->n_experts * (a->n_used + 8), route_task, &args);
    return QUIRE_OK;
}

/* ---- the experts ----------------------------------------------------------------------------- */

int ref_moe_gemm(struct k_backend *b, const struct k_moe_gemm_args *a, struct quire_error *err)
{
    int status = k_check_moe_gemm(a, err);
    const uint64_t n_rows = a->weight->n_rows, n_cols = a->weight->n_cols;
    for (uint64_t i = 0; status == QUIRE_OK && i < (uint64_t)a->n_tokens * a->n_used; i++) {
        const uint32_t e = a->experts_dev[i] - a->first_expert; /* of an expert below the first: beyond the last */
        float *y = a->y_dev + i * n_rows;
        for (uint64_t r = 0; e >= a->weight->n_experts && r < n_rows; r++)
            y[r] = -0.0f;
        if (e >= a->weight->n_experts)
            continue;
        const struct k_gemm_args gemm = {.weight = host_expert(a->weight, e),
                                         .x_dev = a->x_dev + (a->per_choice ? i : i / a->n_used) * n_cols,
                                         .bias_dev = a->bias_dev ? a->bias_dev + e * n_rows : NULL,
                                         .y_dev = y,
                                         .workspace_dev = a->workspace_dev,
                                         .n_tokens = 1,
                                         .unit = a->unit,
                                         .n_whole = a->n_whole,
                                         .first_col = a->first_col};
        status = ref_gemm(b, &gemm, err);
    }
    return status;
}

int ref_moe_gemm_gated(struct k_backend *b, const struct k_moe_gemm_gated_args *a, struct quire_error *err)
{
    int status = k_check_gate_up(a->gemm.weight->n_rows, err);
    if (status == QUIRE_OK)
        status = ref_moe_gemm(b, &a->gemm, err);
    const struct k_gemm_gated_args choices = {
        .gemm = {.weight = a->gemm.weight, .y_dev = a->gemm.y_dev, .n_tokens = a->gemm.n_tokens * a->gemm.n_used},
        .out_dev = a->out_dev,
        .gate = a->gate};
    if (status == QUIRE_OK)
        ref_gate(b, &choices);
    return status;
}

/* ---- the combination ------------------------------------------------------------------------- */

static void combine_task(void *context, struct k_piece piece)
{
    const struct k_moe_combine_args *a = context;
    uint64_t begin, end, n = a->n_cols;
    k_pool_share(a->n_tokens, piece, &begin, &end);
    for (uint64_t t = begin; t < end; t++) {
        const float *w = a->weights_dev + t * a->n_used, *y = a->y_dev + t * a->n_used * n;
        const float *shared = a->shared_dev ? a->shared_dev + t * n : NULL;
        for (uint64_t i = 0; i < n; i++) {
            float sum = w[0] * y[i];
            for (uint32_t c = 1; c < a->n_used; c++)
                sum = __builtin_fmaf(w[c], y[c * n + i], sum);
            if (shared)
                sum = a->shared_weights_dev ? __builtin_fmaf(a->shared_weights_dev[t], shared[i], sum)
                                            : sum + shared[i];
            a->out_dev[t * n + i] = sum;
        }
    }
}

int ref_moe_combine(struct k_backend *b, const struct k_moe_combine_args *a, struct quire_error *err)
{
    (void)err;
    struct k_moe_combine_args args = *a;
    host_run(b, (uint64_t)a->n_tokens * a->n_used * a->n_cols, combine_task, &args);
    return QUIRE_OK;
}
