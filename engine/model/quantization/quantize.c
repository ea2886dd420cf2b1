#include "engine/model/quantization/quantize.h"

#include "base/encoding/little_endian.h"
#include "engine/model/quantization/row_threads.h"
#include "kernels/math/bits.h"
#include "kernels/math/convert.h"
#include "kernels/math/round.h"

#include <stdbool.h>
#include <string.h>

#define BLOCK 32u /* columns of Q8_0's and Q4_0's blocks */
#define E4M3_MOST 448.0f

/* Where a weight cannot be quantized. */
struct place {
    bool is_set;
    uint32_t row, column;
    float value;
};

struct making {
    const struct quantize *q;
    uint8_t *data;
    uint64_t stride;
    float *scales; /* of e4m3 */
    struct place bad[ROW_THREADS_MAX]; /* each share's first */
};

/* n of a row's numbers, at most BLOCK. */
static void load(const struct quantize *q, uint32_t row, uint32_t k, uint32_t n, float out[BLOCK])
{
    const uint64_t at = (uint64_t)row * q->n_cols + k;
    const uint8_t *p = q->tensor->data;
    switch (q->tensor->format.kind) {
    case K_F32: memcpy(out, p + at * 4, n * sizeof *out); break;
    case K_F16:
        for (uint32_t i = 0; i < n; i++)
            out[i] = k_f32_from_f16(le_load_u16(p + (at + i) * 2));
        break;
    default:
        for (uint32_t i = 0; i < n; i++)
            out[i] = k_f32_from_bf16(le_load_u16(p + (at + i) * 2));
        break;
    }
}

/* The largest magnitude of n numbers; a NaN is larger than all. */
static float largest(const float *x, uint32_t n)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t magnitude = k_f32_bits(x[i]) & 0x7fffffffu;
        most = magnitude > most ? magnitude : most;
    }
    return k_f32_from_bits(most);
}

/* The first number of that magnitude. */
static uint32_t where(const float *x, float magnitude)
{
    uint32_t at = 0;
    while ((k_f32_bits(x[at]) & 0x7fffffffu) != k_f32_bits(magnitude))
        at++;
    return at;
}

/* To an integer of at most 22 bits, ties to even. */
static float to_integer(float x)
{
    return (x + 0x1.8p+23f) - 0x1.8p+23f;
}

static void put_q8_0(const float x[BLOCK], float factor, uint8_t *out)
{
    for (uint32_t i = 0; i < BLOCK; i++)
        out[i] = (uint8_t)k_round_int8(x[i], factor);
}

static void put_q4_0(const float x[BLOCK], float factor, uint8_t *out)
{
    uint8_t q[BLOCK];
    for (uint32_t i = 0; i < BLOCK; i++) {
        const float v = to_integer(x[i] * factor) + 8;
        q[i] = (uint8_t)(v < 0 ? 0 : v > 15 ? 15 : v);
    }
    for (uint32_t i = 0; i < BLOCK / 2; i++)
        out[i] = (uint8_t)(q[i] | q[i + BLOCK / 2] << 4);
}

/* A scale that is 0 in f16 makes zeros. */
static void make_blocks(void *context, uint32_t share, uint32_t first, uint32_t last)
{
    struct making *m = context;
    const bool is_q8 = m->q->to.packing == K_PACKING_Q8_0;
    const uint32_t bytes = (uint32_t)k_format_bytes(m->q->to, BLOCK);
    float x[BLOCK];
    for (uint32_t row = first; row < last; row++)
        for (uint32_t k = 0; k < m->q->n_cols; k += BLOCK) {
            uint8_t *out = m->data + row * m->stride + (uint64_t)k / BLOCK * bytes;
            load(m->q, row, k, BLOCK, x);
            const float most = largest(x, BLOCK);
            const uint16_t d = k_f16_from_f32(is_q8 ? most / 127 : x[where(x, most)] / -8);
            if ((d & 0x7c00) == 0x7c00) { /* NaN or infinite, and so was x, or it was too large */
                m->bad[share] = (struct place){true, row, k + where(x, most), x[where(x, most)]};
                return;
            }
            const float factor = d & 0x7fff ? 1 / k_f32_from_f16(d) : 0;
            le_store_u16(out, d);
            (is_q8 ? put_q8_0 : put_q4_0)(x, factor, out + 2);
        }
}

/* The scale of rows [first, last) in columns [k, end): false where one of them is not finite. */
static bool find_scale(const struct making *m, uint32_t first, uint32_t last, uint32_t k, uint32_t end, float *scale,
                       struct place *bad)
{
    float x[BLOCK], most = 0;
    for (uint32_t row = first; row < last; row++)
        for (uint32_t c = k; c < end; c += BLOCK) {
            const uint32_t n = end - c < BLOCK ? end - c : BLOCK;
            load(m->q, row, c, n, x);
            const float magnitude = largest(x, n);
            if (!(magnitude <= 3.402823466e+38f)) {
                *bad = (struct place){true, row, c + where(x, magnitude), x[where(x, magnitude)]};
                return false;
            }
            most = magnitude > most ? magnitude : most;
        }
    *scale = most < 0x1p-110f ? 1 : most / E4M3_MOST; /* as small as that, they become zeros */
    return true;
}

static void put_e4m3(const struct making *m, uint32_t row, uint32_t k, uint32_t end, float factor)
{
    float x[BLOCK];
    for (uint32_t c = k; c < end; c += BLOCK) {
        const uint32_t n = end - c < BLOCK ? end - c : BLOCK;
        load(m->q, row, c, n, x);
        for (uint32_t i = 0; i < n; i++)
            m->data[row * m->stride + c + i] = k_e4m3_from_f32(k_kv_bounded(x[i], factor, E4M3_MOST));
    }
}

/* first is where a block begins. */
static void make_e4m3(void *context, uint32_t share, uint32_t first, uint32_t last)
{
    struct making *m = context;
    const uint32_t n_cols = m->q->n_cols, group = m->q->to.group, n_groups = (n_cols + group - 1) / group;
    for (uint32_t row = first; row < last; row += QUANTIZE_BLOCK_ROWS) {
        const uint32_t end_row = last - row < QUANTIZE_BLOCK_ROWS ? last : row + QUANTIZE_BLOCK_ROWS;
        for (uint32_t k = 0; k < n_cols; k += group) {
            const uint32_t end = n_cols - k < group ? n_cols : k + group;
            float *scale = &m->scales[(uint64_t)(row / QUANTIZE_BLOCK_ROWS) * n_groups + k / group];
            if (!find_scale(m, row, end_row, k, end, scale, &m->bad[share]))
                return;
            for (uint32_t r = row; r < end_row; r++)
                put_e4m3(m, r, k, end, 1 / *scale);
        }
    }
}

static int make(struct making *m, bool has_planes, struct quire_error *err)
{
    const struct quantize *q = m->q;
    row_threads_run(q->n_rows, has_planes ? QUANTIZE_BLOCK_ROWS : 1, q->n_rows * m->stride, q->n_threads,
                    has_planes ? make_e4m3 : make_blocks, m);
    for (uint32_t i = 0; i < ROW_THREADS_MAX; i++)
        if (m->bad[i].is_set)
            return quire_fail(err, QUIRE_INVALID,
                              "%.100s: tensor '%.150s': row %u, column %u: %g cannot be quantized to %s: leave "
                              "--quantization out",
                              q->tensor->file, q->tensor->name, m->bad[i].row, m->bad[i].column,
                              (double)m->bad[i].value, k_format_name(q->to));
    return QUIRE_OK;
}

int quantize_view(const struct quantize *q, struct quantized_arena *arena, struct k_weight_view *out,
                  struct quire_error *err)
{
    const bool has_planes = q->to.packing == K_PACKING_PLANES;
    const uint64_t stride = k_format_bytes(q->to, q->n_cols);
    struct making m = {.q = q, .stride = stride, .data = quantized_take(arena, q->n_rows * stride)};
    if (has_planes) {
        const uint64_t n_blocks = (q->n_rows + QUANTIZE_BLOCK_ROWS - 1) / QUANTIZE_BLOCK_ROWS;
        m.scales = quantized_take(arena, n_blocks * ((q->n_cols + q->to.group - 1) / q->to.group) * sizeof *m.scales);
    }
    *out = (struct k_weight_view){.data = m.data,
                                  .format = q->to,
                                  .n_rows = q->n_rows,
                                  .n_cols = q->n_cols,
                                  .row_stride_bytes = stride,
                                  .scales = m.scales,
                                  .scale_rows = has_planes ? QUANTIZE_BLOCK_ROWS : 0};
    return quantized_fills(arena) ? make(&m, has_planes, err) : QUIRE_OK;
}
