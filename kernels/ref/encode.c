/* The operations that only encoders use: LayerNorm, GELU and tanh, and the pooling of a text's tokens into one
 * vector. */
#include "kernels/args/rows.h"
#include "kernels/math/activation.h"
#include "kernels/math/lane_sum.h"
#include "kernels/ref/lanes.h"
#include "kernels/ref/ref.h"

#include "kernels/check.h"

#include <math.h>

/* ---- LayerNorm ---------------------------------------------------------------------------------- */

static struct ref_lanes add(struct ref_lanes a, struct ref_lanes b)
{
    return (struct ref_lanes){a.low + b.low, a.high + b.high};
}

static float lane_sum(const float *x, uint32_t n)
{
    struct ref_lanes s = ref_zero();
    uint32_t full = n - n % K_LANES;
    for (uint32_t k = 0; k < full; k += K_LANES)
        s = add(s, ref_load_f32(x + k));
    if (full < n) {
        float rest[K_LANES] = {0};
        for (uint32_t k = full; k < n; k++)
            rest[k - full] = x[k];
        s = add(s, ref_load_f32(rest));
    }
    return ref_fold(s);
}

static void layernorm_row(const struct k_layernorm_args *a, const float *x, const float *plus, float *out)
{
    const uint32_t n = a->n_cols;
    for (uint32_t k = 0; k < n; k++)
        out[k] = plus ? x[k] + plus[k] : x[k];
    float mean = lane_sum(out, n) / (float)n;
    for (uint32_t k = 0; k < n; k++)
        out[k] = out[k] - mean;
    float rs = k_rsqrt(ref_sum_of_squares(out, n) / (float)n + a->eps);
    for (uint32_t k = 0; k < n; k++)
        out[k] = __builtin_fmaf(out[k] * rs, a->weight_dev[k], a->bias_dev[k]);
}

static void layernorm_task(void *context, struct k_piece piece)
{
    const struct k_layernorm_args *a = context;
    uint64_t begin, end, n = a->n_cols;
    k_pool_share(a->n_tokens, piece, &begin, &end);
    for (uint64_t t = begin; t < end; t++)
        layernorm_row(a, a->x_dev + t * n, a->add_dev ? a->add_dev + t * n : NULL, a->out_dev + t * n);
}

int ref_layernorm(struct k_backend *b, const struct k_layernorm_args *a, struct quire_error *err)
{
    if (a->n_cols == 0)
        return quire_fail(err, QUIRE_INVALID, "layernorm: n_cols is 0");
    struct k_layernorm_args args = *a;
    host_run(b, (uint64_t)a->n_tokens * a->n_cols * 4, layernorm_task, &args);
    return QUIRE_OK;
}

/* ---- activations -------------------------------------------------------------------------------- */

static void activate_task(void *context, struct k_piece piece)
{
    const struct k_activate_args *a = context;
    uint64_t begin, end;
    k_pool_share((uint64_t)a->n_tokens * a->n_cols, piece, &begin, &end);
    float *x = a->x_dev;
    const float by = a->by, inverse = 1.0f / by;
    switch (a->activation) {
    case K_ACT_GELU:
        for (uint64_t i = begin; i < end; i++)
            x[i] = k_gelu(x[i]);
        break;
    case K_ACT_TANH:
        for (uint64_t i = begin; i < end; i++)
            x[i] = k_tanh(x[i]);
        break;
    case K_ACT_SCALE:
        for (uint64_t i = begin; i < end; i++)
            x[i] = x[i] * by;
        break;
    case K_ACT_SOFTCAP:
        for (uint64_t i = begin; i < end; i++)
            x[i] = k_softcap(x[i], by, inverse);
        break;
    }
}

int ref_activate(struct k_backend *b, const struct k_activate_args *a, struct quire_error *err)
{
    (void)err;
    struct k_activate_args args = *a;
    host_run(b, (uint64_t)a->n_tokens * a->n_cols * 16, activate_task, &args);
    return QUIRE_OK;
}

/* ---- pooling ------------------------------------------------------------------------------------ */

static void pool_row(const struct k_pool_args *a, const struct k_pool_row *row, float *out)
{
    const uint32_t n = a->n_cols;
    const uint64_t first = row->token, last = first + row->n_tokens - 1;
    const float *x = a->x_dev + (a->pooling == K_POOL_LAST ? last : first) * n;
    for (uint32_t k = 0; k < n; k++)
        out[k] = x[k];
    if (a->pooling == K_POOL_MEAN) {
        for (uint64_t t = first + 1; t <= last; t++)
            for (uint32_t k = 0; k < n; k++)
                out[k] = out[k] + a->x_dev[t * n + k];
        for (uint32_t k = 0; k < n; k++)
            out[k] = out[k] / (float)row->n_tokens;
    }
    if (!a->normalize)
        return;
    float length = sqrtf(ref_sum_of_squares(out, n));
    length = length < K_POOL_LEAST_LENGTH ? K_POOL_LEAST_LENGTH : length;
    for (uint32_t k = 0; k < n; k++)
        out[k] = out[k] / length;
}

static void pool_task(void *context, struct k_piece piece)
{
    const struct k_pool_args *a = context;
    uint64_t begin, end;
    k_pool_share(a->n_rows, piece, &begin, &end);
    for (uint64_t r = begin; r < end; r++)
        pool_row(a, &a->rows_dev[r], a->out_dev + r * a->n_cols);
}

int ref_pool(struct k_backend *b, const struct k_pool_args *a, struct quire_error *err)
{
    uint64_t n_tokens = 0;
    for (uint32_t r = 0; r < a->n_rows; r++) {
        if (a->rows_dev[r].n_tokens == 0)
            return quire_fail(err, QUIRE_INVALID, "pool: row %u has no tokens", r);
        n_tokens += a->rows_dev[r].n_tokens;
    }
    struct k_pool_args args = *a;
    host_run(b, n_tokens * a->n_cols, pool_task, &args);
    return QUIRE_OK;
}
