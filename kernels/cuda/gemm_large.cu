/* The mma GEMM of many tokens. Where the activations come as floats, a pass first writes their factors into the workspace; then
 * blocks of rows x tokens go through the columns, 64 a stage, with a ring of stages in shared memory.
 *
 * What bounds it is the port of shared memory, 128 bytes a clock of an SM, since mma.sync takes its factors from registers, and
 * before it the tensor cores by mma.sync: 2,680 flops a clock (620 TFLOP/s of an H100), where wgmma has 4,096. A stage of a block
 * of R x T in warps of r x t moves (R + T) x 128 bytes into shared memory and, for each warp, (r + t) x 128 out of it:
 *
 *   R x T       warps        bytes a flop   port's limit   stages
 *   192 x 128   8 of 48 x 64     0.050       600 TFLOP/s   4 of 40 KB: GPUs that give a block 160 KB
 *   128 x 128   8 of 32 x 64     0.063       474           3 of 32 KB: all
 *    64 x  64   4 of 32 x 32     0.094       316           5 of 16 KB: all
 *
 * A chunk's sums need a second set beside those of all chunks: that is what bounds a warp, 2 x 96 registers of 255 for 48 x 64. For
 * 64 x 64 both sets would be all registers; one of them in shared memory would move 256 KB for each 8 stages of 96 KB, and
 * gain nothing. A stage of 192 x 128 is 285 instructions a warp on sm_90a (96 mma.sync, 28 ldmatrix, 10 cp.async), 570 of its
 * scheduler's 1,216 clocks; of 128 x 128 it is 227, where it was 378 while BF16 became factors here.
 *
 * Which shape: the one whose waves of blocks take the port the fewest clocks. At 2,048 tokens and 4,096 rows that is 3 waves
 * of 192 x 128 (1,216 clocks a stage) and not 4 of 128 x 128 (1,024).
 *
 * Segments (docs/numerics.md §5): the sums of a segment that wait for their partner lie in memory, at most three sets of a
 * block, each thread's own, 16 bytes at a time. A tile writes and reads 7 sets: 1.3 MB of L2 beside 2.6 MB of factors for
 * 4,096 columns and 9.2 MB for 14,336, the writes behind the next stages. So that there are not more sets than SMs, as many
 * blocks run as fit and each goes from tile to tile.
 *
 * What is chosen where decides speed only: an output's sum is the same in all shapes and in gemm_small.cu. */
#include "kernels/cuda/gemm.cuh"
#include "kernels/cuda/plan/plan.h"
#include "kernels/segments.h"

K_DYNAMIC_SHARED;

#define CONVERT_THREADS 256u
#define GROUP_TOKENS 1024u /* whose tiles go by while weights do once: of 14,336 columns 29 MB, which L2 keeps */

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

/* ---- shapes ---- */

template <uint32_t rows, uint32_t tokens, uint32_t row_warps, uint32_t token_warps, uint32_t stages>
struct large_shape {
    static constexpr uint32_t n_rows = rows, n_tokens = tokens, n_row_warps = row_warps, n_stages = stages;
    static constexpr uint32_t n_threads = row_warps * token_warps * 32;
    static constexpr uint32_t warp_rows = rows / row_warps, warp_tokens = tokens / token_warps;
    static constexpr uint32_t n_row_tiles = warp_rows / 16, n_token_tiles = warp_tokens / 8;
    static constexpr uint32_t n_sums = n_row_tiles * n_token_tiles * 4; /* of a thread */
    static constexpr uint32_t stage_bytes = (rows + tokens) * GEMM_TILE_ROW_BYTES;
    static constexpr uint32_t out_stride = rows + 4; /* the 4 x 8 outputs of an instruction in different banks */
    static constexpr uint32_t out_bytes = out_stride * tokens * 4;
    static constexpr uint32_t shared_bytes = stages * stage_bytes;
    static constexpr uint32_t waiting_bytes = 3 * rows * tokens * 4; /* sums of segments that wait for others */
    static constexpr uint32_t port_clocks = row_warps * token_warps * (warp_rows + warp_tokens) + rows + tokens;
    static constexpr uint32_t blocks_on_sm = shared_bytes <= 80 * 1024 ? 2 : 1;
    static_assert(out_bytes + rows * 8 <= shared_bytes, "outputs pass where the stages were");
};
using shape_192 = large_shape<192, 128, 4, 2, 4>;
using shape_128 = large_shape<128, 128, 4, 2, 3>;
using shape_64 = large_shape<64, 64, 2, 2, 5>;
static_assert(shape_128::shared_bytes <= 99 * 1024 && shape_64::shared_bytes <= 99 * 1024, "the smallest GPU's block");

/* The tiles of a GEMM. Those that run at the same time share weights: of up to GROUP_TOKENS tokens, the tokens first. */
struct large_tiles {
    uint32_t n_row_tiles, n_token_tiles;
};

template <class shape> static struct large_tiles large_tiles_of(const struct gemm_mma_args &a)
{
    struct large_tiles t = {(a.n_rows + shape::n_rows - 1) / shape::n_rows,
                            (a.n_tokens + shape::n_tokens - 1) / shape::n_tokens};
    return t;
}

struct large_place {
    uint32_t row, token; /* the first of a tile */
};

template <class shape> GEMM_FN struct large_place large_place_of(const struct large_tiles &tiles, uint32_t tile)
{
    constexpr uint32_t most = GROUP_TOKENS / shape::n_tokens;
    uint32_t group = tile / (tiles.n_row_tiles * most), in_group = tile % (tiles.n_row_tiles * most);
    uint32_t width = min(tiles.n_token_tiles - group * most, most);
    struct large_place p = {in_group / width * shape::n_rows, (group * most + in_group % width) * shape::n_tokens};
    return p;
}

/* ---- the columns ---- */

/* Where a stage begins that is to be copied. A stage that ends behind its segment brings columns that nobody multiplies. */
struct large_cursor {
    uint32_t col, end, segment; /* the latter two: of GEMMs in segments */
};

GEMM_FN void large_skip_segments(struct large_cursor &at, const uint32_t *begins)
{
    while (at.col >= at.end && at.segment + 1 < K_SEGMENTS) {
        at.col = at.end;
        at.end = begins[++at.segment + 1];
    }
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

/* The stage at the cursor, which moves on: rows of weights, then rows of activations. Always a group, maybe an empty one. */
template <bool is_gated, bool is_segmented, class shape>
GEMM_FN void copy_stage(const struct gemm_mma_args &a, const uint16_t *factors, uint32_t stride,
                        const struct large_place &first, unsigned char *stage, struct large_cursor &at,
                        const uint32_t *begins)
{
    uint32_t col = at.col;
    if (col < a.n_cols) {
        if (is_gated) {
            constexpr uint32_t n = shape::n_rows / 2;
            uint32_t n_left = a.n_rows / 2 - first.row / 2;
            const unsigned char *gate = a.weights + first.row / 2 * a.row_stride_bytes;
            copy_rows<n, shape::n_threads>(stage, gate, a.row_stride_bytes, n_left, col, a.n_cols);
            copy_rows<n, shape::n_threads>(stage + n * GEMM_TILE_ROW_BYTES, gate + a.n_rows / 2 * a.row_stride_bytes,
                                           a.row_stride_bytes, n_left, col, a.n_cols);
        } else {
            copy_rows<shape::n_rows, shape::n_threads>(stage, a.weights + first.row * a.row_stride_bytes,
                                                       a.row_stride_bytes, a.n_rows - first.row, col, a.n_cols);
        }
        copy_rows<shape::n_tokens, shape::n_threads>(stage + shape::n_rows * GEMM_TILE_ROW_BYTES,
                                                     (const unsigned char *)(factors + (uint64_t)first.token * stride),
                                                     stride * (uint64_t)2, a.n_tokens - first.token, col, stride);
    }
    cp_async_commit();
    at.col += GEMM_TILE_COLS;
    if (is_segmented)
        large_skip_segments(at, begins);
}

/* ---- the products ---- */

template <class shape> using large_sums = float[shape::n_row_tiles][shape::n_token_tiles][4];

/* Element i of a thread's sums, in the order of their indices. */
template <class shape> GEMM_FN float &large_sum(large_sums<shape> &c, uint32_t i)
{
    return c[i / 4 / shape::n_token_tiles][i / 4 % shape::n_token_tiles][i % 4];
}

template <class shape> GEMM_FN void large_fill(large_sums<shape> &c, float value)
{
#pragma unroll
    for (uint32_t i = 0; i < shape::n_sums; i++)
        large_sum<shape>(c, i) = value;
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

/* What the stages of one tile are read through. */
template <class shape> struct large_ring {
    uint32_t slot, free_slot;
};

/* total = the sum of the chunks of columns [col, end). */
template <bool is_gated, bool is_segmented, class shape>
GEMM_FN void sum_segment(large_sums<shape> &total, const struct gemm_mma_args &a, const uint16_t *factors,
                         uint32_t stride, const struct large_place &first, struct large_ring<shape> &ring,
                         struct large_cursor &at, const uint32_t *begins, uint32_t col, uint32_t end)
{
    uint32_t warp = threadIdx.x / 32;
    uint32_t row = warp % shape::n_row_warps * shape::warp_rows, token = warp / shape::n_row_warps * shape::warp_tokens;
    large_fill<shape>(total, -0.0f); /* -0 + c is c */
    while (col < end) {
        float c[shape::n_row_tiles][shape::n_token_tiles][4];
        large_fill<shape>(c, 0.0f);
        uint32_t chunk_end = min(col + GEMM_CHUNK, end);
        for (; col < chunk_end; col += GEMM_TILE_COLS) {
            cp_async_wait<shape::n_stages - 2>();
            __syncthreads(); /* the stage is there for all, and the one before it was used by all */
            copy_stage<is_gated, is_segmented, shape>(a, factors, stride, first,
                                                      k_shared + ring.free_slot * shape::stage_bytes, at, begins);
            multiply_stage<shape>(c, k_shared + ring.slot * shape::stage_bytes, row, token,
                                  min(chunk_end - col, GEMM_TILE_COLS));
            ring.slot = ring.slot + 1 == shape::n_stages ? 0 : ring.slot + 1;
            ring.free_slot = ring.free_slot + 1 == shape::n_stages ? 0 : ring.free_slot + 1;
        }
#pragma unroll
        for (uint32_t i = 0; i < shape::n_sums; i++)
            large_sum<shape>(total, i) += large_sum<shape>(c, i);
    }
}

/* Behind segment i: its sum joins those that waited for it, and then waits itself, but for the last. An empty one is -0, which
 * changes no number. */
template <class shape> GEMM_FN void fold_segment(large_sums<shape> &total, uint32_t i, float4 *waiting)
{
    constexpr uint32_t n_words = shape::n_sums / 4;
    float4 *own = waiting + threadIdx.x;
    for (; i % 2 == 1; i /= 2, own += n_words * shape::n_threads) {
#pragma unroll
        for (uint32_t w = 0; w < n_words; w++) {
            float4 v = own[w * shape::n_threads];
            large_sum<shape>(total, 4 * w) += v.x;
            large_sum<shape>(total, 4 * w + 1) += v.y;
            large_sum<shape>(total, 4 * w + 2) += v.z;
            large_sum<shape>(total, 4 * w + 3) += v.w;
        }
    }
    if (own - waiting >= 3 * n_words * shape::n_threads) /* all are in */
        return;
#pragma unroll
    for (uint32_t w = 0; w < n_words; w++)
        own[w * shape::n_threads] = make_float4(large_sum<shape>(total, 4 * w), large_sum<shape>(total, 4 * w + 1),
                                                large_sum<shape>(total, 4 * w + 2), large_sum<shape>(total, 4 * w + 3));
}

/* A tile's sums through shared memory, [tokens][rows], so that what a warp stores lies together; behind them each row's scale and
 * bias. is_vector: four rows of y at a time. */
template <bool is_gated, class shape>
GEMM_FN void store_tile(const struct gemm_mma_args &a, large_sums<shape> &total, const struct large_place &first,
                        bool is_vector)
{
    constexpr uint32_t n_out = is_gated ? shape::n_rows / 2 : shape::n_rows; /* rows of y that the block has */
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_y = is_gated ? a.n_rows / 2 : a.n_rows;
    uint32_t row = warp % shape::n_row_warps * shape::warp_rows, token = warp / shape::n_row_warps * shape::warp_tokens;
    float *out = (float *)k_shared, *scale = (float *)(k_shared + shape::out_bytes), *bias = scale + shape::n_rows;
    if (threadIdx.x < shape::n_rows) {
        struct gemm_row r = gemm_row_of(a, gemm_matrix_row<is_gated, shape::n_rows>(a, first.row, threadIdx.x));
        scale[threadIdx.x] = r.scale;
        bias[threadIdx.x] = r.bias;
    }
#pragma unroll
    for (uint32_t i = 0; i < shape::n_sums; i++)
        out[(token + i / 4 % shape::n_token_tiles * 8 + lane % 4 * 2 + i % 2) * shape::out_stride + row +
            i / 4 / shape::n_token_tiles * 16 + i % 4 / 2 * 8 + lane / 4] = large_sum<shape>(total, i);
    __syncthreads();
    uint32_t first_y = is_gated ? first.row / 2 : first.row;
    for (uint32_t i = threadIdx.x; i < n_out / 4 * shape::n_tokens; i += shape::n_threads) {
        uint32_t own = i % (n_out / 4) * 4, t = i / (n_out / 4);
        if (first.token + t >= a.n_tokens)
            break;
        float y[4];
#pragma unroll
        for (uint32_t r = 0; r < 4; r++) {
            const float *sum = out + t * shape::out_stride + own + r;
            y[r] = sum[0] * scale[own + r] + bias[own + r];
            if (is_gated)
                y[r] = k_silu(y[r]) * (sum[n_out] * scale[n_out + own + r] + bias[n_out + own + r]);
        }
        uint64_t at = (uint64_t)(first.token + t) * n_y + first_y + own;
        if (is_vector && first_y + own < n_y)
            store4(a.y, is_gated && a.y_is_factors, at, make_float4(y[0], y[1], y[2], y[3]));
#pragma unroll
        for (uint32_t r = 0; r < 4; r++)
            if (!is_vector && first_y + own + r < n_y)
                store1(a.y, is_gated && a.y_is_factors, at + r, y[r]);
    }
}

template <bool is_gated, bool is_segmented, class shape>
static __global__ void __launch_bounds__(shape::n_threads)
    gemm_large(const struct gemm_mma_args a, const uint16_t *factors, uint32_t stride, const struct large_tiles tiles,
               float4 *waiting, bool is_vector)
{
    __shared__ uint32_t begins[K_SEGMENTS + 1];
    if (is_segmented && threadIdx.x <= K_SEGMENTS)
        begins[threadIdx.x] = k_segment_begin(a.n_cols, a.unit, threadIdx.x);
    waiting += (uint64_t)blockIdx.x * (shape::waiting_bytes / 16);
    for (uint32_t tile = blockIdx.x; tile < tiles.n_row_tiles * tiles.n_token_tiles; tile += gridDim.x) {
        __syncthreads(); /* begins are there, and the tile before has left shared memory */
        struct large_place first = large_place_of<shape>(tiles, tile);
        struct large_ring<shape> ring = {0, shape::n_stages - 1};
        struct large_cursor at = {0, is_segmented ? begins[1] : 0, 0};
        if (is_segmented)
            large_skip_segments(at, begins);
#pragma unroll
        for (uint32_t i = 0; i + 1 < shape::n_stages; i++)
            copy_stage<is_gated, is_segmented, shape>(a, factors, stride, first, k_shared + i * shape::stage_bytes, at,
                                                      begins);
        float total[shape::n_row_tiles][shape::n_token_tiles][4];
        for (uint32_t i = 0; i < (is_segmented ? K_SEGMENTS : 1); i++) {
            sum_segment<is_gated, is_segmented, shape>(total, a, factors, stride, first, ring, at, begins,
                                                       is_segmented ? begins[i] : 0,
                                                       is_segmented ? begins[i + 1] : a.n_cols);
            if (is_segmented)
                fold_segment<shape>(total, i, waiting);
        }
        cp_async_wait<0>();
        __syncthreads();
        store_tile<is_gated, shape>(a, total, first, is_vector);
        if (!is_segmented)
            break;
    }
}

/* ---- launches ---- */

/* Memory beside the arguments, and the GPU. */
struct large_means {
    cudaStream_t stream;
    const uint16_t *factors;
    uint32_t stride;
    float4 *waiting;
    uint32_t n_sms, shared_bytes;
};

template <bool is_gated, bool is_segmented, class shape>
static cudaError_t launch(const struct large_means *m, const struct gemm_mma_args *a)
{
    struct large_tiles tiles = large_tiles_of<shape>(*a);
    uint32_t n_blocks = tiles.n_row_tiles * tiles.n_token_tiles, n_y = is_gated ? a->n_rows / 2 : a->n_rows;
    if (is_segmented)
        n_blocks = min(n_blocks,
                       min(m->n_sms * shape::blocks_on_sm, (uint32_t)(CUDA_GEMM_WAITING_BYTES / shape::waiting_bytes)));
    bool is_vector = n_y % 4 == 0 && (uintptr_t)a->y % 16 == 0;
    cudaError_t error = cudaFuncSetAttribute(gemm_large<is_gated, is_segmented, shape>,
                                             cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shape::shared_bytes);
    if (error != cudaSuccess)
        return error;
    return K_LAUNCH((gemm_large<is_gated, is_segmented, shape>), dim3(n_blocks), dim3(shape::n_threads),
                    shape::shared_bytes, m->stream, *a, m->factors, m->stride, tiles, m->waiting, is_vector);
}

/* Clocks of the port for each stage of all tiles. */
template <class shape> static uint64_t cost_of(const struct large_means *m, const struct gemm_mma_args *a)
{
    struct large_tiles tiles = large_tiles_of<shape>(*a);
    uint64_t n = (uint64_t)tiles.n_row_tiles * tiles.n_token_tiles, n_waves = (n + m->n_sms - 1) / m->n_sms;
    return shape::shared_bytes <= m->shared_bytes ? n_waves * shape::port_clocks : UINT64_MAX;
}

template <bool is_gated, bool is_segmented>
static cudaError_t launch_by_shape(const struct large_means *m, const struct gemm_mma_args *a)
{
    uint64_t of_192 = cost_of<shape_192>(m, a), of_128 = cost_of<shape_128>(m, a), of_64 = cost_of<shape_64>(m, a);
    if (of_64 <= of_128 && of_64 <= of_192)
        return launch<is_gated, is_segmented, shape_64>(m, a);
    return of_128 < of_192 ? launch<is_gated, is_segmented, shape_128>(m, a)
                           : launch<is_gated, is_segmented, shape_192>(m, a);
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

cudaError_t launch_gemm_large(cudaStream_t stream, const struct k_gemm_args *args, const struct cuda_gated *gated,
                              uint32_t n_sms, uint32_t shared_bytes)
{
    struct gemm_mma_args a = gemm_mma_args_of(args, gated);
    uint32_t stride = cuda_gemm_factor_stride(a.n_cols);
    unsigned char *made = (unsigned char *)args->workspace_dev; /* here where x is floats; behind it, what waits */
    const struct large_means m = {stream, (const uint16_t *)(a.x_is_factors ? (const void *)a.x : made),
                                  stride, (float4 *)(made + (uint64_t)a.n_tokens * stride * 2),
                                  n_sms,  shared_bytes};
    cudaError_t error = a.x_is_factors ? cudaSuccess : launch_gemm_factors(stream, args, made);
    if (error != cudaSuccess)
        return error;
    if (gated)
        return launch_by_shape<true, false>(&m, &a);
    return a.unit ? launch_by_shape<false, true>(&m, &a) : launch_by_shape<false, false>(&m, &a);
}
