#include "kernels/check.h"
#include "kernels/math/activation.h"
#include "kernels/math/lane_sum.h"
#include "kernels/ref/lanes.h"
#include "kernels/ref/ref.h"

float ref_sum_of_squares(const float *x, uint32_t n)
{
    struct ref_lanes s = ref_zero();
    uint32_t full = n - n % K_LANES;
    for (uint32_t k = 0; k < full; k += K_LANES) {
        struct ref_lanes v = ref_load_f32(x + k);
        s = ref_fma(v, v, s);
    }
    if (full < n) {
        float rest[K_LANES] = {0};
        for (uint32_t k = full; k < n; k++)
            rest[k - full] = x[k];
        struct ref_lanes v = ref_load_f32(rest);
        s = ref_fma(v, v, s);
    }
    return ref_fold(s);
}

static float row_factor(const float *x, uint32_t n, float eps)
{
    return k_rsqrt(ref_sum_of_squares(x, n) / (float)n + eps);
}

void ref_rmsnorm_row(const float *x, const float *weight, float *out, uint32_t n, float eps)
{
    float rs = row_factor(x, n, eps);
    for (uint32_t k = 0; k < n; k++)
        out[k] = (x[k] * rs) * weight[k];
}

static void add_rmsnorm_row(const float *x, const float *weight, float *out, uint32_t n, float eps)
{
    float rs = row_factor(x, n, eps);
    for (uint32_t k = 0; k < n; k++)
        out[k] += (x[k] * rs) * weight[k];
}

static void rmsnorm_task(void *context, struct k_piece piece)
{
    const struct k_rmsnorm_args *a = context;
    uint64_t begin, end, stride = a->row_stride ? a->row_stride : a->n_cols;
    k_pool_share(a->n_tokens, piece, &begin, &end);
    for (uint64_t t = begin; t < end; t++) {
        float *x = a->x_dev + t * stride;
        if (a->add_dev) {
            const float *add = a->add_dev + t * stride;
            for (uint32_t k = 0; k < a->n_cols; k++)
                x[k] += add[k];
        }
        (a->into ? add_rmsnorm_row : ref_rmsnorm_row)(x, a->weight_dev, a->out_dev + t * stride, a->n_cols, a->eps);
    }
}

int ref_rmsnorm(struct k_backend *b, const struct k_rmsnorm_args *a, struct quire_error *err)
{
    int status = k_check_rmsnorm(a, err);
    if (status == QUIRE_OK && a->add_is_part)
        status = ref_all_reduce(b,
                                &(struct k_all_reduce_args){.x_dev = (float *)(uintptr_t)a->add_dev,
                                                            .bias_dev = a->add_bias_dev,
                                                            .n_tokens = a->n_tokens,
                                                            .n_cols = a->n_cols},
                                err);
    if (status != QUIRE_OK)
        return status;
    struct k_rmsnorm_args args = *a;
    host_run(b, (uint64_t)a->n_tokens * a->n_cols * 2, rmsnorm_task, &args);
    return QUIRE_OK;
}
