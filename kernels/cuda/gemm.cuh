/* Common parts of both kernels of the mma GEMM (docs/internals/numerics.md §17): the arguments, the layout of a tile of
 * 64 columns in shared memory, and the factors.
 *
 * A tile holds 64 columns of 16-bit numbers of some rows (of weights, or of tokens): 128 bytes per row, which are one
 * sector group of global memory and all 32 banks of shared memory. Segment s (16 bytes) of row r lies at s ^ (r % 8),
 * so that the 8 rows of an ldmatrix lie in different banks.
 */
#ifndef QUIRE_KERNELS_CUDA_GEMM_CUH
#define QUIRE_KERNELS_CUDA_GEMM_CUH

#include "kernels/args/gemm.h"
#include "kernels/cuda/factors.cuh"
#include "kernels/cuda/gemm_launch.h"
#include "kernels/cuda/moe/list.h"
#include "kernels/math/bits.h"

#define GEMM_FN static __device__ __forceinline__

#define GEMM_CHUNK 512u
#define GEMM_TILE_COLS 64u
#define GEMM_TILE_ROW_BYTES 128u
#define GEMM_TILES_IN_CHUNK (GEMM_CHUNK / GEMM_TILE_COLS)

struct gemm_mma_args {
    const unsigned char *weights;
    const int8_t *exponents; /* NULL: all exponents are 0 */
    const float *bias; /* or NULL */
    const float *x;
    float *y; /* [T, n_rows]; gated: [T, n_rows / 2] */
    uint64_t row_stride_bytes;
    uint32_t n_rows, n_cols, n_tokens;
    uint32_t unit, n_whole, first_col; /* as in kernels/segments.h */
    bool x_is_factors, y_is_factors; /* otherwise floats: factors.cuh */
    struct k_gate gate; /* gated */
    /* Grouped: of a tile's tokens, which are places of moe/list.h. */
    const uint32_t *order;
    uint32_t choices_per_row;
};

static inline struct gemm_mma_args gemm_mma_args_of(const struct k_gemm_args *a, const struct cuda_gated *gated)
{
    struct gemm_mma_args m = {(const unsigned char *)a->weight->data_dev,
                              a->weight->exponents_dev,
                              a->bias_dev,
                              a->x_dev,
                              gated ? gated->out_dev : a->y_dev,
                              a->weight->row_stride_bytes,
                              a->weight->n_rows,
                              a->weight->n_cols,
                              a->n_tokens,
                              a->unit,
                              a->n_whole,
                              a->first_col,
                              a->x_for_gemm,
                              gated && gated->as_factors,
                              gated ? gated->gate : (struct k_gate){K_GATE_SILU, 0.0f},
                              NULL,
                              0};
    return m;
}

/* gemm_small.cu's kernel for 33 to 64 tokens of a GEMM without segments: a block has 48 rows, and its 4 warps share the
 * chunks. */
#define GEMM_SPREAD_ROWS 48u
#define GEMM_SPREAD_SHARED_BYTES (168u << 10)
cudaError_t launch_gemm_spread(cudaStream_t stream, const struct gemm_mma_args &a, const uint16_t *factors,
                               uint32_t stride);

/* Returns the GEMM of a tile of the list, as the dense kernels compute it. */
GEMM_FN struct gemm_mma_args gemm_of_tile(const struct gemm_mma_args &all, const struct cuda_moe_list &list,
                                          uint32_t tile)
{
    struct gemm_mma_args a = all;
    const uint4 words = *(const uint4 *)(const void *)&list.tiles_dev[tile];
    const struct cuda_moe_tile t = {words.x, words.y, words.z, 0};
    const uint64_t row = t.expert * (uint64_t)a.n_rows;
    a.weights += row * a.row_stride_bytes;
    a.exponents = a.exponents ? a.exponents + row : NULL;
    a.bias = a.bias ? a.bias + row : NULL;
    a.order = list.order_dev + t.first;
    a.choices_per_row = list.choices_per_row;
    a.n_tokens = t.n;
    return a;
}

/* Returns a token's row of y, and its row of x. */
template <bool is_grouped> GEMM_FN uint32_t gemm_out_row(const struct gemm_mma_args &a, uint32_t token)
{
    return is_grouped ? a.order[token] : token;
}
GEMM_FN uint32_t gemm_grouped_x_row(const struct gemm_mma_args &a, uint32_t token)
{
    return token < a.n_tokens ? a.order[token] / a.choices_per_row : 0;
}

/* A shape of the dense kernels, in a grouped one. */
template <class dense> struct gemm_grouped : dense {
    static constexpr bool is_grouped = true;
};

/* Returns row `i` of the tile of n rows that begins at `first`, as a row of the matrix; a.n_rows or more if there is no
 * such row. A gated tile is n / 2 rows of gate followed by the same n / 2 of up, so that both factors of an output are
 * in its block. */
template <bool is_gated, uint32_t n>
GEMM_FN uint32_t gemm_matrix_row(const struct gemm_mma_args &a, uint32_t first, uint32_t i)
{
    if (!is_gated)
        return first + i;
    uint32_t row = first / 2 + i % (n / 2), half = a.n_rows / 2;
    return row >= half ? a.n_rows : i < n / 2 ? row : half + row;
}

GEMM_FN unsigned char *gemm_segment(unsigned char *tile, uint32_t row, uint32_t segment)
{
    return tile + row * GEMM_TILE_ROW_BYTES + (segment ^ (row % 8)) * 16;
}

/* Starts the copy of 16 bytes of a weight row into a tile; zeros past the matrix. Rows are padded to 16 bytes with
 * zeros. */
GEMM_FN void gemm_copy_weights(const struct gemm_mma_args &a, unsigned char *tile, uint32_t tile_row, uint32_t row,
                               uint32_t segment, uint32_t first_col)
{
    uint32_t col = first_col + segment * 8;
    bool valid = row < a.n_rows && col < a.n_cols;
    const unsigned char *from = valid ? a.weights + row * a.row_stride_bytes + col * (uint64_t)2 : a.weights;
    cp_async16(gemm_segment(tile, tile_row, segment), from, valid);
}

/* Loads a fragment of rows [row, row + 16) and of the 16-deep product `step` of a tile. */
GEMM_FN void gemm_load_a(uint32_t (&fragment)[4], unsigned char *tile, uint32_t row, uint32_t step)
{
    uint32_t lane = threadIdx.x % 32;
    ldmatrix_x4(fragment, gemm_segment(tile, row + lane % 16, 2 * step + lane / 16));
}

/* Returns 2^n for n from -126 to 127. */
GEMM_FN float gemm_power_of_two(int n)
{
    return k_f32_from_bits((uint32_t)(127 + n) << 23);
}

GEMM_FN int gemm_exponent(const struct gemm_mma_args &a, uint32_t row)
{
    return a.exponents && row < a.n_rows ? a.exponents[row] : 0;
}

/* The factors that convert a row's sum to its output. */
struct gemm_row {
    float scale; /* 2^(e + 4) */
    float bias; /* -0, which changes no number, without a bias */
};

GEMM_FN struct gemm_row gemm_row_of(const struct gemm_mma_args &a, uint32_t row)
{
    struct gemm_row r = {gemm_power_of_two(gemm_exponent(a, row) + 4), a.bias && row < a.n_rows ? a.bias[row] : -0.0f};
    return r;
}

#endif
