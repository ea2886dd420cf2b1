#include "kernels/quant.h"

#include "kernels/math/convert.h"

#include <string.h>

bool k_format_has_least(struct k_format format)
{
    const struct k_blocks *b = k_blocks_of(format.packing);
    return b && b->has_least;
}

bool k_format_codes(struct k_format format, struct k_codes *codes)
{
    const bool is_e2m1 = format.packing == K_PACKING_MXFP4 || format.kind == K_E2M1;
    *codes = is_e2m1 ? k_codes_e2m1() : k_codes_iq4();
    return is_e2m1 || format.packing == K_PACKING_IQ4_NL || format.packing == K_PACKING_IQ4_XS;
}

/* ---- GGUF's blocks -------------------------------------------------------------------------------- */

static float half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return k_f32_from_f16(h);
}

static uint32_t bits_at(const uint8_t *p) /* little-endian */
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Returns element k of a block. Blocks of 256 columns consist of runs of 32; the low bits of a run share bytes with the
 * run 32, 64 or 96 columns later. */
static int element(enum k_packing packing, const uint8_t *p, uint32_t k)
{
    const uint32_t half = k / 128, in = k % 128, run = in / 32, l = k % 32;
    switch (packing) {
    case K_PACKING_Q8_0: return (int8_t)p[2 + k];
    case K_PACKING_Q4_0: return (p[2 + k % 16] >> k / 16 * 4 & 15) - 8;
    case K_PACKING_Q4_1: return p[4 + k % 16] >> k / 16 * 4 & 15;
    case K_PACKING_Q5_0: return (int)((p[6 + k % 16] >> k / 16 * 4 & 15u) | (bits_at(p + 2) >> k & 1u) << 4) - 16;
    case K_PACKING_Q5_1: return (int)((p[8 + k % 16] >> k / 16 * 4 & 15u) | (bits_at(p + 4) >> k & 1u) << 4);
    case K_PACKING_MXFP4: return k_code_number(k_codes_e2m1(), p[1 + k % 16] >> k / 16 * 4 & 15);
    case K_PACKING_IQ4_NL: return k_code_number(k_codes_iq4(), p[2 + k % 16] >> k / 16 * 4 & 15);
    case K_PACKING_Q2_K: return p[16 + half * 32 + l] >> 2 * run & 3;
    case K_PACKING_Q3_K: return (p[32 + half * 32 + l] >> 2 * run & 3) - (p[l] >> (half * 4 + run) & 1 ? 0 : 4);
    case K_PACKING_Q4_K: return p[16 + k / 64 * 32 + l] >> k % 64 / 32 * 4 & 15;
    case K_PACKING_Q5_K: return (p[48 + k / 64 * 32 + l] >> k % 64 / 32 * 4 & 15) | (p[16 + l] >> k / 32 & 1) << 4;
    case K_PACKING_Q6_K:
        return ((p[half * 64 + in % 64] >> in / 64 * 4 & 15) | (p[128 + half * 32 + l] >> 2 * run & 3) << 4) - 32;
    case K_PACKING_IQ4_XS: return k_code_number(k_codes_iq4(), p[8 + k / 32 * 16 + l % 16] >> l / 16 * 4 & 15);
    default: return 0;
    }
}

/* Reads the 6-bit scale and least of group j of Q4_K and Q5_K from 12 bytes. */
static void scale_min(const uint8_t *p, uint32_t j, uint32_t *scale, uint32_t *least)
{
    if (j < 4) {
        *scale = p[j] & 63u;
        *least = p[j + 4] & 63u;
        return;
    }
    *scale = (p[j + 4] & 15u) | (uint32_t)p[j - 4] >> 6 << 4;
    *least = (uint32_t)p[j + 4] >> 4 | (uint32_t)p[j] >> 6 << 4;
}

/* Reads group j's 6-bit scale of Q3_K from 12 bytes: 4 low bits in the first 8 bytes, 2 high bits in the last 4. */
static int scale_3(const uint8_t *p, uint32_t j)
{
    uint32_t low = j < 8 ? p[j] & 15u : (uint32_t)p[j - 8] >> 4;
    return (int)(low | (p[8 + j % 4] >> 2 * (j / 4) & 3u) << 4) - 32;
}

/* Reads group j's 6-bit scale of IQ4_XS from the bytes after d: 2 high bits in the first 2, 4 low bits in the others. */
static int scale_iq4(const uint8_t *p, uint32_t j)
{
    const uint32_t low = p[2 + j / 2] >> j % 2 * 4 & 15u, high = p[j / 4] >> 2 * (j % 4) & 3u;
    return (int)(low | high << 4) - 32;
}

static void block_scale(enum k_packing packing, const uint8_t *p, uint32_t j, float *scale, float *least)
{
    uint32_t s, m;
    *least = 0;
    switch (packing) {
    case K_PACKING_Q4_1:
    case K_PACKING_Q5_1: *least = half_at(p + 2); /* fall through */
    default: *scale = half_at(p); break;
    case K_PACKING_Q2_K:
        *scale = half_at(p + 80) * (float)(p[j] & 15);
        *least = -(half_at(p + 82) * (float)(p[j] >> 4));
        break;
    case K_PACKING_Q3_K: *scale = half_at(p + 108) * (float)scale_3(p + 96, j); break;
    case K_PACKING_Q4_K:
    case K_PACKING_Q5_K:
        scale_min(p + 4, j, &s, &m);
        *scale = half_at(p) * (float)s;
        *least = -(half_at(p + 2) * (float)m);
        break;
    case K_PACKING_Q6_K: *scale = half_at(p + 208) * (float)(int8_t)p[192 + j]; break;
    case K_PACKING_MXFP4: *scale = k_half_from_e8m0(*p); break;
    case K_PACKING_IQ4_XS: *scale = half_at(p) * (float)scale_iq4(p + 2, j); break;
    }
}

/* ---- planes ----------------------------------------------------------------------------------------- */

static uint64_t groups_of(const struct k_weight_view *w)
{
    return w->format.group ? ((uint64_t)w->n_cols + w->format.group - 1) / w->format.group : 1;
}

static float plane_scale(const struct k_weight_view *w, uint32_t row, uint64_t group)
{
    const uint64_t i = k_scale_row(w, row) * groups_of(w) + group;
    const uint8_t *p = (const uint8_t *)w->scales + i * k_dtype_bytes(w->format.scale);
    uint16_t h;
    float f;
    if (w->format.scale == K_E8M0)
        return k_half_from_e8m0(*p);
    if (w->format.scale == K_F32)
        return memcpy(&f, p, sizeof f), f;
    memcpy(&h, p, sizeof h);
    return w->format.scale == K_F16 ? k_f32_from_f16(h) : k_f32_from_bf16(h);
}

static float plane_element(const struct k_weight_view *w, const uint8_t *data, uint32_t k, int zero)
{
    if (w->format.kind == K_E4M3)
        return k_f32_from_e4m3(data[k]);
    if (w->format.kind == K_E5M2)
        return k_f32_from_e5m2(data[k]);
    int q = w->format.bits == 4 ? data[k / 2] >> k % 2 * 4 & 15 : (int8_t)data[k];
    if (w->format.kind == K_E2M1)
        return (float)k_code_number(k_codes_e2m1(), (uint32_t)q);
    return (float)(q - zero);
}

/* ---- both ------------------------------------------------------------------------------------------- */

void k_quant_read(const struct k_weight_view *w, uint32_t row, uint32_t begin, uint32_t end, float *q)
{
    const struct k_blocks *b = k_blocks_of(w->format.packing);
    const uint8_t *data = (const uint8_t *)w->data + row * w->row_stride_bytes;
    int zero = w->format.kind == K_INT && w->format.bits == 4 ? 8 : 0;
    if (w->zero_points)
        zero = w->zero_points[row * groups_of(w) + (w->format.group ? begin / w->format.group : 0)];
    for (uint32_t k = begin; k < end; k++)
        q[k - begin] = b ? (float)element(w->format.packing, data + (uint64_t)k / b->columns * b->bytes, k % b->columns)
                         : plane_element(w, data, k, zero);
}

void k_quant_scale(const struct k_weight_view *w, uint32_t row, uint32_t column, float *scale, float *least)
{
    const struct k_blocks *b = k_blocks_of(w->format.packing);
    const uint8_t *data = (const uint8_t *)w->data + row * w->row_stride_bytes;
    if (b) {
        block_scale(w->format.packing, data + (uint64_t)column / b->columns * b->bytes, column % b->columns / b->group,
                    scale, least);
        return;
    }
    *least = 0;
    *scale = plane_scale(w, row, w->format.group ? column / w->format.group : 0);
}
