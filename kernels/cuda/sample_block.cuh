/* The basics of sampling: a block's shared memory, keys, weights, passes over a row, and reductions over threads
 * (sample.cu). */
#ifndef QUIRE_KERNELS_CUDA_SAMPLE_BLOCK_CUH
#define QUIRE_KERNELS_CUDA_SAMPLE_BLOCK_CUH

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/host/sample.h"
#include "kernels/math/exp.h"

#define MAX_THREADS 512u
#define MAX_WARPS 16u
#define UNROLL 8u /* logits that a thread has in flight: in two loads if rows are aligned */
#define BUCKET_BITS 11u
#define BUCKETS (1u << BUCKET_BITS)
static_assert(BUCKETS == SAMPLE_BUCKETS && MAX_WARPS == SAMPLE_PARTS,
              "what a survey finds is what a block has room for");
#define GROUPS (BUCKETS / 32u)
#define LIST SAMPLE_LIST /* keys, 64 KiB: with the histogram below, they fit the 99 KiB of every GPU */
#define FEW 256u /* maximum list that is ranked by comparing all pairs */
#define ONE_BITS 0x3f800000u
#define LEAST_BITS 0x2b000000u /* 2^-41: weights up to it are 0 in units of 2^-40 */

K_DYNAMIC_SHARED; /* the list */

/* ---- a block's shared memory ------------------------------------------------------------------- */

struct block_state {
    uint32_t low[BUCKETS], high[BUCKETS]; /* 64-bit sums in halves, because shared memory adds 32 bits at a time */
    uint64_t group[GROUPS]; /* sums of 32 buckets */
    uint64_t partial[MAX_WARPS];
    uint64_t segment[MAX_WARPS]; /* weights in each warp's part of the row */
    uint64_t found, need; /* results of one thread for all threads */
    double lse; /* §14, with the largest raw logit */
    float max;
    uint32_t n_list; /* keys in the list, including those that did not fit */
    uint32_t bad; /* a penalty turned a masked token into NaN or +inf */
    uint32_t top_ids[K_MAX_LOGPROBS];
    float top_logprobs[K_MAX_LOGPROBS];
};

/* The view of the row in a pass. */
struct view {
    const float *z;
    const uint32_t *mask; /* or NULL */
    uint32_t n;
    bool is_aligned; /* z is aligned to 16 bytes */
    uint32_t begin, end; /* the block's part of the row; the whole row in the sampling block */
    uint32_t segment; /* tokens per warp: a multiple of 32 */
    const struct sample_survey *survey; /* results of the weights' first passes, until these have run; or NULL */
    bool raw; /* keys are those of logits instead of weights */
    float temperature, max;
    uint64_t keep; /* smaller keys are excluded */
};

static __device__ __forceinline__ uint32_t lane_of()
{
    return threadIdx.x % 32;
}

static __device__ __forceinline__ uint32_t warp_of()
{
    return threadIdx.x / 32;
}

static __device__ __forceinline__ uint32_t n_warps()
{
    return blockDim.x / 32;
}

static __device__ __forceinline__ uint64_t *list()
{
    return (uint64_t *)k_shared;
}

/* ---- keys and weights -------------------------------------------------------------------------- */

static __device__ __forceinline__ float minus_inf()
{
    return k_f32_from_bits(0xff800000u);
}

static __device__ __forceinline__ bool is_usual(float z) /* neither NaN nor +inf */
{
    return z < k_f32_from_bits(0x7f800000u);
}

/* -0 counts as +0. */
static __device__ __forceinline__ uint32_t order(float z)
{
    uint32_t bits = k_f32_bits(z + 0.0f);
    return bits ^ ((0u - (bits >> 31)) | 0x80000000u);
}

static __device__ __forceinline__ uint64_t key_of(uint32_t order, uint32_t id)
{
    return (uint64_t)order << 32 | ~id;
}

static __device__ __forceinline__ uint32_t id_of(uint64_t key)
{
    return ~(uint32_t)key;
}

/* Converts w in [0, 1] to units of 2^-40, rounded to nearest even. Uses two sums that round to integers in their low
 * bits: the nearest multiple of 2^23 units, and the rest of w, which is exact and at most half as large. The first is a
 * multiple of an even number of units, so a tie stays a tie between the same two numbers. */
static __device__ __forceinline__ uint64_t fixed_point(float w)
{
    float high = fmaf(w, 0x1p17f, 0x1p23f);
    float low = fmaf(fmaf(w, 0x1p17f, 0x1p23f - high), 0x1p23f, 0x1.8p23f);
    const uint64_t bias = (UINT64_C(0x4b000000) << 23) + UINT64_C(0x4b400000);
    return ((uint64_t)k_f32_bits(high) << 23) + k_f32_bits(low) - bias;
}

static __device__ __forceinline__ float tempered(const struct view *v, float z)
{
    return v->temperature == 1.0f ? z : z / v->temperature;
}

/* Returns the weight of a logit divided by the temperature. No logit exceeds the largest. */
static __device__ __forceinline__ float weight(const struct view *v, float z)
{
    return k_exp_in_range(z - v->max);
}

/* Returns the contribution of a weight's key to a sum. */
static __device__ __forceinline__ uint64_t amount(uint64_t key, bool by_weight)
{
    return by_weight ? fixed_point(k_f32_from_bits((uint32_t)(key >> 32))) : 1;
}

/* ---- passes ------------------------------------------------------------------------------------ */

/* Calls f(id, z, is_there) for the tokens of [begin, end), where begin is a multiple of 32, and for padding up to a
 * whole number of rounds, with z = -inf. In a round each lane has four adjacent tokens at a time. If tokens are
 * weighed, z is divided by the temperature. Conditions that hold for a whole round are evaluated once per round. */
template <bool weighed, class F>
static __device__ __forceinline__ void each_token(const struct view *v, uint32_t begin, uint32_t end, F f)
{
    for (uint32_t first = begin; first < end; first += 32 * UNROLL) {
        float z[UNROLL];
        uint32_t own = first + 4 * lane_of();
        if (v->is_aligned && end - first >= 32 * UNROLL) {
#pragma unroll
            for (uint32_t u = 0; u < UNROLL; u += 4) {
                float4 four = *(const float4 *)(v->z + own + 32 * u);
                z[u] = four.x;
                z[u + 1] = four.y;
                z[u + 2] = four.z;
                z[u + 3] = four.w;
            }
        } else {
#pragma unroll
            for (uint32_t u = 0; u < UNROLL; u++) {
                uint32_t id = own + u / 4 * 128 + u % 4;
                z[u] = id < end ? v->z[id] : minus_inf();
            }
        }
        if (v->mask) {
#pragma unroll
            for (uint32_t u = 0; u < UNROLL; u++) {
                uint32_t id = own + u / 4 * 128 + u % 4;
                if (id < end && !(v->mask[id / 32] >> (id % 32) & 1u))
                    z[u] = minus_inf();
            }
        }
        if (weighed && v->temperature != 1.0f) {
#pragma unroll
            for (uint32_t u = 0; u < UNROLL; u++)
                z[u] = z[u] / v->temperature;
        }
#pragma unroll
        for (uint32_t u = 0; u < UNROLL; u++) {
            uint32_t id = own + u / 4 * 128 + u % 4;
            f(id, z[u], id < end);
        }
    }
}

/* Calls f for the tokens of the calling warp. */
template <bool weighed, class F> static __device__ __forceinline__ void each_own_token(const struct view *v, F f)
{
    uint32_t begin = v->begin + warp_of() * v->segment, end = begin + v->segment;
    each_token<weighed>(v, begin, end < v->end ? end : v->end, f);
}

/* ---- collective operations --------------------------------------------------------------------- */

static __device__ __forceinline__ uint64_t warp_sum(uint64_t x)
{
    for (int d = 16; d > 0; d /= 2)
        x += __shfl_xor_sync(~0u, x, d);
    return x;
}

static __device__ __forceinline__ uint64_t warp_max(uint64_t x)
{
    for (int d = 16; d > 0; d /= 2) {
        uint64_t other = __shfl_xor_sync(~0u, x, d);
        x = other > x ? other : x;
    }
    return x;
}

static __device__ __forceinline__ uint64_t block_sum(struct block_state *s, uint64_t x)
{
    x = warp_sum(x);
    __syncthreads();
    if (lane_of() == 0)
        s->partial[warp_of()] = x;
    __syncthreads();
    return warp_sum(lane_of() < n_warps() ? s->partial[lane_of()] : 0);
}

static __device__ __forceinline__ uint64_t block_max(struct block_state *s, uint64_t x)
{
    x = warp_max(x);
    __syncthreads();
    if (lane_of() == 0)
        s->partial[warp_of()] = x;
    __syncthreads();
    return warp_max(lane_of() < n_warps() ? s->partial[lane_of()] : 0);
}

/* Lanes hold the terms of a sum, in order. Returns the first lane at which the sum reaches *need, and subtracts the sum
 * before it from *need. Returns 32 if it does not reach it. */
static __device__ __forceinline__ uint32_t first_to_reach(uint64_t x, uint64_t *need)
{
    uint64_t sum = x;
    for (int d = 1; d < 32; d *= 2) {
        uint64_t before = __shfl_up_sync(~0u, sum, d);
        sum += lane_of() >= (uint32_t)d ? before : 0;
    }
    uint32_t reached = __ballot_sync(~0u, sum >= *need);
    int last = reached ? __ffs((int)reached) - 1 : 31;
    *need -= __shfl_sync(~0u, reached ? sum - x : sum, last);
    return reached ? (uint32_t)last : 32;
}

#endif
