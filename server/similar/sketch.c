#include "server/similar/sketch.h"

#include "server/similar/vector_index.h"

#include <math.h>
#include <string.h>

/* Sums of two entries fit in a byte, and of all of a row in 16 bits: 128 tables have 64 dimensions each at most. */
#define MOST_STEPS 127u
#define MOST_SUM 65535u
/* As of codes.c: turning rounds by less than 1e-6 of a length, and computing the bound adds less than that again. */
#define ROUNDING 2e-5

static size_t place(uint32_t row, uint32_t n_stages)
{
    const uint32_t in_tile = row % SKETCH_ROWS;
    return (size_t)(row - in_tile) * n_stages * SKETCH_STAGE_BYTES +
           (in_tile < SKETCH_ROWS / 2 ? 2 * in_tile : 2 * (in_tile - SKETCH_ROWS / 2) + 1);
}

void sketch_put(const float *turned, uint32_t n_stages, uint32_t row, uint8_t *tiles, float *scale, float *rest)
{
    const uint32_t n = n_stages * SCAN_DIMS;
    uint8_t *at = tiles + place(row, n_stages);
    double sum = 0, squares = 0;
    for (uint32_t d = 0; d < n; d++)
        sum += fabs((double)turned[d]);
    scale[row] = (float)(sum / n);
    for (uint32_t d = 0; d < n; d += 8) {
        unsigned bits = 0;
        for (uint32_t j = 0; j < 8; j++) {
            const double off = fabs((double)turned[d + j]) - (double)scale[row];
            squares += off * off;
            bits |= (unsigned)(turned[d + j] > 0) << j;
        }
        at[(size_t)d / 8 * SKETCH_ROWS] = (uint8_t)bits;
    }
    rest[row] = (float)sqrt(squares);
}

/* The part of q·b of four dimensions whose bits are these. */
static double part(const float *q, unsigned bits)
{
    double sum = 0;
    for (uint32_t j = 0; j < 4; j++)
        sum += bits >> j & 1 ? (double)q[j] : -(double)q[j];
    return sum;
}

static double least(const float *q)
{
    return -(fabs((double)q[0]) + fabs((double)q[1]) + fabs((double)q[2]) + fabs((double)q[3]));
}

void sketch_of_query(const float *turned, uint32_t n_stages, uint8_t *tables, struct sketch_query *out)
{
    const uint32_t n = n_stages * SCAN_DIMS, per_table = MOST_SUM / (n / 4);
    const uint32_t n_steps = per_table < MOST_STEPS ? per_table : MOST_STEPS;
    double widest = 1e-12, base = 0, squares = 0;
    for (uint32_t d = 0; d < n; d += 4) {
        const double l = least(turned + d);
        widest = -2 * l > widest ? -2 * l : widest;
        base += l;
    }
    for (uint32_t d = 0; d < n; d++)
        squares += (double)turned[d] * turned[d];
    const double step = widest / (n_steps - 1); /* rounding up reaches the last */
    for (uint32_t d = 0; d < n; d += 4)
        for (unsigned bits = 0; bits < 16; bits++)
            tables[d * 4 + bits] = (uint8_t)ceil((part(turned + d, bits) - least(turned + d)) / step);
    *out = (struct sketch_query){.tables = tables,
                                 .n_stages = n_stages,
                                 .step = (float)step,
                                 .base = (float)base,
                                 .length = (float)sqrt(squares),
                                 .constant = (float)ROUNDING};
}

void sketch_tiles_plain(const uint8_t *tiles, const float *scale, const float *rest, size_t n_tiles,
                        const struct sketch_query *query, float cut, uint32_t *masks)
{
    const size_t n_bytes = query->n_stages * SKETCH_STAGE_BYTES;
    for (size_t t = 0; t < n_tiles; t++) {
        masks[t] = 0;
        for (uint32_t r = 0; r < SKETCH_ROWS; r++) {
            const uint8_t *at = tiles + t * SKETCH_ROWS * n_bytes + place(r, query->n_stages);
            const size_t row = t * SKETCH_ROWS + r;
            uint32_t sum = 0;
            for (size_t i = 0; i < n_bytes; i++)
                sum += query->tables[i * 32 + at[i * SKETCH_ROWS] % 16] +
                       (uint32_t)query->tables[i * 32 + 16 + at[i * SKETCH_ROWS] / 16];
            const float own = (float)(int32_t)sum * query->step + query->base;
            if (own * scale[row] + (rest[row] * query->length + query->constant) >= cut)
                masks[t] |= 1u << r;
        }
    }
}

sketch_tiles *sketch_best(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2"))
        return sketch_tiles_avx2;
#endif
    return sketch_tiles_plain;
}
