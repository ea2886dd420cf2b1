/* Attention over the paged f16 cache on tensor cores: docs/internals/numerics.md §17, "Attention, mma form".
 *
 * A block has 128 threads and processes the units that the plan (attention_plan.h) assigns to it. The grid is fixed and
 * only the plan depends on the step, so a recorded launch serves every step of its shape. The query heads of one KV
 * head share its tiles, as rows of A.
 *
 * Few queries (decode; ATTN_SMALL rows; attention_small.cuh): the stream of K and V is the limit. Sixteen rows, most of
 * them empty, are 16 FLOP for each byte of K and V; an H100 has 300 per byte, so the empty rows cost nothing. The four
 * warps share the rows: each has 16 of the tile's 64 positions of the scores, and a quarter of the columns of o. They
 * exchange maxima and p through shared memory. Two tiles of K and V (64 KB for 128 wide heads) are in shared memory,
 * one of them in flight. A step with only such tiles has its own kernel, attention_decode.cu, of which three blocks fit
 * an SM. This kernel handles both sizes, and two blocks fit.
 *
 * Many queries (prefill, verification of drafts; ATTN_LARGE rows; heads up to 128 wide): mma is the limit. A warp has
 * 16 rows and all 64 positions, and p moves from the fragment of the scores to the fragment of A in registers. K and V
 * have one buffer each: V is in flight while scores are computed, the next K while o is. The merged state is accessed
 * once per 512 positions and lies in shared memory.
 *
 * Both do the same operations on an element in the same order. A tile of which a row reads nothing leaves the row's m,
 * l and o unchanged: α is then 1, and each p is +0.
 *
 * A softcap has its own kernel, so that other models do not bear its cost: its tanh is about 30 instructions per score,
 * as much as the mma of a prefill. So have attention sinks, whose split comes first with queries of its own, in the unit
 * of the first split. The heads' sinks are a run-time branch, once per query.
 */
#include "kernels/cuda/attention_small.cuh"
#include "kernels/cuda/launch.h"

/* ---- shared memory ---- */

/* Queries of heads up to 64 wide stay in registers, and pass through the memory of the merged o. Queries of wider heads
 * stay in shared memory. */
template <uint32_t D> struct large_layout {
    static constexpr uint32_t row_bytes = attn_width<D>::row_bytes, tile_bytes = attn_width<D>::tile_bytes;
    static constexpr bool keeps_queries = D > 64;
    static constexpr uint32_t buffers = 2, queries_at = ATTN_BUFFERS_AT + buffers * tile_bytes;
    static constexpr uint32_t merged_at = queries_at + (keeps_queries ? ATTN_LARGE * row_bytes : 0);
    static constexpr uint32_t large_bytes = merged_at + ATTN_LARGE * D * 4;
    static constexpr uint32_t bytes = small_layout<D>::bytes > large_bytes ? small_layout<D>::bytes : large_bytes;
};

template <uint32_t D> struct merged_shared {
    static constexpr uint32_t n_at_once = 1; /* 64 unrolled divisions would take too many registers */
    __device__ __forceinline__ float2 *at(uint32_t n, uint32_t h) const
    {
        return (float2 *)(k_shared + large_layout<D>::merged_at + threadIdx.x / 32 * (16 * D * 4)) + 64 * n + 32 * h +
               threadIdx.x % 32;
    }
    __device__ __forceinline__ float2 get(uint32_t n, uint32_t h) const
    {
        return *at(n, h);
    }
    __device__ __forceinline__ void set(uint32_t n, uint32_t h, float2 pair)
    {
        *at(n, h) = pair;
    }
};

/* The products of a warp's sixteen rows with one tile of K. */
template <uint32_t D>
ATTN_FN void large_products(uint32_t keys, uint32_t queries,
                            const uint32_t (&q)[large_layout<D>::keeps_queries ? 1 : D / 16][4], float (&score)[8][4])
{
#pragma unroll
    for (uint32_t i = 0; i < D / 16; i++) {
        uint32_t k[4], rows_of_q[4];
        if (large_layout<D>::keeps_queries)
            load_columns(rows_of_q, queries, i);
        else
            memcpy(rows_of_q, q[large_layout<D>::keeps_queries ? 0 : i], sizeof rows_of_q);
#pragma unroll
        for (uint32_t n = 0; n < 4; n++) {
            load_columns(k, keys, i, n * 16 * attn_width<D>::row_bytes);
            mma_f16(score[2 * n], rows_of_q, k[0], k[1]);
            mma_f16(score[2 * n + 1], rows_of_q, k[2], k[3]);
        }
    }
}

/* Computes a warp's sixteen rows with one tile of K: the scores, then p as fragments of A, with α. */
template <uint32_t D, bool is_capped>
ATTN_FN void large_scores(const struct attention_mma &a, uint32_t keys, uint32_t queries,
                          const uint32_t (&q)[large_layout<D>::keeps_queries ? 1 : D / 16][4], bool is_masked,
                          uint32_t start, const struct attn_rows &rows, float (&m)[2], float (&alpha)[2],
                          uint32_t (&p)[4][4])
{
    uint32_t t = threadIdx.x % 4;
    float score[8][4] = {};
    large_products<D>(keys, queries, q, score);
    float largest[2] = {-INFINITY, -INFINITY};
    uint32_t is_read = ~0u; /* one bit per score of the thread */
#pragma unroll
    for (uint32_t n = 0; n < 8; n++)
#pragma unroll
        for (uint32_t e = 0; e < 4; e++)
            score[n][e] = attn_score<is_capped>(a, score[n][e]);
    if (is_masked) {
        is_read = 0;
#pragma unroll
        for (uint32_t n = 0; n < 8; n++)
#pragma unroll
            for (uint32_t e = 0; e < 4; e++) {
                uint32_t position = start + 8 * n + 2 * t + e % 2;
                bool is_mine = position >= rows.lowest[e / 2] && position < rows.end[e / 2];
                is_read |= (is_mine ? 1u : 0u) << (4 * n + e);
                score[n][e] = is_mine ? score[n][e] : -INFINITY;
            }
    }
#pragma unroll
    for (uint32_t n = 0; n < 8; n++)
#pragma unroll
        for (uint32_t e = 0; e < 4; e++)
            largest[e / 2] = fmaxf(largest[e / 2], score[n][e]);
    largest[0] = quad_max(largest[0]);
    largest[1] = quad_max(largest[1]);
    new_maxima(m, alpha, largest);
#pragma unroll
    for (uint32_t n = 0; n < 8; n++)
#pragma unroll
        for (uint32_t e = 0; e < 4; e++)
            score[n][e] = k_exp_half(score[n][e] - m[e / 2]);
    if (is_masked) { /* −inf − m is +0 already, unless m is −inf */
#pragma unroll
        for (uint32_t n = 0; n < 8; n++)
#pragma unroll
            for (uint32_t e = 0; e < 4; e++)
                score[n][e] = (is_read >> (4 * n + e) & 1) != 0 ? score[n][e] : 0.0f;
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        p[i][0] = pack_halves(score[2 * i][0], score[2 * i][1]);
        p[i][1] = pack_halves(score[2 * i][2], score[2 * i][3]);
        p[i][2] = pack_halves(score[2 * i + 1][0], score[2 * i + 1][1]);
        p[i][3] = pack_halves(score[2 * i + 1][2], score[2 * i + 1][3]);
    }
}

/* One part of run_large(). */
template <uint32_t D, bool is_capped, enum attn_part part>
ATTN_FN bool run_large_part(const struct attention_mma &a, const struct attn_unit &unit, struct attn_state<D / 8> &s,
                            merged_shared<D> &merged)
{
    static_assert(part == ATTN_ALL || large_layout<D>::keeps_queries,
                  "queries of the window do not replace a merged o");
    using at = large_layout<D>;
    uint32_t warp = threadIdx.x / 32, first_row = 16 * warp;
    uint32_t lane = threadIdx.x % 32, queries = lane_of_rows<D>(at::queries_at, first_row);
    struct attn_feed<D, at::buffers> feed = feed_of<D, at::buffers, part>(a, unit);
    struct attn_rows rows = attn_rows_of<part>(a, unit, first_row);
    /* Positions of the warp's first and last query. A warp without queries computes nothing. */
    bool has_rows = first_row < unit.n_queries;
    uint32_t last_row = min(first_row + 16, (uint32_t)unit.n_queries) - 1;
    uint32_t first = unit.position + (unit.query + first_row) / a.group;
    uint32_t last = unit.position + (unit.query + last_row) / a.group;
    uint32_t lowest = attn_lowest<part>(a, first), unit_first = unit.position + unit.query / a.group;
    uint32_t unit_end = feed.end;
    if constexpr (part == ATTN_SINKS)
        unit_end = unit.position + (unit.query + unit.n_queries - 1) / a.group + 1;
    uint32_t q[at::keeps_queries ? 1 : D / 16][4];

    __syncthreads(); /* the previous unit may still be reading */
    feed.begin(a);
    load_queries<D, part>(a, unit, at::queries_at, ATTN_LARGE);
    __syncthreads();
    feed.fill(a);
    if (!at::keeps_queries) {
#pragma unroll
        for (uint32_t i = 0; i < D / 16; i++)
            load_columns(q[at::keeps_queries ? 0 : i], queries, i);
    }
    s.clear();
    for (uint32_t tile = feed.first_tile; tile < feed.end_tile; tile++) {
        uint32_t start = tile * ATTN_TILE, p[4][4];
        bool is_mine = has_rows && start <= last && start + ATTN_TILE > lowest;
        bool is_masked = !is_whole_tile<part>(a, start, first, last);
        bool is_mixed = !is_whole_tile<part>(a, start, unit_first, unit_end - 1) && unit_first + 1 != unit_end;
        float alpha[2], sum[2];
        uint32_t keys = lane_of_keys<D>(feed.keys(a, tile), 0);
        if (is_mine)
            large_scores<D, is_capped>(a, keys, queries, q, is_masked, start, rows, s.m, alpha, p);
        uint32_t loaded = feed.values(a, tile), values = attn_row<D>(loaded, lane);
        if (is_mixed && has_special_values<D>(loaded))
            return false;
        if (is_mine) {
            sum_weights(sum, p);
#pragma unroll
            for (uint32_t h = 0; h < 2; h++)
                s.l[h] = fmaf(s.l[h], alpha[h], sum[h]);
            rescale(s.o, alpha);
            add_values<D, 1>(s.o, p, values, 0);
        }
        if (ends_split(tile, feed.end_tile))
            end_split<D, 1, part>(a, unit, rows, first_row, start / ATTN_SPLIT, tile + 1 == feed.end_tile, s, merged,
                                  0);
    }
    return true;
}

/* At most sixty-four queries: each warp has sixteen. Returns false like run_small(). */
template <uint32_t D, bool is_capped, bool has_sinks>
ATTN_FN bool run_large(const struct attention_mma &a, const struct attn_unit &unit)
{
    struct attn_state<D / 8> s;
    merged_shared<D> merged;
    if constexpr (has_sinks) {
        if (unit.partial_rows == 0 && !run_large_part<D, is_capped, ATTN_SINKS>(a, unit, s, merged))
            return false;
        return run_large_part<D, is_capped, ATTN_WINDOW>(a, unit, s, merged);
    } else {
        return run_large_part<D, is_capped, ATTN_ALL>(a, unit, s, merged);
    }
}

/* ---- the kernel ------------------------------------------------------------------------------- */

template <uint32_t D, bool is_capped, bool has_sinks> struct both_sizes {
    static __device__ __forceinline__ bool run(const struct attention_mma &a, const struct attn_unit &unit)
    {
        return unit.n_queries > ATTN_SMALL ? run_large<D, is_capped, has_sinks>(a, unit)
                                           : run_small<D, is_capped, has_sinks>(a, unit);
    }
};

template <uint32_t D, bool is_capped>
static __global__ void __launch_bounds__(ATTN_THREADS, 2) attention_mma_kernel(const struct attention_mma a)
{
    run_units<both_sizes<D, is_capped, false>>(a);
}

template <uint32_t D, bool is_capped>
static __global__ void __launch_bounds__(ATTN_THREADS, 2) attention_mma_sinks_kernel(const struct attention_mma a)
{
    run_units<both_sizes<D, is_capped, true>>(a);
}

/* ---- launching -------------------------------------------------------------------------------- */

/* Launches the narrowest kernel that the heads fit. The widths are those of real models; with a softcap or attention
 * sinks there are 128 and 256. (A plan for narrower heads, which may count more blocks per SM, also works: no block
 * waits for another.) */
template <uint32_t D, bool is_capped>
static cudaError_t launch(cudaStream_t stream, const struct attention_mma &a, uint32_t n_blocks)
{
    static_assert(large_layout<D>::bytes <= 99 * 1024, "what a block has on every GPU from sm_80 on");
    const uint32_t bytes = large_layout<D>::bytes;
    cudaError_t error = cudaFuncSetAttribute((const void *)attention_mma_kernel<D, is_capped>,
                                             cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    if (error == cudaSuccess)
        error = K_LAUNCH((attention_mma_kernel<D, is_capped>), n_blocks, ATTN_THREADS, bytes, stream, a);
    return error;
}

template <uint32_t D, bool is_capped>
static cudaError_t launch_sinks(cudaStream_t stream, const struct attention_mma &a, uint32_t n_blocks)
{
    static_assert(large_layout<D>::bytes <= 99 * 1024, "what a block has on every GPU from sm_80 on");
    const uint32_t bytes = large_layout<D>::bytes;
    cudaError_t error = cudaFuncSetAttribute((const void *)attention_mma_sinks_kernel<D, is_capped>,
                                             cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    if (error == cudaSuccess)
        error = K_LAUNCH((attention_mma_sinks_kernel<D, is_capped>), n_blocks, ATTN_THREADS, bytes, stream, a);
    return error;
}

static cudaError_t launch_any(cudaStream_t stream, const struct attention_mma &a, uint32_t n_blocks)
{
    if (a.n_sink_positions > 0)
        return a.softcap != 0.0f ? launch_sinks<128, true>(stream, a, n_blocks)
                                 : launch_sinks<128, false>(stream, a, n_blocks);
    if (a.softcap != 0.0f)
        return launch<128, true>(stream, a, n_blocks);
    return a.head_dim <= 64   ? launch<64, false>(stream, a, n_blocks)
           : a.head_dim <= 80 ? launch<80, false>(stream, a, n_blocks)
           : a.head_dim <= 96 ? launch<96, false>(stream, a, n_blocks)
                              : launch<128, false>(stream, a, n_blocks);
}

extern "C" uint32_t attention_mma_shared_bytes(uint32_t head_dim, bool is_small)
{
    if (is_small)
        return attention_decode_shared_bytes(head_dim);
    return head_dim <= 64   ? large_layout<64>::bytes
           : head_dim <= 80 ? large_layout<80>::bytes
           : head_dim <= 96 ? large_layout<96>::bytes
                            : large_layout<128>::bytes;
}

extern "C" cudaError_t launch_attention_mma(cudaStream_t stream, const struct k_attention_args *args, bool is_small,
                                            uint32_t n_blocks)
{
    struct attention_mma a = {};
    a.qkv = args->qkv_dev;
    a.out = args->out_dev;
    a.as_factors = args->for_gemm;
    a.plan = (struct attn_plan *)args->plan_dev;
    a.tables = args->tables_dev;
    a.k = (const unsigned char *)args->layer->k_dev;
    a.v = (const unsigned char *)args->layer->v_dev;
    a.n_q_heads = args->n_q_heads;
    a.n_kv_heads = args->kv->n_kv_heads;
    a.group = a.n_q_heads / a.n_kv_heads;
    a.head_dim = args->kv->head_dim;
    a.block_tokens = args->kv->block_tokens;
    a.window = args->window;
    a.scale = args->scale;
    a.sinks = args->sinks_dev;
    a.partials = (float *)args->workspace_dev;
    a.sink_q = args->sink_q_dev;
    a.n_sink_positions = args->n_sink_positions;
    if (args->softcap != 0.0f) {
        a.softcap = args->softcap;
        a.softcap_inverse = 1.0f / args->softcap;
    }
    return is_small ? launch_attention_decode(stream, a, n_blocks) : launch_any(stream, a, n_blocks);
}
