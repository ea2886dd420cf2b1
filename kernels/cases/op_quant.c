/* Quantized weights of a case: any bits are valid numbers, but scales must be finite. */
#include "kernels/cases/op_data.h"
#include "kernels/math/convert.h"
#include "kernels/quant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void random_bytes(void *p, uint64_t n, uint64_t *state)
{
    for (uint64_t i = 0; i < n; i += 8) {
        uint64_t bits = op_random(state);
        memcpy((char *)p + i, &bits, n - i < 8 ? n - i : 8);
    }
}

/* About 1 / 64; a denormal f16 scale is below 2^-14. */
static float random_scale(uint64_t *state, enum op_values values, bool is_f16)
{
    float x = op_random_value(state, values == VALUES_BROKEN ? VALUES_PLAIN : values);
    if (is_f16)
        x = values == VALUES_TINY ? ldexpf(x, 115) : values == VALUES_WIDE ? ldexpf(x, -10) : x;
    return values == VALUES_TINY ? x : x * 0x1p-6f;
}

static void put_half(unsigned char *at, uint64_t *state, enum op_values values)
{
    uint16_t h = k_f16_from_f32(random_scale(state, values, true));
    memcpy(at, &h, sizeof h);
}

/* Offset of a block's scale in f16; its minimum follows, if it has one. */
static uint32_t half_at(enum k_packing packing)
{
    switch (packing) {
    case K_PACKING_Q2_K: return 80;
    case K_PACKING_Q3_K: return 108;
    case K_PACKING_Q6_K: return 208;
    default: return 0;
    }
}

/* A power of two of about that size. */
static unsigned char random_e8m0(uint64_t *state, enum op_values values)
{
    const uint32_t exponent = k_f32_bits(random_scale(state, values, false)) >> 23 & 255;
    return (unsigned char)(exponent > 254 ? 254 : exponent);
}

static void make_blocks(unsigned char *data, uint64_t bytes, enum k_packing packing, uint64_t *state,
                        enum op_values values)
{
    const struct k_blocks *b = k_blocks_of(packing);
    for (uint64_t i = 0; i < bytes; i += b->bytes) {
        if (packing == K_PACKING_MXFP4)
            data[i] = random_e8m0(state, values);
        else
            put_half(data + i + half_at(packing), state, values);
        if (b->has_least)
            put_half(data + i + half_at(packing) + 2, state, values);
    }
}

/* Removes infinity and NaN from FP8 numbers: lowers the largest exponent by one. */
static void make_finite(unsigned char *data, uint64_t bytes, enum k_dtype kind)
{
    const unsigned char top = kind == K_E4M3 ? 0x7f : 0x7c;
    for (uint64_t i = 0; i < bytes && (kind == K_E4M3 || kind == K_E5M2); i++)
        if ((data[i] & top) == top)
            data[i] &= 0xbf;
}

/* Returns false if memory is out. */
static bool make_planes(const struct op_case *c, struct k_weight_view *w, uint64_t *state)
{
    const uint64_t scale_rows = w->scale_rows ? w->scale_rows : 1;
    const uint64_t groups = w->format.group ? (w->n_cols + w->format.group - 1) / w->format.group : 1;
    const uint64_t n = (w->n_rows + scale_rows - 1) / scale_rows * groups * (w->scale_step ? w->scale_step : 1),
                   size = k_dtype_bytes(w->format.scale);
    unsigned char *scales = malloc(n * size);
    if (!scales)
        return false;
    for (uint64_t i = 0; i < n; i++) {
        if (w->format.scale == K_E8M0) {
            scales[i] = random_e8m0(state, c->values);
            continue;
        }
        float x = random_scale(state, c->values, w->format.scale == K_F16);
        uint16_t h = w->format.scale == K_F16 ? k_f16_from_f32(x) : k_bf16_from_f32(x);
        memcpy(scales + i * size, w->format.scale == K_F32 ? (const void *)&x : &h, size);
    }
    w->scales = scales;
    if (op_stored(c).has_zeros) {
        int8_t *zeros = malloc(w->n_rows * groups);
        if (!zeros)
            return false;
        random_bytes(zeros, w->n_rows * groups, state);
        for (uint64_t i = 0; i < w->n_rows * groups && w->format.bits == 4; i++)
            zeros[i] = (int8_t)(zeros[i] & 15);
        w->zero_points = zeros;
    }
    if (op_stored(c).permuted) {
        uint32_t *order = malloc(w->n_cols * sizeof *order);
        if (!order)
            return false;
        for (uint32_t i = 0; i < w->n_cols; i++) {
            uint32_t at = (uint32_t)(op_random(state) % (i + 1));
            order[i] = order[at];
            order[at] = i;
        }
        w->permutation = order;
    }
    w->x_scale = op_stored(c).x_scale;
    return true;
}

#define PERIOD (4u << 20) /* random bytes; timed cases repeat them, at another offset of each row */

static bool make_part(const struct op_case *c, uint32_t part, struct k_weight_view *w, uint64_t *state)
{
    const struct k_format format = op_format(c, part);
    const uint64_t row_bytes = k_format_bytes(format, c->n_cols), n_rows = op_part_rows(c, part);
    const uint64_t bytes = n_rows * row_bytes;
    uint64_t drawn = (PERIOD / row_bytes | 1) * row_bytes;
    drawn = drawn < bytes ? drawn : bytes;
    unsigned char *data = malloc(bytes);
    if (!data)
        return false;
    *w = (struct k_weight_view){.data = data, .format = format, .n_rows = (uint32_t)n_rows, .n_cols = c->n_cols};
    w->row_stride_bytes = row_bytes;
    random_bytes(data, drawn, state);
    for (uint64_t i = 0; c->values == VALUES_FULL && i < drawn; i++) /* 0x80: -128 */
        data[i] = (unsigned char[]){0xff, 0x00, 0x80, 0x7f}[i / row_bytes % 4];
    if (k_format_is_plain(format))
        for (uint64_t i = 0; i < drawn / 2; i++) { /* the only plain format among parts: f16 */
            uint16_t h = k_f16_from_f32(op_random_value(state, VALUES_PLAIN));
            memcpy(data + 2 * i, &h, sizeof h);
        }
    else if (format.packing != K_PACKING_PLANES)
        make_blocks(data, drawn, format.packing, state, c->values);
    else
        make_finite(data, drawn, format.kind);
    for (uint64_t at = drawn; at < bytes; at += drawn)
        memcpy(data + at, data, bytes - at < drawn ? bytes - at : drawn);
    w->scale_rows = format.packing == K_PACKING_PLANES ? op_stored(c).scale_rows : 0;
    w->scale_step = format.packing == K_PACKING_PLANES ? op_stored(c).scale_step : 0;
    return format.packing != K_PACKING_PLANES || make_planes(c, w, state);
}

bool op_quant_make(const struct op_case *c, struct op_data *d, uint64_t *state)
{
    for (uint32_t p = 0; p < (c->n_parts ? c->n_parts : 1); p++)
        if (!make_part(c, p, &d->parts[p], state))
            return false;
    return true;
}

void op_quant_free(struct op_data *d)
{
    for (uint32_t p = 0; p < K_WEIGHT_MAX_PARTS; p++) {
        free((void *)(uintptr_t)d->parts[p].data);
        free((void *)(uintptr_t)d->parts[p].scales);
        free((void *)(uintptr_t)d->parts[p].zero_points);
        free((void *)(uintptr_t)d->parts[p].permutation);
    }
}
