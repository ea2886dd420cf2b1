/* Quantized weights (docs/internals/numerics.md §19): in the lane form, in the int8 form, and as an embedding. The bits
 * equal a CPU's in both forms.
 *
 * This is the first version. Each element of a weight is read once for 8 tokens, or 4, directly from global memory, and
 * no load is in flight during the multiplications. Each part has its own launch, because parts of one matrix may have
 * different formats (a GGUF file's q and k with 4 bits and v with 6). For a gated output, up's launch reads gate's sums
 * from out.
 *
 * Lane form: as in gemm_lane.cu, four threads per row with four lanes each, 4 tokens. In addition to a row's lanes a, a
 * thread holds those of the group, g, and of the group's activations, t: 48 registers of sums.
 *
 * int8: a separate launch first rounds activations into the workspace. A warp has 16 rows and 8 tokens, and processes
 * 32 columns with one mma.m16n8k32 of bytes: 4,096 products. The sums are integers until a run of columns with one pair
 * of scales ends, usually after 32 columns. Then each of a thread's four outputs takes a conversion, a product and an
 * fma. These limit the kernel: about 12 instructions of a warp for each mma. If groups of 16 columns end within 32, the
 * mma runs twice, each time with one half of A set to zero.
 */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/gemm_launch.h"
#include "kernels/cuda/moe/list.h"
#include "kernels/cuda/plan/plan.h"
#include "kernels/cuda/widen.cuh"
#include "kernels/math/gate.h"
#include "kernels/math/convert.h"
#include "kernels/math/lane_sum.h"
#include "kernels/math/round.h"
#include "kernels/segments.h"

#define THREADS 128u
#define TOKENS 8u

#define QUANT_FN static __device__ __forceinline__

/* Rows [first, first + n_rows) of a part, and the destination of their sums. */
struct quant_rows {
    struct cuda_quant part;
    uint32_t first, n_rows; /* within the part */
    const float *x, *bias; /* bias: of the first row, or NULL */
    float *out; /* of the first row */
    uint64_t out_stride;
    bool finishes; /* out = gate(out, sum); otherwise out = sum */
    struct k_gate gate;
    uint32_t n_cols, n_tokens;
    uint32_t unit, n_whole, first_col; /* as in segments.h */
    const unsigned char *rounded; /* for the int8 form: [T] of plan/plan.h's layout */
    /* Of experts (moe/list.h). Grouped: `order` has a tile's choices. Rows of x, or of `rounded`, that choices read:
     * choice / choices_per_row, choice / choices_per_rounded. */
    const uint32_t *order;
    uint32_t choices_per_row, choices_per_rounded;
    uint32_t expert_rows; /* of the weight */
    const uint32_t *experts_dev; /* NULL, or each choice is rounded by itself, as the part of its expert says */
    uint32_t first_expert, n_experts;
};

/* Makes `a` the rows of a tile of the list. Returns false past the last tile. */
QUANT_FN bool take_tile(struct quant_rows &a, const struct cuda_moe_list &list, uint32_t tile)
{
    if (tile >= *list.n_tiles_dev)
        return false;
    const struct cuda_moe_tile t = list.tiles_dev[tile];
    a.first += t.expert * a.part.n_rows;
    a.bias = a.bias ? a.bias + (uint64_t)t.expert * a.expert_rows : NULL;
    if (a.part.permutation_dev)
        a.part.permutation_dev += (uint64_t)t.expert * a.n_cols;
    a.order = list.order_dev + t.first;
    a.n_tokens = t.n;
    return true;
}

/* Returns the row of x of a token, which exists; grouped: of a place. */
template <bool is_grouped> QUANT_FN uint32_t x_row(const struct quant_rows &a, uint32_t token)
{
    return is_grouped ? a.order[token] / a.choices_per_row : token;
}
template <bool is_grouped> QUANT_FN uint32_t rounded_row(const struct quant_rows &a, uint32_t token)
{
    token = min(token, a.n_tokens - 1);
    return is_grouped ? a.order[token] / a.choices_per_rounded : token;
}

/* k_segment_begin_in(). Every launch treats its columns as a share; for a whole GEMM the share has all columns. */
QUANT_FN uint32_t segment_begin(const struct quant_rows &a, uint32_t i)
{
    const uint32_t begin = k_segment_begin(a.n_whole, a.unit, i);
    return min(begin - min(begin, a.first_col), a.n_cols);
}

/* Reads four numbers of a plain row, which is padded with zeros. */
QUANT_FN float4 read4_plain(const struct cuda_quant &p, const unsigned char *row, uint32_t k)
{
    return p.kind == CUDA_QUANT_F32   ? widen4<K_F32>(row, k)
           : p.kind == CUDA_QUANT_F16 ? widen4<K_F16>(row, k)
                                      : widen4<K_BF16>(row, k);
}

/* Returns the numbers of four codes of 4 bits, as bytes. A permutation selects from eight bytes, so there are two, and a
 * third one selects between them by each code's highest bit. */
QUANT_FN uint32_t numbers_of(const struct k_codes &codes, uint32_t word)
{
    const uint32_t low = __byte_perm(codes.words[0], codes.words[1], word & 0x7777u);
    const uint32_t high = __byte_perm(codes.words[2], codes.words[3], word & 0x7777u);
    return __byte_perm(low, high, 0x3210u | (word & 0x8888u) >> 1);
}

/* Reads four q of a row, columns [k, k + 4). Those from `end` on are 0. k is a multiple of 4. */
QUANT_FN float4 read4(const struct cuda_quant &p, const unsigned char *row, uint32_t k, uint32_t end, float zero)
{
    float q[4];
    if (k >= end)
        return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (!p.groups_dev)
        return read4_plain(p, row, k);
    uint32_t word = p.kind == CUDA_QUANT_INT4 ? numbers_of(p.codes, *(const uint16_t *)(row + k / 2))
                                              : *(const uint32_t *)(row + k);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t byte = word >> 8 * i & 0xffu;
        float v = p.kind == CUDA_QUANT_E4M3   ? k_f32_from_e4m3((uint8_t)byte)
                  : p.kind == CUDA_QUANT_E5M2 ? k_f32_from_e5m2((uint8_t)byte)
                                              : (float)(int8_t)byte - zero;
        q[i] = k + i < end ? v : 0.0f;
    }
    return make_float4(q[0], q[1], q[2], q[3]);
}

/* finishes: a.finishes; int8 kernels know it when they are compiled, because a gate takes registers. */
template <bool is_grouped>
QUANT_FN void put(const struct quant_rows &a, uint32_t token, uint32_t row, float sum, bool finishes)
{
    if (token >= a.n_tokens || row >= a.n_rows)
        return;
    float *out = a.out + (is_grouped ? a.order[token] : token) * a.out_stride + row;
    sum = a.bias ? sum + a.bias[row] : sum;
    *out = finishes ? k_gated(a.gate, *out, sum) : sum;
}

/* Folds sums of segments by the tree of kernels/segments.h as they arrive. Waiting sums are kept level by level. */
template <uint32_t n> struct quant_sums {
    float total[n], waiting[3][n];
};
template <uint32_t n> QUANT_FN void fold_segment(struct quant_sums<n> &s, uint32_t i)
{
#pragma unroll
    for (uint32_t level = 0; level < 3; level++) {
        bool joins = (i + 1) % (2u << level) == 0, waits = (i + 1) % (2u << level) == 1u << level;
#pragma unroll
        for (uint32_t j = 0; j < n; j++) {
            if (joins)
                s.total[j] = s.waiting[level][j] + s.total[j];
            else if (waits)
                s.waiting[level][j] = s.total[j];
        }
    }
}

/* ---- the lane form ---------------------------------------------------------------------------------- */

#define LANE_COLS 256u
#define LANE_TOKENS 4u /* with 8 a thread has 216 registers, and on sm_100 it spills */
#define LANE_BLOCKS 4u /* on an SM, at least: without a number ptxas spills to have six of them */
#define QUARTERS 4u
#define LANE_ROWS (THREADS / QUARTERS)

QUANT_FN float4 fma4(float4 w, float4 x, float4 s)
{
    return make_float4(fmaf(w.x, x.x, s.x), fmaf(w.y, x.y, s.y), fmaf(w.z, x.z, s.z), fmaf(w.w, x.w, s.w));
}

QUANT_FN float4 scaled4(float w, float4 x, float4 s)
{
    return fma4(make_float4(w, w, w, w), x, s);
}

template <uint32_t tokens, bool is_grouped>
QUANT_FN void load_activations(float (*shared)[LANE_COLS], const struct quant_rows &a, uint32_t token, uint32_t from,
                               uint32_t n)
{
    uint32_t n_filled = (n + K_LANES - 1) / K_LANES * K_LANES;
    for (uint32_t t = 0; t < tokens; t++) {
        const float *x = a.x + (uint64_t)(is_grouped && token + t >= a.n_tokens ? 0 : x_row<is_grouped>(a, token + t)) *
                                   a.n_cols;
        for (uint32_t k = threadIdx.x; k < n_filled; k += THREADS) {
            float v = 0.0f;
            if (token + t < a.n_tokens && k < n)
                v = x[a.part.permutation_dev ? a.part.permutation_dev[from + k] : from + k];
            shared[t][k] = v;
        }
    }
}

template <uint32_t tokens> struct lane_sums { /* four lanes per token */
    float4 all[tokens], group[tokens], inputs[tokens];
    struct cuda_quant_group scales;
};

template <uint32_t tokens> QUANT_FN void end_group(struct lane_sums<tokens> &s, const struct cuda_quant &p)
{
    const float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (uint32_t t = 0; t < tokens; t++) {
        s.all[t] = p.groups_dev ? scaled4(s.scales.scale, s.group[t], s.all[t]) : s.group[t];
        if (p.has_least)
            s.all[t] = scaled4(s.scales.second, s.inputs[t], s.all[t]);
        s.group[t] = s.inputs[t] = zero;
    }
}

/* Adds columns [from, end), a segment, with new lanes. */
template <uint32_t tokens, bool is_grouped>
QUANT_FN void sum_lanes(struct lane_sums<tokens> &s, float (*x)[tokens][LANE_COLS], uint32_t *buffer,
                        const struct quant_rows &a, uint32_t row, uint32_t token, uint32_t from, uint32_t end)
{
    const struct cuda_quant &p = a.part;
    const unsigned char *data = p.data_dev + row * p.row_stride_bytes;
    const struct cuda_quant_group *groups = p.groups_dev ? p.groups_dev + (uint64_t)row * p.n_groups : NULL;
    const uint32_t mine = threadIdx.x % QUARTERS * 4, first = from;
#pragma unroll
    for (uint32_t t = 0; t < tokens; t++)
        s.all[t] = s.group[t] = s.inputs[t] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (; from < end; from += LANE_COLS, *buffer ^= 1) {
        /* The buffer was read before the barrier of the previous chunk. */
        uint32_t n = min(end - from, LANE_COLS);
        load_activations<tokens, is_grouped>(x[*buffer], a, token, from, n);
        __syncthreads();
        for (uint32_t k = 0; k < n; k += K_LANES) {
            uint32_t column = from + k, next = column + K_LANES;
            if (p.groups_dev && (column == first || column % p.group == 0))
                s.scales = groups[column / p.group];
            float4 q = read4(p, data, column + mine, end, p.has_least ? 0.0f : s.scales.second);
#pragma unroll
            for (uint32_t t = 0; t < tokens; t++) {
                float4 v = *(const float4 *)&x[*buffer][t][k + mine];
                s.group[t] = fma4(q, v, s.group[t]);
                s.inputs[t] = make_float4(s.inputs[t].x + v.x, s.inputs[t].y + v.y, s.inputs[t].z + v.z,
                                          s.inputs[t].w + v.w);
            }
            if (next >= end || next % p.group == 0)
                end_group<tokens>(s, p);
        }
    }
}

template <uint32_t tokens, bool is_grouped>
QUANT_FN void multiply_lanes(const struct quant_rows &a, uint32_t token, uint32_t row_tile)
{
    __shared__ __align__(16) float x[2][tokens][LANE_COLS];
    constexpr uint32_t n_own = (tokens + QUARTERS - 1) / QUARTERS;
    const uint32_t row = row_tile * LANE_ROWS + threadIdx.x / QUARTERS;
    const uint32_t read = a.first + min(row, a.n_rows - 1), quarter = threadIdx.x % QUARTERS;
    struct quant_sums<n_own> own = {
    };
    struct lane_sums<tokens> s = {
    };
    uint32_t buffer = 0;
    for (uint32_t i = 0; i < (a.unit ? K_SEGMENTS : 1); i++) {
        uint32_t from = segment_begin(a, i), end = segment_begin(a, i + 1);
        sum_lanes<tokens, is_grouped>(s, x, &buffer, a, read, token, from, end);
#pragma unroll
        for (uint32_t t = 0; t < tokens; t++) {
            float sum = fold_lanes(s.all[t]);
            if (t % QUARTERS == quarter)
                own.total[t / QUARTERS] = from == end ? -0.0f : sum;
        }
        fold_segment<n_own>(own, i);
    }
#pragma unroll
    for (uint32_t t = 0; t < tokens; t++)
        if (t % QUARTERS == quarter)
            put<is_grouped>(a, token + t, row, own.total[t / QUARTERS], a.finishes);
}

template <uint32_t tokens>
static __global__ void __launch_bounds__(THREADS, LANE_BLOCKS) quant_lane_kernel(struct quant_rows a)
{
    const uint32_t token_tiles = (a.n_tokens + tokens - 1) / tokens;
    multiply_lanes<tokens, false>(a, blockIdx.x % token_tiles * tokens, blockIdx.x / token_tiles);
}

/* The experts': row_tiles blocks for each tile of the list. A tile of the form int8 has more tokens than fit here. */
template <uint32_t tokens>
static __global__ void __launch_bounds__(THREADS, LANE_BLOCKS)
    quant_lane_grouped(struct quant_rows a, const struct cuda_moe_list list, uint32_t row_tiles)
{
    if (!take_tile(a, list, blockIdx.x / row_tiles))
        return;
    for (uint32_t token = 0; token < a.n_tokens; token += tokens) {
        multiply_lanes<tokens, true>(a, token, blockIdx.x % row_tiles);
        __syncthreads(); /* all have read the activations */
    }
}

/* ---- the form int8 ------------------------------------------------------------------------------------ */

QUANT_FN int8_t *rounded_u(const struct quant_rows &a, uint32_t token)
{
    return (int8_t *)a.rounded + token * cuda_quant_rounded_bytes(a.n_cols);
}
/* Scales of column k in segment i: [k / 32 + i]. For a part whose x_group is 0: [0]. */
QUANT_FN float *rounded_scales(const struct quant_rows &a, uint32_t token)
{
    return (float *)(rounded_u(a, token) + cuda_quant_columns(a.n_cols));
}
/* The sum of u over each 16 columns. */
QUANT_FN int32_t *rounded_sums(const struct quant_rows &a, uint32_t token)
{
    return (int32_t *)(rounded_scales(a, token) + cuda_quant_columns(a.n_cols) / 32 + K_SEGMENTS);
}

/* Rounds column k of a piece whose largest |x| has these bits, and sums 16 u. The whole warp calls it together. */
QUANT_FN void round_column(const struct quant_rows &a, uint32_t token, uint32_t k, float x, uint32_t bits)
{
    const float stated = a.part.x_scale;
    float factor = stated != 0.0f ? 1.0f / stated : k_round_factor(k_f32_from_bits(bits));
    int32_t u = k < a.n_cols ? k_round_int8(x, factor) : 0, sum = u;
    rounded_u(a, token)[k] = (int8_t)u;
#pragma unroll
    for (uint32_t step = 8; step > 0; step /= 2)
        sum += __shfl_xor_sync(~0u, sum, step);
    if (k % 16 == 0)
        rounded_sums(a, token)[k / 16] = sum;
}

QUANT_FN float input(const struct quant_rows &a, uint32_t token, uint32_t k)
{
    if (k >= a.n_cols)
        return 0.0f;
    token = a.experts_dev ? token / a.choices_per_row : token;
    return a.x[(uint64_t)token * a.n_cols + (a.part.permutation_dev ? a.part.permutation_dev[k] : k)];
}

QUANT_FN float scale_of(const struct quant_rows &a, uint32_t bits)
{
    return a.part.x_scale != 0.0f ? a.part.x_scale : k_round_scale(k_f32_from_bits(bits));
}

QUANT_FN uint32_t segment_of(const struct quant_rows &a, uint32_t k)
{
    uint32_t i = 0;
    while (i + 1 < K_SEGMENTS && segment_begin(a, i + 1) <= k)
        i++;
    return i;
}

/* Makes `a` the part of this block's choice. Returns false if its expert is not here. */
QUANT_FN bool take_choice(struct quant_rows &a)
{
    if (!a.experts_dev)
        return true;
    const uint32_t expert = a.experts_dev[blockIdx.x] - a.first_expert;
    if (expert >= a.n_experts)
        return false;
    a.part.x_scale = a.part.x_scales_dev ? a.part.x_scales_dev[expert] : 0.0f;
    if (a.part.permutation_dev)
        a.part.permutation_dev += (uint64_t)expert * a.n_cols;
    return true;
}

/* One block per token, one warp per piece of 32 columns. A segment may divide a piece in the middle. */
static __global__ void __launch_bounds__(THREADS) quant_round_kernel(struct quant_rows a)
{
    if (!take_choice(a))
        return;
    const uint32_t token = blockIdx.x, lane = threadIdx.x % 32, n = cuda_quant_columns(a.n_cols);
    for (uint32_t k = threadIdx.x; k < n; k += THREADS) { /* n is a multiple of 32, so a warp stays together */
        float x = input(a, token, k);
        uint32_t bits = k_f32_bits(x) & 0x7fffffffu, first = k - lane;
        uint32_t segment = segment_of(a, min(k, a.n_cols - 1)), other = __shfl_xor_sync(~0u, segment, 16);
        bool is_cut = segment != other && first + 16 < a.n_cols;
#pragma unroll
        for (uint32_t step = 16; step > 0; step /= 2) {
            uint32_t of_other = __shfl_xor_sync(~0u, bits, step);
            bits = (step < 16 || !is_cut) && of_other > bits ? of_other : bits;
        }
        round_column(a, token, k, x, bits);
        if (k % 16 == 0 && (lane == 0 || is_cut))
            rounded_scales(a, token)[k / 32 + segment] = scale_of(a, bits);
    }
}

/* One block per token, which has one scale. */
static __global__ void __launch_bounds__(THREADS) quant_round_token_kernel(struct quant_rows a)
{
    __shared__ uint32_t largest[THREADS / 32];
    if (!take_choice(a))
        return;
    const uint32_t token = blockIdx.x, n = cuda_quant_columns(a.n_cols);
    uint32_t bits = 0;
    for (uint32_t k = threadIdx.x; k < a.n_cols; k += THREADS)
        bits = max(bits, k_f32_bits(input(a, token, k)) & 0x7fffffffu);
#pragma unroll
    for (uint32_t step = 16; step > 0; step /= 2)
        bits = max(bits, __shfl_xor_sync(~0u, bits, step));
    if (threadIdx.x % 32 == 0)
        largest[threadIdx.x / 32] = bits;
    __syncthreads();
    for (uint32_t w = 0; w < THREADS / 32; w++)
        bits = max(bits, largest[w]);
#pragma unroll 1 /* four at a time, ptxas spills on sm_100 */
    for (uint32_t k = threadIdx.x; k < n; k += THREADS)
        round_column(a, token, k, input(a, token, k), bits);
    if (threadIdx.x == 0)
        rounded_scales(a, token)[0] = scale_of(a, bits);
}

/* Reads four q as bytes, columns [k, k + 4) of a row that is padded with zeros. */
QUANT_FN uint32_t read_bytes(const struct cuda_quant &p, const unsigned char *row, uint32_t k, int32_t zero)
{
    if (p.kind != CUDA_QUANT_INT4)
        return *(const uint32_t *)(row + k);
    const uint32_t bytes = numbers_of(p.codes, *(const uint16_t *)(row + k / 2));
    const uint32_t less = ((uint32_t)zero & 0xffu) * 0x01010101u, top = 0x80808080u;
    return ((bytes | top) - (less & ~top)) ^ ((bytes ^ ~less) & top); /* four differences */
}

struct int8_tile { /* a warp's 16 rows and 8 tokens; a thread has rows g and g + 8, tokens 2t and 2t + 1 */
    uint32_t row[2]; /* within the part */
    uint32_t token;
    uint32_t rounded[2]; /* grouped: the rows of both tokens' rounded activations */
    int32_t c[4], inputs[2]; /* sums of the current run; inputs: the sum of u of each token */
    float y[4];
};

template <bool is_grouped>
QUANT_FN uint32_t tile_rounded(const struct quant_rows &a, const struct int8_tile &w, uint32_t t)
{
    return is_grouped ? w.rounded[t] : min(w.token + t, a.n_tokens - 1);
}

/* Ends a run of columns that contains `column`, in segment i. */
template <bool is_grouped>
QUANT_FN void end_run(const struct quant_rows &a, struct int8_tile &w, uint32_t column, uint32_t i)
{
    const struct cuda_quant &p = a.part;
    float d[2];
#pragma unroll
    for (uint32_t t = 0; t < 2; t++) {
        d[t] = rounded_scales(a, tile_rounded<is_grouped>(a, w, t))[p.x_group ? column / 32 + i : 0];
    }
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        struct cuda_quant_group s = p.groups_dev[(uint64_t)w.row[r] * p.n_groups + column / p.group];
#pragma unroll
        for (uint32_t t = 0; t < 2; t++) {
            float &y = w.y[2 * r + t];
            if (p.has_zeros) /* n - zero may exceed 8 bits */
                w.c[2 * r + t] -= (int32_t)s.second * w.inputs[t];
            y = fmaf(s.scale * d[t], (float)w.c[2 * r + t], y);
            if (p.has_least)
                y = fmaf(s.second * d[t], (float)w.inputs[t], y);
            w.c[2 * r + t] = 0;
        }
    }
    w.inputs[0] = w.inputs[1] = 0;
}

/* Multiplies columns [k, k + 16) of the selected halves of 32 columns. */
template <bool is_grouped>
QUANT_FN void multiply(const struct quant_rows &a, struct int8_tile &w, const uint32_t (&weights)[4],
                       const uint32_t (&u)[2], uint32_t k, bool low, bool high)
{
    uint32_t f[4] = {low ? weights[0] : 0, low ? weights[1] : 0, high ? weights[2] : 0, high ? weights[3] : 0};
    mma_s8(w.c, f, u[0], u[1]);
    if (!a.part.has_least && !a.part.has_zeros)
        return;
#pragma unroll
    for (uint32_t t = 0; t < 2; t++) {
        const int32_t *sums = rounded_sums(a, tile_rounded<is_grouped>(a, w, t));
        w.inputs[t] += (low ? sums[k / 16] : 0) + (high ? sums[k / 16 + 1] : 0);
    }
}

/* Adds columns [from, end), segment i. */
template <bool is_grouped>
QUANT_FN void sum_int8(const struct quant_rows &a, struct int8_tile &w, uint32_t from, uint32_t end, uint32_t i)
{
    const struct cuda_quant &p = a.part;
    const uint32_t lane = threadIdx.x % 32, t = 4 * (lane % 4), token = w.token - 2 * (lane % 4) + lane / 4;
    const int8_t *u = rounded_u(a, rounded_row<is_grouped>(a, token));
    w.y[0] = w.y[1] = w.y[2] = w.y[3] = 0.0f;
    w.c[0] = w.c[1] = w.c[2] = w.c[3] = w.inputs[0] = w.inputs[1] = 0;
    for (uint32_t k = from - from % 32; k < end; k += 32) {
        bool has_low = k >= from, has_high = k + 16 < end, parts = has_low && has_high && (k + 16) % p.group == 0;
        uint32_t weights[4], x[2];
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            uint32_t column = k + 16 * half;
            x[half] = *(const uint32_t *)(u + column + t);
#pragma unroll
            for (uint32_t r = 0; r < 2; r++) {
                int32_t zero = 0;
                if (p.kind == CUDA_QUANT_INT4 && !p.has_least && column < a.n_cols)
                    zero = (int32_t)p.groups_dev[(uint64_t)w.row[r] * p.n_groups + column / p.group].second;
                weights[2 * half + r] = read_bytes(p, p.data_dev + w.row[r] * p.row_stride_bytes, column + t, zero);
            }
        }
        multiply<is_grouped>(a, w, weights, x, k, has_low, has_high && !parts);
        if (parts) {
            end_run<is_grouped>(a, w, k, i);
            multiply<is_grouped>(a, w, weights, x, k, false, true);
        }
        if (p.x_group || k + 32 >= end)
            end_run<is_grouped>(a, w, has_high ? k + 16 : k, i);
    }
}

#define INT8_BLOCKS 5u /* on an SM, at least: see LANE_BLOCKS */
#define INT8_ROWS (THREADS / 32 * 16)
template <bool is_grouped, bool finishes>
QUANT_FN void multiply_int8(const struct quant_rows &a, uint32_t first_token, uint32_t row_tile)
{
    const uint32_t lane = threadIdx.x % 32, row = row_tile * INT8_ROWS + threadIdx.x / 32 * 16 + lane / 4;
    struct int8_tile w;
    struct quant_sums<4> own = {
    };
    w.row[0] = a.first + min(row, a.n_rows - 1);
    w.row[1] = a.first + min(row + 8, a.n_rows - 1);
    w.token = first_token + 2 * (lane % 4);
    w.rounded[0] = is_grouped ? rounded_row<is_grouped>(a, w.token) : 0;
    w.rounded[1] = is_grouped ? rounded_row<is_grouped>(a, w.token + 1) : 0;
    for (uint32_t i = 0; i < (a.unit ? K_SEGMENTS : 1); i++) {
        uint32_t from = segment_begin(a, i), end = segment_begin(a, i + 1);
        sum_int8<is_grouped>(a, w, from, end, i);
#pragma unroll
        for (uint32_t j = 0; j < 4; j++)
            own.total[j] = from == end ? -0.0f : w.y[j];
        fold_segment<4>(own, i);
    }
#pragma unroll
    for (uint32_t j = 0; j < 4; j++)
        put<is_grouped>(a, w.token + j % 2, row + j / 2 * 8, own.total[j], finishes);
}

template <bool finishes> static __global__ void __launch_bounds__(THREADS) quant_int8_kernel(struct quant_rows a)
{
    const uint32_t token_tiles = (a.n_tokens + TOKENS - 1) / TOKENS;
    multiply_int8<false, finishes>(a, blockIdx.x % token_tiles * TOKENS, blockIdx.x / token_tiles);
}

template <bool finishes>
static __global__ void __launch_bounds__(THREADS, INT8_BLOCKS)
    quant_int8_grouped(struct quant_rows a, const struct cuda_moe_list list, uint32_t row_tiles)
{
    if (take_tile(a, list, blockIdx.x / row_tiles))
        multiply_int8<true, finishes>(a, 0, blockIdx.x % row_tiles);
}

/* ---- launches ------------------------------------------------------------------------------------------- */

static cudaError_t launch_rounding(const struct cuda_gemm_call *call, const struct quant_rows &a)
{
    const dim3 grid(a.experts_dev ? call->moe->n_choices : a.n_tokens);
    if (a.part.x_group)
        return K_LAUNCH(quant_round_kernel, grid, dim3(THREADS), 0, call->stream, a);
    return K_LAUNCH(quant_round_token_kernel, grid, dim3(THREADS), 0, call->stream, a);
}

/* The tokens of a tile of the list. */
static uint32_t grouped_tokens(const struct cuda_gemm_call *call, const struct k_kernel *kernel)
{
    return kernel->variant == 1 ? TOKENS : call->moe->args->n_tokens == 1 ? 1 : LANE_TOKENS;
}

static cudaError_t launch_grouped(const struct cuda_gemm_call *call, const struct k_kernel *kernel,
                                  const struct quant_rows &a, bool as_int8)
{
    const uint32_t tile = as_int8 ? INT8_ROWS : LANE_ROWS, row_tiles = (a.n_rows + tile - 1) / tile;
    const uint32_t tokens = grouped_tokens(call, kernel);
    const dim3 grid(cuda_moe_most_tiles(call->moe, call->args->weight->n_experts, tokens) * row_tiles);
    const struct cuda_moe_list &list = call->moe->list;
    if (as_int8)
        return a.finishes
                   ? K_LAUNCH(quant_int8_grouped<true>, grid, dim3(THREADS), 0, call->stream, a, list, row_tiles)
                   : K_LAUNCH(quant_int8_grouped<false>, grid, dim3(THREADS), 0, call->stream, a, list, row_tiles);
    return tokens == 1
               ? K_LAUNCH(quant_lane_grouped<1>, grid, dim3(THREADS), 0, call->stream, a, list, row_tiles)
               : K_LAUNCH(quant_lane_grouped<LANE_TOKENS>, grid, dim3(THREADS), 0, call->stream, a, list, row_tiles);
}

static cudaError_t launch_rows(const struct cuda_gemm_call *call, const struct k_kernel *kernel,
                               const struct quant_rows &a, bool as_int8)
{
    cudaStream_t stream = call->stream;
    if (call->moe)
        return launch_grouped(call, kernel, a, as_int8);
    const uint32_t tile = as_int8 ? INT8_ROWS : LANE_ROWS, row_tiles = (a.n_rows + tile - 1) / tile;
    if (!as_int8 && a.n_tokens == 1)
        return K_LAUNCH(quant_lane_kernel<1>, dim3(row_tiles), dim3(THREADS), 0, stream, a);
    const uint32_t tokens = as_int8 ? TOKENS : LANE_TOKENS;
    dim3 grid((a.n_tokens + tokens - 1) / tokens * row_tiles);
    if (as_int8)
        return a.finishes ? K_LAUNCH(quant_int8_kernel<true>, grid, dim3(THREADS), 0, stream, a)
                          : K_LAUNCH(quant_int8_kernel<false>, grid, dim3(THREADS), 0, stream, a);
    return K_LAUNCH(quant_lane_kernel<LANE_TOKENS>, grid, dim3(THREADS), 0, stream, a);
}

/* Launches rows [begin, end) of the weight that belong to the part. If gated, rows of the first half write out, and
 * those of the second half finish its content. */
static cudaError_t launch_range(const struct cuda_gemm_call *call, const struct k_kernel *kernel, struct quant_rows a,
                                uint32_t begin, uint32_t end, bool as_int8)
{
    const struct cuda_quant &p = a.part;
    const struct k_gemm_args *g = call->args;
    const struct cuda_gated *gated = call->gated;
    begin = begin > p.first_row ? begin : p.first_row;
    end = end < p.first_row + p.n_rows ? end : p.first_row + p.n_rows;
    if (begin >= end)
        return cudaSuccess;
    const uint32_t half = gated ? g->weight->n_rows / 2 : g->weight->n_rows;
    a.first = begin - p.first_row;
    a.n_rows = end - begin;
    a.bias = g->bias_dev ? g->bias_dev + begin : NULL;
    a.finishes = begin >= half;
    a.gate = gated ? gated->gate : (struct k_gate){K_GATE_SILU, 0.0f};
    a.out = (gated ? gated->out_dev : g->y_dev) + (a.finishes ? begin - half : begin);
    a.out_stride = half;
    return launch_rows(call, kernel, a, as_int8);
}

static void set_experts(struct quant_rows &a, const struct cuda_moe_call *moe, const struct k_weight *w)
{
    a.choices_per_row = moe->list.choices_per_row;
    a.choices_per_rounded = moe->rounds_by_choice ? 1 : a.choices_per_row;
    a.expert_rows = w->n_rows;
    a.experts_dev = moe->rounds_by_choice ? moe->args->experts_dev : NULL;
    a.first_expert = moe->args->first_expert;
    a.n_experts = w->n_experts;
}

cudaError_t launch_gemm_quant(const struct k_kernel *kernel, const struct cuda_gemm_call *call)
{
    const struct k_gemm_args *g = call->args;
    const bool as_int8 = kernel->variant == 1;
    const struct k_weight *w = g->weight;
    const uint32_t half = call->gated ? w->n_rows / 2 : w->n_rows;
    if (call->moe) {
        const cudaError_t error = launch_moe_list(call->stream, call->moe, call->gated, w->n_experts, w->n_rows,
                                                  grouped_tokens(call, kernel));
        if (error != cudaSuccess)
            return error;
    }
    for (uint32_t i = 0; i < w->n_quant; i++) {
        struct quant_rows a = {};
        a.part = w->quant[i];
        a.x = g->x_dev;
        a.n_cols = w->n_cols;
        a.n_tokens = g->n_tokens;
        a.unit = g->unit;
        a.n_whole = g->n_whole ? g->n_whole : w->n_cols;
        a.first_col = g->first_col;
        a.rounded = (const unsigned char *)g->workspace_dev;
        if (call->moe)
            set_experts(a, call->moe, w);
        const bool rounds = as_int8 && a.part.groups_dev; /* plain parts use the lane form in both forms */
        cudaError_t error = rounds ? launch_rounding(call, a) : cudaSuccess;
        if (error == cudaSuccess)
            error = launch_range(call, kernel, a, 0, half, rounds);
        if (error == cudaSuccess && half < w->n_rows)
            error = launch_range(call, kernel, a, half, w->n_rows, rounds);
        if (error != cudaSuccess)
            return error;
    }
    return cudaSuccess;
}

/* ---- as an embedding ---------------------------------------------------------------------------------- */

struct quant_table {
    struct cuda_quant parts[K_WEIGHT_MAX_PARTS];
    uint32_t n_parts, n_rows, n_cols;
};

/* An id that is not a row of the table makes its token NaN, as in elementwise.cu. */
static __global__ void __launch_bounds__(THREADS)
    embed_quant_kernel(struct quant_table table, const uint32_t *ids, float *out, bool into, float by)
{
    const uint32_t id = ids[blockIdx.x], k = (blockIdx.y * THREADS + threadIdx.x) * 4;
    if (k >= table.n_cols)
        return;
    float v[4];
    const uint32_t *permutation = NULL;
    v[0] = v[1] = v[2] = v[3] = k_f32_from_bits(0x7fc00000u);
    for (uint32_t i = 0; i < table.n_parts; i++) {
        const struct cuda_quant &p = table.parts[i];
        uint32_t row = id - p.first_row;
        if (id < p.first_row || row >= p.n_rows)
            continue;
        permutation = p.permutation_dev;
        struct cuda_quant_group s = {1.0f, 0.0f};
        if (p.groups_dev)
            s = p.groups_dev[(uint64_t)row * p.n_groups + k / p.group];
        float4 q = read4(p, p.data_dev + row * p.row_stride_bytes, k, table.n_cols, p.has_least ? 0.0f : s.second);
        float of[4] = {q.x, q.y, q.z, q.w};
        for (uint32_t j = 0; j < 4; j++)
            v[j] = p.has_least ? fmaf(s.scale, of[j], s.second) : s.scale * of[j];
    }
    for (uint32_t j = 0; j < 4 && k + j < table.n_cols; j++) {
        float *to = out + (uint64_t)blockIdx.x * table.n_cols + (permutation ? permutation[k + j] : k + j);
        *to = into ? *to + v[j] * by : v[j] * by;
    }
}

cudaError_t launch_embed_quant(cudaStream_t stream, const struct k_embed_args *a)
{
    const struct k_weight *w = a->table;
    struct quant_table table = {};
    for (uint32_t i = 0; i < w->n_quant; i++)
        table.parts[i] = w->quant[i];
    table.n_parts = w->n_quant;
    table.n_rows = w->n_rows;
    table.n_cols = w->n_cols;
    dim3 grid(a->n_tokens, (w->n_cols + 4 * THREADS - 1) / (4 * THREADS));
    return K_LAUNCH(embed_quant_kernel, grid, dim3(THREADS), 0, stream, table, a->ids_dev, a->out_dev, a->into,
                    a->scale != 0 ? a->scale : 1.0f);
}
