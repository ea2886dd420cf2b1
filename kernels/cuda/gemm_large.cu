/* The mma GEMM of many tokens. Where the activations come as floats, a pass first writes their factors into the workspace; then blocks of
 * rows x tokens go through the columns, 64 a stage, with a ring of stages in shared memory.
 *
 * 128 x 128, 8 warps: a stage is 32 KB for 2.1 MFLOP, 64 flops for each byte out of L2. At mma.sync's share of the tensor
 * cores (about 60 % of 990 TFLOP/s, 4.5 TFLOP/s an SM) that is 70 GB/s for an SM, where L2 gives over 100. Three stages are 96 KB.
 * A warp has 32 rows by 64 tokens. Two sets of sums, of the chunk and of all, are 128 registers a thread; so there is one block on an SM.
 *
 * 64 x 64, 4 warps, where that leaves SMs without a block; 5 stages are 80 KB, two blocks on an SM from sm_80 on. A narrow
 * matrix at 33 to 128 tokens is bound by what few SMs can read: 1,536 rows are 24 blocks for each 64 tokens, each with
 * 64 KB on the way, half of them weights. Spreading chunks over blocks would need their sums in memory and a second pass.
 *
 * What is chosen where decides speed only: an output's sum is the same in both shapes and in gemm_small.cu. */
#include "kernels/cuda/gemm.cuh"
#include "kernels/cuda/plan/plan.h"

K_DYNAMIC_SHARED;

#define CONVERT_THREADS 256u
#define WIDE_BLOCKS 96u /* fewer of 128 x 128 and the smaller shape is taken */
#define TOKEN_TILES 8u /* 1,024 tokens of 14,336 columns are 29 MB, which L2 keeps while all weights go by once */

/* ---- the activations' factors ---- */

/* 8 columns of a token: x [T, n_cols] to factors [T, stride], zeros from n_cols on. stride is a multiple of 16. */
static __global__ void __launch_bounds__(CONVERT_THREADS)
    gemm_convert(const float *x, uint16_t *factors, uint32_t n_tokens, uint32_t n_cols, uint32_t stride,
                 bool is_aligned)
{
    uint64_t at = ((uint64_t)blockIdx.x * CONVERT_THREADS + threadIdx.x) * 8;
    uint64_t token = at / stride;
    uint32_t col = (uint32_t)(at % stride);
    if (token >= n_tokens)
        return;
    const float *from = x + token * n_cols + col;
    float v[8];
    if (is_aligned && col + 8 <= n_cols) {
        float4 low = ((const float4 *)from)[0], high = ((const float4 *)from)[1];
        v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
        v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
    } else {
#pragma unroll
        for (uint32_t i = 0; i < 8; i++)
            v[i] = col + i < n_cols ? from[i] : 0.0f;
    }
    *(uint4 *)(factors + at) = make_uint4(factors2(v[0], v[1]), factors2(v[2], v[3]), factors2(v[4], v[5]),
                                          factors2(v[6], v[7]));
}

/* ---- the products ---- */

template <uint32_t rows, uint32_t tokens, uint32_t row_warps, uint32_t token_warps, uint32_t stages>
struct large_shape {
    static constexpr uint32_t n_rows = rows, n_tokens = tokens, n_row_warps = row_warps, n_stages = stages;
    static constexpr uint32_t n_threads = row_warps * token_warps * 32;
    static constexpr uint32_t warp_rows = rows / row_warps, warp_tokens = tokens / token_warps;
    static constexpr uint32_t n_row_tiles = warp_rows / 16, n_token_tiles = warp_tokens / 8;
    static constexpr uint32_t stage_bytes = (rows + tokens) * GEMM_TILE_ROW_BYTES;
    static constexpr uint32_t out_stride = rows + 4; /* the 4 x 8 outputs of an instruction in different banks */
    static constexpr uint32_t shared_bytes = stages * stage_bytes;
    static_assert(shared_bytes <= 99 * 1024, "a block of the smallest GPU");
    static_assert(out_stride * tokens * 4 <= shared_bytes, "outputs pass where the stages were");
};
using shape_128 = large_shape<128, 128, 4, 2, 3>;
using shape_64 = large_shape<64, 64, 2, 2, 5>;

/* Blocks that run at the same time share weights, those of up to TOKEN_TILES tiles of tokens. */
GEMM_FN uint32_t large_token_tile(void)
{
    return blockIdx.z * TOKEN_TILES + blockIdx.x;
}

/* Columns [col, col + 64) of a block's rows: `matrix` begins at the first of them, n_left rows of it are there. Pointers are
 * stepped and not kept for each row, of which there are too few registers. */
template <uint32_t n_rows, uint32_t n_threads>
GEMM_FN void copy_rows(unsigned char *tile, const unsigned char *matrix, uint64_t stride_bytes, uint32_t n_left,
                       uint32_t col, uint32_t n_cols)
{
    constexpr uint32_t rows_each = n_threads / 8;
    static_assert(rows_each % 8 == 0 && n_rows % rows_each == 0, "a thread's segments lie at one place of their rows");
    uint32_t row = threadIdx.x / 8, first = col + threadIdx.x % 8 * 8;
    const unsigned char *from = matrix + row * stride_bytes + first * (uint64_t)2;
    unsigned char *to = gemm_segment(tile, row, threadIdx.x % 8);
#pragma unroll
    for (uint32_t i = 0; i < n_rows / rows_each; i++) {
        bool valid = row + i * rows_each < n_left && first < n_cols;
        cp_async16(to + i * rows_each * GEMM_TILE_ROW_BYTES, valid ? from : matrix, valid);
        from += rows_each * stride_bytes;
    }
}

/* The stage of columns [col, col + 64): rows of weights, then rows of activations. Always a group, maybe an empty one. */
template <bool is_gated, class shape>
GEMM_FN void copy_stage(const struct gemm_mma_args &a, const uint16_t *factors, uint32_t stride, unsigned char *stage,
                        uint32_t col)
{
    uint32_t first_row = blockIdx.y * shape::n_rows, first_token = large_token_tile() * shape::n_tokens;
    if (col < a.n_cols) {
        if (is_gated) {
            constexpr uint32_t n = shape::n_rows / 2;
            uint32_t n_left = a.n_rows / 2 - first_row / 2;
            const unsigned char *gate = a.weights + first_row / 2 * a.row_stride_bytes;
            copy_rows<n, shape::n_threads>(stage, gate, a.row_stride_bytes, n_left, col, a.n_cols);
            copy_rows<n, shape::n_threads>(stage + n * GEMM_TILE_ROW_BYTES, gate + a.n_rows / 2 * a.row_stride_bytes,
                                           a.row_stride_bytes, n_left, col, a.n_cols);
        } else {
            copy_rows<shape::n_rows, shape::n_threads>(stage, a.weights + first_row * a.row_stride_bytes,
                                                       a.row_stride_bytes, a.n_rows - first_row, col, a.n_cols);
        }
        copy_rows<shape::n_tokens, shape::n_threads>(stage + shape::n_rows * GEMM_TILE_ROW_BYTES,
                                                     (const unsigned char *)(factors + (uint64_t)first_token * stride),
                                                     stride * (uint64_t)2, a.n_tokens - first_token, col, stride);
    }
    cp_async_commit();
}

template <class shape> using large_sums = float[shape::n_row_tiles][shape::n_token_tiles][4];

template <class shape> GEMM_FN void large_fill(large_sums<shape> &c, float value)
{
#pragma unroll
    for (uint32_t i = 0; i < shape::n_row_tiles * shape::n_token_tiles * 4; i++)
        c[i / 4 / shape::n_token_tiles][i / 4 % shape::n_token_tiles][i % 4] = value;
}

/* c += the products of the stage's first n_cols columns, of the warp's rows and tokens. */
template <class shape>
GEMM_FN void multiply_stage(large_sums<shape> &c, unsigned char *weights, uint32_t row, uint32_t token, uint32_t n_cols)
{
    unsigned char *activations = weights + shape::n_rows * GEMM_TILE_ROW_BYTES;
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t step = 0; step < GEMM_TILE_COLS / 16; step++) {
        if (step * 16 >= n_cols)
            break;
        uint32_t w[shape::n_row_tiles][4];
#pragma unroll
        for (uint32_t r = 0; r < shape::n_row_tiles; r++)
            gemm_load_a(w[r], weights, row + r * 16, step);
#pragma unroll
        for (uint32_t n = 0; n < shape::n_token_tiles; n += 2) { /* 16 tokens */
            uint32_t b[4];
            ldmatrix_x4(b,
                        gemm_segment(activations, token + n * 8 + lane / 16 * 8 + lane % 8, 2 * step + lane / 8 % 2));
#pragma unroll
            for (uint32_t r = 0; r < shape::n_row_tiles; r++) {
                mma_f16(c[r][n], w[r], b[0], b[1]);
                mma_f16(c[r][n + 1], w[r], b[2], b[3]);
            }
        }
    }
}

template <bool is_gated, class shape>
static __global__ void __launch_bounds__(shape::n_threads)
    gemm_large(const struct gemm_mma_args a, const uint16_t *factors, uint32_t stride)
{
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t row = warp % shape::n_row_warps * shape::warp_rows, token = warp / shape::n_row_warps * shape::warp_tokens;
    uint32_t first_row = blockIdx.y * shape::n_rows, first_token = large_token_tile() * shape::n_tokens;
    if (first_token >= a.n_tokens) /* the last group of token tiles is not full */
        return;

    uint32_t n_tiles = (a.n_cols + GEMM_TILE_COLS - 1) / GEMM_TILE_COLS;
#pragma unroll
    for (uint32_t i = 0; i + 1 < shape::n_stages; i++)
        copy_stage<is_gated, shape>(a, factors, stride, k_shared + i * shape::stage_bytes, i * GEMM_TILE_COLS);

    float total[shape::n_row_tiles][shape::n_token_tiles][4];
    large_fill<shape>(total, -0.0f); /* -0 + c is c */
    uint32_t slot = 0, free_slot = shape::n_stages - 1, tile = 0;
    while (tile < n_tiles) {
        float c[shape::n_row_tiles][shape::n_token_tiles][4];
        large_fill<shape>(c, 0.0f);
        uint32_t end = min(tile + GEMM_TILES_IN_CHUNK, n_tiles);
        for (; tile < end; tile++) {
            cp_async_wait<shape::n_stages - 2>();
            __syncthreads(); /* the stage is there for all, and the one before it was used by all */
            copy_stage<is_gated, shape>(a, factors, stride, k_shared + free_slot * shape::stage_bytes,
                                        (tile + shape::n_stages - 1) * GEMM_TILE_COLS);
            multiply_stage<shape>(c, k_shared + slot * shape::stage_bytes, row, token,
                                  min(a.n_cols - tile * GEMM_TILE_COLS, GEMM_TILE_COLS));
            slot = slot + 1 == shape::n_stages ? 0 : slot + 1;
            free_slot = free_slot + 1 == shape::n_stages ? 0 : free_slot + 1;
        }
#pragma unroll
        for (uint32_t r = 0; r < shape::n_row_tiles; r++)
#pragma unroll
            for (uint32_t n = 0; n < shape::n_token_tiles; n++)
#pragma unroll
                for (uint32_t i = 0; i < 4; i++)
                    total[r][n][i] += c[r][n][i];
    }

    cp_async_wait<0>();
    __syncthreads();
    float *out = (float *)k_shared; /* [tokens][rows]: what a warp stores lies together */
#pragma unroll
    for (uint32_t r = 0; r < shape::n_row_tiles; r++)
#pragma unroll
        for (uint32_t n = 0; n < shape::n_token_tiles; n++)
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                out[(token + n * 8 + lane % 4 * 2 + i % 2) * shape::out_stride + row + r * 16 + i / 2 * 8 + lane / 4] =
                    total[r][n][i];
    __syncthreads();
    constexpr uint32_t n_out = is_gated ? shape::n_rows / 2 : shape::n_rows; /* rows of y that the block has */
    uint32_t own = threadIdx.x % n_out, n_y = is_gated ? a.n_rows / 2 : a.n_rows;
    uint32_t y_row = gemm_matrix_row<is_gated, shape::n_rows>(a, first_row, own);
    if (y_row >= n_y)
        return;
    struct gemm_row r = gemm_row_of(a, y_row), up = gemm_row_of(a, n_y + y_row);
    for (uint32_t t = threadIdx.x / n_out; t < shape::n_tokens && first_token + t < a.n_tokens;
         t += shape::n_threads / n_out) {
        float y = out[t * shape::out_stride + own] * r.scale + r.bias;
        if (is_gated)
            y = k_silu(y) * (out[t * shape::out_stride + n_out + own] * up.scale + up.bias);
        store1(a.y, is_gated && a.y_is_factors, (uint64_t)(first_token + t) * n_y + y_row, y);
    }
}

template <bool is_gated, class shape>
static cudaError_t launch(cudaStream_t stream, const struct gemm_mma_args *a, const uint16_t *factors, uint32_t stride)
{
    uint32_t token_tiles = (a->n_tokens + shape::n_tokens - 1) / shape::n_tokens;
    dim3 grid(min(token_tiles, TOKEN_TILES), (a->n_rows + shape::n_rows - 1) / shape::n_rows,
              (token_tiles + TOKEN_TILES - 1) / TOKEN_TILES);
    cudaError_t error = cudaFuncSetAttribute(gemm_large<is_gated, shape>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             (int)shape::shared_bytes);
    if (error != cudaSuccess)
        return error;
    return K_LAUNCH((gemm_large<is_gated, shape>), grid, dim3(shape::n_threads), shape::shared_bytes, stream, *a,
                    factors, stride);
}

template <bool is_gated>
static cudaError_t launch_by_shape(cudaStream_t stream, const struct gemm_mma_args *a, const uint16_t *factors,
                                   uint32_t stride)
{
    uint64_t blocks = (uint64_t)((a->n_tokens + 127) / 128) * ((a->n_rows + 127) / 128);
    return blocks >= WIDE_BLOCKS ? launch<is_gated, shape_128>(stream, a, factors, stride)
                                 : launch<is_gated, shape_64>(stream, a, factors, stride);
}

cudaError_t launch_gemm_factors(cudaStream_t stream, const struct k_gemm_args *a, void *factors)
{
    uint32_t n_cols = a->weight->n_cols, stride = cuda_gemm_factor_stride(n_cols);
    uint64_t n_threads = (uint64_t)a->n_tokens * stride / 8;
    bool is_aligned = n_cols % 4 == 0 && (uintptr_t)a->x_dev % 16 == 0;
    return K_LAUNCH(gemm_convert, dim3((uint32_t)((n_threads + CONVERT_THREADS - 1) / CONVERT_THREADS)),
                    dim3(CONVERT_THREADS), 0, stream, a->x_dev, (uint16_t *)factors, a->n_tokens, n_cols, stride,
                    is_aligned);
}

cudaError_t launch_gemm_large(cudaStream_t stream, const struct k_gemm_args *args, const struct cuda_gated *gated)
{
    struct gemm_mma_args a = gemm_mma_args_of(args, gated);
    uint32_t stride = cuda_gemm_factor_stride(a.n_cols);
    const uint16_t *factors = (const uint16_t *)args->workspace_dev;
    cudaError_t error = launch_gemm_factors(stream, args, args->workspace_dev);
    if (error != cudaSuccess)
        return error;
    if (gated)
        return launch_by_shape<true>(stream, &a, factors, stride);
    return launch_by_shape<false>(stream, &a, factors, stride);
}
