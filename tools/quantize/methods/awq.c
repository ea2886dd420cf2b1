#include "tools/quantize/methods/awq.h"

#include "tools/quantize/methods/dense.h"

#include <math.h>
#include <string.h>

#define POWERS 20 /* tried for the scales, by steps of 1 / POWERS */
#define LEAST_SCALE 1e-4f

/* The scales for a power of the magnitudes, so that the largest times the least is 1. */
static void scales_of(const double *magnitudes, uint32_t n, float power, float *scales)
{
    float least = INFINITY, most = 0;
    for (uint32_t k = 0; k < n; k++) {
        const float s = powf((float)magnitudes[k], power);
        scales[k] = s > LEAST_SCALE ? s : LEAST_SCALE;
        least = scales[k] < least ? scales[k] : least;
        most = scales[k] > most ? scales[k] : most;
    }
    for (uint32_t k = 0; k < n; k++)
        scales[k] /= sqrtf(least * most);
}

/* The rounded weights of a scaled row minus the row's own. */
static void error_of_row(const struct quantizer_awq *a, const float *w, const float *scales, float *scaled, float *out)
{
    const uint32_t n = a->n_cols, size = a->how->group ? a->how->group : n;
    for (uint32_t k = 0; k < n; k++)
        scaled[k] = w[k] * scales[k];
    for (uint32_t k = 0; k < n; k += size) {
        const uint32_t end = n - k < size ? n : k + size;
        const struct quantizer_grid grid = quantizer_grid_of_row(a->how, scaled + k, end - k);
        for (uint32_t i = k; i < end; i++)
            out[i] = quantizer_value(grid, quantizer_code(a->how, grid, scaled[i])) / scales[i] - w[i];
    }
}

/* Σ d H d^T over the errors d of a part's rows. */
static double output_error(const struct quantizer_awq *a, const struct quantizer_awq_part *part, const float *scales,
                           float *scratch)
{
    const uint32_t n = a->n_cols, n_rows = part->n_rows;
    float *d = scratch, *turned = d + (uint64_t)n_rows * n, *product = turned + (uint64_t)n_rows * n,
          *scaled = product + (uint64_t)n_rows * n;
    double sum = 0;
    for (uint32_t r = 0; r < n_rows; r++) {
        error_of_row(a, part->w + (uint64_t)r * n, scales, scaled, d + (uint64_t)r * n);
        for (uint32_t k = 0; k < n; k++)
            turned[(uint64_t)k * n_rows + r] = d[(uint64_t)r * n + k]; /* by columns */
    }
    memset(product, 0, (uint64_t)n_rows * n * sizeof *product);
    const struct dense_product p = {turned, part->hessian, product, n_rows, n, n, n_rows, n, n, 1};
    dense_add_product(&p);
    for (uint64_t i = 0; i < (uint64_t)n_rows * n; i++)
        sum += (double)d[i] * product[i];
    return sum;
}

void quantizer_awq_scales(const struct quantizer_awq *a, const double *magnitudes, float *scratch, float *scales)
{
    double best = INFINITY;
    float best_power = 0;
    for (int i = 0; i < POWERS; i++) {
        const float power = (float)i / POWERS;
        double error = 0;
        scales_of(magnitudes, a->n_cols, power, scales);
        for (uint32_t part = 0; part < a->n_parts; part++)
            error += output_error(a, &a->parts[part], scales, scratch);
        if (error < best) {
            best = error;
            best_power = power;
        }
    }
    scales_of(magnitudes, a->n_cols, best_power, scales);
}

void quantizer_smooth_scales(const float *most_x, const float *most_w, uint32_t n_cols, float *scales)
{
    for (uint32_t k = 0; k < n_cols; k++) {
        const float s = most_w[k] > 0 ? sqrtf(most_x[k] / most_w[k]) : 1;
        scales[k] = s > LEAST_SCALE && isfinite(s) ? s : 1;
    }
}
