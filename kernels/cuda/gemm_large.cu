/* The mma GEMM for many tokens. If the activations are floats, a pass (elementwise.cu) first writes their factors into
 * the workspace. Then blocks of rows x tokens process the columns, 64 per stage, with a ring of stages in shared
 * memory.
 *
 * The limit is the port of shared memory, 128 bytes per clock and SM, because mma.sync reads its factors from
 * registers. The next limit is the tensor cores by mma.sync: 2,680 flops per clock (620 TFLOP/s of an H100), where
 * wgmma has 4,096. A stage of a block of R x T in warps of r x t moves (R + T) x 128 bytes into shared memory and, for
 * each warp, (r + t) x 128 out:
 *
 *   R x T       warps        bytes a flop   port's limit   stages
 *   192 x 128   8 of 48 x 64     0.050       600 TFLOP/s   4 of 40 KB: GPUs with 160 KB per block
 *   128 x 128   8 of 32 x 64     0.063       474           3 of 32 KB: all
 *    64 x  64   4 of 32 x 32     0.094       316           5 of 16 KB: all
 *
 * A chunk's sums need a second set of registers in addition to those of all chunks. This limits a warp: 2 x 96
 * registers of 255 for 48 x 64. For 64 x 64 both sets would be all registers. One of them in shared memory would move
 * 256 KB for each 8 stages of 96 KB, and gain nothing. A stage of 192 x 128 is 285 instructions per warp on sm_90a (96
 * mma.sync, 28 ldmatrix, 10 cp.async), 570 of its scheduler's 1,216 clocks. A stage of 128 x 128 is 227; it was 378
 * while BF16 was converted to factors here.
 *
 * Selection of the shape: the one whose waves of blocks take the fewest clocks of the port. At 2,048 tokens and 4,096
 * rows that is 3 waves of 192 x 128 (1,216 clocks per stage) and not 4 of 128 x 128 (1,024).
 *
 * Segments (docs/internals/numerics.md §5): the sums of a segment that wait for their partner are in memory, at most
 * three sets per block, each thread's own, 16 bytes at a time. A tile writes and reads 7 sets: 1.3 MB of L2 in addition
 * to 2.6 MB of factors for 4,096 columns and 9.2 MB for 14,336; the writes overlap the next stages. To limit the sets
 * to the number of SMs, only as many blocks run as fit, and each loops over tiles.
 *
 * 33 to 64 tokens read all weights and multiply little: memory is the limit if every SM reads. 26 KB of weights must be
 * in flight on each SM, as in gemm_small.cu, and the port has 1,232 clocks for 16 KB of them at 13 bytes per clock:
 *
 *   R x T       warps        port, of 16 KB   weights in flight   blocks
 *   224 x  64   7 of 32 x 64       537             84 KB          gate and up, 28,672 rows: 128, with 160 KB per block
 *   128 x  64   4 of 32 x 64       576             48             o and down, 4,096 rows: 32, by 4 that share segments
 *    64 x  64   4 of 32 x 32       768             32             small ones
 *    48 x  64   4 of 48 x 64       597             48             qkv, 6,144 rows: 128 of gemm_small.cu, with 168 KB
 *
 * - With 112 rows of gate and of up per block, 28,672 rows are 128 blocks, a wave of 132 SMs. With 128 they are 224,
 *   and two waves are 0.85 full.
 * - The segments of a tile are distributed to up to 4 blocks, 8 / n each, which is a subtree. Each block stores its sum
 *   where it would wait for its partner. The block that arrives last, by a counter, folds them, so no second launch is
 *   needed. 64 x 64 by two blocks also fills the SMs and ends sooner (it reads 16 KB of others' sums instead of 96: 0.4
 *   us instead of 1.3), but takes 7 % more clocks per column. For 4,096 columns they are equal; for 14,336 the larger
 *   tile gains 6 %. 8 owners would double the data that is folded.
 * - GEMMs without segments add their chunks in rising order: one block. Tiles of 48 x 64 whose warps of 48 x 16 share
 *   each stage were tried for qkv: 380 clocks of the port and 194 of instructions for 6 KB. By the model that is 0.67
 *   of bandwidth; 64 x 64 has 0.68 on 96 SMs, each of which then gets more bandwidth. So in gemm_small.cu's kernel a
 *   warp has the whole tile, of every fourth chunk, and reads the factors of both sides once: 227 and 85.
 *
 * The selection affects only the speed: an output's sum is the same in all shapes and in gemm_small.cu.
 */
#include "kernels/cuda/gemm.cuh"
#include "kernels/cuda/plan/plan.h"
#include "kernels/math/gate.h"
#include "kernels/segments.h"

K_DYNAMIC_SHARED;

#define FEW_TOKENS 64u
#define MOST_OWNERS 4u /* blocks that share a tile's segments */
/* Tiles of this many tokens share one pass over the weights: with 14,336 columns 29 MB, which L2 holds. */
#define GROUP_TOKENS 1024u

/* ---- shapes ---- */

template <uint32_t rows, uint32_t tokens, uint32_t row_warps, uint32_t token_warps, uint32_t stages>
struct large_shape {
    static constexpr bool is_grouped = false;
    static constexpr uint32_t n_rows = rows, n_tokens = tokens, n_row_warps = row_warps, n_stages = stages;
    static constexpr uint32_t n_threads = row_warps * token_warps * 32;
    static constexpr uint32_t warp_rows = rows / row_warps, warp_tokens = tokens / token_warps;
    static constexpr uint32_t n_row_tiles = warp_rows / 16, n_token_tiles = warp_tokens / 8;
    static constexpr uint32_t n_sums = n_row_tiles * n_token_tiles * 4; /* per thread */
    static constexpr uint32_t stage_bytes = (rows + tokens) * GEMM_TILE_ROW_BYTES;
    static constexpr uint32_t out_stride = rows + 4; /* the 4 x 8 outputs of an instruction are in different banks */
    static constexpr uint32_t out_bytes = out_stride * tokens * 4;
    static constexpr uint32_t shared_bytes = stages * stage_bytes;
    static constexpr uint32_t waiting_bytes = 3 * rows * tokens * 4; /* sums of segments that wait for others */
    static constexpr uint32_t port_clocks = row_warps * token_warps * (warp_rows + warp_tokens) + rows + tokens;
    static constexpr uint32_t blocks_on_sm = shared_bytes <= 80 * 1024 ? 2 : 1;
    static constexpr bool is_of_few_tokens = tokens == FEW_TOKENS;
    static_assert(out_bytes + rows * 8 <= shared_bytes, "outputs pass where the stages were");
    static_assert(n_threads >= rows, "a row's scale and bias are one thread's");
};
using shape_192 = large_shape<192, 128, 4, 2, 4>;
using shape_128 = large_shape<128, 128, 4, 2, 3>;
using shape_64 = large_shape<64, 64, 2, 2, 5>;
using shape_224_few = large_shape<224, 64, 7, 1, 4>;
using shape_128_few = large_shape<128, 64, 4, 1, 4>;
static_assert(shape_128::shared_bytes <= 99 * 1024 && shape_64::shared_bytes <= 99 * 1024, "the smallest GPU's block");
static_assert(shape_128_few::shared_bytes <= 99 * 1024, "the same");

/* The tiles of a GEMM. Concurrent tiles share weights: within up to GROUP_TOKENS tokens, the tokens vary first. */
struct large_tiles {
    uint32_t n_row_tiles, n_token_tiles;
};

template <class shape> static struct large_tiles large_tiles_of(const struct gemm_mma_args &a)
{
    struct large_tiles t = {(a.n_rows + shape::n_rows - 1) / shape::n_rows,
                            (a.n_tokens + shape::n_tokens - 1) / shape::n_tokens};
    return t;
}

template <class shape> struct large_place {
    /* Rows of a tile that a thread copies. */
    static constexpr uint32_t n_own = (shape::n_tokens * 8 + shape::n_threads - 1) / shape::n_threads;
    uint32_t row, token; /* the first row and token of a tile */
    uint32_t x_rows[shape::is_grouped ? n_own : 1]; /* grouped: the rows of x that the thread copies */
};

template <class shape> GEMM_FN struct large_place<shape> large_place_of(const struct large_tiles &tiles, uint32_t tile)
{
    constexpr uint32_t most = GROUP_TOKENS / shape::n_tokens;
    uint32_t group = tile / (tiles.n_row_tiles * most), in_group = tile % (tiles.n_row_tiles * most);
    uint32_t width = min(tiles.n_token_tiles - group * most, most);
    struct large_place<shape> p = {
        in_group / width *shape::n_rows, (group * most + in_group % width) * shape::n_tokens,
        {
        }
    };
    return p;
}

/* The place of a tile of the list (moe/list.h), at rows of the matrix from `row` on. */
template <class shape> GEMM_FN struct large_place<shape> grouped_place_of(const struct gemm_mma_args &a, uint32_t row)
{
    struct large_place<shape> p = {
        row, 0,
        {
        }
    };
#pragma unroll
    for (uint32_t i = 0; i < p.n_own; i++)
        p.x_rows[i] = gemm_grouped_x_row(a, threadIdx.x / 8 + i * (shape::n_threads / 8));
    return p;
}

/* ---- the columns ---- */

/* The start of the next stage to copy. A stage that extends past its segment copies columns that are not used. */
struct large_cursor {
    uint32_t col, end, segment; /* end and segment: for GEMMs in segments */
    uint32_t last; /* the end of the block's columns */
};

GEMM_FN void large_skip_segments(struct large_cursor &at, const uint32_t *begins)
{
    while (at.col >= at.end && at.end < at.last) {
        at.col = at.end;
        at.end = begins[++at.segment + 1];
    }
}

/* Copies columns [col, col + 64) of a block's rows. `matrix` points to the first row, and n_left rows exist. The code
 * advances pointers instead of keeping one per row, because registers are scarce. */
template <uint32_t n_rows, uint32_t n_threads>
GEMM_FN void copy_rows(unsigned char *tile, const unsigned char *matrix, uint64_t stride_bytes, uint32_t n_left,
                       uint32_t col, uint32_t n_cols)
{
    constexpr uint32_t rows_each = n_threads / 8;
    static_assert(rows_each % 4 == 0, "a thread's segments lie at one place of their rows, or at two in turn");
    uint32_t row = threadIdx.x / 8, first = col + threadIdx.x % 8 * 8;
    const unsigned char *from = matrix + row * stride_bytes + first * (uint64_t)2;
    unsigned char *even = gemm_segment(tile, row, threadIdx.x % 8), *odd = even;
    if (rows_each % 8 != 0)
        odd = gemm_segment(tile, row + rows_each, threadIdx.x % 8) - rows_each * GEMM_TILE_ROW_BYTES;
#pragma unroll
    for (uint32_t i = 0; i * rows_each < n_rows; i++) {
        bool valid = row + i * rows_each < n_left && first < n_cols;
        if ((i + 1) * rows_each <= n_rows || row + i * rows_each < n_rows)
            cp_async16((i % 2 ? odd : even) + i * rows_each * GEMM_TILE_ROW_BYTES, valid ? from : matrix, valid);
        from += rows_each * stride_bytes;
    }
}

/* Copies columns [col, col + 64) of the rows of x of a grouped tile. */
template <class shape>
GEMM_FN void copy_choices(unsigned char *tile, const uint16_t *factors, uint32_t stride,
                          const struct large_place<shape> &place, uint32_t n_left, uint32_t col)
{
    constexpr uint32_t rows_each = shape::n_threads / 8;
    uint32_t row = threadIdx.x / 8, segment = threadIdx.x % 8, first = col + segment * 8;
    static_assert(shape::n_tokens % rows_each == 0, "all threads copy the same number of rows");
#pragma unroll
    for (uint32_t i = 0; i < place.n_own; i++) {
        bool valid = row + i * rows_each < n_left && first < stride;
        const uint16_t *from = factors + place.x_rows[shape::is_grouped ? i : 0] * (uint64_t)stride + first;
        cp_async16(gemm_segment(tile, row + i * rows_each, segment), valid ? from : factors, valid);
    }
}

/* Copies the stage at the cursor and advances it: rows of weights, then rows of activations. Always commits a group,
 * which may be empty. */
template <bool is_gated, bool is_segmented, class shape>
GEMM_FN void copy_stage(const struct gemm_mma_args &a, const uint16_t *factors, uint32_t stride,
                        const struct large_place<shape> &first, unsigned char *stage, struct large_cursor &at,
                        const uint32_t *begins)
{
    uint32_t col = at.col;
    if (col < (is_segmented ? at.last : a.n_cols)) {
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
        unsigned char *tokens = stage + shape::n_rows * GEMM_TILE_ROW_BYTES;
        if constexpr (shape::is_grouped)
            copy_choices<shape>(tokens, factors, stride, first, a.n_tokens, col);
        else
            copy_rows<shape::n_tokens, shape::n_threads>(
                tokens, (const unsigned char *)(factors + (uint64_t)first.token * stride), stride * (uint64_t)2,
                a.n_tokens - first.token, col, stride);
    }
    cp_async_commit();
    at.col += GEMM_TILE_COLS;
    if (is_segmented)
        large_skip_segments(at, begins);
}

/* ---- the products ---- */

template <class shape> using large_sums = float[shape::n_row_tiles][shape::n_token_tiles][4];

/* Returns element i of a thread's sums, in the order of their indices. */
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

/* Adds the products of the stage's first n_cols columns, for the warp's rows and tokens, to c. */
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

/* The position in the ring from which the stages of one tile are read. */
template <class shape> struct large_ring {
    uint32_t slot, free_slot;
};

/* Sets total to the sum of the chunks of columns [col, end). */
template <bool is_gated, bool is_segmented, class shape>
GEMM_FN void sum_segment(large_sums<shape> &total, const struct gemm_mma_args &a, const uint16_t *factors,
                         uint32_t stride, const struct large_place<shape> &first, struct large_ring<shape> &ring,
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
            __syncthreads(); /* the stage is visible to all, and all have used the previous one */
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

/* After segment i: adds its sum to those that waited for it; then it waits itself, unless it is the last. An empty sum
 * is -0, which changes no number. */
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
    if (own - waiting >= 3 * n_words * shape::n_threads) /* all segments are done */
        return;
#pragma unroll
    for (uint32_t w = 0; w < n_words; w++)
        own[w * shape::n_threads] = make_float4(large_sum<shape>(total, 4 * w), large_sum<shape>(total, 4 * w + 1),
                                                large_sum<shape>(total, 4 * w + 2), large_sum<shape>(total, 4 * w + 3));
}

/* Returns the address of element i of word w of a thread's sums in the tile in shared memory, [tokens][rows]. */
template <class shape> GEMM_FN float *large_out(uint32_t w, uint32_t i)
{
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t row = warp % shape::n_row_warps * shape::warp_rows, token = warp / shape::n_row_warps * shape::warp_tokens;
    return (float *)k_shared + (token + w % shape::n_token_tiles * 8 + lane % 4 * 2 + i % 2) * shape::out_stride + row +
           w / shape::n_token_tiles * 16 + i / 2 * 8 + lane / 4;
}

/* Turns the tile in shared memory, which has one owner's segments, into that of all owners, each thread its own sums:
 * the tree of docs/internals/numerics.md §5 above the owners' parts. The computation is the same from every leaf,
 * because an addition is commutative: owner i is added to i ^ 1, and then to the pair of i ^ 2 and i ^ 3. of_first:
 * where the first owner's sums wait. */
template <class shape> GEMM_FN void fold_owners(uint32_t n_owners, uint32_t own, const float4 *of_first)
{
    constexpr uint32_t n_words = shape::n_sums / 4, next = shape::waiting_bytes / 16;
    const float4 none = make_float4(-0.0f, -0.0f, -0.0f, -0.0f); /* changes no number */
#pragma unroll 4
    for (uint32_t w = 0; w < n_words; w++) {
        const float4 *at = of_first + w * shape::n_threads + threadIdx.x;
        float4 b = at[(own ^ 1) * next], c = n_owners > 2 ? at[(own ^ 2) * next] : none,
               d = n_owners > 2 ? at[(own ^ 3) * next] : none;
        *large_out<shape>(w, 0) = (*large_out<shape>(w, 0) + b.x) + (c.x + d.x);
        *large_out<shape>(w, 1) = (*large_out<shape>(w, 1) + b.y) + (c.y + d.y);
        *large_out<shape>(w, 2) = (*large_out<shape>(w, 2) + b.z) + (c.z + d.z);
        *large_out<shape>(w, 3) = (*large_out<shape>(w, 3) + b.w) + (c.w + d.w);
    }
}

/* Stores a tile's sums in shared memory, so that a warp's stores are contiguous. */
template <class shape> GEMM_FN void put_tile(large_sums<shape> &total)
{
#pragma unroll
    for (uint32_t i = 0; i < shape::n_sums; i++)
        *large_out<shape>(i / 4, i % 4) = large_sum<shape>(total, i);
}

/* Writes the tile in shared memory to memory. Each row's scale and bias follow the tile in shared memory. is_vector:
 * four rows of y at a time. */
template <bool is_gated, class shape>
GEMM_FN void store_tile(const struct gemm_mma_args &a, const struct large_place<shape> &first, bool is_vector)
{
    constexpr uint32_t n_out = is_gated ? shape::n_rows / 2 : shape::n_rows; /* rows of y in the block */
    uint32_t n_y = is_gated ? a.n_rows / 2 : a.n_rows;
    float *out = (float *)k_shared, *scale = (float *)(k_shared + shape::out_bytes), *bias = scale + shape::n_rows;
    if (threadIdx.x < shape::n_rows) {
        struct gemm_row r = gemm_row_of(a, gemm_matrix_row<is_gated, shape::n_rows>(a, first.row, threadIdx.x));
        scale[threadIdx.x] = r.scale;
        bias[threadIdx.x] = r.bias;
    }
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
                y[r] = k_gated(a.gate, y[r], sum[n_out] * scale[n_out + own + r] + bias[n_out + own + r]);
        }
        uint64_t at = (uint64_t)gemm_out_row<shape::is_grouped>(a, first.token + t) * n_y + first_y + own;
        if (is_vector && first_y + own < n_y)
            store4(a.y, is_gated && a.y_is_factors, at, make_float4(y[0], y[1], y[2], y[3]));
#pragma unroll
        for (uint32_t r = 0; r < 4; r++)
            if (!is_vector && first_y + own + r < n_y)
                store1(a.y, is_gated && a.y_is_factors, at + r, y[r]);
    }
}

/* The blocks that share a tile's segments. Each has 8 / n of them, which are a subtree. */
struct large_owners {
    uint32_t n;
    uint32_t *arrivals_dev; /* one per tile; all are 0 between launches */
};

/* Stores the tile's sums in shared memory, and adds the other owners'. Returns false if a later block does that. */
template <class shape>
GEMM_FN bool put_whole_tile(large_sums<shape> &total, const struct large_owners &owners, uint32_t n_owners,
                            uint32_t item, const float4 *waiting)
{
    uint32_t own = item % n_owners;
    if (n_owners > 1 && !cuda_is_last_to_arrive(&owners.arrivals_dev[item / n_owners], n_owners))
        return false;
    put_tile<shape>(total);
    /* An owner's sum waits for the other owners' at the same place where a segment's sum waits for its partner. */
    uint32_t level = n_owners == 4 ? 1 : 2;
    if (n_owners > 1)
        fold_owners<shape>(n_owners, own,
                           waiting - own * (uint64_t)(shape::waiting_bytes / 16) +
                               level * (shape::n_sums / 4 * shape::n_threads));
    return true;
}

/* Sets total to the sums of a tile: the segments that begin at own[0 ... n_segments - 1]. */
template <bool is_gated, bool is_segmented, class shape>
GEMM_FN void sum_tile(large_sums<shape> &total, const struct gemm_mma_args &a, const uint16_t *factors, uint32_t stride,
                      const struct large_place<shape> &first, const uint32_t *own, uint32_t n_segments, float4 *waiting)
{
    struct large_ring<shape> ring = {0, shape::n_stages - 1};
    struct large_cursor at = {is_segmented ? own[0] : 0, is_segmented ? own[1] : 0, 0,
                              is_segmented ? own[n_segments] : a.n_cols};
    if (is_segmented)
        large_skip_segments(at, own);
#pragma unroll
    for (uint32_t i = 0; i + 1 < shape::n_stages; i++)
        copy_stage<is_gated, is_segmented, shape>(a, factors, stride, first, k_shared + i * shape::stage_bytes, at,
                                                  own);
    for (uint32_t i = 0; i < n_segments; i++) {
        sum_segment<is_gated, is_segmented, shape>(total, a, factors, stride, first, ring, at, own,
                                                   is_segmented ? own[i] : 0, is_segmented ? own[i + 1] : a.n_cols);
        if (is_segmented)
            fold_segment<shape>(total, i, waiting);
    }
    cp_async_wait<0>();
    __syncthreads();
}

template <bool is_gated, bool is_segmented, class shape>
static __global__ void __launch_bounds__(shape::n_threads)
    gemm_large(const struct gemm_mma_args a, const uint16_t *factors, uint32_t stride, const struct large_tiles tiles,
               float4 *waiting, const struct large_owners owners, bool is_vector)
{
    __shared__ uint32_t begins[K_SEGMENTS + 1];
    uint32_t n_owners = is_segmented && shape::is_of_few_tokens ? owners.n : 1;
    uint32_t n_segments = is_segmented ? K_SEGMENTS / n_owners : 1;
    if (is_segmented && threadIdx.x <= K_SEGMENTS)
        begins[threadIdx.x] = k_segment_begin_in(a.n_cols, a.n_whole, a.first_col, a.unit, threadIdx.x);
    waiting += (uint64_t)blockIdx.x * (shape::waiting_bytes / 16);
    for (uint32_t item = blockIdx.x; item < tiles.n_row_tiles * tiles.n_token_tiles * n_owners; item += gridDim.x) {
        __syncthreads(); /* begins are loaded, and the previous tile has left shared memory */
        struct large_place<shape> first = large_place_of<shape>(tiles, item / n_owners);
        float total[shape::n_row_tiles][shape::n_token_tiles][4];
        sum_tile<is_gated, is_segmented, shape>(total, a, factors, stride, first, begins + item % n_owners * n_segments,
                                                n_segments, waiting);
        if (put_whole_tile<shape>(total, owners, n_owners, item, waiting))
            store_tile<is_gated, shape>(a, first, is_vector);
        if (!is_segmented)
            break;
    }
}

/* The experts' (moe/list.h): of each tile of the list as many items as there are tiles of rows. */
template <bool is_gated, bool is_segmented, class shape>
static __global__ void __launch_bounds__(shape::n_threads)
    gemm_large_grouped(const struct gemm_mma_args all, const uint16_t *factors, uint32_t stride,
                       const struct cuda_moe_list list, uint32_t n_row_tiles, float4 *waiting, bool is_vector)
{
    __shared__ uint32_t begins[K_SEGMENTS + 1];
    if (is_segmented && threadIdx.x <= K_SEGMENTS)
        begins[threadIdx.x] = k_segment_begin_in(all.n_cols, all.n_whole, all.first_col, all.unit, threadIdx.x);
    waiting += (uint64_t)blockIdx.x * (shape::waiting_bytes / 16);
    const uint32_t n_items = *list.n_tiles_dev * n_row_tiles;
    for (uint32_t item = blockIdx.x; item < n_items; item += gridDim.x) {
        __syncthreads(); /* as in gemm_large */
        const struct gemm_mma_args a = gemm_of_tile(all, list, item / n_row_tiles);
        const struct large_place<shape> first = grouped_place_of<shape>(a, item % n_row_tiles * shape::n_rows);
        float total[shape::n_row_tiles][shape::n_token_tiles][4];
        sum_tile<is_gated, is_segmented, shape>(total, a, factors, stride, first, begins, is_segmented ? K_SEGMENTS : 1,
                                                waiting);
        put_tile<shape>(total);
        store_tile<is_gated, shape>(a, first, is_vector);
        if (!is_segmented)
            break;
    }
}

/* ---- launches ---- */

/* Returns the number of blocks for whose waiting sums there is space. */
template <class shape> static constexpr uint32_t most_waiting()
{
    return (uint32_t)(CUDA_GEMM_WAITING_BYTES / shape::waiting_bytes);
}

/* Memory in addition to the arguments, and the GPU. */
struct large_means {
    cudaStream_t stream;
    const uint16_t *factors;
    uint32_t stride;
    float4 *waiting;
    const struct cuda_gemm_means *gpu;
};

template <bool is_gated, bool is_segmented, class shape>
static cudaError_t launch(const struct large_means *m, const struct gemm_mma_args *a, uint32_t n_owners)
{
    struct large_tiles tiles = large_tiles_of<shape>(*a);
    const struct large_owners owners = {n_owners, m->gpu->arrivals_dev};
    uint32_t n_blocks = tiles.n_row_tiles * tiles.n_token_tiles * n_owners, n_y = is_gated ? a->n_rows / 2 : a->n_rows;
    if (is_segmented && n_owners == 1)
        n_blocks = min(n_blocks, min(m->gpu->n_sms * shape::blocks_on_sm, most_waiting<shape>()));
    bool is_vector = n_y % 4 == 0 && (uintptr_t)a->y % 16 == 0;
    cudaError_t error = cudaFuncSetAttribute(gemm_large<is_gated, is_segmented, shape>,
                                             cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shape::shared_bytes);
    if (error != cudaSuccess)
        return error;
    return K_LAUNCH((gemm_large<is_gated, is_segmented, shape>), dim3(n_blocks), dim3(shape::n_threads),
                    shape::shared_bytes, m->stream, *a, m->factors, m->stride, tiles, m->waiting, owners, is_vector);
}

/* Returns the port's clocks per stage, summed over all tiles. */
template <class shape> static uint64_t cost_of(const struct large_means *m, const struct gemm_mma_args *a)
{
    struct large_tiles tiles = large_tiles_of<shape>(*a);
    uint64_t n = (uint64_t)tiles.n_row_tiles * tiles.n_token_tiles, n_waves = (n + m->gpu->n_sms - 1) / m->gpu->n_sms;
    return shape::shared_bytes <= m->gpu->shared_bytes ? n_waves * shape::port_clocks : UINT64_MAX;
}

#define FEW_MEMORY_BYTES 16u /* weights per clock and SM, slightly more than an H100 has */
#define FEW_L2_BYTES 40u /* waiting sums per clock and SM */
#define FEW_ARRIVAL 1500u /* clocks of a fence and a counter */
#define FEW_ROUND 1000u /* clocks to exchange four warps' sums */

/* Returns the clocks of the busiest SM: its stages, limited by the port or by memory, and the owners' exchange: a block
 * writes its sums, and the last one reads the others'. */
template <class shape>
static uint64_t few_clocks(const struct large_means *m, const struct gemm_mma_args *a, uint32_t n_owners)
{
    struct large_tiles tiles = large_tiles_of<shape>(*a);
    uint64_t n_tiles = (uint64_t)tiles.n_row_tiles * tiles.n_token_tiles, n = n_tiles * n_owners;
    if (shape::shared_bytes > m->gpu->shared_bytes ||
        (n_owners > 1 && (n > most_waiting<shape>() || n_tiles > CUDA_GEMM_ARRIVALS)))
        return UINT64_MAX;
    uint64_t n_waves = (n + m->gpu->n_sms - 1) / m->gpu->n_sms;
    uint64_t n_stages = (a->n_cols + n_owners * GEMM_TILE_COLS - 1) / (n_owners * GEMM_TILE_COLS);
    uint64_t stage = shape::port_clocks + shape::n_rows * GEMM_TILE_ROW_BYTES / FEW_MEMORY_BYTES;
    uint64_t fold = n_owners == 1 ? 0 : FEW_ARRIVAL + n_owners * shape::waiting_bytes / 3 / FEW_L2_BYTES;
    return n_waves * n_stages * stage + fold;
}

/* The clocks of a launch, and the number of owners of its tiles. */
struct large_way {
    uint64_t clocks;
    uint32_t n_owners;
};

/* Up to FEW_TOKENS the shapes of many tokens are never the fastest, and only segments have several owners. */
template <class shape> static struct large_way way_of(const struct large_means *m, const struct gemm_mma_args *a)
{
    struct large_way best = {K_KERNEL_NEVER, 1};
    if (a->n_tokens > FEW_TOKENS)
        best.clocks = cost_of<shape>(m, a);
    else if (shape::is_of_few_tokens)
        for (uint32_t n = 1; n <= (a->unit ? MOST_OWNERS : 1); n *= 2) {
            const struct large_way way = {few_clocks<shape>(m, a, n), n};
            best = way.clocks < best.clocks ? way : best;
        }
    return best;
}

/* gemm_small.cu's tile, in which each warp has a chunk. A stage is four times the port and memory, and after each four
 * chunks their sums are added. */
static struct large_way way_of_spread(const struct large_means *m, const struct gemm_mma_args *a)
{
    uint64_t n_waves = (a->n_rows + (uint64_t)GEMM_SPREAD_ROWS * m->gpu->n_sms - 1) /
                       (GEMM_SPREAD_ROWS * m->gpu->n_sms);
    uint64_t n_rounds = (a->n_cols + 4 * GEMM_CHUNK - 1) / (4 * GEMM_CHUNK);
    uint64_t stage = 2 * (GEMM_SPREAD_ROWS + FEW_TOKENS) + GEMM_SPREAD_ROWS * GEMM_TILE_ROW_BYTES / FEW_MEMORY_BYTES;
    return {n_waves * n_rounds * (GEMM_TILES_IN_CHUNK * 4 * stage + FEW_ROUND), 1};
}

static cudaError_t launch_spread(const struct large_means *m, const struct gemm_mma_args *a, uint32_t n_owners)
{
    (void)n_owners;
    return launch_gemm_spread(m->stream, *a, m->factors, m->stride);
}

/* ---- the rows of the table ------------------------------------------------------------------------------- */

typedef cudaError_t large_launch_fn(const struct large_means *m, const struct gemm_mma_args *a, uint32_t n_owners);
enum { LARGE_PLAIN, LARGE_GATED, LARGE_SEGMENTS, LARGE_KINDS };
struct large_variant {
    uint32_t shared_bytes;
    bool is_of_many_tokens; /* too; otherwise of FEW_TOKENS at most */
    struct large_way (*way)(const struct large_means *m, const struct gemm_mma_args *a);
    large_launch_fn *launch[LARGE_KINDS]; /* NULL: this kind is not built */
};

template <class shape> static constexpr struct large_variant variant_of(bool is_of_many_tokens)
{
    return {shape::shared_bytes,
            is_of_many_tokens,
            way_of<shape>,
            {launch<false, false, shape>, launch<true, false, shape>, launch<false, true, shape>}};
}

/* In the order of enum cuda_gemm_large. The smallest GPU's block holds 64x64. */
static const struct large_variant variants[CUDA_LARGE_VARIANTS] = {
    variant_of<shape_128_few>(false),
    variant_of<shape_64>(true),
    variant_of<shape_192>(true),
    variant_of<shape_128>(true),
    {shape_224_few::shared_bytes, false, way_of<shape_224_few>, {NULL, launch<true, false, shape_224_few>, NULL}},
    {GEMM_SPREAD_SHARED_BYTES, false, way_of_spread, {launch_spread, NULL, NULL}},
};

static large_launch_fn *launch_of(const struct large_variant *v, const struct cuda_gemm_call *call)
{
    return v->launch[call->gated ? LARGE_GATED : call->args->unit ? LARGE_SEGMENTS : LARGE_PLAIN];
}

bool cuda_gemm_large_takes(const struct k_kernel *kernel, const void *of)
{
    const struct cuda_gemm_call *call = (const struct cuda_gemm_call *)of;
    const struct large_variant *v = &variants[kernel->variant];
    return call->args->weight->n_quant == 0 && launch_of(v, call) != NULL &&
           (v->is_of_many_tokens || call->args->n_tokens <= FEW_TOKENS) && v->shared_bytes <= call->gpu->shared_bytes;
}

static struct large_means means_of(const struct cuda_gemm_call *call, const struct gemm_mma_args *a)
{
    const uint32_t stride = cuda_gemm_factor_stride(a->n_cols);
    unsigned char *made = (unsigned char *)call->args->workspace_dev; /* if x is floats; waiting sums follow */
    return {call->stream, (const uint16_t *)(a->x_is_factors ? (const void *)a->x : made), stride,
            (float4 *)(made + (uint64_t)a->n_tokens * stride * 2), call->gpu};
}

uint64_t cuda_gemm_large_clocks(const struct k_kernel *kernel, const void *of)
{
    const struct cuda_gemm_call *call = (const struct cuda_gemm_call *)of;
    const struct gemm_mma_args a = gemm_mma_args_of(call->args, call->gated);
    const struct large_means m = means_of(call, &a);
    return variants[kernel->variant].way(&m, &a).clocks;
}

cudaError_t launch_gemm_large(const struct k_kernel *kernel, const struct cuda_gemm_call *call)
{
    const struct large_variant *v = &variants[kernel->variant];
    const struct gemm_mma_args a = gemm_mma_args_of(call->args, call->gated);
    const struct large_means m = means_of(call, &a);
    const cudaError_t error = a.x_is_factors ? cudaSuccess
                                             : launch_gemm_factors(call->stream, call->args, call->args->workspace_dev);
    return error == cudaSuccess ? launch_of(v, call)(&m, &a, v->way(&m, &a).n_owners) : error;
}

/* ---- the experts' launches ------------------------------------------------------------------------------- */

template <bool is_gated, bool is_segmented, class dense>
static cudaError_t launch_grouped(const struct cuda_gemm_call *call, const struct large_means *m,
                                  const struct gemm_mma_args *a)
{
    using shape = gemm_grouped<dense>;
    const uint32_t n_experts = call->args->weight->n_experts, n_y = is_gated ? a->n_rows / 2 : a->n_rows;
    const uint32_t n_row_tiles = (a->n_rows + shape::n_rows - 1) / shape::n_rows;
    uint32_t n_blocks = cuda_moe_most_tiles(call->moe, n_experts, shape::n_tokens) * n_row_tiles;
    if (is_segmented)
        n_blocks = min(n_blocks, min(m->gpu->n_sms * shape::blocks_on_sm,
                                     (uint32_t)(CUDA_MOE_WAITING_BYTES / shape::waiting_bytes)));
    bool is_vector = n_y % 4 == 0 && (uintptr_t)a->y % 16 == 0;
    cudaError_t error = launch_moe_list(m->stream, call->moe, call->gated, n_experts, a->n_rows, shape::n_tokens);
    if (error == cudaSuccess)
        error = cudaFuncSetAttribute(gemm_large_grouped<is_gated, is_segmented, shape>,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shape::shared_bytes);
    if (error != cudaSuccess)
        return error;
    return K_LAUNCH((gemm_large_grouped<is_gated, is_segmented, shape>), dim3(n_blocks), dim3(shape::n_threads),
                    shape::shared_bytes, m->stream, *a, m->factors, m->stride, call->moe->list, n_row_tiles, m->waiting,
                    is_vector);
}

template <class dense>
static cudaError_t launch_grouped_kind(const struct cuda_gemm_call *call, const struct large_means *m,
                                       const struct gemm_mma_args *a)
{
    return call->gated ? launch_grouped<true, false, dense>(call, m, a)
           : a->unit   ? launch_grouped<false, true, dense>(call, m, a)
                       : launch_grouped<false, false, dense>(call, m, a);
}

cudaError_t launch_gemm_large_grouped(const struct k_kernel *kernel, const struct cuda_gemm_call *call)
{
    const struct gemm_mma_args a = gemm_mma_args_of(call->args, call->gated);
    const struct large_means m = means_of(call, &a);
    const cudaError_t error = a.x_is_factors ? cudaSuccess
                                             : launch_gemm_factors(call->stream, call->args, call->args->workspace_dev);
    if (error != cudaSuccess)
        return error;
    return kernel->variant == 64 ? launch_grouped_kind<shape_64>(call, &m, &a)
                                 : launch_grouped_kind<shape_128>(call, &m, &a);
}
