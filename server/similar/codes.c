#include "server/similar/codes.h"

#include "server/similar/vector_index.h"

#include <math.h>

/* Turning rounds six times for each number, by 2^-24 of what stands there: less than 1e-6 of the vector's length, for q and x.
 * Computing the bound adds as much again. */
#define ROUNDING 2e-5

static float sign_of(uint32_t dim)
{
    uint32_t h = dim * 0x9e3779b9u; /* any fixed bits that follow no pattern of an embedder's */
    h = (h ^ h >> 15) * 0x85ebca6bu;
    h = (h ^ h >> 13) * 0xc2b2ae35u;
    return (h >> 16 & 1) ? -0.125f : 0.125f; /* 1/8: Hadamard's matrix of 64 has rows of length 8 */
}

void codes_turn(const float *vector, uint32_t n_dims, uint32_t n_stages, float *out)
{
    for (uint32_t b = 0; b < n_stages; b++) {
        float v[SCAN_DIMS];
        for (uint32_t j = 0; j < SCAN_DIMS; j++) {
            const uint32_t dim = b * SCAN_DIMS + j;
            v[j] = dim < n_dims ? vector[dim] * sign_of(dim) : 0;
        }
        for (uint32_t step = 1; step < SCAN_DIMS; step *= 2)
            for (uint32_t j = 0; j < SCAN_DIMS; j += 2 * step)
                for (uint32_t i = j; i < j + step; i++) {
                    const float a = v[i], c = v[i + step];
                    v[i] = a + c;
                    v[i + step] = a - c;
                }
        for (uint32_t j = 0; j < SCAN_DIMS; j++)
            out[j * n_stages + b] = v[j];
    }
}

static float largest_of(const float *v, uint32_t n)
{
    float largest = 1e-12f;
    for (uint32_t i = 0; i < n; i++)
        largest = fabsf(v[i]) > largest ? fabsf(v[i]) : largest;
    return largest;
}

void codes_put(const float *turned, uint32_t n_stages, uint32_t row, uint32_t capacity, uint8_t *codes, float *rest,
               float *scale)
{
    const float unit = largest_of(turned, n_stages * SCAN_DIMS) / 127, per = 1 / unit;
    double squares = 0;
    scale[row] = unit;
    for (uint32_t s = n_stages; s-- > 0;) {
        const float *v = turned + (size_t)s * SCAN_DIMS;
        uint8_t *tile = codes + ((size_t)s * capacity + row / SCAN_ROWS * SCAN_ROWS) * SCAN_DIMS;
        rest[(size_t)s * capacity + row] = (float)sqrt(squares);
        for (uint32_t d = 0; d < SCAN_DIMS; d++) {
            squares += (double)v[d] * v[d];
            tile[d / 4 * SCAN_ROWS * 4 + row % SCAN_ROWS * 4 + d % 4] = (uint8_t)(128 + (int)lrintf(v[d] * per));
        }
    }
}

void codes_of_query(const float *turned, uint32_t n_stages, int8_t *codes, struct scan_step *steps)
{
    const uint32_t n = n_stages * SCAN_DIMS;
    const float unit = largest_of(turned, n) / SCAN_QUERY_MAX;
    double all = 0, so_far = 0, off = 0;
    int32_t bias = 0;
    for (uint32_t d = 0; d < n; d++)
        all += (double)turned[d] * turned[d];
    for (uint32_t s = 0; s < n_stages; s++) {
        for (uint32_t d = s * SCAN_DIMS; d < (s + 1) * SCAN_DIMS; d++) {
            codes[d] = (int8_t)lrintf(turned[d] / unit);
            const double e = turned[d] - (double)unit * codes[d];
            off += e * e;
            so_far += (double)turned[d] * turned[d];
            bias += 128 * codes[d];
        }
        const double half = sqrt((s + 1) * (double)SCAN_DIMS) / 2;
        steps[s] = (struct scan_step){
            .query = codes + (size_t)s * SCAN_DIMS,
            .bias = bias,
            .query_scale = unit,
            .per_scale = (float)((sqrt(so_far) + sqrt(off)) * half),
            .per_rest = (float)sqrt(all > so_far ? all - so_far : 0),
            .constant = (float)(sqrt(off) * (1 + VECTOR_SQUARES_SLACK) + ROUNDING),
        };
    }
}
