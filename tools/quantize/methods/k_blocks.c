#include "tools/quantize/methods/k_blocks.h"

#include "base/encoding/little_endian.h"
#include "kernels/math/convert.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define MAX_GROUP 32u
#define STEPS 24       /* candidates for a group's scale on each side of the plain one */
#define STEP 0.05f     /* of the largest code */
#define ROUNDS 3       /* of new d and dmin by least squares */

/* Columns that share a scale, and the range of their codes. */
struct group {
    const float *w, *weights;
    uint32_t n;
    int32_t low, high;
};

/* w ≈ scale · code − least. */
struct fit {
    float scale, least;
};

static float weight_at(const struct group *g, uint32_t i)
{
    return g->weights ? g->weights[i] : 1;
}

/* Rounds to an integer, ties to even; |x| < 2^22. */
static float to_integer(float x)
{
    return (x + 0x1.8p+23f) - 0x1.8p+23f;
}

static float code_of(const struct group *g, float x)
{
    const float low = (float)g->low, high = (float)g->high;
    x = x > high ? high : x;
    return to_integer(x < low ? low : x);
}

/* The error of a group with the codes nearest for this fit. */
static float error_of(const struct group *g, struct fit f)
{
    const float factor = f.scale != 0 ? 1 / f.scale : 0;
    float sum = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        const float e = f.scale * code_of(g, (g->w[i] + f.least) * factor) - f.least - g->w[i];
        sum += weight_at(g, i) * e * e;
    }
    return sum;
}

/* The best scale and least >= 0 for the codes that `from` rounds to; without_least: it stays 0. */
static struct fit least_squares(const struct group *g, struct fit from, bool without_least)
{
    const float factor = from.scale != 0 ? 1 / from.scale : 0;
    float s_w = 0, s_q = 0, s_qq = 0, s_x = 0, s_qx = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        const float weight = weight_at(g, i), x = g->w[i], q = code_of(g, (x + from.least) * factor);
        s_w += weight;
        s_q += weight * q;
        s_qq += weight * q * q;
        s_x += weight * x;
        s_qx += weight * q * x;
    }
    const float det = s_w * s_qq - s_q * s_q;
    struct fit f = {s_qq > 0 ? s_qx / s_qq : 0, 0};
    if (!without_least && det > 1e-6f * s_w * s_qq) {
        const float least = (s_q * s_qx - s_qq * s_x) / det;
        if (least > 0)
            f = (struct fit){(s_w * s_qx - s_q * s_x) / det, least};
    }
    return f;
}

static void keep_better(const struct group *g, struct fit f, struct fit *best, float *best_error)
{
    const float error = error_of(g, f);
    if (error < *best_error) {
        *best = f;
        *best_error = error;
    }
}

static void range_of(const struct group *g, float *least, float *most)
{
    *least = *most = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        *least = g->w[i] < *least ? g->w[i] : *least;
        *most = g->w[i] > *most ? g->w[i] : *most;
    }
}

/* Searches scales near the one that spans the group. */
static struct fit search(const struct group *g, bool is_signed)
{
    float least, most, error = INFINITY;
    struct fit best = {0, 0};
    range_of(g, &least, &most);
    if (least == 0 && most == 0)
        return best;
    const float top = is_signed ? (float)-g->low : (float)g->high;
    /* The signed codes reach further below 0, so the weight of the largest magnitude gets a negative code. */
    const float span = !is_signed ? most - least : -least > most ? -least : -most;
    for (int step = -STEPS; step <= STEPS; step++) {
        const float codes = top + STEP * (float)step;
        if (codes < 1)
            continue;
        struct fit f = {span / codes, is_signed ? 0 : -least};
        keep_better(g, f, &best, &error);
        f = least_squares(g, f, is_signed);
        keep_better(g, f, &best, &error);
    }
    return best;
}

/* ---- a block ------------------------------------------------------------------------------------------------------ */

struct block {
    struct group groups[16];
    uint32_t n_groups;
    bool is_signed;
    int32_t scale_low, scale_high; /* of the stored integers */
    int32_t scales[16], leasts[16];
    float d, d_least; /* as stored */
};

static struct fit stored_fit(const struct block *b, int32_t scale, int32_t least)
{
    return (struct fit){b->d * (float)scale, b->d_least * (float)least};
}

static int32_t bounded(float x, int32_t low, int32_t high)
{
    const float r = rintf(x);
    return r<(float)low ? low : r>(float) high ? high : (int32_t)r;
}

static float half_of(float x)
{
    return k_f32_from_f16(k_f16_from_f32(x));
}

/* Chooses a group's stored scale and least near those of `f`. Returns the error. */
static float choose_stored(struct block *b, uint32_t j, struct fit f)
{
    const int32_t s = b->d != 0 ? bounded(f.scale / b->d, b->scale_low, b->scale_high) : 0;
    const int32_t m = b->d_least != 0 ? bounded(f.least / b->d_least, 0, 63) : 0;
    const int32_t reach = b->is_signed ? 0 : 1;
    float best = INFINITY;
    for (int32_t ds = -1; ds <= 1; ds++)
        for (int32_t dm = -reach; dm <= reach; dm++) {
            const int32_t scale = s + ds, least = m + dm;
            if (scale < b->scale_low || scale > b->scale_high || least < 0 || least > 63)
                continue;
            const float error = error_of(&b->groups[j], stored_fit(b, scale, least));
            if (error < best) {
                best = error;
                b->scales[j] = scale;
                b->leasts[j] = least;
            }
        }
    return best;
}

static float choose_all(struct block *b, const struct fit *fits)
{
    float error = 0;
    for (uint32_t j = 0; j < b->n_groups; j++)
        error += choose_stored(b, j, fits[j]);
    return error;
}

/* New d and dmin by least squares over all groups, whose integers and codes stay. */
static void fit_factors(struct block *b)
{
    double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
    for (uint32_t j = 0; j < b->n_groups; j++) {
        const struct group *g = &b->groups[j];
        const struct fit f = stored_fit(b, b->scales[j], b->leasts[j]);
        const float factor = f.scale != 0 ? 1 / f.scale : 0;
        for (uint32_t i = 0; i < g->n; i++) {
            const double weight = weight_at(g, i), x = g->w[i];
            const double p = b->scales[j] * (double)code_of(g, (g->w[i] + f.least) * factor), q = -b->leasts[j];
            aa += weight * p * p;
            ab += weight * p * q;
            bb += weight * q * q;
            ax += weight * p * x;
            bx += weight * q * x;
        }
    }
    const double det = aa * bb - ab * ab;
    if (bb > 0 && det > 1e-9 * aa * bb) {
        b->d = half_of((float)((bb * ax - ab * bx) / det));
        b->d_least = half_of(fmaxf((float)((aa * bx - ab * ax) / det), 0));
    } else if (aa > 0) {
        b->d = half_of((float)((ax - ab * b->d_least) / aa));
    }
}

static void choose(struct block *b)
{
    struct fit fits[16];
    float most_scale = 0, most_least = 0;
    for (uint32_t j = 0; j < b->n_groups; j++) {
        fits[j] = search(&b->groups[j], b->is_signed);
        most_scale = fabsf(fits[j].scale) > fabsf(most_scale) ? fits[j].scale : most_scale;
        most_least = fits[j].least > most_least ? fits[j].least : most_least;
    }
    b->d = half_of(most_scale / (float)(b->is_signed ? b->scale_low : b->scale_high));
    b->d_least = half_of(most_least / 63);
    float best_error = choose_all(b, fits);
    struct block best = *b;
    for (int round = 0; round < ROUNDS; round++) {
        fit_factors(b);
        const float error = choose_all(b, fits);
        if (!(error < best_error))
            break;
        best_error = error;
        best = *b;
    }
    *b = best;
}

static void begin(struct block *b, const float *w, const float *weights, uint32_t n_groups, int32_t low, int32_t high)
{
    const uint32_t n = K_BLOCK_COLUMNS / n_groups;
    b->n_groups = n_groups;
    for (uint32_t j = 0; j < n_groups; j++)
        b->groups[j] = (struct group){w + j * n, weights ? weights + j * n : NULL, n, low, high};
}

static void codes_of(const struct block *b, uint8_t codes[K_BLOCK_COLUMNS])
{
    for (uint32_t j = 0; j < b->n_groups; j++) {
        const struct group *g = &b->groups[j];
        const struct fit f = stored_fit(b, b->scales[j], b->leasts[j]);
        const float factor = f.scale != 0 ? 1 / f.scale : 0;
        for (uint32_t i = 0; i < g->n; i++)
            codes[j * g->n + i] = (uint8_t)((int32_t)code_of(g, (g->w[i] + f.least) * factor) - g->low);
    }
}

/* Six bits each of scale and least, in 12 bytes: kernels/quant.c reads them. */
static void put_scales(const struct block *b, uint8_t *out)
{
    memset(out, 0, 12);
    for (uint32_t j = 0; j < 4; j++) {
        const uint32_t s = (uint32_t)b->scales[j + 4], m = (uint32_t)b->leasts[j + 4];
        out[j] = (uint8_t)((uint32_t)b->scales[j] | s >> 4 << 6);
        out[j + 4] = (uint8_t)((uint32_t)b->leasts[j] | m >> 4 << 6);
        out[j + 8] = (uint8_t)((s & 15) | (m & 15) << 4);
    }
}

void k_block_ranged(const float *w, const float *weights, uint32_t bits, uint8_t *out)
{
    struct block b = {.scale_low = 0, .scale_high = 63};
    uint8_t codes[K_BLOCK_COLUMNS];
    begin(&b, w, weights, 8, 0, (1 << bits) - 1);
    choose(&b);
    codes_of(&b, codes);
    le_store_u16(out, k_f16_from_f32(b.d));
    le_store_u16(out + 2, k_f16_from_f32(b.d_least));
    put_scales(&b, out + 4);
    uint8_t *fifth = out + 16, *low = bits == 5 ? out + 48 : out + 16;
    if (bits == 5)
        memset(fifth, 0, 32);
    for (uint32_t k = 0; k < K_BLOCK_COLUMNS; k++) {
        uint8_t *byte = &low[k / 64 * 32 + k % 32];
        *byte = (uint8_t)(k % 64 < 32 ? codes[k] & 15 : *byte | (codes[k] & 15) << 4);
        if (bits == 5)
            fifth[k % 32] |= (uint8_t)((codes[k] >> 4) << k / 32);
    }
}

void k_block_signed(const float *w, const float *weights, uint8_t *out)
{
    struct block b = {.is_signed = true, .scale_low = -128, .scale_high = 127};
    uint8_t codes[K_BLOCK_COLUMNS];
    begin(&b, w, weights, 16, -32, 31);
    choose(&b);
    codes_of(&b, codes);
    memset(out, 0, 192);
    for (uint32_t k = 0; k < K_BLOCK_COLUMNS; k++) {
        const uint32_t half = k / 128, in = k % 128;
        out[half * 64 + in % 64] |= (uint8_t)((codes[k] & 15) << in / 64 * 4);
        out[128 + half * 32 + k % 32] |= (uint8_t)(codes[k] >> 4 << in / 32 * 2);
    }
    for (uint32_t j = 0; j < 16; j++)
        out[192 + j] = (uint8_t)(int8_t)b.scales[j];
    le_store_u16(out + 208, k_f16_from_f32(b.d));
}
