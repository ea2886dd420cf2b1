/* The lane form: y[t, r] = lane sum over k of w[r, k] · x[t, k] (docs/internals/numerics.md §5). Any dtype of weights.
 * It is the reference for checking suspicious answers, so it puts simplicity first.
 *
 * Four threads share a row of weights: thread q has the lanes 4 q to 4 q + 3. One load is 8 bytes of 16-bit weights,
 * the four threads together read 32 consecutive bytes, and a fold takes two shuffles of each register. A thread holds
 * ROWS × TOKENS × 4 sums. With 2 × 8, each group of 16 columns costs it 64 fmas for two loads of weights, eight
 * conversions and eight 16-byte loads of activations, whose four addresses are the same for the whole warp. So fmas are
 * the limit: 33 T of them per second on a chip of 67 TFLOP/s, 0.12 s for 512 tokens of an 8B model. With a single
 * token, weights are the limit: 128 threads read the 64 rows of a block, each with eight loads in flight.
 *
 * Activations pass through shared memory in chunks of COLS columns, in two buffers, so that a chunk takes one barrier.
 * Columns past K are terms of +0 · +0: activations are padded there, and weights are padded to 16 bytes with zeros and
 * not read beyond.
 *
 * Segments (docs/internals/numerics.md §5) are summed one after the other, with new lanes and chunks for each: a block
 * has all of K, and three sums of each output wait for others in registers.
 *
 * Grid: tiles of tokens within tiles of rows, so that blocks that read the same weights run at the same time and L2
 * holds them. All tiles are in x, where a grid may have 2^31 blocks.
 */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/gemm_launch.h"
#include "kernels/cuda/moe/list.h"
#include "kernels/cuda/widen.cuh"
#include "kernels/math/gate.h"
#include "kernels/math/lane_sum.h"
#include "kernels/segments.h"

#define THREADS 128u
#define QUARTERS 4u /* threads per row */
#define ROWS 2u /* per thread */
#define BLOCK_ROWS (THREADS / QUARTERS * ROWS)
#define COLS 256u /* columns of activations in a buffer; a multiple of 16 */

struct gemm_lane {
    const unsigned char *weight;
    uint64_t row_stride_bytes;
    const float *x, *bias;
    float *y; /* [T, n_rows]; gated: [T, n_rows / 2], the gate of a thread's two rows */
    uint32_t n_rows, n_cols, n_tokens;
    uint32_t unit, n_whole, first_col; /* as in segments.h */
    struct k_gate gate; /* gated */
    /* Grouped: a tile's choices (moe/list.h) */
    const uint32_t *order;
    uint32_t choices_per_row;
};

/* Loads columns [from, from + n) of the tile's tokens, with n at most COLS, and +0 past the last column and token. */
template <uint32_t tokens, bool is_grouped>
static __device__ __forceinline__ void load_activations(float (*shared)[COLS], const struct gemm_lane &a,
                                                        uint32_t token, uint32_t from, uint32_t n)
{
    uint32_t n_filled = (n + K_LANES - 1) / K_LANES * K_LANES;
    for (uint32_t t = 0; t < tokens; t++) {
        uint32_t row = token + t;
        if (is_grouped)
            row = row < a.n_tokens ? a.order[row] / a.choices_per_row : 0;
        const float *x = a.x + (uint64_t)row * a.n_cols + from;
        for (uint32_t k = threadIdx.x; k < n_filled; k += THREADS)
            shared[t][k] = token + t < a.n_tokens && k < n ? x[k] : 0.0f;
    }
}

/* Returns s_j + w_j · x_j, four lanes. */
static __device__ __forceinline__ float4 fma4(float4 w, float4 x, float4 s)
{
    return make_float4(fmaf(w.x, x.x, s.x), fmaf(w.y, x.y, s.y), fmaf(w.z, x.z, s.z), fmaf(w.w, x.w, s.w));
}

/* Returns the row of a thread's r-th sum; the first sum is at row `first`. */
template <bool is_gated>
static __device__ __forceinline__ uint32_t matrix_row(const struct gemm_lane &a, uint32_t first, uint32_t r)
{
    static_assert(ROWS == 2, "a row of gate and its row of up");
    return is_gated ? first / 2 + r * (a.n_rows / 2) : first + r;
}

/* A thread's data of its rows: four lanes of each token, and the folded sums of every fourth token. */
template <uint32_t tokens> struct lane_rows {
    static constexpr uint32_t n_own = (tokens + QUARTERS - 1) / QUARTERS;
    const unsigned char *rows[ROWS];
    float total[ROWS][n_own]; /* sums of the last segment, including those that waited for it */
    float waiting[3][ROWS][n_own]; /* s0; s0 + s1; (s0 + s1) + (s2 + s3) */
    uint32_t buffer;
};

/* Sets own.total to the lane sums of columns [from, end); to -0, which changes no number, if there are none. */
template <enum k_dtype dtype, uint32_t tokens, bool is_grouped>
static __device__ __forceinline__ void sum_columns(struct lane_rows<tokens> &own, float (*x)[tokens][COLS],
                                                   const struct gemm_lane &a, uint32_t token, uint32_t from,
                                                   uint32_t end)
{
    uint32_t quarter = threadIdx.x % QUARTERS;
    bool is_empty = from == end;
    float4 sums[ROWS][tokens];
#pragma unroll
    for (uint32_t r = 0; r < ROWS; r++)
#pragma unroll
        for (uint32_t t = 0; t < tokens; t++)
            sums[r][t] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (; from < end; from += COLS, own.buffer ^= 1) {
        /* The buffer was read before the barrier of the previous chunk. */
        uint32_t n = min(end - from, COLS);
        load_activations<tokens, is_grouped>(x[own.buffer], a, token, from, n);
        __syncthreads();
#pragma unroll(tokens == 1 ? 4 : 2)
        for (uint32_t k = 4 * quarter; k < n + 4 * quarter; k += K_LANES) {
            float4 w[ROWS];
#pragma unroll
            for (uint32_t r = 0; r < ROWS; r++)
                w[r] = k < n ? widen4<dtype>(own.rows[r], from + k) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
            for (uint32_t t = 0; t < tokens; t++) {
                float4 v = *(const float4 *)&x[own.buffer][t][k];
#pragma unroll
                for (uint32_t r = 0; r < ROWS; r++)
                    sums[r][t] = fma4(w[r], v, sums[r][t]);
            }
        }
    }
#pragma unroll
    for (uint32_t t = 0; t < tokens; t++)
#pragma unroll
        for (uint32_t r = 0; r < ROWS; r++) {
            float s = fold_lanes(sums[r][t]);
            if (t % QUARTERS == quarter)
                own.total[r][t / QUARTERS] = is_empty ? -0.0f : s;
        }
}

/* After segment i: adds its sums to those that waited for them; then they wait. */
template <uint32_t tokens>
static __device__ __forceinline__ void fold_segment(struct lane_rows<tokens> &own, uint32_t i)
{
#pragma unroll
    for (uint32_t level = 0; level < 3; level++) {
        bool joins = (i + 1) % (2u << level) == 0, waits = (i + 1) % (2u << level) == 1u << level;
#pragma unroll
        for (uint32_t n = 0; n < ROWS * own.n_own; n++) {
            float &total = own.total[n % ROWS][n / ROWS], &waiting = own.waiting[level][n % ROWS][n / ROWS];
            if (joins)
                total = waiting + total;
            else if (waits)
                waiting = total;
        }
    }
}

/* Computes a tile: some rows of `tokens` tokens. */
template <enum k_dtype dtype, bool is_gated, uint32_t tokens, bool is_grouped>
static __device__ __forceinline__ void multiply_tile(const struct gemm_lane &a, uint32_t token, uint32_t row_tile)
{
    __shared__ __align__(16) float x[2][tokens][COLS];
    uint32_t quarter = threadIdx.x % QUARTERS;
    uint32_t first_row = row_tile * BLOCK_ROWS + threadIdx.x / QUARTERS * ROWS;
    struct lane_rows<tokens> own = {
    };
#pragma unroll
    for (uint32_t r = 0; r < ROWS; r++)
        own.rows[r] = a.weight + min(matrix_row<is_gated>(a, first_row, r), a.n_rows - 1) * a.row_stride_bytes;
    for (uint32_t i = 0; i < (a.unit ? K_SEGMENTS : 1); i++) {
        sum_columns<dtype, tokens, is_grouped>(own, x, a, token,
                                               k_segment_begin_in(a.n_cols, a.n_whole, a.first_col, a.unit, i),
                                               k_segment_begin_in(a.n_cols, a.n_whole, a.first_col, a.unit, i + 1));
        fold_segment<tokens>(own, i);
    }
#pragma unroll
    for (uint32_t t = 0; t < tokens; t++) {
        if (t % QUARTERS != quarter || token + t >= a.n_tokens)
            continue;
        const uint64_t out_row = is_grouped ? a.order[token + t] : token + t;
        float y[ROWS];
#pragma unroll
        for (uint32_t r = 0; r < ROWS; r++) {
            uint32_t row = matrix_row<is_gated>(a, first_row, r);
            y[r] = own.total[r][t / QUARTERS];
            y[r] = a.bias && row < a.n_rows ? y[r] + a.bias[row] : y[r];
            if (!is_gated && row < a.n_rows)
                a.y[out_row * a.n_rows + row] = y[r];
        }
        if (is_gated && first_row < a.n_rows)
            a.y[out_row * (a.n_rows / 2) + first_row / 2] = k_gated(a.gate, y[0], y[1]);
    }
}

template <enum k_dtype dtype, bool is_gated, uint32_t tokens>
static __global__ void __launch_bounds__(THREADS, 2) gemm_lane_kernel(struct gemm_lane a)
{
    uint32_t token_tiles = (a.n_tokens + tokens - 1) / tokens;
    multiply_tile<dtype, is_gated, tokens, false>(a, blockIdx.x % token_tiles * tokens, blockIdx.x / token_tiles);
}

/* The experts' (moe/list.h): n_row_tiles blocks for each tile of the list. */
template <enum k_dtype dtype, bool is_gated, uint32_t tokens>
static __global__ void __launch_bounds__(THREADS, 2)
    gemm_lane_grouped(const struct gemm_lane all, const struct cuda_moe_list list, uint32_t n_row_tiles)
{
    const uint32_t tile = blockIdx.x / n_row_tiles;
    if (tile >= *list.n_tiles_dev)
        return;
    const struct cuda_moe_tile t = list.tiles_dev[tile];
    struct gemm_lane a = all;
    const uint64_t row = t.expert * (uint64_t)a.n_rows;
    a.weight += row * a.row_stride_bytes;
    a.bias = a.bias ? a.bias + row : NULL;
    a.order = list.order_dev + t.first;
    a.choices_per_row = list.choices_per_row;
    a.n_tokens = t.n;
    multiply_tile<dtype, is_gated, tokens, true>(a, 0, blockIdx.x % n_row_tiles);
}

template <enum k_dtype dtype, bool is_gated>
static cudaError_t launch_grouped(cudaStream_t stream, const struct gemm_lane &a, const struct cuda_gemm_call *call,
                                  uint32_t row_tiles)
{
    const uint32_t tokens = call->moe->args->n_tokens == 1 ? 1 : 8, n_experts = call->args->weight->n_experts;
    const dim3 grid(cuda_moe_most_tiles(call->moe, n_experts, tokens) * row_tiles);
    const cudaError_t error = launch_moe_list(stream, call->moe, call->gated, n_experts, a.n_rows, tokens);
    if (error != cudaSuccess)
        return error;
    return tokens == 1 ? K_LAUNCH((gemm_lane_grouped<dtype, is_gated, 1>), grid, dim3(THREADS), 0, stream, a,
                                  call->moe->list, row_tiles)
                       : K_LAUNCH((gemm_lane_grouped<dtype, is_gated, 8>), grid, dim3(THREADS), 0, stream, a,
                                  call->moe->list, row_tiles);
}

template <enum k_dtype dtype, bool is_gated>
static cudaError_t launch(const struct cuda_gemm_call *call, float *y, struct k_gate gate)
{
    const struct k_gemm_args *a = call->args;
    cudaStream_t stream = call->stream;
    const struct k_weight *w = a->weight;
    struct gemm_lane args = {(const unsigned char *)w->data_dev,
                             w->row_stride_bytes,
                             a->x_dev,
                             a->bias_dev,
                             y,
                             w->n_rows,
                             w->n_cols,
                             a->n_tokens,
                             a->unit,
                             a->n_whole,
                             a->first_col,
                             gate,
                             NULL,
                             0};
    uint32_t row_tiles = w->n_rows / BLOCK_ROWS + (w->n_rows % BLOCK_ROWS != 0);
    if (call->moe)
        return launch_grouped<dtype, is_gated>(stream, args, call, row_tiles);
    if (a->n_tokens == 1)
        return K_LAUNCH((gemm_lane_kernel<dtype, is_gated, 1>), dim3(row_tiles), dim3(THREADS), 0, stream, args);
    return K_LAUNCH((gemm_lane_kernel<dtype, is_gated, 8>), dim3((a->n_tokens + 7) / 8 * row_tiles), dim3(THREADS), 0,
                    stream, args);
}

template <enum k_dtype dtype> static cudaError_t launch_by_output(const struct cuda_gemm_call *call)
{
    const struct k_gate none = {K_GATE_SILU, 0.0f};
    return call->gated ? launch<dtype, true>(call, call->gated->out_dev, call->gated->gate)
                       : launch<dtype, false>(call, call->args->y_dev, none);
}

cudaError_t launch_gemm_lane(const struct k_kernel *kernel, const struct cuda_gemm_call *call)
{
    (void)kernel;
    if (call->args->weight->format.kind == K_F16)
        return launch_by_output<K_F16>(call);
    if (call->args->weight->format.kind == K_BF16)
        return launch_by_output<K_BF16>(call);
    return launch_by_output<K_F32>(call);
}
