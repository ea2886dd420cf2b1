/* Attention over the paged f16 cache on tensor cores: docs/numerics.md §17, "Attention, mma form".
 *
 * A block has 128 threads and walks the units that the plan (attention_plan.h) gave it. The grid is fixed; only the plan
 * knows the step, so that a recorded launch serves every step of its shape. The query heads of one KV head share its tiles as rows of A.
 *
 * Few queries (decode; ATTN_SMALL rows): what counts is that K and V stream. Sixteen rows, most of them empty, are 16 FLOP for
 * each byte of K and V, where an H100 has 300 a byte: they cost nothing. The four warps share the rows: each has 16 of the tile's 64
 * positions of the scores, and a quarter of the columns of o. They exchange maxima and p through shared memory. Two tiles
 * of K and V (64 KB for 128 wide heads) are in shared memory, one of them on its way; registers let two blocks onto an SM,
 * so that 64 KB are on the way, of which 3.35 TB/s × 1 µs / 132 SMs = 25 KB are needed.
 *
 * Many queries (prefill, verification of drafts; ATTN_LARGE rows; heads up to 128 wide): what counts is mma. A warp has 16
 * rows and all 64 positions, and p goes from the fragment of the scores to the fragment of A in registers. K and V have one buffer each: V is on its
 * way while scores are computed, the next K while o is. What is merged so far is touched once in 512 positions and lies in
 * shared memory.
 *
 * Both do the same operations on an element in the same order; a tile of which a row reads nothing leaves the row's m, l
 * and o: α is then 1, each p +0.
 *
 * A softcap is a kernel of its own, so that others do not pay for it: its tanh is some 30 instructions a score, as much again as
 * the mma of a prefill. Sinks are asked for at run time, once a query. */
#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/cuda/launch.h"

/* ---- shared memory ---- */

#define MAXIMA_AT ATTN_ROWS_BYTES
static_assert(MAXIMA_AT + ATTN_WARPS * ATTN_SMALL * 4 <= ATTN_BUFFERS_AT, "");

template <uint32_t D> struct layout {
    static constexpr uint32_t row_bytes = attn_width<D>::row_bytes, tile_bytes = attn_width<D>::tile_bytes;
    static constexpr uint32_t small_buffers = D <= 128 ? 4 : 2, large_buffers = 2;
    static constexpr uint32_t small_queries_at = ATTN_BUFFERS_AT + small_buffers * tile_bytes;
    static constexpr uint32_t weights_at = small_queries_at + ATTN_SMALL * row_bytes;
    static constexpr uint32_t small_bytes = weights_at + ATTN_SMALL * ATTN_TILE * 2;
    /* Many queries of heads wider than 128 would need more registers than there are: the plan has small tiles only. Queries of
     * heads up to 64 wide are held in registers, and pass through what will hold the merged o; those of wider ones stay in
     * shared memory. */
    static constexpr bool is_wide = D > ATTN_MOST_LARGE, keeps_queries = D > 64;
    static constexpr uint32_t large_queries_at = ATTN_BUFFERS_AT + large_buffers * tile_bytes;
    static constexpr uint32_t merged_at = large_queries_at + (keeps_queries ? ATTN_LARGE * row_bytes : 0);
    static constexpr uint32_t large_bytes = is_wide ? 0 : merged_at + ATTN_LARGE * D * 4;
    static constexpr uint32_t bytes = small_bytes > large_bytes ? small_bytes : large_bytes;
};

/* ---- what is merged of a unit so far: (n, h) is the pair of columns n of row h of the thread ---- */

template <uint32_t N_TILES> struct merged_registers {
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

template <uint32_t D> struct merged_shared {
    __device__ __forceinline__ float2 *at(uint32_t n, uint32_t h) const
    {
        return (float2 *)(k_shared + layout<D>::merged_at + threadIdx.x / 32 * (16 * D * 4)) + 64 * n + 32 * h +
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

/* A thread's two rows in a split and merged. */
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

/* Where the unit's result for a row goes: its row of the output or, of a unit that has not all splits, of the partials. */
ATTN_FN float *result_of(const struct attention_mma &a, const struct attn_unit &unit, uint32_t row)
{
    if (unit.partial == ATTN_NO_PARTIAL)
        return a.out + attn_query_at(a, unit.token, unit.kv_head, unit.query + row, a.n_q_heads);
    return a.partials + (uint64_t)(unit.partial + row) * ATTN_PARTIAL_FLOATS(a.head_dim);
}

/* Divides what the thread has just stored: 64 divisions unrolled would take too many registers. */
template <uint32_t STEP, uint32_t N_TILES>
ATTN_FN void finish_rows(const struct attention_mma &a, const struct attn_unit &unit, uint32_t first_row,
                         uint32_t first, const bool (&is_any)[2], float *const (&to)[2], struct attn_state<N_TILES> &s)
{
    float by_sink[2];
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        uint32_t query = unit.query + first_row + threadIdx.x % 32 / 4 + 8 * h;
        by_sink[h] = fold_sink(a, attn_head_of(a, unit.kv_head, query), s.merged_m[h], s.merged_l[h]);
    }
#pragma unroll 1
    for (uint32_t n = 0; n < N_TILES; n++) {
        uint32_t column = 8 * (first + n * STEP) + threadIdx.x % 4 * 2;
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            float2 *at = (float2 *)(to[h] + column);
            if (column < a.head_dim && is_any[h])
                *at = make_float2(attn_output(at->x * by_sink[h], s.merged_l[h]),
                                  attn_output(at->y * by_sink[h], s.merged_l[h]));
        }
    }
}

/* The end of a split: into the partials, or into what is merged, and from there into the result. Column n of the thread
 * is 8 (first + n STEP) + 2 t. */
template <uint32_t D, uint32_t STEP, uint32_t N_TILES, class merged_o>
ATTN_FN void end_split(const struct attention_mma &a, const struct attn_unit &unit, const struct attn_rows &rows,
                       uint32_t first_row, uint32_t split, bool is_last, struct attn_state<N_TILES> &s,
                       merged_o &merged, uint32_t first)
{
    uint32_t begin = split * ATTN_SPLIT, end = begin + ATTN_SPLIT;
    bool is_whole = unit.partial == ATTN_NO_PARTIAL,
         is_apart = !is_whole && unit.partial_rows != 0; /* each split a partial */
    bool is_stored = is_apart || is_last;
    uint32_t n_columns = a.head_dim +
                         (split & a.zero); /* of this split: else a predicate for each n is held all along */
    float fold_a[2], fold_b[2];
    bool has_before[2], is_any[2]; /* splits of the unit that the row reads: before this one, and up to it */
    float *to[2];
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        bool is_used = rows.lowest[h] < end && rows.end[h] > begin;
        uint32_t row = first_row + threadIdx.x % 32 / 4 + 8 * h;
        has_before[h] = !is_apart && rows.lowest[h] < begin;
        is_any[h] = is_used || has_before[h];
        fold_a[h] = 1.0f;
        fold_b[h] = 0.0f;
        if (is_used && has_before[h])
            fold_weights(s.merged_m[h], s.merged_l[h], s.m[h], s.l[h], fold_a[h], fold_b[h]);
        if (is_used && !has_before[h]) {
            s.merged_m[h] = s.m[h];
            s.merged_l[h] = s.l[h];
            fold_b[h] = 1.0f;
        }
        uint64_t partials_before = is_apart ? (uint64_t)(split - unit.first_split) * unit.partial_rows : 0;
        to[h] = result_of(a, unit, row) + partials_before * ATTN_PARTIAL_FLOATS(a.head_dim);
        if (is_stored && !is_whole && rows.end[h] != 0 && threadIdx.x % 4 == 0 &&
            first == 0) /* one of the warps that share it */
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
            if (is_stored && is_any[h])
                *(float2 *)(to[h] + column) = o;
            else if (is_any[h])
                merged.set(n, h, o);
        }
    }
    if (is_stored && is_whole)
        finish_rows<STEP, N_TILES>(a, unit, first_row, first, is_any, to, s);
    s.clear();
}

/* ---- units ------------------------------------------------------------------------------------ */

template <uint32_t D, uint32_t N>
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
    return feed;
}

/* Positions [start, start + 64) are read by queries at all positions [first, last]. */
ATTN_FN bool is_whole_tile(const struct attention_mma &a, uint32_t start, uint32_t first, uint32_t last)
{
    return start + ATTN_TILE <= first + 1 && start >= attn_first_position(last, a.window);
}

ATTN_FN bool ends_split(uint32_t tile, uint32_t end_tile)
{
    return (tile + 1) % (ATTN_SPLIT / ATTN_TILE) == 0 || tile + 1 == end_tile;
}

/* m' from the tile's largest scores, and α, which is 1 in most tiles: no new largest score. A row that reads nothing of the tile
 * has none. (Where all scores are −inf so far, α would be NaN; every p is.) */
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

/* The warps' shares of sixteen rows over one tile of K: the scores, then p in shared memory, with α. */
template <uint32_t D, bool is_capped>
ATTN_FN void small_scores(const struct attention_mma &a, uint32_t keys, uint32_t queries,
                          uint32_t (&q)[layout<D>::is_wide ? 1 : D / 16][4], uint32_t start,
                          const struct attn_rows &rows, float (&m)[2], float (&alpha)[2])
{
    using at = layout<D>;
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float(*maxima)[ATTN_SMALL] = (float(*)[ATTN_SMALL])(k_shared + MAXIMA_AT);
    float score[2][4] = {};
#pragma unroll(at::is_wide ? 4 : D / 16)
    for (uint32_t i = 0; i < D / 16; i++) {
        uint32_t k[4];
        if (at::is_wide)
            load_columns(q[0], queries, i);
        load_columns(k, keys, i);
        mma_f16(score[0], q[at::is_wide ? 0 : i], k[0], k[1]);
        mma_f16(score[1], q[at::is_wide ? 0 : i], k[2], k[3]);
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

/* Sixteen queries at most: the warps share them. False: not done, a token of it at a time is asked for. */
template <uint32_t D, bool is_capped>
ATTN_FN bool run_small(const struct attention_mma &a, const struct attn_unit &unit)
{
    using at = layout<D>;
    constexpr uint32_t n_tiles = (D / 8 + ATTN_WARPS - 1) / ATTN_WARPS;
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    struct attn_feed<D, at::small_buffers> feed = feed_of<D, at::small_buffers>(a, unit);
    struct attn_rows rows = attn_rows_of(a, unit, 0);
    uint32_t first = unit.position + unit.query / a.group, last = feed.end - 1;
    struct attn_state<n_tiles> s;
    merged_registers<n_tiles> merged = {};
    uint32_t queries = lane_of_rows<D>(at::small_queries_at, 0), q[at::is_wide ? 1 : D / 16][4];

    __syncthreads(); /* the unit before may still be reading */
    feed.begin(a);
    load_queries<D>(a, unit, at::small_queries_at, ATTN_SMALL);
    __syncthreads();
    feed.fill(a);
    if (!at::is_wide) {
#pragma unroll
        for (uint32_t i = 0; i < D / 16; i++)
            load_columns(q[at::is_wide ? 0 : i], queries, i);
    }
    s.clear();
    for (uint32_t tile = feed.first_tile; tile < feed.end_tile; tile++) {
        uint32_t start = tile * ATTN_TILE;
        bool is_masked = !is_whole_tile(a, start, first, last);
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
            end_split<D, ATTN_WARPS>(a, unit, rows, 0, start / ATTN_SPLIT, tile + 1 == feed.end_tile, s, merged, warp);
    }
    return true;
}

/* A warp's sixteen rows over one tile of K: the scores, then p as fragments of A, with α. */
template <uint32_t D, bool is_capped>
ATTN_FN void large_scores(const struct attention_mma &a, uint32_t keys, uint32_t queries,
                          const uint32_t (&q)[layout<D>::keeps_queries ? 1 : D / 16][4], bool is_masked, uint32_t start,
                          const struct attn_rows &rows, float (&m)[2], float (&alpha)[2], uint32_t (&p)[4][4])
{
    uint32_t t = threadIdx.x % 4;
    float score[8][4] = {};
#pragma unroll
    for (uint32_t i = 0; i < D / 16; i++) {
        uint32_t k[4], rows_of_q[4];
        if (layout<D>::keeps_queries)
            load_columns(rows_of_q, queries, i);
        else
            memcpy(rows_of_q, q[layout<D>::keeps_queries ? 0 : i], sizeof rows_of_q);
#pragma unroll
        for (uint32_t n = 0; n < 4; n++) {
            load_columns(k, keys, i, n * 16 * attn_width<D>::row_bytes);
            mma_f16(score[2 * n], rows_of_q, k[0], k[1]);
            mma_f16(score[2 * n + 1], rows_of_q, k[2], k[3]);
        }
    }
    float largest[2] = {-INFINITY, -INFINITY};
    uint32_t is_read = ~0u; /* a bit for each of the thread's scores */
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

/* Sixty-four queries at most: each warp has sixteen. False as run_small(). */
template <uint32_t D, bool is_capped>
ATTN_FN bool run_large(const struct attention_mma &a, const struct attn_unit &unit)
{
    using at = layout<D>;
    uint32_t warp = threadIdx.x / 32, first_row = 16 * warp;
    uint32_t lane = threadIdx.x % 32, queries = lane_of_rows<D>(at::large_queries_at, first_row);
    struct attn_feed<D, at::large_buffers> feed = feed_of<D, at::large_buffers>(a, unit);
    struct attn_rows rows = attn_rows_of(a, unit, first_row);
    /* Positions of the warp's first and last query; a warp without one computes nothing. */
    bool has_rows = first_row < unit.n_queries;
    uint32_t last_row = min(first_row + 16, (uint32_t)unit.n_queries) - 1;
    uint32_t first = unit.position + (unit.query + first_row) / a.group;
    uint32_t last = unit.position + (unit.query + last_row) / a.group;
    uint32_t lowest = attn_first_position(first, a.window), unit_first = unit.position + unit.query / a.group;
    struct attn_state<D / 8> s;
    merged_shared<D> merged;
    uint32_t q[at::keeps_queries ? 1 : D / 16][4];

    __syncthreads(); /* the unit before may still be reading */
    feed.begin(a);
    load_queries<D>(a, unit, at::large_queries_at, ATTN_LARGE);
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
        bool is_masked = !is_whole_tile(a, start, first, last);
        bool is_mixed = !is_whole_tile(a, start, unit_first, feed.end - 1) && unit_first + 1 != feed.end;
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
            end_split<D, 1>(a, unit, rows, first_row, start / ATTN_SPLIT, tile + 1 == feed.end_tile, s, merged, 0);
    }
    return true;
}

/* ---- merging ---------------------------------------------------------------------------------- */

/* Whether the block is the last one to have stored its partials of the merge: it then sees all others'. What its threads
 * stored is before the barrier and the fence, so before the count; the last one's count is behind all others'. The counter
 * wraps to 0 for the next launch. The whole block asks together. */
ATTN_FN bool is_last_to_arrive(const struct attention_mma &a, uint32_t merge, uint32_t n_units)
{
    bool is_last = false;
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t *arrivals = (uint32_t *)((char *)a.plan + a.plan->arrivals_at);
        __threadfence();
        is_last = atomicInc(&arrivals[merge], n_units - 1) == n_units - 1;
        __threadfence();
    }
    return __syncthreads_or(is_last) != 0;
}

/* Partials of a query tile folded left to right, by one block: a warp has one query and up to 128 columns. What (m, l) are
 * folded with is the same for all columns and depends on m alone: lane i has it for partial i of 32, from the largest m up to
 * there. Then each column is two operations a partial. Loads of 32 partials wait for nothing: 16 KB a warp are on the way,
 * 64 KB a block. A step that fills the GPU leaves 2 to 9 partials a tile, which is one round, and blocks merge their tiles side by
 * side. One context of 128k alone leaves some 250, 0.5 MB a KV head, to as many blocks as there are KV heads: 8 rounds of 1 µs,
 * beside some 160 µs for its K and V, where a launch of its own would take 2 µs in every layer of every step.
 * From (−inf, 0, 0) the first partial comes out as it is, since k_exp(−inf) = 0 and k_exp(0) = 1; one that was not used has
 * a = 1, b = 0. */
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
            float4 values[32]; /* of a partial that was not used: whatever lies there */
#pragma unroll
            for (uint32_t k = 0; k < 32; k++)
                values[k] = k < n ? *(const float4 *)(partial + k * step + column)
                                  : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            float2 mine = lane < n ? *(const float2 *)(partial + lane * step + a.head_dim) : make_float2(NAN, 0.0f);
            bool is_used = mine.x == mine.x;
            uint32_t used = __ballot_sync(~0u, is_used);
            float largest = is_used ? mine.x : -INFINITY; /* up to this partial, then with what came before the 32 */
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
#pragma unroll
            for (uint32_t k = 0; k < 32; k++) {
                float by_a = __shfl_sync(~0u, fold_a, k), by_b = __shfl_sync(~0u, fold_b, k);
                bool is_there = (used >> k & 1) != 0;
                l = fmaf(l, by_a, __shfl_sync(~0u, next_l, k));
                o[0] = fmaf(o[0], by_a, (is_there ? values[k].x : 0.0f) * by_b);
                o[1] = fmaf(o[1], by_a, (is_there ? values[k].y : 0.0f) * by_b);
                o[2] = fmaf(o[2], by_a, (is_there ? values[k].z : 0.0f) * by_b);
                o[3] = fmaf(o[3], by_a, (is_there ? values[k].w : 0.0f) * by_b);
            }
            m = __shfl_sync(~0u, largest, 31);
        }
        float by_sink = fold_sink(a, attn_head_of(a, merge.kv_head, merge.query + query), m, l);
        if (wanted < a.head_dim)
            *(float4 *)(a.out + attn_query_at(a, merge.token, merge.kv_head, merge.query + query, a.n_q_heads) +
                        column) = make_float4(attn_output(o[0] * by_sink, l), attn_output(o[1] * by_sink, l),
                                              attn_output(o[2] * by_sink, l), attn_output(o[3] * by_sink, l));
    }
}

/* ---- the kernel ------------------------------------------------------------------------------- */

/* A unit is computed at once unless V is infinite or NaN at a position that one query of a tile reads and another does not: 0 · v
 * would be NaN in the other. That happens only where a request has overflowed f16, and its queries before that position must
 * not know: the unit is computed again, a token at a time. Queries of one token read the same positions, and all others are
 * zeros. */
template <uint32_t D, bool is_capped>
static __global__ void __launch_bounds__(ATTN_THREADS, 2) attention_mma_kernel(const struct attention_mma a)
{
    const uint32_t *first_units = (const uint32_t *)(a.plan + 1);
    const struct attn_unit *units = (const struct attn_unit *)((const char *)a.plan + a.plan->units_at);
    const struct attn_merge *merges = (const struct attn_merge *)((const char *)a.plan + a.plan->merges_at);
    uint32_t end_unit = first_units[blockIdx.x + 1];
    for (uint32_t u = first_units[blockIdx.x]; u < end_unit; u++) {
        struct attn_unit unit = units[u];
        uint32_t end = unit.query + unit.n_queries;
        bool is_apart = false;
        while (unit.query < end) {
            if (is_apart)
                unit.n_queries = (uint8_t)min(min(end - unit.query, a.group - unit.query % a.group), ATTN_SMALL);
            bool is_done = !layout<D>::is_wide && unit.n_queries > ATTN_SMALL ? run_large<D, is_capped>(a, unit)
                                                                              : run_small<D, is_capped>(a, unit);
            if (is_done) {
                unit.query += unit.n_queries;
                unit.partial += unit.partial == ATTN_NO_PARTIAL ? 0 : unit.n_queries;
            } else {
                is_apart = true;
                cp_async_wait<0>();
            }
        }
        if (unit.partial != ATTN_NO_PARTIAL && is_last_to_arrive(a, unit.merge, merges[unit.merge].n_units))
            merge_partials(a, merges[unit.merge]);
    }
}

/* ---- launching -------------------------------------------------------------------------------- */

/* The narrowest kernel that the heads fit; the widths are those that models have, and those with a softcap have 128 and 256
 * (a plan for narrower heads, which may count more blocks to an SM, serves them too: nobody waits for another block). */
template <uint32_t D, bool is_capped>
static cudaError_t launch(cudaStream_t stream, const struct attention_mma &a, uint32_t n_blocks)
{
    const uint32_t bytes = layout<D>::bytes;
    static_assert(layout<D>::bytes <= 99 * 1024, "what a block has on every GPU from sm_80 on");
    cudaError_t error = cudaFuncSetAttribute((const void *)attention_mma_kernel<D, is_capped>,
                                             cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    if (error == cudaSuccess)
        error = K_LAUNCH((attention_mma_kernel<D, is_capped>), n_blocks, ATTN_THREADS, bytes, stream, a);
    return error;
}

extern "C" uint32_t attention_mma_shared_bytes(uint32_t head_dim)
{
    return head_dim <= 64    ? layout<64>::bytes
           : head_dim <= 80  ? layout<80>::bytes
           : head_dim <= 96  ? layout<96>::bytes
           : head_dim <= 128 ? layout<128>::bytes
                             : layout<256>::bytes;
}

extern "C" cudaError_t launch_attention_mma(cudaStream_t stream, const struct k_attention_args *args, uint32_t n_blocks)
{
    struct attention_mma a = {};
    a.qkv = args->qkv_dev;
    a.out = args->out_dev;
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
    if (args->softcap != 0.0f) {
        a.softcap = args->softcap;
        a.softcap_inverse = 1.0f / args->softcap;
        return a.head_dim <= 128 ? launch<128, true>(stream, a, n_blocks) : launch<256, true>(stream, a, n_blocks);
    }
    return a.head_dim <= 64    ? launch<64, false>(stream, a, n_blocks)
           : a.head_dim <= 80  ? launch<80, false>(stream, a, n_blocks)
           : a.head_dim <= 96  ? launch<96, false>(stream, a, n_blocks)
           : a.head_dim <= 128 ? launch<128, false>(stream, a, n_blocks)
                               : launch<256, false>(stream, a, n_blocks);
}
