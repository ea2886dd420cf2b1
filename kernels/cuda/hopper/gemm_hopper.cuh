/* The kernel of gemm_hopper.cu. A block multiplies 128 rows of weights with some tokens, 64 columns a stage, from a
 * ring in shared memory. One warp copies (TMA: one instruction a tile), and two warpgroups multiply (wgmma: 64 rows
 * each, factors from shared memory). No thread moves a factor through registers, which is the limit of
 * gemm_large.cu. A block is persistent and goes from tile to tile; while it stores its sums, the next tile's stages
 * arrive.
 *
 * Two blocks may form a cluster (is_pair): they have neighbouring rows and the same tokens, and each copies one half
 * of the tokens for both.
 *
 * The sums equal gemm_large.cu's to the bit. A chunk of 512 columns is a chain of products from zero, chunks are
 * added in ascending order, and segments by the tree of docs/internals/numerics.md §5. Columns after the end of the
 * matrix are zeros, which change no sum.
 *
 * If gated, a tile has 8 rows of gate and the same 8 rows of up in turn, so one thread has both factors of an
 * output. */
#ifndef QUIRE_KERNELS_CUDA_HOPPER_GEMM_HOPPER_CUH
#define QUIRE_KERNELS_CUDA_HOPPER_GEMM_HOPPER_CUH

#include "kernels/cuda/factors.cuh"
#include "kernels/cuda/hopper/gemm_hopper.h"
#include "kernels/cuda/hopper/ptx.cuh"
#include "kernels/math/gate.h"
#include "kernels/segments.h"

#define HOPPER_FN static __device__ __forceinline__

#define HOPPER_ROWS 128u /* rows of a tile */
#define HOPPER_COLS 64u /* columns of a stage */
#define HOPPER_CHUNK 512u
#define HOPPER_THREADS 384u /* two warpgroups multiply; the first warp of a third one copies */

struct hopper_args {
    const int8_t *exponents; /* NULL: every exponent is 0 */
    const float *bias; /* may be NULL */
    float *y;
    float4 *waiting; /* three sets of sums of segments per block */
    uint32_t n_y; /* rows of y; a gated GEMM has twice as many rows of weights */
    uint32_t n_tokens, n_row_tiles, n_token_tiles; /* is_pair: n_row_tiles counts pairs of row tiles */
    uint32_t group; /* token tiles that share one read of the weights */
    bool y_is_factors;
    bool one_chunk; /* no segment is longer than a chunk */
    struct k_gate gate; /* gated */
    uint32_t begins[K_SEGMENTS + 1]; /* first column of each segment; without segments, the first has all columns */
};

template <uint32_t tokens, uint32_t stages, enum hopper_kind kind, bool pair> struct hopper_shape {
    static constexpr uint32_t n_tokens = tokens, n_stages = stages, n_sums = tokens / 2;
    static constexpr bool is_pair = pair, is_gated = kind == HOPPER_GATED, has_tails = kind == HOPPER_TAILS;
    static constexpr bool is_segmented = kind == HOPPER_SEGMENTS || kind == HOPPER_TAILS;
    static constexpr uint32_t n_segments = is_segmented ? K_SEGMENTS : 1;
    static constexpr uint32_t weight_bytes = HOPPER_ROWS * 128, token_bytes = tokens * 128;
    static constexpr uint32_t stage_bytes = weight_bytes + token_bytes;
    static constexpr uint32_t shared_bytes = 1024 + stages * stage_bytes +
                                             16 * stages; /* 1024: to align to a multiple of it */
    static constexpr uint32_t waiting_bytes = 3 * HOPPER_ROWS * tokens * 4;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- the ring ---- */

/* State that both sides step through in the same order. Barriers: "full" of each stage, then "empty" of each. */
struct hopper_ring {
    uint32_t tiles, barriers; /* addresses in shared memory */
    uint32_t slot, parity;
};

template <class shape> HOPPER_FN struct hopper_ring hopper_ring_of(const void *shared)
{
    const uint32_t tiles = (ptx_shared_address(shared) + 1023) & ~1023u;
    struct hopper_ring r = {tiles, tiles + shape::n_stages * shape::stage_bytes, 0, 0};
    return r;
}

template <class shape> HOPPER_FN void hopper_next(struct hopper_ring &r)
{
    r.slot = r.slot + 1 == shape::n_stages ? 0 : r.slot + 1;
    r.parity ^= r.slot == 0;
}

/* One thread, before all others. A stage is empty after each of the 8 warps of both blocks has arrived. */
template <class shape> HOPPER_FN void hopper_init(const struct hopper_ring &r)
{
    for (uint32_t i = 0; i < shape::n_stages; i++) {
        mbarrier_init(r.barriers + 8 * i, 1);
        mbarrier_init(r.barriers + 8 * (shape::n_stages + i), shape::is_pair ? 16 : 8);
    }
    mbarrier_init_fence();
}

/* ---- tiles ---- */

struct hopper_place {
    uint32_t tile, token; /* rows from 128 x tile on, tokens from `token` on */
};

template <class shape>
HOPPER_FN struct hopper_place hopper_place_of(const struct hopper_args &a, uint32_t item, uint32_t rank)
{
    const uint32_t group = item / (a.n_row_tiles * a.group), in_group = item % (a.n_row_tiles * a.group);
    const uint32_t width = min(a.n_token_tiles - group * a.group, a.group), row = in_group / width;
    struct hopper_place p = {shape::is_pair ? row * 2 + rank : row,
                             (group * a.group + in_group % width) * shape::n_tokens};
    return p;
}

/* ---- the copying warp ---- */

template <class shape>
HOPPER_FN void hopper_copy(const CUtensorMap *weights, const CUtensorMap *factors, const struct hopper_ring &r,
                           const struct hopper_place &p, uint32_t col, uint32_t rank)
{
    mbarrier_wait(r.barriers + 8 * (shape::n_stages + r.slot), r.parity ^ 1);
    const uint32_t full = r.barriers + 8 * r.slot, to = r.tiles + r.slot * shape::stage_bytes;
    mbarrier_expect(full, shape::stage_bytes);
    if (shape::is_gated)
        copy_box_4d(to, weights, full, col, 0, 0, p.tile * (HOPPER_ROWS / 16));
    else
        copy_box(to, weights, full, col, p.tile * HOPPER_ROWS);
    const uint32_t half = rank * (shape::n_tokens / 2);
    if (shape::is_pair)
        copy_box_to_both(to + shape::weight_bytes + half * 128, factors, full, col, p.token + half);
    else
        copy_box(to + shape::weight_bytes, factors, full, col, p.token);
}

/* One thread. */
template <class shape>
HOPPER_FN void hopper_copy_all(const CUtensorMap *weights, const CUtensorMap *factors, const struct hopper_args &a,
                               struct hopper_ring r, uint32_t first, uint32_t step, uint32_t rank)
{
    for (uint32_t item = first; item < a.n_row_tiles * a.n_token_tiles; item += step) {
        const struct hopper_place p = hopper_place_of<shape>(a, item, rank);
#pragma unroll 1
        for (uint32_t i = 0; i < shape::n_segments; i++)
#pragma unroll 1
            for (uint32_t col = a.begins[i]; col < a.begins[i + 1]; col += HOPPER_COLS, hopper_next<shape>(r))
                hopper_copy<shape>(weights, factors, r, p, col, rank);
    }
}

/* ---- the multiplying warpgroups ---- */

template <class shape> using hopper_sums = float[shape::n_sums];

/* Each warp signals to each block that the previous stage has been read. */
template <class shape> HOPPER_FN void hopper_release(const struct hopper_ring &r)
{
    const uint32_t before = r.slot == 0 ? shape::n_stages - 1 : r.slot - 1, lane = threadIdx.x % 32;
    const uint32_t empty = r.barriers + 8 * (shape::n_stages + before);
    if (shape::is_pair) {
        if (lane < 2)
            mbarrier_arrive_at(empty, lane);
    } else if (lane == 0) {
        mbarrier_arrive(empty);
    }
}

/* Adds the products of the stage's first n_steps x 16 columns to c; without tails, of all its columns. */
template <class shape>
HOPPER_FN void hopper_multiply(hopper_sums<shape> &c, struct hopper_ring &r, uint64_t rows, uint64_t tokens,
                               bool is_first, uint32_t n_steps)
{
    mbarrier_wait(r.barriers + 8 * r.slot, r.parity);
    const uint64_t at = r.slot * (shape::stage_bytes / 16);
    wgmma_fence();
#pragma unroll
    for (uint32_t k = 0; k < HOPPER_COLS / 16; k++)
        if (!shape::has_tails || k < n_steps)
            wgmma<shape::n_tokens>::add(c, rows + at + k * 2, tokens + at + k * 2, k > 0 || !is_first);
    wgmma_commit();
    if (!is_first) {
        wgmma_wait<1>();
        hopper_release<shape>(r);
    }
    hopper_next<shape>(r);
}

/* c = the products of n_cols columns, at most one chunk. */
template <class shape>
HOPPER_FN void hopper_chunk(hopper_sums<shape> &c, struct hopper_ring &r, uint64_t rows, uint64_t tokens,
                            uint32_t n_cols)
{
    const uint32_t n = (n_cols + HOPPER_COLS - 1) / HOPPER_COLS, last = (n_cols - (n - 1) * HOPPER_COLS + 15) / 16;
#pragma unroll 1
    for (uint32_t i = 0; i < n; i++)
        hopper_multiply<shape>(c, r, rows, tokens, i == 0, i + 1 == n ? last : HOPPER_COLS / 16);
    wgmma_wait<0>();
    hopper_release<shape>(r);
    wgmma_settle(c);
}

/* Call after segment k of 8, or pair of segments k of 4: adds the waiting sums to its sum. The result then waits
 * itself, except for the last one. */
template <class shape> HOPPER_FN void hopper_fold(hopper_sums<shape> &total, uint32_t k, bool is_last, float4 *waiting)
{
    constexpr uint32_t n_words = shape::n_sums / 4, n_threads = 256;
    float4 *at = waiting + threadIdx.x;
#pragma unroll 1
    for (; k % 2 == 1; k /= 2, at += n_words * n_threads) {
#pragma unroll
        for (uint32_t w = 0; w < n_words; w++) {
            const float4 v = __ldcg(at + w * n_threads);
            total[4 * w] += v.x;
            total[4 * w + 1] += v.y;
            total[4 * w + 2] += v.z;
            total[4 * w + 3] += v.w;
        }
    }
    if (is_last)
        return;
#pragma unroll
    for (uint32_t w = 0; w < n_words; w++)
        __stcg(at + w * n_threads, make_float4(total[4 * w], total[4 * w + 1], total[4 * w + 2], total[4 * w + 3]));
}

/* total = the tile's sums. If each segment is one chunk, the second segment of each pair is added to the first at
 * once: the tree starts with this sum. */
template <class shape>
HOPPER_FN void hopper_sum(hopper_sums<shape> &total, const struct hopper_args &a, struct hopper_ring &r, uint64_t rows,
                          uint64_t tokens, float4 *waiting)
{
    float c[shape::n_sums];
#pragma unroll 1
    for (uint32_t i = 0; i < shape::n_segments; i++) {
        const bool is_second = shape::is_segmented && a.one_chunk && i % 2 == 1;
        uint32_t col = a.begins[i];
        const uint32_t end = a.begins[i + 1];
        if (!is_second)
#pragma unroll
            for (uint32_t j = 0; j < shape::n_sums; j++)
                total[j] = -0.0f; /* -0 + c equals c */
#pragma unroll 1
        while (col < end) {
            const uint32_t n = min(HOPPER_CHUNK, end - col);
            hopper_chunk<shape>(c, r, rows, tokens, n);
            col += n;
#pragma unroll
            for (uint32_t j = 0; j < shape::n_sums; j++)
                total[j] += c[j];
        }
        if (shape::is_segmented && (!a.one_chunk || is_second))
            hopper_fold<shape>(total, a.one_chunk ? i / 2 : i, i + 1 == K_SEGMENTS, waiting);
    }
}

/* ---- the outputs ---- */

struct hopper_row { /* the values that convert a row's sum into its output */
    float scale, bias;
};

/* Returns the values of row `row` of n; they are arbitrary for a row outside the matrix. */
HOPPER_FN struct hopper_row hopper_row_of(const struct hopper_args &a, uint32_t row, uint32_t n)
{
    const uint32_t at = min(row, n - 1);
    const int exponent = a.exponents ? a.exponents[at] : 0;
    struct hopper_row r = {k_f32_from_bits((uint32_t)(127 + 4 + exponent) << 23), a.bias ? a.bias[at] : -0.0f};
    return r;
}

template <class shape>
HOPPER_FN void hopper_store(const hopper_sums<shape> &total, const struct hopper_args &a, const struct hopper_place &p)
{
    const uint32_t lane = threadIdx.x % 32, row = p.tile * HOPPER_ROWS + threadIdx.x / 32 * 16 + lane / 4;
    struct hopper_row rows[2];
#pragma unroll
    for (uint32_t h = 0; h < 2; h++)
        rows[h] = hopper_row_of(a, row + 8 * h, a.n_y);
#pragma unroll
    for (uint32_t i = 0; i < shape::n_sums; i++) {
        const uint32_t h = i / 2 % 2, token = p.token + i / 4 * 8 + lane % 4 * 2 + i % 2, r = row + 8 * h;
        if (token < a.n_tokens && r < a.n_y)
            a.y[(uint64_t)token * a.n_y + r] = total[i] * rows[h].scale + rows[h].bias;
    }
}

/* A thread has one row and two tokens of each 8 tokens. It passes one token to the thread of the neighbouring row,
 * and stores two rows. */
template <class shape>
HOPPER_FN void hopper_store_gated(const hopper_sums<shape> &total, const struct hopper_args &a,
                                  const struct hopper_place &p)
{
    const uint32_t lane = threadIdx.x % 32, row = p.tile * (HOPPER_ROWS / 2) + threadIdx.x / 32 * 8 + lane / 4;
    const uint32_t is_odd = lane / 4 % 2;
    const struct hopper_row gate = hopper_row_of(a, row, 2 * a.n_y), up = hopper_row_of(a, a.n_y + row, 2 * a.n_y);
#pragma unroll
    for (uint32_t j = 0; j < shape::n_sums / 4; j++) {
        float v[2];
#pragma unroll
        for (uint32_t e = 0; e < 2; e++)
            v[e] = k_gated(a.gate, total[4 * j + e] * gate.scale + gate.bias,
                           total[4 * j + 2 + e] * up.scale + up.bias);
        const float got = __shfl_xor_sync(~0u, is_odd ? v[0] : v[1], 4);
        const uint32_t token = p.token + 8 * j + lane % 4 * 2 + is_odd, first = row - is_odd;
        if (token < a.n_tokens && first < a.n_y)
            store2(a.y, a.y_is_factors, (uint64_t)token * a.n_y + first, is_odd ? got : v[0], is_odd ? v[1] : got);
    }
}

template <class shape>
HOPPER_FN void hopper_multiply_all(const struct hopper_args &a, struct hopper_ring r, uint32_t first, uint32_t step,
                                   uint32_t rank, uint32_t warpgroup)
{
    const uint64_t rows = hopper_tile(r.tiles + warpgroup * (HOPPER_ROWS / 2) * 128);
    const uint64_t tokens = hopper_tile(r.tiles + shape::weight_bytes);
    float4 *const waiting = a.waiting + blockIdx.x * (uint64_t)(shape::waiting_bytes / 16);
    for (uint32_t item = first; item < a.n_row_tiles * a.n_token_tiles; item += step) {
        const struct hopper_place p = hopper_place_of<shape>(a, item, rank);
        float total[shape::n_sums];
        hopper_sum<shape>(total, a, r, rows, tokens, waiting);
        if (shape::is_gated)
            hopper_store_gated<shape>(total, a, p);
        else
            hopper_store<shape>(total, a, p);
    }
}

#endif

K_DYNAMIC_SHARED;

/* Code for other GPUs is empty, because cuda_gemm_hopper_takes() returns false there. weights: rows x columns;
 * gated: columns, 8 rows, gate and up, groups of 8 rows. factors: tokens x columns. */
template <uint32_t tokens, uint32_t stages, enum hopper_kind kind, bool is_pair>
static __global__ void __launch_bounds__(HOPPER_THREADS, 1)
    gemm_hopper(const __grid_constant__ CUtensorMap weights, const __grid_constant__ CUtensorMap factors,
                const __grid_constant__ struct hopper_args a)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using shape = hopper_shape<tokens, stages, kind, is_pair>;
    const struct hopper_ring ring = hopper_ring_of<shape>(k_shared);
    const uint32_t warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0), rank = is_pair ? cluster_rank() : 0;
    if (threadIdx.x == 0)
        hopper_init<shape>(ring);
    __syncthreads();
    if (is_pair)
        cluster_sync();
    const uint32_t first = is_pair ? blockIdx.x / 2 : blockIdx.x, step = is_pair ? gridDim.x / 2 : gridDim.x;
    if (warpgroup == 2) {
        give_registers<40>();
        if (threadIdx.x / 32 == 8 && is_elected())
            hopper_copy_all<shape>(&weights, &factors, a, ring, first, step, rank);
        __syncwarp();
    } else {
        take_registers<232>();
        hopper_multiply_all<shape>(a, ring, first, step, rank, warpgroup);
    }
    if (is_pair) { /* a block's barriers must exist until the other block has arrived at them */
        __syncthreads();
        cluster_sync();
    }
#endif
}

#endif
