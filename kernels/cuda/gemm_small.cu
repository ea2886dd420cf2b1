/* The mma GEMM of few tokens (at most 32): weights go by once, and memory is the limit.
 *
 * Bytes: 2 N K of weights from memory; activations, 4 T K, come from L2. At 4.8 TB/s and about 0.7 us of latency 3.4 MB
 * must be on the way, 26 KB on each of 132 SMs. A warp works alone: it streams 16 rows (32 from 9 tokens on) through a
 * ring of 16 KB in shared memory by cp.async, 128 bytes of each row at a time, of which 14 KB (12 KB) are on the
 * way while a tile is used. A block of 4 warps takes 70 to 96 KB, so that an SM of 227 KB holds 2 or 3 blocks with 96 to
 * 168 KB on the way: enough to hide that blocks begin and end. The grid asks for no number of SMs.
 *
 * Narrow matrices (fewer than 1,024 row tiles) have the chunks of a row tile spread over warps of a block: warp s of S takes
 * chunks s, s + S, ..., and after each round the S sums are added in rising order, through shared memory. Chunks are
 * never spread over blocks, so that one launch does it: 1,536 rows are 96 blocks with up to 70 KB on the way each, and
 * the other 36 SMs have none. 96 SMs can read at the speed of memory: 50 GB/s each, of over 100 that L2 gives one.
 *
 * Activations: a warp reads 64 columns of its tokens a tile ahead into registers, makes factors of them and puts these
 * into shared memory, 1 KB for 8 tokens. In cycles of shared memory and first-level cache, of which there are 97 for 2 KB of
 * weights at 36 GB/s an SM, weights take 32 and 8 tokens 32. So 16 tokens are at the limit, and from 9 on a tile of them
 * serves 32 rows (64 cycles for 2 KB; 96 for 32 tokens), except where that leaves SMs without a block.
 *
 * Instructions, of which there are 390 for 2 KB: for one token about 90.
 *
 * Gated (gate and up of an MLP), half of a warp's rows are gate's and half the same rows of up: a gate's sum and its up's end
 * in lanes 8 or 16 apart, and one shuffle brings them together. */
#include "kernels/cuda/gemm.cuh"

K_DYNAMIC_SHARED;

#define RING_BYTES 16384u
#define WIDE_WARPS 1024u /* 8 on each of 128 SMs: a grid of fewer warps splits the chunks */
#define NARROW_ROWS 4096u /* 32 for each of 128 SMs */

struct small_split {
    uint32_t n_splits; /* warps that share a row tile */
    uint32_t n_rounds; /* chunks of each */
};

template <int n_token_tiles, int n_row_tiles> struct small_shape {
    static constexpr uint32_t n_tokens = 8 * n_token_tiles, n_rows = 16 * n_row_tiles;
    static constexpr uint32_t stage_bytes = n_rows * GEMM_TILE_ROW_BYTES, n_stages = RING_BYTES / stage_bytes;
    static constexpr uint32_t x_bytes = n_tokens * GEMM_TILE_ROW_BYTES, n_sums = n_rows * n_tokens;
    static constexpr uint32_t warp_bytes = RING_BYTES + x_bytes + n_sums * 4;
    static constexpr uint32_t max_warps = n_row_tiles == 1 ? 5 : 4;
    static_assert(max_warps * warp_bytes <= 99 * 1024, "a block of the smallest GPU");
    static_assert(GEMM_TILES_IN_CHUNK % n_stages == 0, "a tile's place in the ring is known to the compiler");
};

/* A lane's part of a tile of activations: columns 4 (lane % 16) of tokens lane / 16, + 2, + 4, ...; zeros past the
 * matrix. */
template <int n>
GEMM_FN void read_activations(const struct gemm_mma_args &a, bool is_aligned, uint32_t first_col, float4 (&x)[n])
{
    uint32_t lane = threadIdx.x % 32, col = first_col + lane % 16 * 4;
#pragma unroll
    for (int i = 0; i < n; i++) {
        uint32_t token = 2 * i + lane / 16;
        x[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (token >= a.n_tokens || col >= a.n_cols)
            continue;
        if (a.x_is_factors) { /* four of them, in the first half */
            *(uint2 *)&x[i] = *(const uint2 *)((const uint16_t *)a.x + (uint64_t)token * a.n_cols + col);
            continue;
        }
        const float *from = a.x + (uint64_t)token * a.n_cols + col;
        if (is_aligned) {
            x[i] = *(const float4 *)from;
            continue;
        }
        uint32_t n_left = a.n_cols - col;
        x[i].x = from[0];
        x[i].y = n_left > 1 ? from[1] : 0.0f;
        x[i].z = n_left > 2 ? from[2] : 0.0f;
        x[i].w = n_left > 3 ? from[3] : 0.0f;
    }
}

template <int n> GEMM_FN void store_activations(unsigned char *tile, bool x_is_factors, const float4 (&x)[n])
{
    uint32_t lane = threadIdx.x % 32, segment = lane % 16 / 2;
#pragma unroll
    for (int i = 0; i < n; i++) {
        uint2 factors = x_is_factors ? make_uint2(k_f32_bits(x[i].x), k_f32_bits(x[i].y))
                                     : make_uint2(factors2(x[i].x, x[i].y), factors2(x[i].z, x[i].w));
        *(uint2 *)(gemm_segment(tile, 2 * i + lane / 16, segment) + lane % 2 * 8) = factors;
    }
}

/* Tile `tile` of the warp's chunks, counted through all of them. Always a group, maybe an empty one. */
template <bool is_gated, int n_row_tiles>
GEMM_FN void copy_tile(const struct gemm_mma_args &a, const struct small_split &split, unsigned char *stage,
                       uint32_t first_row, uint32_t first_chunk, uint32_t tile)
{
    uint32_t lane = threadIdx.x % 32, chunk = first_chunk + tile / GEMM_TILES_IN_CHUNK * split.n_splits;
    uint32_t col = chunk * GEMM_CHUNK + tile % GEMM_TILES_IN_CHUNK * GEMM_TILE_COLS;
    if (tile < split.n_rounds * GEMM_TILES_IN_CHUNK && col < a.n_cols) {
#pragma unroll
        for (uint32_t i = 0; i < 4 * n_row_tiles; i++) {
            uint32_t row = 4 * i + lane / 8;
            gemm_copy_weights(a, stage, row, gemm_matrix_row<is_gated, 16 * n_row_tiles>(a, first_row, row), lane % 8,
                              col);
        }
    }
    cp_async_commit();
}

/* The warps of a row tile add up the sums of their chunks of a round, each thread those of its own outputs. */
template <int n_token_tiles, int n_row_tiles>
GEMM_FN void add_round(const struct small_split &split, uint32_t own_split, uint32_t round, uint32_t n_chunks,
                       const float (&c)[n_row_tiles][n_token_tiles][4], float *sums,
                       float (&total)[4 * n_token_tiles * n_row_tiles])
{
    using shape = small_shape<n_token_tiles, n_row_tiles>;
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t r = 0; r < n_row_tiles; r++)
#pragma unroll
        for (uint32_t n = 0; n < n_token_tiles; n++)
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                sums[(n * 8 + lane % 4 * 2 + i % 2) * shape::n_rows + r * 16 + i / 2 * 8 + lane / 4] = c[r][n][i];
    __syncthreads();
    const unsigned char *group_sums = (unsigned char *)sums - own_split * shape::warp_bytes;
#pragma unroll
    for (uint32_t i = 0; i < 4 * n_token_tiles * n_row_tiles; i++) {
        uint32_t at = (i * split.n_splits + own_split) * 32 + lane;
        if (at >= shape::n_sums)
            break;
        for (uint32_t s = 0; s < split.n_splits && round * split.n_splits + s < n_chunks; s++)
            total[i] += ((const float *)(group_sums + s * shape::warp_bytes))[at];
    }
    __syncthreads();
}

template <bool is_gated, int n_token_tiles, int n_row_tiles>
GEMM_FN void store_outputs(const struct gemm_mma_args &a, const struct small_split &split, uint32_t own_split,
                           uint32_t first_row, const float (&total)[4 * n_token_tiles * n_row_tiles])
{
    using shape = small_shape<n_token_tiles, n_row_tiles>;
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t i = 0; i < 4 * n_token_tiles * n_row_tiles; i++) {
        uint32_t at = (i * split.n_splits + own_split) * 32 + lane;
        uint32_t row = gemm_matrix_row<is_gated, shape::n_rows>(a, first_row, at % shape::n_rows),
                 token = at / shape::n_rows;
        if (at >= shape::n_sums) /* so for the whole warp */
            break;
        struct gemm_row r = gemm_row_of(a, row);
        float y = total[i] * r.scale + r.bias;
        if (is_gated) {
            float up = __shfl_down_sync(~0u, y, shape::n_rows / 2);
            if (row < a.n_rows / 2 && token < a.n_tokens)
                store1(a.y, a.y_is_factors, (uint64_t)token * (a.n_rows / 2) + row, k_silu(y) * up);
        } else if (row < a.n_rows && token < a.n_tokens) {
            a.y[(uint64_t)token * a.n_rows + row] = y;
        }
    }
}

template <bool is_gated, int n_token_tiles, int n_row_tiles>
static __global__ void __launch_bounds__(small_shape<n_token_tiles, n_row_tiles>::max_warps * 32)
    gemm_small(const struct gemm_mma_args a, const struct small_split split, bool is_aligned)
{
    using shape = small_shape<n_token_tiles, n_row_tiles>;
    constexpr uint32_t ahead = shape::n_stages - 1;
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = warp / split.n_splits,
             own_split = warp % split.n_splits;
    uint32_t n_groups = blockDim.x / 32 / split.n_splits, n_chunks = (a.n_cols + GEMM_CHUNK - 1) / GEMM_CHUNK;
    uint32_t first_row = (blockIdx.x * n_groups + group) * shape::n_rows;
    unsigned char *ring = k_shared + warp * shape::warp_bytes, *x_tile = ring + RING_BYTES;
    float *sums = (float *)(x_tile + shape::x_bytes);

#pragma unroll
    for (uint32_t i = 0; i < ahead; i++)
        copy_tile<is_gated, n_row_tiles>(a, split, ring + i * shape::stage_bytes, first_row, own_split, i);
    float4 x[4 * n_token_tiles];
    read_activations(a, is_aligned, own_split * GEMM_CHUNK, x);

    float total[4 * n_token_tiles * n_row_tiles]; /* of the outputs that the thread stores */
#pragma unroll
    for (uint32_t i = 0; i < 4 * n_token_tiles * n_row_tiles; i++)
        total[i] = -0.0f; /* -0 + c is c */
    for (uint32_t round = 0; round < split.n_rounds; round++) {
        uint32_t chunk = round * split.n_splits + own_split;
        float c[n_row_tiles][n_token_tiles][4] = {};
#pragma unroll
        for (uint32_t i = 0; i < GEMM_TILES_IN_CHUNK; i++) {
            uint32_t tile = round * GEMM_TILES_IN_CHUNK + i, col = chunk * GEMM_CHUNK + i * GEMM_TILE_COLS;
            unsigned char *stage = ring + i % shape::n_stages * shape::stage_bytes;
            cp_async_wait<ahead - 1>();
            store_activations(x_tile, a.x_is_factors, x);
            __syncwarp();
            copy_tile<is_gated, n_row_tiles>(a, split, ring + (i + ahead) % shape::n_stages * shape::stage_bytes,
                                             first_row, own_split, tile + ahead);
            uint32_t next = i + 1 < GEMM_TILES_IN_CHUNK ? col + GEMM_TILE_COLS : (chunk + split.n_splits) * GEMM_CHUNK;
            read_activations(a, is_aligned, next, x);
#pragma unroll
            for (uint32_t half = 0; half < 2; half++) {
                uint32_t b[n_token_tiles][4];
#pragma unroll
                for (uint32_t n = 0; n < n_token_tiles && col + half * 32 < a.n_cols; n++)
                    ldmatrix_x4(b[n], gemm_segment(x_tile, n * 8 + lane % 8, half * 4 + lane / 8));
#pragma unroll
                for (uint32_t step = 2 * half; step < 2 * half + 2; step++) {
                    if (col + step * 16 >= a.n_cols)
                        break;
#pragma unroll
                    for (uint32_t r = 0; r < n_row_tiles; r++) {
                        uint32_t w[4];
                        gemm_load_a(w, stage, r * 16, step);
#pragma unroll
                        for (uint32_t n = 0; n < n_token_tiles; n++)
                            mma_f16(c[r][n], w, b[n][step % 2 * 2], b[n][step % 2 * 2 + 1]);
                    }
                }
            }
            __syncwarp(); /* the tiles are used before they are written again */
        }
        add_round(split, own_split, round, n_chunks, c, sums, total);
    }
    store_outputs<is_gated, n_token_tiles, n_row_tiles>(a, split, own_split, first_row, total);
}

/* How chunks are spread: speed only, the sums' order is the same for any. */
static struct small_split split_of(uint32_t n_row_tiles, uint32_t n_cols, uint32_t max_splits)
{
    uint32_t n_chunks = (n_cols + GEMM_CHUNK - 1) / GEMM_CHUNK, wanted = (WIDE_WARPS + n_row_tiles - 1) / n_row_tiles;
    uint32_t most = wanted < max_splits ? wanted : max_splits, n_rounds = (n_chunks + most - 1) / most;
    struct small_split split = {(n_chunks + n_rounds - 1) / n_rounds, n_rounds};
    return split;
}

template <bool is_gated, int n_token_tiles, int n_row_tiles>
static cudaError_t launch(cudaStream_t stream, const struct gemm_mma_args &a)
{
    using shape = small_shape<n_token_tiles, n_row_tiles>;
    uint32_t row_tiles = (a.n_rows + shape::n_rows - 1) / shape::n_rows;
    struct small_split split = split_of(row_tiles, a.n_cols, shape::max_warps);
    uint32_t n_groups = split.n_splits < 4 ? 4 / split.n_splits : 1, n_warps = n_groups * split.n_splits;
    bool is_aligned = a.n_cols % 4 == 0 && (uintptr_t)a.x % 16 == 0;
    uint32_t bytes = n_warps * shape::warp_bytes;
    /* Always the most: a recorded launch of more warps must not find the limit that a later, narrower one has set. */
    cudaError_t error = cudaFuncSetAttribute(gemm_small<is_gated, n_token_tiles, n_row_tiles>,
                                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             (int)(shape::max_warps * shape::warp_bytes));
    if (error != cudaSuccess)
        return error;
    return K_LAUNCH((gemm_small<is_gated, n_token_tiles, n_row_tiles>), dim3((row_tiles + n_groups - 1) / n_groups),
                    dim3(n_warps * 32), bytes, stream, a, split, is_aligned);
}

template <bool is_gated> static cudaError_t launch_by_tokens(cudaStream_t stream, const struct gemm_mma_args &a)
{
    if (a.n_tokens <= 8)
        return launch<is_gated, 1, 1>(stream, a);
    if (a.n_tokens <= 16)
        return a.n_rows < NARROW_ROWS ? launch<is_gated, 2, 1>(stream, a) : launch<is_gated, 2, 2>(stream, a);
    return launch<is_gated, 4, 2>(stream, a);
}

cudaError_t launch_gemm_small(cudaStream_t stream, const struct k_gemm_args *args, const struct cuda_gated *gated)
{
    struct gemm_mma_args a = gemm_mma_args_of(args, gated);
    if (gated)
        return launch_by_tokens<true>(stream, a);
    return launch_by_tokens<false>(stream, a);
}
