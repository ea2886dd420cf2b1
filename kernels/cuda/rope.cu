/* RoPE angles, once per step, and their use in each layer: head norms, rotation, and storing K and V into the cache
 * (docs/internals/numerics.md §7 to §9), in one launch.
 *
 * Bytes per token: (2 Q + 2 KV) D floats of q, k and v, and 2 KV D numbers of the cache: 45 KB for 32 / 8 heads of 128.
 * So 512 tokens take 7 µs at 3.35 TB/s, and a decode step takes a launch. A rotation pairs elements D / 2 apart, and D
 * / 2 is a multiple of 8. A thread has four elements of the first half and their four partners, so all its reads are 16
 * bytes per access: elements, angles and norm weights, all issued at once. A head of 128 has 16 threads, half a warp.
 * Wider heads have a warp. Narrower ones leave threads idle, which costs nothing because bytes are the limit. The data
 * for an f16 cache is 8 bytes per half and thread: neighbours exchange them, so that one stores 16 bytes of the first
 * half and the other 16 bytes of the second. If the last numbers of a head are not rotated, the halves are those of the
 * rotated part, then those of the rest: a thread's two quads are apart by another distance, and everything else is as
 * before, because both parts are multiples of 16. In 8 bits it is 4 bytes per half and thread, stored directly, a quarter of
 * the bytes read; the threads of a head compute its maximum by shuffles.
 *
 * The arrays are aligned to 16 bytes, because alloc() aligns them and rows are multiples of 16 numbers.
 *
 * Only a head norm's sum needs shared memory: the elements of a lane are 16 apart. Thread j sums lane j, a chain of D /
 * 16 ≤ 16 fmas. Heads have 16 floats of padding there, so that the two heads of a warp read different banks.
 */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/check.h"
#include "kernels/math/activation.h"
#include "kernels/math/convert.h"
#include "kernels/math/lane_sum.h"
#include "kernels/math/round.h"
#include "kernels/math/sincos.h"

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
    /* Times 1 is exact. */
    ((float2 *)cos_sin)[(uint64_t)blockIdx.x * n_freqs + i] = make_float2(c * scale, s * scale);
}

/* For texts without an end: exact angles, and positions up to most_position, which larger ones count as. */
static __global__ void __launch_bounds__(ANGLE_THREADS)
    angles_far_kernel(const uint32_t *positions, const float *inv_freq, float *cos_sin, uint32_t n_freqs, float scale,
                      uint32_t most_position, bool is_exact)
{
    uint32_t i = blockIdx.y * ANGLE_THREADS + threadIdx.x;
    if (i >= n_freqs)
        return;
    float s, c;
    uint32_t position = min(positions[blockIdx.x], most_position);
    double angle = (double)((float)position * inv_freq[i]);
    if (is_exact)
        angle = (double)position * (double)inv_freq[i];
    k_sincos_wide(angle, &s, &c);
    ((float2 *)cos_sin)[(uint64_t)blockIdx.x * n_freqs + i] = make_float2(c * scale, s * scale);
}

cudaError_t launch_rope_angles(cudaStream_t stream, const struct k_rope_angles_args *a)
{
    dim3 grid(a->n_tokens, (a->n_freqs + ANGLE_THREADS - 1) / ANGLE_THREADS);
    if (a->exact || a->most_position != 0)
        return K_LAUNCH(angles_far_kernel, grid, dim3(ANGLE_THREADS), 0, stream, a->positions_dev, a->inv_freq_dev,
                        a->cos_sin_dev, a->n_freqs, a->scale, a->most_position != 0 ? a->most_position : UINT32_MAX,
                        a->exact);
    return K_LAUNCH(angles_kernel, grid, dim3(ANGLE_THREADS), 0, stream, a->positions_dev, a->inv_freq_dev,
                    a->cos_sin_dev, a->n_freqs, a->scale);
}

/* ---- head norm, rotation, and K and V into the cache ------------------------------------------ */

#define THREADS 128u
/* A thread has 8 elements, and each head 16 floats of padding. */
#define SHARED_FLOATS (8 * THREADS + 16 * (THREADS / K_LANES))

struct rope_kv {
    float *qkv;
    const float *q_norm, *k_norm, *cos_sin;
    const uint32_t *slots;
    void *k_cache, *v_cache;
    float eps;
    uint64_t block_bytes, scales_at;
    uint32_t n_q_heads, n_kv_heads, head_dim, block_tokens;
    uint32_t head_threads; /* 16, or 32 for heads wider than 128 */
    uint32_t n_fixed;
    float *sink_q; /* a second q, rotated by sink_cos_sin; only of the kernel with sinks */
    const float *sink_cos_sin;
};

/* Four neighbours of a head's first half, and their partners. */
struct quads {
    float4 low, high;
};

/* Where thread i's quads lie in a head. */
struct quad_place {
    uint32_t low, high;
    bool is_rotated;
};

static __device__ __forceinline__ struct quad_place place_of(uint32_t i, uint32_t head_dim, uint32_t n_fixed)
{
    const uint32_t n_rotated = head_dim - n_fixed, half = n_rotated / 2;
    if (4 * i < half)
        return {4 * i, half + 4 * i, true};
    const uint32_t low = n_rotated + 4 * i - half;
    return {low, low + n_fixed / 2, false};
}

static __device__ __forceinline__ struct quads load_quads(const float *head, const struct quad_place &at)
{
    return {*(const float4 *)(head + at.low), *(const float4 *)(head + at.high)};
}

/* Returns the folded lane sum of the head's squares to every thread of the head. All threads of a block call it
 * together. */
static __device__ __forceinline__ float sum_squares(float *shared, const struct quads &v, bool is_there, uint32_t i,
                                                    const struct quad_place &at, uint32_t head_dim)
{
    float s = 0.0f;
    if (is_there) {
        *(float4 *)(shared + at.low) = v.low;
        *(float4 *)(shared + at.high) = v.high;
    }
    __syncwarp();
#pragma unroll
    for (uint32_t k = 0; k < K_MAX_HEAD_DIM / K_LANES; k++) {
        if (k * K_LANES < head_dim) {
            float x = shared[k * K_LANES + i % K_LANES];
            s = fmaf(x, x, s);
        }
    }
#pragma unroll
    for (uint32_t apart = K_LANES / 2; apart > 0; apart /= 2)
        s = s + __shfl_xor_sync(~0u, s, apart);
    return s;
}

static __device__ __forceinline__ float4 normed(float4 x, float rs, float4 weight)
{
    return make_float4((x.x * rs) * weight.x, (x.y * rs) * weight.y, (x.z * rs) * weight.z, (x.w * rs) * weight.w);
}

static __device__ __forceinline__ void rotate(float &low, float &high, float c, float s)
{
    float x = low, y = high;
    low = fmaf(-y, s, x * c);
    high = fmaf(x, s, y * c);
}

static __device__ __forceinline__ void rotate_quads(struct quads &v, const float4 (&angles)[2])
{
    rotate(v.low.x, v.high.x, angles[0].x, angles[0].y);
    rotate(v.low.y, v.high.y, angles[0].z, angles[0].w);
    rotate(v.low.z, v.high.z, angles[1].x, angles[1].y);
    rotate(v.low.w, v.high.w, angles[1].z, angles[1].w);
}

/* Stores the thread's part of the query for the positions of attention sinks. v: of q, after its head norm. */
static __device__ __forceinline__ void store_sink_q(const struct rope_kv &a, uint32_t head, uint32_t i,
                                                    const struct quad_place &at, struct quads v)
{
    float *to = a.sink_q + ((uint64_t)blockIdx.x * a.n_q_heads + head) * a.head_dim;
    if (at.is_rotated) {
        const float4 *from = (const float4 *)(a.sink_cos_sin + (uint64_t)blockIdx.x * (a.head_dim - a.n_fixed)) + 2 * i;
        const float4 angles[2] = {from[0], from[1]};
        rotate_quads(v, angles);
    }
    *(float4 *)(to + at.low) = v.low;
    *(float4 *)(to + at.high) = v.high;
}

static __device__ __forceinline__ uint32_t halves(float low, float high)
{
    return k_f16_from_f32(low) | (uint32_t)k_f16_from_f32(high) << 16;
}

static __device__ __forceinline__ uint32_t larger_bits(uint32_t most, const float4 &x)
{
    most = max(most, max(k_f32_bits(x.x) & 0x7fffffffu, k_f32_bits(x.y) & 0x7fffffffu));
    return max(most, max(k_f32_bits(x.z) & 0x7fffffffu, k_f32_bits(x.w) & 0x7fffffffu));
}

template <enum k_dtype kind> static __device__ __forceinline__ uint32_t byte_of(float x, float factor)
{
    if (kind == K_INT)
        return (uint8_t)k_round_int8(x, factor);
    return kind == K_E4M3 ? k_e4m3_from_f32(k_kv_bounded(x, factor, K_KV_TOP_E4M3))
                          : k_e5m2_from_f32(k_kv_bounded(x, factor, K_KV_TOP_E5M2));
}

template <enum k_dtype kind> static __device__ __forceinline__ uint32_t bytes_of(const float4 &x, float factor)
{
    return byte_of<kind>(x.x, factor) | byte_of<kind>(x.y, factor) << 8 | byte_of<kind>(x.z, factor) << 16 |
           byte_of<kind>(x.w, factor) << 24;
}

/* Stores the thread's quads in the cache's head as bytes, and the head's scale. All threads of a head call it
 * together. */
template <enum k_dtype kind>
static __device__ __forceinline__ void store_bytes(unsigned char *head, float *scale, const struct quads &v,
                                                   bool is_there, uint32_t i, const struct quad_place &at,
                                                   uint32_t head_threads)
{
    const float top = kind == K_INT ? K_KV_TOP_INT8 : kind == K_E4M3 ? K_KV_TOP_E4M3 : K_KV_TOP_E5M2;
    uint32_t lanes = head_threads == 32 ? ~0u : 0xffffu << (threadIdx.x & 16);
    uint32_t most = is_there ? larger_bits(larger_bits(0, v.low), v.high) : 0;
    for (uint32_t apart = head_threads / 2; apart > 0; apart /= 2)
        most = max(most, __shfl_xor_sync(lanes, most, apart));
    if (i == 0)
        *scale = k_kv_scale(k_f32_from_bits(most), top);
    if (!is_there)
        return;
    const float factor = k_kv_factor(k_f32_from_bits(most), top);
    *(uint32_t *)(head + at.low) = bytes_of<kind>(v.low, factor);
    *(uint32_t *)(head + at.high) = bytes_of<kind>(v.high, factor);
}

/* Stores the thread's quads in the cache's head, each number rounded once. All threads of a head call it together. */
template <enum k_dtype dtype>
static __device__ __forceinline__ void store_quads(unsigned char *to, const struct quads &v, bool is_there, uint32_t i,
                                                   const struct quad_place &at, uint32_t head_threads)
{
    if (dtype == K_F32) {
        float *head = (float *)to;
        if (is_there) {
            *(float4 *)(head + at.low) = v.low;
            *(float4 *)(head + at.high) = v.high;
        }
        return;
    }
    uint2 low = make_uint2(halves(v.low.x, v.low.y), halves(v.low.z, v.low.w));
    uint2 high = make_uint2(halves(v.high.x, v.high.y), halves(v.high.z, v.high.w));
    bool is_odd = i % 2 != 0; /* stores the second half of the pair's data */
    uint32_t lanes = head_threads == 32 ? ~0u : 0xffffu << (threadIdx.x & 16);
    uint2 mine = is_odd ? high : low, others = is_odd ? low : high;
    others.x = __shfl_xor_sync(lanes, others.x, 1);
    others.y = __shfl_xor_sync(lanes, others.y, 1);
    uint16_t *head = (uint16_t *)to + (is_odd ? at.high - 4 : at.low); /* the pair's quads are neighbours */
    if (is_there)
        *(uint4 *)head = is_odd ? make_uint4(others.x, others.y, mine.x, mine.y)
                                : make_uint4(mine.x, mine.y, others.x, others.y);
}

template <enum k_dtype dtype, bool has_sinks>
static __device__ __forceinline__ void rope_kv(float *shared, const struct rope_kv &a)
{
    uint32_t mine = threadIdx.x / a.head_threads, i = threadIdx.x % a.head_threads;
    uint32_t n_heads = a.n_q_heads + 2 * a.n_kv_heads, index = blockIdx.y * (THREADS / a.head_threads) + mine;
    uint32_t half = a.head_dim / 2;
    uint32_t head_index = min(index, n_heads - 1); /* all threads of a warp take part in the sums */
    bool is_q = head_index < a.n_q_heads, is_v = head_index >= a.n_q_heads + a.n_kv_heads, is_there = 4 * i < half;
    const float *norm = is_v ? NULL : is_q ? a.q_norm : a.k_norm;
    float *head = a.qkv + ((uint64_t)blockIdx.x * n_heads + head_index) * a.head_dim;
    uint32_t slot = a.slots[blockIdx.x];
    const struct quad_place at = place_of(i, a.head_dim, a.n_fixed);
    struct quads v = {}, weight = {};
    float4 angles[2] = {};
    if (is_there) {
        v = load_quads(head, at);
        if (!is_v && at.is_rotated) {
            const float4 *from = (const float4 *)(a.cos_sin + (uint64_t)blockIdx.x * (a.head_dim - a.n_fixed)) + 2 * i;
            angles[0] = from[0];
            angles[1] = from[1];
        }
        if (norm)
            weight = load_quads(norm, at);
    }
    float squares = 0.0f;
    if (a.q_norm || a.k_norm)
        squares = sum_squares(shared + mine * (8 * a.head_threads + K_LANES), v, is_there, i, at, a.head_dim);
    if (index >= n_heads || (!is_q && slot == K_NO_SLOT)) /* the same for all threads of the head */
        return;
    if (norm) {
        float rs = k_rsqrt(squares / (float)a.head_dim + a.eps);
        v.low = normed(v.low, rs, weight.low);
        v.high = normed(v.high, rs, weight.high);
    }
    if (has_sinks && is_q && is_there)
        store_sink_q(a, head_index, i, at, v);
    if (!is_v && at.is_rotated)
        rotate_quads(v, angles);
    if (is_q) {
        if (is_there) {
            *(float4 *)(head + at.low) = v.low;
            *(float4 *)(head + at.high) = v.high;
        }
        return;
    }
    uint32_t kv_head = head_index - a.n_q_heads - (is_v ? a.n_kv_heads : 0);
    uint32_t row = kv_head * a.block_tokens + slot % a.block_tokens;
    unsigned char *block = (unsigned char *)(is_v ? a.v_cache : a.k_cache) + slot / a.block_tokens * a.block_bytes;
    if constexpr (dtype == K_F32 || dtype == K_F16)
        store_quads<dtype>(block + (uint64_t)row * (a.head_dim * (dtype == K_F32 ? 4 : 2)), v, is_there, i, at,
                           a.head_threads);
    else
        store_bytes<dtype>(block + (uint64_t)row * a.head_dim, (float *)(block + a.scales_at) + row, v, is_there, i, at,
                           a.head_threads);
}

template <enum k_dtype dtype> static __global__ void __launch_bounds__(THREADS) rope_kv_kernel(struct rope_kv a)
{
    __shared__ __align__(16) float shared[SHARED_FLOATS];
    rope_kv<dtype, false>(shared, a);
}

template <enum k_dtype dtype> static __global__ void __launch_bounds__(THREADS) rope_kv_sinks_kernel(struct rope_kv a)
{
    __shared__ __align__(16) float shared[SHARED_FLOATS];
    rope_kv<dtype, true>(shared, a);
}

template <enum k_dtype dtype> static cudaError_t launch_of(cudaStream_t stream, dim3 grid, const struct rope_kv &a)
{
    const dim3 block(THREADS);
    return a.sink_q != NULL ? K_LAUNCH(rope_kv_sinks_kernel<dtype>, grid, block, 0, stream, a)
                            : K_LAUNCH(rope_kv_kernel<dtype>, grid, block, 0, stream, a);
}

cudaError_t launch_rope_kv(cudaStream_t stream, const struct k_rope_kv_args *a)
{
    const struct k_kv_shape *kv = a->kv;
    uint32_t head_threads = kv->head_dim > 128 ? 2 * K_LANES : K_LANES, in_block = THREADS / head_threads;
    struct rope_kv args = {a->qkv_dev,           a->q_norm_dev,      a->k_norm_dev,   a->cos_sin_dev,
                           a->slots_dev,         a->layer->k_dev,    a->layer->v_dev, a->eps,
                           k_kv_block_bytes(kv), k_kv_scales_at(kv), a->n_q_heads,    kv->n_kv_heads,
                           kv->head_dim,         kv->block_tokens,   head_threads,    a->n_fixed,
                           a->sink_q_dev,        a->sink_cos_sin_dev};
    const dim3 grid(a->n_tokens, (a->n_q_heads + 2 * kv->n_kv_heads + in_block - 1) / in_block);
    switch (kv->format.kind) {
    case K_F32: return launch_of<K_F32>(stream, grid, args);
    case K_F16: return launch_of<K_F16>(stream, grid, args);
    case K_INT: return launch_of<K_INT>(stream, grid, args);
    case K_E4M3: return launch_of<K_E4M3>(stream, grid, args);
    default: return launch_of<K_E5M2>(stream, grid, args);
    }
}
