/* docs/internals/numerics.md §19, one element at a time. Blocks are read as in GGUF's own loops, in the order of a
 * block's columns, which differs from kernels/quant.c. */
#include "tests/kernels/page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float half(const uint8_t *p)
{
    return page_f32_from_f16((uint16_t)(p[0] | p[1] << 8));
}

/* ---- blocks of 256 ---- */

static void scale_and_least(const uint8_t *p, uint32_t j, uint32_t *scale, uint32_t *least)
{
    uint64_t low = 0, high = 0; /* 8 bytes each: the low bits of four groups, and those of the others */
    for (int i = 0; i < 4; i++) {
        low |= (uint64_t)(p[i] & 63) << 8 * i | (uint64_t)(p[4 + i] & 63) << (32 + 8 * i);
        high |= (uint64_t)((p[8 + i] & 15) + 16 * (p[i] / 64)) << 8 * i |
                (uint64_t)(p[8 + i] / 16 + 16 * (p[4 + i] / 64)) << (32 + 8 * i);
    }
    const uint64_t of = j < 4 ? low : high;
    *scale = of >> j % 4 * 8 & 255;
    *least = of >> (32 + j % 4 * 8) & 255;
}

static void read_2(const uint8_t *p, struct page_weights *w)
{
    for (uint32_t k = 0, n = 0; n < 2; n++)
        for (uint32_t j = 0; j < 4; j++)
            for (uint32_t l = 0; l < 32; l++, k++) {
                uint8_t both = p[n * 8 + j * 2 + l / 16];
                w->q[k] = (float)(p[16 + n * 32 + l] >> 2 * j & 3);
                w->s[k] = half(p + 80) * (float)(both & 15);
                w->m[k] = -half(p + 82) * (float)(both >> 4);
            }
}

static void read_3(const uint8_t *p, struct page_weights *w)
{
    uint32_t in[3], scales[4];
    memcpy(in, p + 96, 12);
    scales[0] = (in[0] & 0x0f0f0f0f) | (in[2] & 0x03030303) << 4;
    scales[1] = (in[1] & 0x0f0f0f0f) | (in[2] >> 2 & 0x03030303) << 4;
    scales[2] = (in[0] >> 4 & 0x0f0f0f0f) | (in[2] >> 4 & 0x03030303) << 4;
    scales[3] = (in[1] >> 4 & 0x0f0f0f0f) | (in[2] >> 6 & 0x03030303) << 4;
    uint32_t k = 0, bit = 1;
    for (uint32_t n = 0; n < 2; n++)
        for (uint32_t j = 0; j < 4; j++, bit *= 2)
            for (uint32_t l = 0; l < 32; l++, k++) {
                w->q[k] = (float)((p[32 + n * 32 + l] >> 2 * j & 3) - ((p[l] & bit) ? 0 : 4));
                w->s[k] = half(p + 108) * (float)((int)((const uint8_t *)scales)[k / 16] - 32);
            }
}

static void read_45(const uint8_t *p, struct page_weights *w, bool has_fifth)
{
    const uint8_t *fifth = p + 16, *q = p + (has_fifth ? 48 : 16);
    for (uint32_t k = 0; k < 256; k++) {
        uint32_t j = k / 32, l = k % 32, scale, least;
        uint32_t four = j % 2 ? q[j / 2 * 32 + l] / 16 : q[j / 2 * 32 + l] % 16;
        scale_and_least(p + 4, j, &scale, &least);
        w->q[k] = (float)(four + (has_fifth && (fifth[l] & 1 << j) ? 16 : 0));
        w->s[k] = half(p) * (float)scale;
        w->m[k] = -half(p + 2) * (float)least;
    }
}

static void read_6(const uint8_t *p, struct page_weights *w)
{
    for (uint32_t n = 0; n < 2; n++)
        for (uint32_t l = 0; l < 32; l++) {
            const uint8_t *low = p + 64 * n, high = p[128 + 32 * n + l];
            const uint32_t four[4] = {low[l] & 15u, low[l + 32] & 15u, (uint32_t)low[l] >> 4,
                                      (uint32_t)low[l + 32] >> 4};
            for (uint32_t j = 0; j < 4; j++) {
                uint32_t k = 128 * n + 32 * j + l;
                w->q[k] = (float)((int)(four[j] | (uint32_t)(high >> 2 * j & 3) << 4) - 32);
                w->s[k] = half(p + 208) * (float)(int8_t)p[192 + 8 * n + 2 * j + l / 16];
            }
        }
}

/* ---- blocks of 32 ---- */

/* 16 bytes of 4 bits, or 32 of 8, at `at`; a fifth bit of each in the 4 bytes before. */
static void read_32(const uint8_t *p, struct page_weights *w, uint32_t bits, uint32_t at, int zero, bool has_least)
{
    for (uint32_t k = 0; k < 32; k++) {
        int q = bits == 8 ? (int8_t)p[at + k] : k < 16 ? p[at + k] % 16 : p[at + k - 16] / 16;
        if (bits == 5 && p[at - 4 + k / 8] & 1 << k % 8)
            q += 16;
        w->q[k] = (float)(q - zero);
        w->s[k] = half(p);
        w->m[k] = has_least ? half(p + 2) : 0;
    }
}

/* ---- codes ---- */

/* Minus zero, as an integer, is 0. */
static const float fp4[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6, 0, -0.5F, -1, -1.5F, -2, -3, -4, -6};

static float power(uint8_t e)
{
    return ldexpf(1, (int)e - 127);
}

static int iq4(uint32_t code)
{
    static const int8_t numbers[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    return numbers[code];
}

/* q: twice the number; s: half of the scale. */
static void read_mx(const uint8_t *p, struct page_weights *w)
{
    for (uint32_t k = 0; k < 16; k++) {
        w->q[k] = 2 * fp4[p[1 + k] % 16];
        w->q[k + 16] = 2 * fp4[p[1 + k] / 16];
        w->s[k] = w->s[k + 16] = power(p[0]) / 2;
    }
}

/* A run of 32 of IQ4_NL or IQ4_XS. */
static void read_iq4(const uint8_t *p, uint32_t from, float scale, struct page_weights *w)
{
    for (uint32_t k = 0; k < 16; k++) {
        w->q[from + k] = (float)iq4(p[k] % 16);
        w->q[from + k + 16] = (float)iq4(p[k] / 16);
        w->s[from + k] = w->s[from + k + 16] = scale;
    }
}

static void read_xs(const uint8_t *p, struct page_weights *w)
{
    uint32_t high = p[2] + 256u * p[3];
    for (uint32_t j = 0; j < 8; j++, high /= 4) {
        const uint32_t low = j % 2 ? p[4 + j / 2] / 16u : p[4 + j / 2] % 16u;
        read_iq4(p + 8 + 16 * (size_t)j, 32 * j, half(p) * ((float)(low + high % 4 * 16) - 32), w);
    }
}

static uint32_t read_block(const uint8_t *row, enum k_packing packing, uint32_t block, struct page_weights *w)
{
    memset(w->m, 0, sizeof w->m);
    switch (packing) {
    case K_PACKING_Q8_0: return read_32(row + block * 34, w, 8, 2, 0, false), 32;
    case K_PACKING_Q4_0: return read_32(row + block * 18, w, 4, 2, 8, false), 32;
    case K_PACKING_Q4_1: return read_32(row + block * 20, w, 4, 4, 0, true), 32;
    case K_PACKING_Q5_0: return read_32(row + block * 22, w, 5, 6, 16, false), 32;
    case K_PACKING_Q5_1: return read_32(row + block * 24, w, 5, 8, 0, true), 32;
    case K_PACKING_MXFP4: return read_mx(row + block * 17, w), 32;
    case K_PACKING_IQ4_NL: return read_iq4(row + block * 18 + 2, 0, half(row + block * 18), w), 32;
    case K_PACKING_IQ4_XS: return read_xs(row + block * 136, w), 256;
    case K_PACKING_Q2_K: return read_2(row + block * 84, w), 256;
    case K_PACKING_Q3_K: return read_3(row + block * 110, w), 256;
    case K_PACKING_Q4_K: return read_45(row + block * 144, w, false), 256;
    case K_PACKING_Q5_K: return read_45(row + block * 176, w, true), 256;
    case K_PACKING_Q6_K: return read_6(row + block * 210, w), 256;
    default: abort();
    }
}

/* ---- planes ---- */

static float fp8(uint8_t b, enum k_dtype kind)
{
    if (kind == K_E5M2)
        return page_f32_from_f16((uint16_t)(b << 8));
    float fraction = (float)(b & 7), sign = b >> 7 ? -1.0f : 1.0f;
    int exponent = b >> 3 & 15;
    return sign * (exponent == 0 ? ldexpf(fraction, -9) : ldexpf(8 + fraction, exponent - 10));
}

static void read_planes(const struct k_weight_view *v, const uint8_t *row, uint32_t r, uint32_t k, float *q, float *s)
{
    const uint32_t groups = v->format.group ? (v->n_cols + v->format.group - 1) / v->format.group : 1;
    const uint32_t g = v->format.group ? k / v->format.group : 0;
    const uint32_t at = r / (v->scale_rows ? v->scale_rows : 1) * (v->scale_step ? v->scale_step : 1) * groups + g;
    const uint16_t *halves = v->scales;
    if (v->format.kind == K_E2M1) {
        *q = 2 * fp4[k % 2 ? row[k / 2] / 16 : row[k / 2] % 16];
        *s = power(((const uint8_t *)v->scales)[at]) / 2;
        return;
    }
    *s = v->format.scale == K_F32   ? ((const float *)v->scales)[at]
         : v->format.scale == K_F16 ? page_f32_from_f16(halves[at])
                                    : page_f32_from_bf16(halves[at]);
    if (v->format.kind != K_INT) {
        *q = fp8(row[k], v->format.kind);
        return;
    }
    int n = v->format.bits == 8 ? (int8_t)row[k] : k % 2 ? row[k / 2] / 16 : row[k / 2] % 16;
    int zero = v->zero_points ? v->zero_points[r * groups + g] : v->format.bits == 4 ? 8 : 0;
    *q = (float)(n - zero);
}

/* ---- rows ---- */

void page_weights_read(const struct k_weight_view *v, uint32_t row, struct page_weights *out)
{
    const uint8_t *data = (const uint8_t *)v->data + row * v->row_stride_bytes;
    memset(out, 0, sizeof *out);
    for (uint32_t k = 0, n = 1; k < v->n_cols; k += n) {
        struct page_weights block;
        if (v->format.packing == K_PACKING_PLANES) {
            read_planes(v, data, row, k, &out->q[k], &out->s[k]);
            continue;
        }
        n = read_block(data, v->format.packing, k / (v->format.packing < K_PACKING_Q2_K ? 32 : 256), &block);
        memcpy(out->q + k, block.q, n * sizeof(float));
        memcpy(out->s + k, block.s, n * sizeof(float));
        memcpy(out->m + k, block.m, n * sizeof(float));
    }
    out->has_least = v->format.packing == K_PACKING_Q4_1 || v->format.packing == K_PACKING_Q5_1 ||
                     v->format.packing == K_PACKING_Q2_K || v->format.packing == K_PACKING_Q4_K ||
                     v->format.packing == K_PACKING_Q5_K;
    out->group = v->format.group ? v->format.group : v->n_cols;
    out->piece = v->format.group ? 32 : v->n_cols;
    out->x_scale = v->x_scale;
}

/* ---- the weight-only form ---- */

static float fold(const float a[16])
{
    float b[8];
    for (int n = 8, j; n >= 1; n /= 2)
        for (j = 0; j < n; j++)
            b[j] = n == 8 ? a[j] + a[j + 8] : b[j] + b[j + n];
    return b[0];
}

static float dot_lanes(const struct page_weights *w, const float *x, uint32_t begin, uint32_t end)
{
    float a[16] = {0};
    for (uint32_t k = begin, stop; k < end; k = stop) {
        float g[16] = {0}, t[16] = {0};
        stop = (k / w->group + 1) * w->group < end ? (k / w->group + 1) * w->group : end;
        uint32_t filled = (stop - k + 15) / 16 * 16;
        for (uint32_t i = 0; i < filled; i++) {
            float q = k + i < stop ? w->q[k + i] : 0, v = k + i < stop ? x[k + i] : 0;
            g[i % 16] = fmaf(q, v, g[i % 16]);
            t[i % 16] = t[i % 16] + v;
        }
        for (int j = 0; j < 16; j++)
            a[j] = fmaf(w->s[k], g[j], a[j]);
        for (int j = 0; j < 16 && w->has_least; j++)
            a[j] = fmaf(w->m[k], t[j], a[j]);
    }
    return fold(a);
}

/* ---- int8 ---- */

/* Rounds columns [begin, end) to u and returns the scale. */
static float round_piece(const struct page_weights *w, const float *x, uint32_t begin, uint32_t end, int *u)
{
    float most = 0;
    bool is_number = true;
    for (uint32_t k = begin; k < end; k++) {
        is_number = is_number && !isnan(x[k]);
        most = fabsf(x[k]) > most ? fabsf(x[k]) : most;
    }
    float d = most / 127.0f, r = 127.0f / most;
    if (w->x_scale != 0) {
        d = w->x_scale;
        r = 1.0f / w->x_scale;
    } else if (!is_number || isinf(most)) {
        d = is_number ? INFINITY : NAN;
        r = 0;
    } else if (most < 0x1p-120f) {
        d = r = 0;
    }
    for (uint32_t k = begin; k < end; k++) {
        float v = x[k] * r;
        u[k] = isnan(v) ? 0 : (int)rint(fmax(-127, fmin(127, (double)v)));
    }
    return d;
}

static float dot_int8(const struct page_weights *w, const float *x, uint32_t begin, uint32_t end)
{
    int u[PAGE_MAX_COLS];
    float d[PAGE_MAX_COLS], y = 0;
    for (uint32_t k = begin, stop; k < end; k = stop) {
        stop = (k / w->piece + 1) * w->piece < end ? (k / w->piece + 1) * w->piece : end;
        /* A scale for the whole token does not end with a segment. */
        bool is_whole = w->piece == w->group && w->piece != 32;
        d[k] = round_piece(w, x, is_whole ? 0 : k, is_whole ? w->piece : stop, u);
        for (uint32_t i = k; i < stop; i++)
            d[i] = d[k];
    }
    for (uint32_t k = begin, stop; k < end; k = stop) {
        long long products = 0, inputs = 0;
        for (stop = k; stop < end && stop / w->group == k / w->group && stop / w->piece == k / w->piece; stop++) {
            products += (long long)w->q[stop] * u[stop];
            inputs += u[stop];
        }
        y = fmaf(w->s[k] * d[k], (float)products, y);
        if (w->has_least)
            y = fmaf(w->m[k] * d[k], (float)inputs, y);
    }
    return y;
}

/* ---- all ---- */

void page_gather(const struct k_weight_view *v, const float *x, float *out)
{
    for (uint32_t k = 0; k < v->n_cols; k++)
        out[k] = x[v->permutation ? v->permutation[k] : k];
}

static float row_sum(const struct op_case *c, const struct page_weights *w, const float *x)
{
    uint32_t begin[9];
    float s[8] = {0};
    page_segments(c->n_cols, c->unit, begin);
    for (int i = 0; i < 8; i++)
        if (begin[i] < begin[i + 1])
            s[i] = (c->form == K_FORM_INT8 ? dot_int8 : dot_lanes)(w, x, begin[i], begin[i + 1]);
    return page_sum_segments(s, begin);
}

void page_gemm_quant(const struct op_case *c, const struct op_data *d, float *y)
{
    static struct page_weights w;
    static float x[PAGE_MAX_COLS];
    uint32_t first = 0;
    for (uint32_t p = 0; p < (c->n_parts ? c->n_parts : 1); first += d->parts[p++].n_rows) {
        const struct k_weight_view *v = &d->parts[p];
        for (uint32_t i = 0; i < v->n_rows; i++) {
            const bool is_plain = v->format.packing == K_PACKING_NONE;
            struct op_case of_plain = *c;
            of_plain.dtype = v->format.kind;
            of_plain.form = K_FORM_LANE;
            if (!is_plain)
                page_weights_read(v, i, &w);
            for (uint64_t t = 0; t < c->n_tokens; t++) {
                page_gather(v, d->x + t * c->n_cols, x);
                float sum = is_plain ? page_row(&of_plain, (const unsigned char *)v->data + i * v->row_stride_bytes, x)
                                     : row_sum(c, &w, x);
                y[t * c->n_rows + first + i] = d->vector ? sum + d->vector[first + i] : sum;
            }
        }
    }
}

float page_embed_quant(const struct op_case *c, const struct op_data *d, uint32_t id, uint32_t column)
{
    static struct page_weights w;
    uint32_t p = 0;
    for (; id >= d->parts[p].n_rows; p++)
        id -= d->parts[p].n_rows;
    const struct k_weight_view *v = &d->parts[p];
    page_weights_read(v, id, &w);
    uint32_t k = 0;
    while (v->permutation && k + 1 < c->n_cols && v->permutation[k] != column)
        k++;
    k = v->permutation ? k : column;
    return w.has_least ? fmaf(w.s[k], w.q[k], w.m[k]) : w.s[k] * w.q[k];
}
