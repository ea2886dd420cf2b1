/* The mma GEMM for few tokens (at most 32, and up to 64 where gemm_large.cu selects it). Weights are read once, and
 * memory is the limit.
 *
 * Bytes: 2 N K of weights from memory; the activations' factors, 2 T K for each row tile, come from L2. At 4.8 TB/s and
 * about 0.7 us of latency 3.4 MB must be in flight, 26 KB on each of 132 SMs. A warp works alone: it streams 32 rows,
 * or 16 of narrow matrices, and its tokens through a ring of 18 to 42 KB in shared memory by cp.async, 64 columns per
 * stage:
 *
 *   tokens   rows   a stage   stages   weights in flight, a block of 4 warps   blocks on an SM of 227 KB
 *        8     16     3 KB       6        40 KB                                    3
 *        8     32     5 KB       4        48 KB                                    2
 *       16     16     4 KB       6        40 KB                                    2
 *       16     32     6 KB       4        48 KB                                    2
 *       32     32     8 KB       3        32 KB                                    2
 *       64     48    14 KB       3        48 KB                                    1, and SMs that have 168 KB
 *
 * The grid does not depend on the number of SMs.
 *
 * Columns and warps: a warp has all columns of its rows (ranges), with two exceptions.
 * - With segments (docs/internals/numerics.md §5) the four warps of a block share one row tile. Warp w has the segments
 *   2 w and 2 w + 1, which are adjacent in memory. No warp waits for another before the fold, whose tree is that of the
 *   pairs. 4,096 rows are 128 blocks of 32, and neither memory nor a second launch is needed.
 * - For narrow matrices in one segment (fewer than 1,024 tiles of 16 rows, or 853 of 32) the chunks of a row tile are
 *   spread over the warps of a block: warp s of S takes chunks s, s + S, ..., and after each round the S sums are added
 *   in rising order, through shared memory.
 * Nothing is spread over blocks, so one launch is enough. 1,536 rows are 96 blocks with 40 KB in flight each, and the
 * other 36 SMs are idle. 96 SMs can read at the speed of memory: 50 GB/s each; L2 delivers over 100 to each.
 *
 * In cycles of shared memory, of which there are 97 for 2 KB of weights at 36 GB/s per SM, weights take 32 and 8 tokens
 * 16 (in and out). So a tile of tokens serves 32 rows, except where that leaves SMs without a block: by the model a
 * single token then has 0.96 of an H100's bandwidth instead of 0.93, and 0.92 of an H200's instead of 0.88.
 *
 * Instructions: the loop body is one stage, not a chunk, and activations are always factors. If x is floats (OLMo2's
 * residual stream, twice per layer), the pass of elementwise.cu comes first, a launch of about 2 us.
 *
 * Gated (gate and up of an MLP): half of a warp's rows are gate's, and half are the same rows of up. A gate's sum and
 * its up's end in lanes 8 or 16 apart, and one shuffle combines them.
 */
#include "kernels/cuda/gemm.cuh"
#include "kernels/cuda/plan/plan.h"
#include "kernels/math/gate.h"
#include "kernels/segments.h"

K_DYNAMIC_SHARED;

#define WARPS 4u /* maximum per block */
#define PAIRS (K_SEGMENTS / 2)
#define WIDE_BYTES (10u << 20) /* weights in flight, three times what memory needs: a smaller grid splits the chunks */
#define FILLING_BLOCKS 120u /* fewer blocks leave SMs of an H100 idle */
#define NARROW_ROWS 4096u /* 32 rows for each of 128 SMs */
static_assert(PAIRS == WARPS, "a warp has two segments");

struct small_split {
    uint32_t n_splits; /* warps that share a row tile */
    uint32_t n_rounds; /* chunks per warp, if chunks are spread */
};

/* splits: the warps that share a row tile, if known at compile time; otherwise 1. */
template <int n_token_tiles, int n_row_tiles, int stages, int splits = 1> struct small_shape {
    static constexpr bool is_grouped = false;
    static constexpr uint32_t token_tiles = n_token_tiles, row_tiles = n_row_tiles, n_stages = stages;
    static constexpr uint32_t n_tokens = 8 * n_token_tiles, n_rows = 16 * n_row_tiles, n_outputs = n_rows * n_tokens;
    static constexpr uint32_t stage_bytes = (n_rows + n_tokens) * GEMM_TILE_ROW_BYTES;
    static constexpr uint32_t warp_bytes = stages * stage_bytes;
    static constexpr uint32_t wide_warps = WIDE_BYTES / ((stages - 1) * n_rows * GEMM_TILE_ROW_BYTES);
    static constexpr uint32_t n_own_outputs = n_outputs / 32 / splits; /* maximum per thread */
    static_assert(WARPS * warp_bytes <= (splits == 1 ? 99 : 227) * 1024, "a block of the smallest GPU");
    static_assert(n_outputs * 4 <= stage_bytes, "sums lie where a stage was");
};

template <class shape> using small_sums = float[shape::row_tiles][shape::token_tiles][4];

template <class shape> GEMM_FN void small_fill(small_sums<shape> &c, float value)
{
#pragma unroll
    for (uint32_t i = 0; i < shape::row_tiles * shape::token_tiles * 4; i++)
        c[i / 4 / shape::token_tiles][i / 4 % shape::token_tiles][i % 4] = value;
}

template <class shape> GEMM_FN void small_add(small_sums<shape> &total, const small_sums<shape> &c)
{
#pragma unroll
    for (uint32_t i = 0; i < shape::row_tiles * shape::token_tiles * 4; i++)
        total[i / 4 / shape::token_tiles][i / 4 % shape::token_tiles][i % 4] +=
            c[i / 4 / shape::token_tiles][i / 4 % shape::token_tiles][i % 4];
}

/* ---- stages ---- */

/* A lane's source: 16 bytes of every fourth row of a stage, for the weights and for the tokens. */
template <class shape> struct small_source {
    const unsigned char *weights, *up, *x; /* the lane's first rows, at its 16 bytes of column 0; up: only if gated */
    uint32_t row_bytes, x_row_bytes;
    uint32_t n_rows, n_tokens; /* rows and tokens that exist, from the lane's first on */
    uint32_t n_cols; /* minus the lane's first column */
    uint32_t x_rows[shape::is_grouped ? shape::n_tokens / 4 : 1]; /* grouped: x is row 0 */
};

template <bool is_gated, class shape>
GEMM_FN struct small_source<shape> source_of(const struct gemm_mma_args &a, const uint16_t *factors, uint32_t stride,
                                             uint32_t first_row)
{
    uint32_t lane = threadIdx.x % 32, own = lane / 8, first_col = lane % 8 * 8;
    uint32_t n_rows = is_gated ? a.n_rows / 2 : a.n_rows, row = (is_gated ? first_row / 2 : first_row) + own;
    struct small_source<shape> s;
    s.row_bytes = (uint32_t)a.row_stride_bytes;
    s.x_row_bytes = stride * 2;
    s.weights = a.weights + row * a.row_stride_bytes + first_col * 2;
    s.up = s.weights + n_rows * a.row_stride_bytes;
    s.x = (const unsigned char *)(factors + (shape::is_grouped ? 0 : (uint64_t)own * stride) + first_col);
    s.n_rows = row < n_rows ? n_rows - row : 0;
    s.n_tokens = own < a.n_tokens ? a.n_tokens - own : 0;
    s.n_cols = first_col < a.n_cols ? a.n_cols - first_col : 0;
    if constexpr (shape::is_grouped) {
#pragma unroll
        for (uint32_t i = 0; i < shape::n_tokens / 4; i++)
            s.x_rows[i] = gemm_grouped_x_row(a, own + 4 * i);
    }
    return s;
}

/* Copies columns [col, col + 64) of the warp's rows and tokens, with zeros past the matrix. */
template <bool is_gated, class shape>
GEMM_FN void copy_stage(const struct small_source<shape> &s, unsigned char *stage, uint32_t col)
{
    uint32_t lane = threadIdx.x % 32;
    bool is_in = col < s.n_cols;
    constexpr uint32_t n = shape::n_rows / 4, n_half = is_gated ? n / 2 : n;
#pragma unroll
    for (uint32_t i = 0; i < n; i++) {
        const unsigned char *from = (i < n_half ? s.weights : s.up) + col * (uint64_t)2;
        cp_async16(gemm_segment(stage, 4 * i + lane / 8, lane % 8), from + i % n_half * 4 * (uint64_t)s.row_bytes,
                   is_in && i % n_half * 4 < s.n_rows);
    }
#pragma unroll
    for (uint32_t i = 0; i < shape::n_tokens / 4; i++)
        cp_async16(gemm_segment(stage, shape::n_rows + 4 * i + lane / 8, lane % 8),
                   s.x + col * (uint64_t)2 +
                       (shape::is_grouped ? s.x_rows[shape::is_grouped ? i : 0] : i * 4) * (uint64_t)s.x_row_bytes,
                   is_in && i * 4 < s.n_tokens);
}

/* Adds the products of the stage's first n_cols columns to c. */
template <class shape> GEMM_FN void multiply_stage(small_sums<shape> &c, unsigned char *stage, uint32_t n_cols)
{
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t step = 0; step < GEMM_TILE_COLS / 16; step += 2) {
        if (step * 16 >= n_cols)
            break;
        uint32_t b[shape::token_tiles][4];
#pragma unroll
        for (uint32_t n = 0; n < shape::token_tiles; n++)
            ldmatrix_x4(b[n], gemm_segment(stage, shape::n_rows + n * 8 + lane % 8, 2 * step + lane / 8));
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            if ((step + half) * 16 >= n_cols)
                break;
#pragma unroll
            for (uint32_t r = 0; r < shape::row_tiles; r++) {
                uint32_t w[4];
                gemm_load_a(w, stage, r * 16, step + half);
#pragma unroll
                for (uint32_t n = 0; n < shape::token_tiles; n++)
                    mma_f16(c[r][n], w, b[n][2 * half], b[n][2 * half + 1]);
            }
        }
    }
}

/* The columns of a warp, in the order of its stages. */
template <bool is_split> struct small_columns {
    uint32_t col, n_cols;
    uint32_t mid, last; /* ranges: [first, mid) and [mid, last) are segments */
    uint32_t skipped; /* chunks: columns of other warps after each of this warp's */

    __device__ bool is_in() const
    {
        return col < (is_split ? n_cols : last);
    }
    __device__ void step()
    {
        uint32_t end = col < mid ? mid : last;
        col += GEMM_TILE_COLS;
        if (is_split)
            col += col % GEMM_CHUNK == 0 ? skipped : 0;
        else
            col = min(col, end);
    }
};

template <class shape, bool is_split> struct small_ring {
    unsigned char *begin, *stage, *freed; /* freed: the previous stage, the destination of the next copy */
    struct small_columns<is_split> at; /* the columns of that copy */
};

template <bool is_gated, class shape, bool is_split>
GEMM_FN void fill_ring(const struct small_source<shape> &s, struct small_ring<shape, is_split> &ring)
{
#pragma unroll 1
    for (uint32_t i = 0; i + 1 < shape::n_stages; i++) {
        if (ring.at.is_in())
            copy_stage<is_gated, shape>(s, ring.begin + i * shape::stage_bytes, ring.at.col);
        cp_async_commit();
        ring.at.step();
    }
}

/* Waits for the next stage, refills the previous one, and multiplies n_cols columns; 0 or less: no product. */
template <bool is_gated, class shape, bool is_split>
GEMM_FN void use_stage(small_sums<shape> &c, const struct small_source<shape> &s,
                       struct small_ring<shape, is_split> &ring, uint32_t n_cols)
{
    cp_async_wait<(int)shape::n_stages - 2>();
    __syncwarp(); /* the stage is visible to all lanes, and all have used the previous one */
    if (ring.at.is_in())
        copy_stage<is_gated, shape>(s, ring.freed, ring.at.col);
    cp_async_commit();
    ring.at.step();
    multiply_stage<shape>(c, ring.stage, n_cols);
    ring.freed = ring.stage;
    ring.stage += shape::stage_bytes;
    if (ring.stage == ring.begin + shape::warp_bytes)
        ring.stage = ring.begin;
}

/* ---- sums ---- */

/* Stores a warp's sums in shared memory, [tokens][rows]. */
template <class shape> GEMM_FN void put_sums(const small_sums<shape> &c, float *sums)
{
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t r = 0; r < shape::row_tiles; r++)
#pragma unroll
        for (uint32_t n = 0; n < shape::token_tiles; n++)
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                sums[(n * 8 + lane % 4 * 2 + i % 2) * shape::n_rows + r * 16 + i / 2 * 8 + lane / 4] = c[r][n][i];
}

/* The outputs that a thread stores, of the row tile that the warps of a group share. */
template <class shape> struct small_outputs {
    static constexpr uint32_t most = shape::n_own_outputs;
    float y[most];
};

/* Returns the index of the thread's i-th output within [tokens][rows]; at least shape::n_outputs, for the whole warp,
 * if it does not exist. */
GEMM_FN uint32_t output_at(const struct small_split &split, uint32_t i)
{
    uint32_t own_split = threadIdx.x / 32 % split.n_splits;
    return (i * split.n_splits + own_split) * 32 + threadIdx.x % 32;
}

/* The warps of a row tile add the sums of their chunks of a round; each thread adds those of its own outputs. */
template <class shape>
GEMM_FN void add_round(const struct small_split &split, uint32_t n_sums, const small_sums<shape> &c, unsigned char *own,
                       struct small_outputs<shape> &out)
{
    __syncwarp(); /* all lanes have read the stage that was there */
    put_sums<shape>(c, (float *)own);
    __syncthreads();
    const unsigned char *first = own - threadIdx.x / 32 % split.n_splits * shape::warp_bytes;
#pragma unroll 1
    for (uint32_t s = 0; s < n_sums; s++) {
        const float *sums = (const float *)(first + s * shape::warp_bytes);
#pragma unroll
        for (uint32_t i = 0; i < out.most; i++)
            if (output_at(split, i) < shape::n_outputs)
                out.y[i] += sums[output_at(split, i)];
    }
    __syncthreads();
}

/* Processes chunks in rounds. After each round, the last used stage is the buffer for exchanging sums. At the end a
 * thread's outputs are in the first warp's ring, where the thread reads them again. */
template <bool is_gated, class shape>
GEMM_FN void sum_rounds(const struct small_source<shape> &s, struct small_ring<shape, true> &ring,
                        const struct small_split &split)
{
    struct small_outputs<shape> out;
    uint32_t own_split = threadIdx.x / 32 % split.n_splits, n_cols = ring.at.n_cols;
    uint32_t n_chunks = (n_cols + GEMM_CHUNK - 1) / GEMM_CHUNK;
#pragma unroll
    for (uint32_t i = 0; i < out.most; i++)
        out.y[i] = -0.0f; /* -0 + c is c */
    for (uint32_t chunk = 0; chunk < n_chunks; chunk += split.n_splits) {
        small_sums<shape> c;
        small_fill<shape>(c, 0.0f);
        uint32_t col = (chunk + own_split) * GEMM_CHUNK;
#pragma unroll 1
        for (uint32_t i = 0; i < GEMM_TILES_IN_CHUNK; i++, col += GEMM_TILE_COLS)
            use_stage<is_gated, shape>(c, s, ring, col < n_cols ? n_cols - col : 0);
        add_round<shape>(split, min(split.n_splits, n_chunks - chunk), c, ring.freed, out);
    }
#pragma unroll
    for (uint32_t i = 0; i < out.most; i++)
        if (output_at(split, i) < shape::n_outputs)
            ((float *)(ring.begin - own_split * shape::warp_bytes))[output_at(split, i)] = out.y[i];
}

/* Processes all columns of the warp, up to two segments: the chunks of each in rising order, and the sum of both. A
 * segment without columns is -0, which changes no number. */
template <bool is_gated, class shape>
GEMM_FN void sum_ranges(const struct small_source<shape> &s, struct small_ring<shape, false> &ring, uint32_t col,
                        small_sums<shape> &total)
{
    uint32_t mid = ring.at.mid, last = ring.at.last;
    small_sums<shape> of_first, c;
    small_fill<shape>(of_first, -0.0f);
    small_fill<shape>(total, -0.0f);
    while (col < last) {
        uint32_t end = min(col + GEMM_CHUNK, col < mid ? mid : last);
        small_fill<shape>(c, 0.0f);
#pragma unroll 1
        for (; col < end; col += GEMM_TILE_COLS)
            use_stage<is_gated, shape>(c, s, ring, end - col);
        col = end;
        small_add<shape>(total, c);
        if (col == mid) {
            small_add<shape>(of_first, total); /* -0 + a sum is that sum */
            small_fill<shape>(total, -0.0f);
        }
    }
    small_add<shape>(total, of_first);
}

/* Writes the sums of n_parts rings to memory: one sum, or those of 8 segments in pairs. */
template <bool is_gated, class shape>
GEMM_FN void store_outputs(const struct gemm_mma_args &a, const struct small_split &split, uint32_t first_row,
                           const unsigned char *first_ring, uint32_t n_parts)
{
    constexpr uint32_t next = shape::warp_bytes / 4, most = shape::n_own_outputs;
#pragma unroll(most < 4 ? most : 4)
    for (uint32_t i = 0; i < most; i++) {
        uint32_t at = output_at(split, i);
        if (at >= shape::n_outputs)
            break;
        uint32_t row = gemm_matrix_row<is_gated, shape::n_rows>(a, first_row, at % shape::n_rows),
                 token = at / shape::n_rows;
        const float *sum = (const float *)first_ring + at;
        float y = n_parts == 1 ? sum[0] : (sum[0] + sum[next]) + (sum[2 * next] + sum[3 * next]);
        struct gemm_row r = gemm_row_of(a, row);
        y = y * r.scale + r.bias;
        if (is_gated) {
            float up = __shfl_down_sync(~0u, y, shape::n_rows / 2);
            if (row < a.n_rows / 2 && token < a.n_tokens)
                store1(a.y, a.y_is_factors, gemm_out_row<shape::is_grouped>(a, token) * (uint64_t)(a.n_rows / 2) + row,
                       k_gated(a.gate, y, up));
        } else if (row < a.n_rows && token < a.n_tokens) {
            a.y[gemm_out_row<shape::is_grouped>(a, token) * (uint64_t)a.n_rows + row] = y;
        }
    }
}

/* Computes the block's tile of rows. */
template <bool is_gated, bool is_split, class shape>
GEMM_FN void multiply_tile(const struct gemm_mma_args &a, const uint16_t *factors, uint32_t stride,
                           const struct small_split &split, uint32_t block)
{
    uint32_t warp = threadIdx.x / 32, own_split = warp % split.n_splits, n_groups = blockDim.x / 32 / split.n_splits;
    uint32_t first_row = (block * n_groups + warp / split.n_splits) * shape::n_rows;
    struct small_source<shape> s = source_of<is_gated, shape>(a, factors, stride, first_row);
    unsigned char *begin = k_shared + warp * shape::warp_bytes;
    struct small_ring<shape, is_split> ring = {
        begin, begin, begin + (shape::n_stages - 1) * shape::stage_bytes,
        {
        }
    };
    ring.at.n_cols = a.n_cols;
    if constexpr (is_split) {
        ring.at.col = own_split * GEMM_CHUNK;
        ring.at.skipped = (split.n_splits - 1) * GEMM_CHUNK;
        fill_ring<is_gated, shape>(s, ring);
        sum_rounds<is_gated, shape>(s, ring, split);
    } else {
        uint32_t first = k_segment_begin_in(a.n_cols, a.n_whole, a.first_col, a.unit, 2 * own_split);
        ring.at.mid = k_segment_begin_in(a.n_cols, a.n_whole, a.first_col, a.unit, 2 * own_split + 1);
        ring.at.last = k_segment_begin_in(a.n_cols, a.n_whole, a.first_col, a.unit, 2 * own_split + 2);
        ring.at.col = first;
        fill_ring<is_gated, shape>(s, ring);
        small_sums<shape> total;
        sum_ranges<is_gated, shape>(s, ring, first, total);
        cp_async_wait<0>();
        __syncwarp(); /* all lanes have read the last stage */
        put_sums<shape>(total, (float *)begin);
        __syncthreads();
    }
    store_outputs<is_gated, shape>(a, split, first_row, begin - own_split * shape::warp_bytes,
                                   is_split ? 1 : split.n_splits);
}

template <bool is_gated, bool is_split, class shape>
static __global__ void __launch_bounds__(WARPS * 32, 2)
    gemm_small(const struct gemm_mma_args a, const uint16_t *factors, uint32_t stride, const struct small_split split)
{
    multiply_tile<is_gated, is_split, shape>(a, factors, stride, split, blockIdx.x);
}

/* The experts' (moe/list.h): n_row_blocks blocks for each tile of the list. */
template <bool is_gated, bool is_split, class shape>
static __global__ void __launch_bounds__(WARPS * 32, 2)
    gemm_small_grouped(const struct gemm_mma_args all, const uint16_t *factors, uint32_t stride,
                       const struct small_split split, const struct cuda_moe_list list, uint32_t n_row_blocks)
{
    const uint32_t tile = blockIdx.x / n_row_blocks;
    if (tile >= *list.n_tiles_dev)
        return;
    const struct gemm_mma_args a = gemm_of_tile(all, list, tile);
    multiply_tile<is_gated, is_split, gemm_grouped<shape>>(a, factors, stride, split, blockIdx.x % n_row_blocks);
}

/* ---- launches ---- */

/* Selects how chunks are spread. Affects only the speed: the order of the sums is always the same. */
template <class shape> static struct small_split split_of(const struct gemm_mma_args &a, uint32_t n_row_tiles)
{
    uint32_t n_chunks = (a.n_cols + GEMM_CHUNK - 1) / GEMM_CHUNK;
    uint32_t wanted = (shape::wide_warps + n_row_tiles - 1) / n_row_tiles;
    uint32_t most = wanted < WARPS ? wanted : WARPS, n_rounds = (n_chunks + most - 1) / most;
    struct small_split split = {(n_chunks + n_rounds - 1) / n_rounds, n_rounds};
    if (a.unit)
        split.n_splits = PAIRS;
    return split;
}

/* The activations' factors, by which the kernels multiply the weights. */
struct small_factors {
    cudaStream_t stream;
    const uint16_t *at;
    uint32_t stride;
};

template <bool is_gated, bool is_split, class shape>
static cudaError_t launch(const struct small_factors &f, const struct gemm_mma_args &a, uint32_t n_row_tiles,
                          const struct small_split &split)
{
    uint32_t n_groups = WARPS / split.n_splits, n_warps = n_groups * split.n_splits;
    /* Always sets the maximum: a recorded launch of more warps must not meet the limit that a later, narrower launch
     * has set. */
    cudaError_t error = cudaFuncSetAttribute(gemm_small<is_gated, is_split, shape>,
                                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             (int)(WARPS * shape::warp_bytes));
    if (error != cudaSuccess)
        return error;
    return K_LAUNCH((gemm_small<is_gated, is_split, shape>), dim3((n_row_tiles + n_groups - 1) / n_groups),
                    dim3(n_warps * 32), n_warps * shape::warp_bytes, f.stream, a, f.at, f.stride, split);
}

template <bool is_gated, class shape>
static cudaError_t launch_by_split(const struct small_factors &f, const struct gemm_mma_args &a)
{
    uint32_t n_row_tiles = (a.n_rows + shape::n_rows - 1) / shape::n_rows;
    struct small_split split = split_of<shape>(a, n_row_tiles);
    if (split.n_splits > 1 && !a.unit)
        return launch<is_gated, true, shape>(f, a, n_row_tiles, split);
    return launch<is_gated, false, shape>(f, a, n_row_tiles, split);
}

template <class shape> static bool fills_gpu(const struct gemm_mma_args &a)
{
    uint32_t n_row_tiles = (a.n_rows + shape::n_rows - 1) / shape::n_rows;
    uint32_t n_groups = WARPS / split_of<shape>(a, n_row_tiles).n_splits;
    return n_row_tiles >= FILLING_BLOCKS * n_groups;
}

template <bool is_gated>
static cudaError_t launch_by_tokens(const struct small_factors &f, const struct gemm_mma_args &a)
{
    if (a.n_tokens <= 8)
        return fills_gpu<small_shape<1, 2, 4>>(a) ? launch_by_split<is_gated, small_shape<1, 2, 4>>(f, a)
                                                  : launch_by_split<is_gated, small_shape<1, 1, 6>>(f, a);
    if (a.n_tokens <= 16)
        return a.n_rows < NARROW_ROWS ? launch_by_split<is_gated, small_shape<2, 1, 6>>(f, a)
                                      : launch_by_split<is_gated, small_shape<2, 2, 4>>(f, a);
    return launch_by_split<is_gated, small_shape<4, 2, 3>>(f, a);
}

using small_spread = small_shape<8, 3, 3, WARPS>;
static_assert(WARPS * small_spread::warp_bytes == GEMM_SPREAD_SHARED_BYTES && small_spread::n_rows == GEMM_SPREAD_ROWS,
              "what gemm_large.cu reckons with");

cudaError_t launch_gemm_spread(cudaStream_t stream, const struct gemm_mma_args &a, const uint16_t *factors,
                               uint32_t stride)
{
    const struct small_factors f = {stream, factors, stride};
    uint32_t n_chunks = (a.n_cols + GEMM_CHUNK - 1) / GEMM_CHUNK;
    const struct small_split split = {WARPS, (n_chunks + WARPS - 1) / WARPS};
    return launch<false, true, small_spread>(f, a, (a.n_rows + GEMM_SPREAD_ROWS - 1) / GEMM_SPREAD_ROWS, split);
}

cudaError_t launch_gemm_small(const struct k_kernel *kernel, const struct cuda_gemm_call *call)
{
    (void)kernel;
    const struct k_gemm_args *args = call->args;
    const struct cuda_gated *gated = call->gated;
    cudaStream_t stream = call->stream;
    struct gemm_mma_args a = gemm_mma_args_of(args, gated);
    void *made = args->workspace_dev;
    cudaError_t error = a.x_is_factors ? cudaSuccess : launch_gemm_factors(stream, args, made);
    if (error != cudaSuccess)
        return error;
    const struct small_factors f = {stream, (const uint16_t *)(a.x_is_factors ? (const void *)a.x : made),
                                    cuda_gemm_factor_stride(a.n_cols)};
    return gated ? launch_by_tokens<true>(f, a) : launch_by_tokens<false>(f, a);
}

/* ---- the experts' launches ---- */

template <bool is_gated, bool is_split, class shape>
static cudaError_t launch_tiles(const struct cuda_gemm_call *call, const struct small_factors &f,
                                const struct gemm_mma_args &a, uint32_t n_tiles, uint32_t n_row_tiles,
                                const struct small_split &split)
{
    uint32_t n_groups = WARPS / split.n_splits, n_warps = n_groups * split.n_splits;
    uint32_t n_row_blocks = (n_row_tiles + n_groups - 1) / n_groups;
    cudaError_t error = cudaFuncSetAttribute(gemm_small_grouped<is_gated, is_split, shape>,
                                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             (int)(WARPS * shape::warp_bytes)); /* as launch() */
    if (error != cudaSuccess)
        return error;
    return K_LAUNCH((gemm_small_grouped<is_gated, is_split, shape>), dim3(n_tiles * n_row_blocks), dim3(n_warps * 32),
                    n_warps * shape::warp_bytes, f.stream, a, f.at, f.stride, split, call->moe->list, n_row_blocks);
}

/* Chunks are spread only over the tiles of the fewest tokens: with more there are enough blocks. */
template <bool is_gated, bool may_split, class shape>
static cudaError_t launch_grouped(const struct cuda_gemm_call *call, const struct small_factors &f,
                                  const struct gemm_mma_args &a)
{
    const uint32_t n_tiles = cuda_moe_most_tiles(call->moe, call->args->weight->n_experts, shape::n_tokens);
    const uint32_t n_row_tiles = (a.n_rows + shape::n_rows - 1) / shape::n_rows;
    struct small_split split = split_of<shape>(a, n_row_tiles * n_tiles);
    const bool is_split = split.n_splits > 1 && !a.unit;
    cudaError_t error = launch_moe_list(f.stream, call->moe, call->gated, call->args->weight->n_experts, a.n_rows,
                                        shape::n_tokens);
    if (error != cudaSuccess)
        return error;
    if constexpr (may_split)
        if (is_split)
            return launch_tiles<is_gated, true, shape>(call, f, a, n_tiles, n_row_tiles, split);
    if (is_split)
        split = {1, 1};
    return launch_tiles<is_gated, false, shape>(call, f, a, n_tiles, n_row_tiles, split);
}

template <bool is_gated>
static cudaError_t launch_grouped_by_tokens(const struct cuda_gemm_call *call, const struct small_factors &f,
                                            const struct gemm_mma_args &a, uint32_t tokens)
{
    if (tokens == 8)
        return launch_grouped<is_gated, true, small_shape<1, 2, 4>>(call, f, a);
    if (tokens == 16)
        return launch_grouped<is_gated, false, small_shape<2, 2, 4>>(call, f, a);
    return launch_grouped<is_gated, false, small_shape<4, 2, 3>>(call, f, a);
}

cudaError_t launch_gemm_small_grouped(const struct k_kernel *kernel, const struct cuda_gemm_call *call)
{
    struct gemm_mma_args a = gemm_mma_args_of(call->args, call->gated);
    void *made = call->args->workspace_dev;
    cudaError_t error = a.x_is_factors ? cudaSuccess : launch_gemm_factors(call->stream, call->args, made);
    if (error != cudaSuccess)
        return error;
    const struct small_factors f = {call->stream, (const uint16_t *)(a.x_is_factors ? (const void *)a.x : made),
                                    cuda_gemm_factor_stride(a.n_cols)};
    return call->gated ? launch_grouped_by_tokens<true>(call, f, a, kernel->variant)
                       : launch_grouped_by_tokens<false>(call, f, a, kernel->variant);
}
