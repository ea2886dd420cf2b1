/* Parts of both kernels of attention's mma form: query tiles of at most sixteen rows (attention_mma.cu documents them),
 * the end of splits, the merging of several units' partials, and a block's loop over its units. */
#ifndef QUIRE_KERNELS_CUDA_ATTENTION_SMALL_CUH
#define QUIRE_KERNELS_CUDA_ATTENTION_SMALL_CUH

#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/math/exp.h"

/* ---- shared memory ---- */

#define MAXIMA_AT ATTN_ROWS_BYTES
static_assert(MAXIMA_AT + ATTN_WARPS * ATTN_SMALL * 4 <= ATTN_BUFFERS_AT, "");

template <uint32_t D> struct small_layout {
    static constexpr uint32_t row_bytes = attn_width<D>::row_bytes, tile_bytes = attn_width<D>::tile_bytes;
    static constexpr bool is_wide = D > ATTN_MOST_LARGE; /* there is no space for four tiles */
    static constexpr uint32_t buffers = is_wide ? 2 : 4;
    static constexpr uint32_t queries_at = ATTN_BUFFERS_AT + buffers * tile_bytes;
    static constexpr uint32_t weights_at = queries_at + ATTN_SMALL * row_bytes;
    static constexpr uint32_t bytes = weights_at + ATTN_SMALL * ATTN_TILE * 2;
};

/* The queries' fragments: held in registers if they fit, otherwise reloaded for each tile, 8 instructions of about 900.
 * Heads of 96 fit on sm_90 but spill 4 bytes on sm_100. */
template <uint32_t D, bool is_capped>
static constexpr bool holds_queries = D <= ATTN_MOST_LARGE && D != 96 && !is_capped;

/* ---- a unit's merged state: (n, h) is the pair of columns n of row h of the thread ---- */

template <uint32_t N_TILES> struct merged_registers {
    static constexpr uint32_t n_at_once = N_TILES; /* number of concurrent divisions */
    float2 pairs[N_TILES][2];
    __device__ __forceinline__ float2 get(uint32_t n, uint32_t h) const
    {
        return pairs[n][h];
    }
    __device__ __forceinline__ void set(uint32_t n, uint32_t h, float2 pair)
    {
        pairs[n][h] = pair;
    }
};

/* A thread's two rows, in a split and merged. */
template <uint32_t N_TILES> struct attn_state {
    float m[2], l[2], o[N_TILES][4];
    float merged_m[2], merged_l[2];

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            m[h] = -INFINITY;
            l[h] = 0.0f;
        }
#pragma unroll
        for (uint32_t n = 0; n < N_TILES; n++)
#pragma unroll
            for (uint32_t e = 0; e < 4; e++)
                o[n][e] = 0.0f;
    }
};

/* Writes the output of the thread's rows from the merged state of all splits. */
template <uint32_t STEP, uint32_t N_TILES, class merged_o>
ATTN_FN void finish_rows(const struct attention_mma &a, const struct attn_unit &unit, uint32_t first_row,
                         uint32_t first, const bool (&is_any)[2], struct attn_state<N_TILES> &s, merged_o &merged)
{
    float by_sink[2];
    uint64_t to[2];
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        uint32_t query = unit.query + first_row + threadIdx.x % 32 / 4 + 8 * h;
        by_sink[h] = fold_sink(a, attn_head_of(a, unit.kv_head, query), s.merged_m[h], s.merged_l[h]);
        to[h] = attn_query_at(a, unit.token, unit.kv_head, query, a.n_q_heads);
    }
#pragma unroll(merged_o::n_at_once)
    for (uint32_t n = 0; n < N_TILES; n++) {
        uint32_t column = 8 * (first + n * STEP) + threadIdx.x % 4 * 2;
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            if (column < a.head_dim && is_any[h]) {
                float2 o = merged.get(n, h);
                store2(a.out, a.as_factors, to[h] + column, attn_output(o.x * by_sink[h], s.merged_l[h]),
                       attn_output(o.y * by_sink[h], s.merged_l[h]));
            }
        }
    }
}

/* Returns whether the unit has a KV tile of the window behind the sinks. It has none where it ends before the window
 * of a token that is computed alone. */
ATTN_FN bool has_window_tile(const struct attention_mma &a, const struct attn_unit &unit)
{
    uint32_t first = attn_first_position(unit.position + unit.query / a.group, a.window);
    return first < unit.end_split * ATTN_SPLIT;
}

/* Merges a row's maximum and sum of a split into those of the splits before it. fold_a, fold_b: the factors of the earlier
 * output and of the split's. is_used: the row reads the split; has_before: it has read an earlier one. */
template <uint32_t N_TILES>
ATTN_FN void merge_row(struct attn_state<N_TILES> &s, uint32_t h, bool is_used, bool has_before, float &fold_a,
                       float &fold_b)
{
    fold_a = 1.0f;
    fold_b = 0.0f;
    if (is_used && has_before)
        fold_weights(s.merged_m[h], s.merged_l[h], s.m[h], s.l[h], fold_a, fold_b);
    if (is_used && !has_before) {
        s.merged_m[h] = s.m[h];
        s.merged_l[h] = s.l[h];
        fold_b = 1.0f;
    }
}

/* Ends a split: stores it in the partials of a unit that does not have all splits, or merges it, and writes the output
 * after the last one. Column n of the thread is 8 (first + n STEP) + 2 t. */
template <uint32_t D, uint32_t STEP, enum attn_part part, uint32_t N_TILES, class merged_o>
ATTN_FN void end_split(const struct attention_mma &a, const struct attn_unit &unit, const struct attn_rows &rows,
                       uint32_t first_row, uint32_t split, bool is_last, struct attn_state<N_TILES> &s,
                       merged_o &merged, uint32_t first)
{
    uint32_t begin = split * ATTN_SPLIT, end = begin + ATTN_SPLIT;
    bool is_whole = unit.partial == ATTN_NO_PARTIAL,
         is_apart = !is_whole && unit.partial_rows != 0; /* each split has a partial */
    if constexpr (part == ATTN_SINKS)
        is_last = !has_window_tile(a, unit);
    bool is_partial = is_apart || (is_last && !is_whole);
    uint32_t n_columns = a.head_dim +
                         (split & a.zero); /* for this split; otherwise a predicate for each n stays in registers */
    float fold_a[2], fold_b[2];
    bool has_before[2], is_any[2]; /* whether the row reads any of the unit's splits before this one, and up to it */
    float *to[2]; /* the destination of a partial */
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        bool is_used = rows.lowest[h] < end && rows.end[h] > begin;
        uint32_t row = first_row + threadIdx.x % 32 / 4 + 8 * h;
        has_before[h] = !is_apart && rows.lowest[h] < begin;
        if constexpr (part == ATTN_WINDOW) { /* every row reads a sink, and perhaps nothing of the window */
            is_used = is_used && rows.lowest[h] < rows.end[h];
            has_before[h] = !is_apart && rows.end[h] != 0;
        }
        is_any[h] = is_used || has_before[h];
        merge_row(s, h, is_used, has_before[h], fold_a[h], fold_b[h]);
        uint64_t before = is_apart ? (uint64_t)(split - unit.first_split) * unit.partial_rows : 0;
        to[h] = a.partials + (unit.partial + row + before) * ATTN_PARTIAL_FLOATS(a.head_dim);
        if (is_partial && rows.end[h] != 0 && threadIdx.x % 4 == 0 && first == 0) /* one of the warps that share it */
            *(float2 *)(to[h] + a.head_dim) = make_float2(is_any[h] ? s.merged_m[h] : NAN, s.merged_l[h]);
    }
#pragma unroll
    for (uint32_t n = 0; n < N_TILES; n++) {
        uint32_t column = 8 * (first + n * STEP) + threadIdx.x % 4 * 2;
        if (column >= n_columns)
            break;
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            float2 before = has_before[h] ? merged.get(n, h) : make_float2(0.0f, 0.0f);
            float2 o = make_float2(fmaf(before.x, fold_a[h], s.o[n][2 * h] * fold_b[h]),
                                   fmaf(before.y, fold_a[h], s.o[n][2 * h + 1] * fold_b[h]));
            if (is_partial && is_any[h])
                *(float2 *)(to[h] + column) = o;
            else if (is_any[h])
                merged.set(n, h, o);
        }
    }
    if (is_last && is_whole)
        finish_rows<STEP>(a, unit, first_row, first, is_any, s, merged);
    s.clear();
}

/* ---- units ------------------------------------------------------------------------------------ */

template <uint32_t D, uint32_t N, enum attn_part part>
ATTN_FN struct attn_feed<D, N> feed_of(const struct attention_mma &a, const struct attn_unit &unit)
{
    struct attn_feed<D, N> feed;
    uint32_t first = unit.position + unit.query / a.group;
    uint32_t last = unit.position + (unit.query + unit.n_queries - 1) / a.group;
    feed.table = unit.table;
    feed.kv_head = unit.kv_head;
    feed.lowest = attn_first_position(first, a.window);
    feed.end = last + 1;
    feed.first_tile = max(feed.lowest / ATTN_TILE, unit.first_split * (ATTN_SPLIT / ATTN_TILE));
    feed.end_tile = min(last / ATTN_TILE + 1, unit.end_split * (ATTN_SPLIT / ATTN_TILE));
    if constexpr (part == ATTN_SINKS) {
        feed.end = attn_end<part>(a, last);
        feed.first_tile = 0;
        feed.end_tile = (feed.end - 1) / ATTN_TILE + 1;
    }
    if constexpr (part != ATTN_ALL) /* the window's tiles are the plan's, which does not know sinks */
        feed.lowest = attn_lowest<part>(a, first);
    return feed;
}

/* Returns whether queries at all positions [first, last] read positions [start, start + 64). */
template <enum attn_part part>
ATTN_FN bool is_whole_tile(const struct attention_mma &a, uint32_t start, uint32_t first, uint32_t last)
{
    return start + ATTN_TILE <= attn_end<part>(a, first) && start >= attn_lowest<part>(a, last);
}

ATTN_FN bool ends_split(uint32_t tile, uint32_t end_tile)
{
    return (tile + 1) % (ATTN_SPLIT / ATTN_TILE) == 0 || tile + 1 == end_tile;
}

/* Computes m' from the tile's largest scores, and α, which is 1 in most tiles, where the maximum does not change. A row
 * that reads nothing of the tile does not change it. (If all scores are −inf so far, α would be NaN; so is every p.) */
ATTN_FN void new_maxima(float (&m)[2], float (&alpha)[2], const float (&largest)[2])
{
    float next[2] = {fmaxf(m[0], largest[0]), fmaxf(m[1], largest[1])};
    alpha[0] = alpha[1] = 1.0f;
    if (__any_sync(~0u, next[0] != m[0] || next[1] != m[1])) {
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            alpha[h] = next[h] != m[h] ? k_exp(m[h] - next[h]) : 1.0f;
            m[h] = next[h];
        }
    }
}

/* Computes the warps' shares of sixteen rows with one tile of K: the scores, then p in shared memory, with α. */
template <uint32_t D, bool is_capped>
ATTN_FN void small_scores(const struct attention_mma &a, uint32_t keys, uint32_t queries,
                          uint32_t (&q)[holds_queries<D, is_capped> ? D / 16 : 1][4], uint32_t start,
                          const struct attn_rows &rows, float (&m)[2], float (&alpha)[2])
{
    using at = small_layout<D>;
    constexpr bool holds = holds_queries<D, is_capped>;
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float(*maxima)[ATTN_SMALL] = (float(*)[ATTN_SMALL])(k_shared + MAXIMA_AT);
    float score[2][4] = {};
#pragma unroll(small_layout<D>::is_wide ? 4 : D / 16)
    for (uint32_t i = 0; i < D / 16; i++) {
        uint32_t k[4];
        if (!holds)
            load_columns(q[0], queries, i);
        load_columns(k, keys, i);
        mma_f16(score[0], q[holds ? i : 0], k[0], k[1]);
        mma_f16(score[1], q[holds ? i : 0], k[2], k[3]);
    }
    float largest[2] = {-INFINITY, -INFINITY};
    bool is_read[2][4];
#pragma unroll
    for (uint32_t n = 0; n < 2; n++) {
#pragma unroll
        for (uint32_t e = 0; e < 4; e++) {
            uint32_t position = start + 16 * warp + 8 * n + 2 * t + e % 2;
            is_read[n][e] = position >= rows.lowest[e / 2] && position < rows.end[e / 2];
            score[n][e] = attn_score<is_capped>(a, score[n][e]);
            largest[e / 2] = fmaxf(largest[e / 2], is_read[n][e] ? score[n][e] : -INFINITY);
        }
    }
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        largest[h] = quad_max(largest[h]);
        if (t == 0)
            maxima[warp][g + 8 * h] = largest[h];
    }
    __syncthreads();
#pragma unroll
    for (uint32_t h = 0; h < 2; h++)
#pragma unroll
        for (uint32_t w = 0; w < ATTN_WARPS; w++)
            largest[h] = fmaxf(largest[h], maxima[w][g + 8 * h]);
    new_maxima(m, alpha, largest);
#pragma unroll
    for (uint32_t n = 0; n < 2; n++) {
#pragma unroll
        for (uint32_t e = 0; e < 4; e++)
            score[n][e] = is_read[n][e] ? k_exp_half(score[n][e] - m[e / 2]) : 0.0f;
#pragma unroll
        for (uint32_t h = 0; h < 2; h++)
            *(uint32_t *)(k_shared + attn_chunk(attn_row<ATTN_TILE>(at::weights_at, g + 8 * h), 2 * warp + n) +
                          4 * t) = pack_halves(score[n][2 * h], score[n][2 * h + 1]);
    }
}

/* The number of columns, in eights, that a warp has of the sixteen rows that the warps share. */
template <uint32_t D> static constexpr uint32_t small_tiles = (D / 8 + ATTN_WARPS - 1) / ATTN_WARPS;

/* One part of run_small(). */
template <uint32_t D, bool is_capped, enum attn_part part>
ATTN_FN bool run_small_part(const struct attention_mma &a, const struct attn_unit &unit,
                            struct attn_state<small_tiles<D>> &s, merged_registers<small_tiles<D>> &merged)
{
    using at = small_layout<D>;
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    struct attn_feed<D, at::buffers> feed = feed_of<D, at::buffers, part>(a, unit);
    struct attn_rows rows = attn_rows_of<part>(a, unit, 0);
    uint32_t first = unit.position + unit.query / a.group, last = feed.end - 1;
    if constexpr (part == ATTN_SINKS)
        last = unit.position + (unit.query + unit.n_queries - 1) / a.group;
    uint32_t queries = lane_of_rows<D>(at::queries_at, 0), q[holds_queries<D, is_capped> ? D / 16 : 1][4];

    __syncthreads(); /* the previous unit may still be reading */
    feed.begin(a);
    load_queries<D, part>(a, unit, at::queries_at, ATTN_SMALL);
    __syncthreads();
    feed.fill(a);
    if (holds_queries<D, is_capped>) {
#pragma unroll
        for (uint32_t i = 0; i < D / 16; i++)
            load_columns(q[holds_queries<D, is_capped> ? i : 0], queries, i);
    }
    s.clear();
    for (uint32_t tile = feed.first_tile; tile < feed.end_tile; tile++) {
        uint32_t start = tile * ATTN_TILE;
        bool is_masked = !is_whole_tile<part>(a, start, first, last);
        uint32_t keys = lane_of_keys<D>(feed.keys(a, tile), 16 * warp);
        float alpha[2];
        small_scores<D, is_capped>(a, keys, queries, q, start, rows, s.m, alpha);

        uint32_t loaded = feed.values(a, tile), values = attn_chunk(attn_row<D>(loaded, lane), warp);
        if (is_masked && first != last && has_special_values<D>(loaded))
            return false;
        uint32_t p[4][4];
        float sum[2];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            load_columns(p[i], lane_of_rows<ATTN_TILE>(at::weights_at, 0), i);
        sum_weights(sum, p);
#pragma unroll
        for (uint32_t h = 0; h < 2; h++)
            s.l[h] = fmaf(s.l[h], alpha[h], sum[h]);
        rescale(s.o, alpha);
        add_values<D, ATTN_WARPS>(s.o, p, values, warp);
        if (ends_split(tile, feed.end_tile))
            end_split<D, ATTN_WARPS, part>(a, unit, rows, 0, start / ATTN_SPLIT, tile + 1 == feed.end_tile, s, merged,
                                           warp);
    }
    return true;
}

/* At most sixteen queries, shared by the warps. Returns false if the unit must be computed one token at a time
 * instead. */
template <uint32_t D, bool is_capped, bool has_sinks>
ATTN_FN bool run_small(const struct attention_mma &a, const struct attn_unit &unit)
{
    struct attn_state<small_tiles<D>> s;
    merged_registers<small_tiles<D>> merged = {};
    if constexpr (has_sinks) {
        if (unit.partial_rows == 0 && !run_small_part<D, is_capped, ATTN_SINKS>(a, unit, s, merged))
            return false;
        return run_small_part<D, is_capped, ATTN_WINDOW>(a, unit, s, merged);
    } else {
        return run_small_part<D, is_capped, ATTN_ALL>(a, unit, s, merged);
    }
}

/* ---- merging ---------------------------------------------------------------------------------- */

/* Returns whether this block is the last to have stored its partials of the merge. */
ATTN_FN bool is_last_to_arrive(const struct attention_mma &a, uint32_t merge, uint32_t n_units)
{
    return cuda_is_last_to_arrive((uint32_t *)((char *)a.plan + a.plan->arrivals_at) + merge, n_units);
}

#define MERGED_AT_ONCE 8u

/* Folds partials k to k + 7 of 32, of which `n` are left, into (o, l). Lane i holds the factors of partial i. */
ATTN_FN void fold_partials(float (&o)[4], float &l, const float *partial, uint64_t step, uint32_t n, uint32_t k,
                           uint32_t used, float fold_a, float fold_b, float next_l)
{
    float4 values[MERGED_AT_ONCE]; /* undefined for a partial that was not used */
#pragma unroll
    for (uint32_t i = 0; i < MERGED_AT_ONCE; i++)
        values[i] = i < n ? *(const float4 *)(partial + i * step) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (uint32_t i = 0; i < MERGED_AT_ONCE; i++) {
        float by_a = __shfl_sync(~0u, fold_a, k + i), by_b = __shfl_sync(~0u, fold_b, k + i);
        bool is_there = (used >> (k + i) & 1) != 0;
        l = fmaf(l, by_a, __shfl_sync(~0u, next_l, k + i));
        o[0] = fmaf(o[0], by_a, (is_there ? values[i].x : 0.0f) * by_b);
        o[1] = fmaf(o[1], by_a, (is_there ? values[i].y : 0.0f) * by_b);
        o[2] = fmaf(o[2], by_a, (is_there ? values[i].z : 0.0f) * by_b);
        o[3] = fmaf(o[3], by_a, (is_there ? values[i].w : 0.0f) * by_b);
    }
}

/* Folds the partials of a query tile left to right, in one block: a warp has one query and up to 128 columns. The
 * factors for (m, l) are the same for all columns and depend only on m: lane i computes them for partial i of 32, from
 * the largest m up to there. Then each column takes two operations per partial. Loads of 8 partials are independent: 4
 * KB per warp are in flight, 48 KB per SM. Loads of 32 would take 128 registers, which decode's kernel does not have. A
 * step that fills the GPU leaves 2 to 9 partials per tile, which is one round, and blocks merge their tiles
 * concurrently. A single context of 128k leaves about 250 partials, 0.5 MB per KV head, for as many blocks as there are
 * KV heads: 8 rounds of 1 µs, in addition to about 160 µs for its K and V. A separate launch would take 2 µs in every
 * layer of every step. Starting from (−inf, 0, 0), the first partial stays unchanged, since k_exp(−inf) = 0 and
 * k_exp(0) = 1. An unused partial has a = 1, b = 0.
 */
ATTN_FN void merge_partials(const struct attention_mma &a, const struct attn_merge &merge)
{
    uint32_t lane = threadIdx.x % 32, n_parts = (a.head_dim + 127) / 128;
#pragma unroll 1
    for (uint32_t job = threadIdx.x / 32; job < merge.n_queries * n_parts; job += ATTN_WARPS) {
        uint32_t query = job / n_parts, wanted = job % n_parts * 128 + 4 * lane, column = min(wanted, a.head_dim - 4);
        uint64_t row_floats = ATTN_PARTIAL_FLOATS(a.head_dim), step = merge.n_queries * row_floats;
        const float *partial = a.partials + (merge.partial + query) * row_floats;
        float m = -INFINITY, l = 0.0f, o[4] = {};
#pragma unroll 1
        for (uint32_t from = 0; from < merge.n_partials; from += 32, partial += 32 * step) {
            uint32_t n = min(merge.n_partials - from, 32u);
            float2 mine = lane < n ? *(const float2 *)(partial + lane * step + a.head_dim) : make_float2(NAN, 0.0f);
            bool is_used = mine.x == mine.x;
            uint32_t used = __ballot_sync(~0u, is_used);
            float largest = is_used ? mine.x : -INFINITY; /* first the maximum up to this partial, then including the
                                                           * partials before these 32 */
#pragma unroll
            for (uint32_t d = 1; d < 32; d *= 2) {
                float below = __shfl_up_sync(~0u, largest, d);
                largest = lane >= d ? fmaxf(largest, below) : largest;
            }
            largest = fmaxf(largest, m);
            float before = __shfl_up_sync(~0u, largest, 1);
            before = lane == 0 ? m : before;
            float fold_a = is_used ? k_exp(before - largest) : 1.0f;
            float fold_b = is_used ? k_exp(mine.x - largest) : 0.0f;
            float next_l = is_used ? mine.y * fold_b : 0.0f;
#pragma unroll 1
            for (uint32_t k = 0; k < n; k += MERGED_AT_ONCE)
                fold_partials(o, l, partial + k * step + column, step, n - k, k, used, fold_a, fold_b, next_l);
            m = __shfl_sync(~0u, largest, 31);
        }
        float by_sink = fold_sink(a, attn_head_of(a, merge.kv_head, merge.query + query), m, l);
        if (wanted < a.head_dim)
            store4(a.out, a.as_factors,
                   attn_query_at(a, merge.token, merge.kv_head, merge.query + query, a.n_q_heads) + column,
                   make_float4(attn_output(o[0] * by_sink, l), attn_output(o[1] * by_sink, l),
                               attn_output(o[2] * by_sink, l), attn_output(o[3] * by_sink, l)));
    }
}

/* ---- a block's units ---------------------------------------------------------------------------- */

ATTN_FN const struct attn_unit *attn_unit_at(const struct attention_mma &a, uint32_t index)
{
    return (const struct attn_unit *)((const char *)a.plan + a.plan->units_at) + index;
}

ATTN_FN uint32_t attn_end_query(const struct attention_mma &a, uint32_t index)
{
    const struct attn_unit *unit = attn_unit_at(a, index);
    return unit->query + unit->n_queries;
}

/* Computes a unit in one pass, unless V is infinite or NaN at a position that one query of a tile reads and another
 * does not: 0 · v would be NaN for the other query. That happens only if a request has overflowed f16, and its queries
 * before that position must not be affected. The unit is then computed again, one token at a time: queries of one token
 * read the same positions, and all other rows are zeros.
 *
 * The loop rereads its own data from the plan, once per unit and through L1. Keeping it in registers during a unit
 * caused the spills on sm_100a, 24 bytes with a softcap. Copies into shared memory (cp.async) are declared to modify
 * memory, so no compiler keeps it in registers.
 */
template <class kernel> ATTN_FN void run_units(const struct attention_mma &a)
{
    const uint32_t *first_units = (const uint32_t *)(a.plan + 1);
    for (uint32_t u = first_units[blockIdx.x]; u < first_units[blockIdx.x + 1]; u++) {
        struct attn_unit unit = *attn_unit_at(a, u);
        bool is_apart = false;
        for (uint32_t n_left; (n_left = attn_end_query(a, u) - unit.query) != 0;) {
            if (is_apart)
                unit.n_queries = (uint8_t)min(min(n_left, a.group - unit.query % a.group), ATTN_SMALL);
            if (kernel::run(a, unit)) {
                unit.query += unit.n_queries;
                unit.partial += unit.partial == ATTN_NO_PARTIAL ? 0 : unit.n_queries;
            } else {
                is_apart = true;
                cp_async_wait<0>();
            }
        }
        if (unit.partial != ATTN_NO_PARTIAL) {
            uint32_t merge = attn_unit_at(a, u)->merge;
            const struct attn_merge *merges = (const struct attn_merge *)((const char *)a.plan + a.plan->merges_at);
            if (is_last_to_arrive(a, merge, merges[merge].n_units))
                merge_partials(a, merges[merge]);
        }
    }
}

#endif
