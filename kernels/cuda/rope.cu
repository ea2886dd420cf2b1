/* RoPE angles, once a step, and what is done with them in each layer: head norms, rotation, K and V into the cache
 * (docs/numerics.md §7 to §9), in one launch.
 *
 * Bytes a token: (2 Q + 2 KV) D floats of q, k and v, and 2 KV D numbers of the cache: 45 KB for 32 / 8 heads of 128, so 512
 * tokens take 7 µs at 3.35 TB/s, and a decode step takes a launch. Half a warp has a head: 16 threads are the 16 lanes of the
 * head norm's sum, a chain of D / 16 ≤ 16 fmas, and read 64 bytes in a row at a time. A rotation pairs elements D / 2 apart, which
 * are one thread's only where D / 2 is a multiple of 16 (not for heads of 80), so a head passes through shared memory. All that a thread
 * reads it asks for at once. */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/check.h"

/* ---- angles ---------------------------------------------------------------------------------- */

#define ANGLE_THREADS 128u

static __global__ void __launch_bounds__(ANGLE_THREADS)
    angles_kernel(const uint32_t *positions, const float *inv_freq, float *cos_sin, uint32_t n_freqs, float scale)
{
    uint32_t i = blockIdx.y * ANGLE_THREADS + threadIdx.x;
    if (i >= n_freqs)
        return;
    float s, c;
    k_sincos((float)positions[blockIdx.x] * inv_freq[i], &s, &c);
    float *out = cos_sin + ((uint64_t)blockIdx.x * n_freqs + i) * 2;
    out[0] = c * scale; /* times 1 is exact */
    out[1] = s * scale;
}

cudaError_t launch_rope_angles(cudaStream_t stream, const struct k_rope_angles_args *a)
{
    dim3 grid(a->n_tokens, (a->n_freqs + ANGLE_THREADS - 1) / ANGLE_THREADS);
    return K_LAUNCH(angles_kernel, grid, dim3(ANGLE_THREADS), 0, stream, a->positions_dev, a->inv_freq_dev,
                    a->cos_sin_dev, a->n_freqs, a->scale);
}

/* ---- head norm, rotation, and K and V into the cache ------------------------------------------ */

#define HEADS 8u /* of one token in a block: half a warp each */
#define PAIRS (K_MAX_HEAD_DIM / 2 / K_LANES) /* that a thread rotates, at most */

struct rope_kv {
    float *qkv;
    const float *q_norm, *k_norm, *cos_sin;
    const uint32_t *slots;
    void *k_cache, *v_cache;
    float eps;
    uint32_t n_q_heads, n_kv_heads, head_dim, block_tokens;
};

/* Element i of a head in the cache: one rounding. */
template <enum k_dtype dtype> static __device__ __forceinline__ void store(void *cache, uint64_t element, float v)
{
    if (dtype == K_F32)
        ((float *)cache)[element] = v;
    else
        ((uint16_t *)cache)[element] = k_f16_from_f32(v);
}

/* A thread's pairs, lane + 16 i and that + D / 2: their angles and norm weights. */
struct pairs {
    float c[PAIRS], s[PAIRS], low[PAIRS], high[PAIRS];
};

static __device__ __forceinline__ void load_pairs(struct pairs *p, const float *cos_sin, const float *norm,
                                                  uint32_t half, uint32_t lane)
{
#pragma unroll
    for (uint32_t i = 0; i < PAIRS; i++) {
        uint32_t at = i * K_LANES + lane;
        if (at < half) {
            p->c[i] = cos_sin[2 * at];
            p->s[i] = cos_sin[2 * at + 1];
            p->low[i] = norm ? norm[at] : 1.0f;
            p->high[i] = norm ? norm[at + half] : 1.0f;
        }
    }
}

/* The head's elements into shared memory; the 16 lane sums of their squares, folded, are every thread's. */
static __device__ __forceinline__ float load_head(float *shared, const float *head, uint32_t head_dim, uint32_t lane)
{
    float v[2 * PAIRS], s = 0.0f;
#pragma unroll
    for (uint32_t i = 0; i < 2 * PAIRS; i++)
        if (i * K_LANES < head_dim)
            v[i] = head[i * K_LANES + lane];
#pragma unroll
    for (uint32_t i = 0; i < 2 * PAIRS; i++) {
        if (i * K_LANES < head_dim) {
            s = fmaf(v[i], v[i], s);
            shared[i * K_LANES + lane] = v[i];
        }
    }
#pragma unroll
    for (uint32_t apart = K_LANES / 2; apart > 0; apart /= 2)
        s = s + __shfl_xor_sync(~0u, s, apart, K_LANES);
    return s;
}

template <enum k_dtype dtype> static __global__ void __launch_bounds__(HEADS *K_LANES) rope_kv_kernel(struct rope_kv a)
{
    __shared__ float shared[HEADS][K_MAX_HEAD_DIM];
    uint32_t mine = threadIdx.x / K_LANES, lane = threadIdx.x % K_LANES;
    uint32_t n_heads = a.n_q_heads + 2 * a.n_kv_heads, index = blockIdx.y * HEADS + mine;
    uint32_t half = a.head_dim / 2;
    uint32_t head_index = min(index, n_heads - 1); /* all of a warp take part in the sums */
    bool is_q = head_index < a.n_q_heads, is_v = head_index >= a.n_q_heads + a.n_kv_heads;
    const float *norm = is_q ? a.q_norm : a.k_norm;
    float *head = a.qkv + ((uint64_t)blockIdx.x * n_heads + head_index) * a.head_dim;
    float *v = shared[mine];
    struct pairs p;
    uint32_t slot = a.slots[blockIdx.x];
    if (!is_v)
        load_pairs(&p, a.cos_sin + (uint64_t)blockIdx.x * a.head_dim, norm, half, lane);
    float squares = load_head(v, head, a.head_dim, lane);
    __syncwarp();
    if (index >= n_heads || (!is_q && slot == K_NO_SLOT))
        return;
    uint32_t kv_head = head_index - a.n_q_heads - (is_v ? a.n_kv_heads : 0); /* of k and v */
    uint64_t element = (((uint64_t)(slot / a.block_tokens) * a.n_kv_heads + kv_head) * a.block_tokens +
                        slot % a.block_tokens) *
                       a.head_dim;
    if (is_v) {
        for (uint32_t d = lane; d < a.head_dim; d += K_LANES)
            store<dtype>(a.v_cache, element + d, v[d]);
        return;
    }
    float rs = k_rsqrt(squares / (float)a.head_dim + a.eps);
#pragma unroll
    for (uint32_t i = 0; i < PAIRS; i++) {
        uint32_t at = i * K_LANES + lane;
        if (at >= half)
            continue;
        float x = v[at], y = v[at + half];
        if (norm) {
            x = (x * rs) * p.low[i];
            y = (y * rs) * p.high[i];
        }
        float low = fmaf(-y, p.s[i], x * p.c[i]), high = fmaf(x, p.s[i], y * p.c[i]);
        if (is_q) {
            head[at] = low;
            head[at + half] = high;
        } else {
            store<dtype>(a.k_cache, element + at, low);
            store<dtype>(a.k_cache, element + at + half, high);
        }
    }
}

cudaError_t launch_rope_kv(cudaStream_t stream, const struct k_rope_kv_args *a)
{
    const struct k_kv_shape *kv = a->kv;
    struct rope_kv args = {a->qkv_dev,   a->q_norm_dev,   a->k_norm_dev,   a->cos_sin_dev,
                           a->slots_dev, a->layer->k_dev, a->layer->v_dev, a->eps,
                           a->n_q_heads, kv->n_kv_heads,  kv->head_dim,    kv->block_tokens};
    dim3 grid(a->n_tokens, (a->n_q_heads + 2 * kv->n_kv_heads + HEADS - 1) / HEADS), block(HEADS * K_LANES);
    if (kv->format.kind == K_F32)
        return K_LAUNCH(rope_kv_kernel<K_F32>, grid, block, 0, stream, args);
    return K_LAUNCH(rope_kv_kernel<K_F16>, grid, block, 0, stream, args);
}
