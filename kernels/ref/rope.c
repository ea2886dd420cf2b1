#include "kernels/args/rope.h"
#include "kernels/math/bits.h"
#include "kernels/math/convert.h"
#include "kernels/math/round.h"
#include "kernels/math/sincos.h"
#include "kernels/ref/ref.h"

#include <string.h>

/* ---- angles ---------------------------------------------------------------------------------- */

static void angles_task(void *context, struct k_piece piece)
{
    const struct k_rope_angles_args *a = context;
    uint64_t begin, end;
    k_pool_share(a->n_tokens, piece, &begin, &end);
    for (uint64_t t = begin; t < end; t++) {
        uint32_t at = a->positions_dev[t];
        if (a->most_position != 0 && at > a->most_position)
            at = a->most_position;
        const float position = (float)at;
        float *out = a->cos_sin_dev + t * a->n_freqs * 2;
        for (uint32_t i = 0; i < a->n_freqs; i++) {
            float s, c;
            if (a->exact)
                k_sincos_wide((double)at * (double)a->inv_freq_dev[i], &s, &c);
            else
                k_sincos(position * a->inv_freq_dev[i], &s, &c);
            out[2 * i] = c;
            out[2 * i + 1] = s;
        }
        if (a->scale != 1.0f) {
            for (uint32_t i = 0; i < 2 * a->n_freqs; i++)
                out[i] *= a->scale;
        }
    }
}

int ref_rope_angles(struct k_backend *b, const struct k_rope_angles_args *a, struct quire_error *err)
{
    (void)err;
    struct k_rope_angles_args args = *a;
    host_run(b, (uint64_t)a->n_tokens * a->n_freqs * 32, angles_task, &args);
    return QUIRE_OK;
}

/* ---- head norm, rotation, and K and V into the cache ----------------------------------------- */

static void rotate_head(float *restrict v, const float *restrict cos_sin, uint32_t half)
{
    for (uint32_t i = 0; i < half; i++) {
        float c = cos_sin[2 * i], s = cos_sin[2 * i + 1];
        float a = v[i], b = v[i + half];
        v[i] = __builtin_fmaf(-b, s, a * c);
        v[i + half] = __builtin_fmaf(a, s, b * c);
    }
}

/* Returns the largest |v_i|, compared as bits, so a NaN is the largest. */
static float largest(const float *v, uint32_t n)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits = k_f32_bits(v[i]) & 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    return k_f32_from_bits(most);
}

/* Stores a head's vector as bytes and returns their scale (docs/internals/numerics.md §9). */
static float store_bytes(uint8_t *restrict out, enum k_dtype kind, const float *restrict v, uint32_t n)
{
    const float top = kind == K_INT ? K_KV_TOP_INT8 : kind == K_E4M3 ? K_KV_TOP_E4M3 : K_KV_TOP_E5M2;
    const float most = largest(v, n), factor = k_kv_factor(most, top);
    for (uint32_t i = 0; i < n; i++)
        out[i] = kind == K_INT    ? (uint8_t)k_round_int8(v[i], factor)
                 : kind == K_E4M3 ? k_e4m3_from_f32(k_kv_bounded(v[i], factor, top))
                                  : k_e5m2_from_f32(k_kv_bounded(v[i], factor, top));
    return k_kv_scale(most, top);
}

/* Stores one head's vector at its position in a block, rounded once to the cache's format. row: (head, offset) within
 * the block. */
static void store_head(void *cache, const struct k_kv_shape *kv, uint64_t block, uint64_t row, const float *restrict v)
{
    const uint32_t n = kv->head_dim;
    unsigned char *to = (unsigned char *)cache + block * k_kv_block_bytes(kv);
    if (kv->format.kind == K_F32) {
        memcpy((float *)(void *)to + row * n, v, (size_t)n * sizeof *v);
    } else if (kv->format.kind == K_F16) {
        uint16_t *restrict out = (uint16_t *)(void *)to + row * n;
        for (uint32_t i = 0; i < n; i++)
            out[i] = k_f16_from_f32(v[i]);
    } else {
        float *scales = (void *)(to + k_kv_scales_at(kv));
        scales[row] = store_bytes(to + row * n, kv->format.kind, v, n);
    }
}

static void rope_kv_token(const struct k_rope_kv_args *a, uint64_t t)
{
    uint32_t head_dim = a->kv->head_dim, n_kv = a->kv->n_kv_heads, half = (head_dim - a->n_fixed) / 2;
    float *q = a->qkv_dev + t * (a->n_q_heads + 2 * (uint64_t)n_kv) * head_dim;
    float *k = q + (uint64_t)a->n_q_heads * head_dim;
    float *v = k + (uint64_t)n_kv * head_dim;
    const float *cos_sin = a->cos_sin_dev + t * half * 2;
    for (uint32_t h = 0; h < a->n_q_heads; h++) {
        float *head = q + (uint64_t)h * head_dim;
        if (a->q_norm_dev)
            ref_rmsnorm_row(head, a->q_norm_dev, head, head_dim, a->eps);
        if (a->sink_q_dev) {
            float *to = a->sink_q_dev + (t * a->n_q_heads + h) * head_dim;
            memcpy(to, head, head_dim * sizeof *to);
            rotate_head(to, a->sink_cos_sin_dev + t * half * 2, half);
        }
        rotate_head(head, cos_sin, half);
    }
    if (a->slots_dev[t] == K_NO_SLOT)
        return;
    uint64_t block = a->slots_dev[t] / a->kv->block_tokens;
    uint64_t offset = a->slots_dev[t] % a->kv->block_tokens;
    for (uint32_t h = 0; h < n_kv; h++) {
        float rotated[K_MAX_HEAD_DIM];
        const float *head = k + (uint64_t)h * head_dim;
        if (a->k_norm_dev)
            ref_rmsnorm_row(head, a->k_norm_dev, rotated, head_dim, a->eps);
        else
            memcpy(rotated, head, head_dim * sizeof *rotated);
        rotate_head(rotated, cos_sin, half);
        uint64_t row = (uint64_t)h * a->kv->block_tokens + offset;
        store_head(a->layer->k_dev, a->kv, block, row, rotated);
        store_head(a->layer->v_dev, a->kv, block, row, v + (uint64_t)h * head_dim);
    }
}

static void rope_kv_task(void *context, struct k_piece piece)
{
    const struct k_rope_kv_args *a = context;
    uint64_t begin, end;
    k_pool_share(a->n_tokens, piece, &begin, &end);
    for (uint64_t t = begin; t < end; t++)
        rope_kv_token(a, t);
}

int ref_rope_kv(struct k_backend *b, const struct k_rope_kv_args *a, struct quire_error *err)
{
    const struct k_kv_shape *kv = a->kv;
    int status = k_check_kv_shape("rope", kv, err);
    if (status == QUIRE_OK)
        status = k_check_rotation(a, err);
    if (status != QUIRE_OK)
        return status;
    struct k_rope_kv_args args = *a;
    uint64_t width = (uint64_t)(a->n_q_heads + kv->n_kv_heads) * kv->head_dim;
    host_run(b, a->n_tokens * width * 4, rope_kv_task, &args);
    return QUIRE_OK;
}
