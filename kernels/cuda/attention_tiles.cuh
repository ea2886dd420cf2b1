/* Parts of both sizes of attention_mma.cu: K and V tiles through shared memory, fragments, and the products with V.
 *
 * A tile is 64 positions of one KV head. In shared memory a position is a row of WIDTH halves, head_dim rounded up to
 * 64, and 16-byte chunk c of row r lies at c ^ (r % 8). So eight rows of a chunk, which ldmatrix reads at once, are in
 * eight different groups of banks. Elements from head_dim to D, the template's width, and positions that no query of
 * the block reads, are zeros: their products change nothing.
 */
#ifndef QUIRE_KERNELS_CUDA_ATTENTION_TILES_CUH
#define QUIRE_KERNELS_CUDA_ATTENTION_TILES_CUH

#include "kernels/cuda/factors.cuh"
#include "kernels/cuda/plan/attention_plan.h"
#include "kernels/cuda/widen.cuh"
#include "kernels/math/activation.h"

#define ATTN_THREADS 128u
#define ATTN_WARPS 4u
#define ATTN_TILE 64u
#define ATTN_SPLIT 512u
#define ATTN_FN static __device__ __forceinline__

struct attention_mma {
    const float *qkv;
    float *out;
    struct attn_plan *plan; /* only the arrival counters are written */
    const uint32_t *tables;
    const unsigned char *k, *v;
    const float *sinks; /* [Q] or NULL */
    float *partials; /* rows of o [head_dim], m and l; m is NaN in a split of which the query reads nothing */
    uint32_t n_q_heads, n_kv_heads, group, head_dim, block_tokens, window;
    float scale, softcap, softcap_inverse;
    uint32_t zero; /* 0, which the compiler does not know */
    bool as_factors; /* out is only for GEMMs */
    const float *sink_q; /* [T, Q, D] */
    uint32_t n_sink_positions; /* not 0 in kernels with attention sinks */
};

/* attention_decode.cu */
cudaError_t launch_attention_decode(cudaStream_t stream, const struct attention_mma &a, uint32_t n_blocks);
uint32_t attention_decode_shared_bytes(uint32_t head_dim);

K_DYNAMIC_SHARED;

template <uint32_t D> struct attn_width {
    static constexpr uint32_t row_bytes = (D + 63) / 64 * 128; /* per row in shared memory */
    static constexpr uint32_t tile_bytes = ATTN_TILE * row_bytes;
};

ATTN_FN uint32_t attn_first_position(uint32_t position, uint32_t window)
{
    return window != 0 && position >= window ? position - window + 1 : 0;
}

/* The positions that a computation reads. With attention sinks a query has two parts, each with a q of its own: the
 * sinks, which are one split and come first, and the window behind them, which may be empty. */
enum attn_part { ATTN_ALL, ATTN_SINKS, ATTN_WINDOW };

template <enum attn_part part> ATTN_FN uint32_t attn_lowest(const struct attention_mma &a, uint32_t position)
{
    if constexpr (part == ATTN_SINKS)
        return 0;
    uint32_t first = attn_first_position(position, a.window);
    return part == ATTN_WINDOW ? max(first, a.n_sink_positions) : first;
}

/* Returns one past the part's last position. */
template <enum attn_part part> ATTN_FN uint32_t attn_end(const struct attention_mma &a, uint32_t position)
{
    return part == ATTN_SINKS ? min(position + 1, a.n_sink_positions) : position + 1;
}

/* Addresses in shared memory are byte offsets from k_shared, and arrays of rows begin at multiples of 128. Chunk c of a
 * row is then at (chunk 0) ^ c × 16, plus 128 bytes for every eight chunks: one register holds the base, and c is a
 * constant. */
template <uint32_t D> ATTN_FN uint32_t attn_row(uint32_t array, uint32_t row)
{
    return array + row * attn_width<D>::row_bytes + (row & 7) * 16;
}
ATTN_FN uint32_t attn_chunk(uint32_t row, uint32_t chunk)
{
    return (row ^ ((chunk & 7) * 16)) + chunk / 8 * 128;
}

ATTN_FN uint32_t pack_halves(float low, float high)
{
    __half2 pair = __floats2half2_rn(low, high);
    uint32_t word;
    memcpy(&word, &pair, sizeof word);
    return word;
}

/* Returns a score from the product of q and k. */
template <bool is_capped> ATTN_FN float attn_score(const struct attention_mma &a, float product)
{
    float score = product * a.scale;
    return is_capped ? k_softcap(score, a.softcap, a.softcap_inverse) : score;
}

/* ---- feeding ---------------------------------------------------------------------------------- */

#define ATTN_NO_ROW UINT32_MAX
/* Shared memory begins with the cache rows [2][64] of the even and the odd tile. [N] tiles follow at this offset. */
#define ATTN_ROWS_BYTES (2 * ATTN_TILE * 4)
#define ATTN_BUFFERS_AT 1024u

/* Loads in the order K, V of the first tile, K, V of the next, … Load i goes to buffer i % N and is the input of step
 * i: K in even steps, V in odd ones. N − 1 loads are in flight while a step computes.
 *
 * The block table gives the cache row of each position, one look-up per position, so that blocks may have any size. A
 * thread reads the entry of a position two tiles before it requests the position's K, so nothing waits for it.
 */
template <uint32_t D, uint32_t N> struct attn_feed {
    uint32_t table, kv_head;
    uint32_t lowest, end; /* positions that at least one query reads: [lowest, end) */
    uint32_t first_tile, end_tile;
    uint32_t next_row; /* the thread's position in the tile whose rows are stored next */

    __device__ __forceinline__ uint32_t row_at(const struct attention_mma &a, uint32_t tile) const
    {
        uint32_t position = tile * ATTN_TILE + threadIdx.x % ATTN_TILE;
        if (tile >= end_tile || position < lowest || position >= end)
            return ATTN_NO_ROW;
        uint32_t at = position / a.block_tokens;
        return (a.tables[(uint64_t)table + at] * a.n_kv_heads + kv_head) * a.block_tokens +
               (position - at * a.block_tokens);
    }

    __device__ __forceinline__ void store_row(uint32_t tile, uint32_t row)
    {
        if (threadIdx.x < ATTN_TILE)
            ((uint32_t *)k_shared)[tile % 2 * ATTN_TILE + threadIdx.x] = row;
    }

    /* With two buffers K always has the same one, and the compiler would keep all addresses for ldmatrix and cp.async
     * in registers, of which there are not enough. With a variable address it computes each one with one xor. */
    __device__ __forceinline__ uint32_t buffer_at(const struct attention_mma &a, uint32_t buffer, uint32_t tile) const
    {
        return ATTN_BUFFERS_AT + buffer * attn_width<D>::tile_bytes + (tile & a.zero);
    }

    __device__ __forceinline__ void load(const struct attention_mma &a, const unsigned char *cache, uint32_t tile,
                                         uint32_t buffer) const
    {
        if (tile < end_tile) {
            uint32_t to = buffer_at(a, buffer, tile), n_chunks = a.head_dim / 8;
            const uint32_t *from = (const uint32_t *)k_shared + tile % 2 * ATTN_TILE;
#pragma unroll 4
            for (uint32_t i = 0; i < ATTN_TILE * D / 8 / ATTN_THREADS; i++) {
                uint32_t at = i * ATTN_THREADS + threadIdx.x, row = at / (D / 8), chunk = at % (D / 8);
                bool is_there = from[row] != ATTN_NO_ROW && chunk < n_chunks;
                uint64_t offset = is_there ? ((uint64_t)from[row] * n_chunks + chunk) * 16 : 0;
                cp_async16(k_shared + attn_chunk(attn_row<D>(to, row), chunk), cache + offset, is_there);
            }
        }
        cp_async_commit();
    }

    /* The first half runs before a barrier, the second after it. */
    __device__ __forceinline__ void begin(const struct attention_mma &a)
    {
        store_row(first_tile, row_at(a, first_tile));
        if (N > 2)
            store_row(first_tile + 1, row_at(a, first_tile + 1));
    }
    __device__ __forceinline__ void fill(const struct attention_mma &a)
    {
        load(a, a.k, first_tile, 0);
        if (N > 2) {
            load(a, a.v, first_tile, 1);
            load(a, a.k, first_tile + 1, 2);
        }
        next_row = row_at(a, first_tile + N / 2);
    }

    /* Waits for the tile's K, or V. No warp reads the previous tile any more, so its buffer is reloaded. */
    __device__ __forceinline__ uint32_t keys(const struct attention_mma &a, uint32_t tile)
    {
        cp_async_wait<N - 2>();
        __syncthreads();
        uint32_t ahead = tile + N / 2 - 1;
        load(a, a.v, ahead, (2 * (ahead - first_tile) + 1) % N);
        store_row(ahead + 1, next_row);
        next_row = row_at(a, ahead + 2);
        return buffer_at(a, 2 * (tile - first_tile) % N, tile);
    }
    __device__ __forceinline__ uint32_t values(const struct attention_mma &a, uint32_t tile)
    {
        cp_async_wait<N - 2>();
        __syncthreads();
        uint32_t ahead = tile + N / 2;
        load(a, a.k, ahead, 2 * (ahead - first_tile) % N);
        return buffer_at(a, (2 * (tile - first_tile) + 1) % N, tile);
    }
};

/* ---- queries ---------------------------------------------------------------------------------- */

/* The rows of a fragment that a thread holds: g and g + 8 of its warp's sixteen. A row without a query reads
 * nothing. */
struct attn_rows {
    uint32_t lowest[2], end[2]; /* positions [lowest, end); end is 0 for a row without a query */
};

template <enum attn_part part>
ATTN_FN struct attn_rows attn_rows_of(const struct attention_mma &a, const struct attn_unit &unit, uint32_t first_row)
{
    struct attn_rows rows;
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        uint32_t row = first_row + threadIdx.x % 32 / 4 + 8 * h;
        uint32_t position = unit.position + (unit.query + row) / a.group;
        rows.lowest[h] = row < unit.n_queries ? attn_lowest<part>(a, position) : UINT32_MAX;
        rows.end[h] = row < unit.n_queries ? attn_end<part>(a, position) : 0;
    }
    return rows;
}

ATTN_FN uint32_t attn_head_of(const struct attention_mma &a, uint32_t kv_head, uint32_t query)
{
    return kv_head * a.group + query % a.group;
}

/* Returns the index of the query's element 0 in an array of [T, n_heads, head_dim]. */
ATTN_FN uint64_t attn_query_at(const struct attention_mma &a, uint32_t token, uint32_t kv_head, uint32_t query,
                               uint32_t n_heads)
{
    return ((token + query / a.group) * (uint64_t)n_heads + attn_head_of(a, kv_head, query)) * a.head_dim;
}

/* Loads q' of n_rows rows into shared memory. */
template <uint32_t D, enum attn_part part>
ATTN_FN void load_queries(const struct attention_mma &a, const struct attn_unit &unit, uint32_t to, uint32_t n_rows)
{
    const float *from = part == ATTN_SINKS ? a.sink_q : a.qkv;
    const uint32_t n_heads = a.n_q_heads + (part == ATTN_SINKS ? 0 : 2 * a.n_kv_heads);
#pragma unroll 1
    for (uint32_t at = threadIdx.x; at < n_rows * (D / 8); at += ATTN_THREADS) {
        uint32_t row = at / (D / 8), chunk = at % (D / 8);
        uint4 halves = make_uint4(0, 0, 0, 0);
        if (row < unit.n_queries && chunk * 8 < a.head_dim) {
            const float4 *q = (const float4 *)(from +
                                               attn_query_at(a, unit.token, unit.kv_head, unit.query + row, n_heads) +
                                               chunk * 8);
            float4 low = q[0], high = q[1];
            halves = make_uint4(pack_halves(low.x, low.y), pack_halves(low.z, low.w), pack_halves(high.x, high.y),
                                pack_halves(high.z, high.w));
        }
        *(uint4 *)(k_shared + attn_chunk(attn_row<D>(to, row), chunk)) = halves;
    }
}

/* Returns the base of the lane's address for ldmatrix, for A fragments of sixteen rows starting at first_row, B
 * fragments of sixteen positions of K, and of 32 positions of V. Chunks are counted from there. */
template <uint32_t D> ATTN_FN uint32_t lane_of_rows(uint32_t array, uint32_t first_row)
{
    uint32_t lane = threadIdx.x % 32;
    return attn_chunk(attn_row<D>(array, first_row + lane % 16), lane / 16);
}
template <uint32_t D> ATTN_FN uint32_t lane_of_keys(uint32_t array, uint32_t first_row)
{
    uint32_t lane = threadIdx.x % 32;
    return attn_chunk(attn_row<D>(array, first_row + lane % 8 + lane / 16 * 8), lane / 8 % 2);
}

/* Loads columns [16 i, 16 i + 16) of sixteen rows, `skipped` bytes later. For K, r[0] and r[1] belong to the first
 * eight positions. */
ATTN_FN void load_columns(uint32_t (&r)[4], uint32_t lane_at, uint32_t i, uint32_t skipped = 0)
{
    ldmatrix_x4(r, k_shared + attn_chunk(lane_at, 2 * i) + skipped);
}

/* Loads the B fragments of eight columns of V, for the tile's four products. lane_at is the address of the chunk to
 * which `chunk` is added. */
template <uint32_t D> ATTN_FN void load_values(uint32_t (&v)[8], uint32_t lane_at, uint32_t chunk)
{
    uint32_t at = attn_chunk(lane_at, chunk), r[4];
#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
        ldmatrix_x4_trans(r, k_shared + at + half * 32 * attn_width<D>::row_bytes);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            v[4 * half + i] = r[i];
    }
}

/* ---- p and its products with V ------------------------------------------------------------------ */

ATTN_FN float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

/* Returns the sum of a tile's p for the two rows. Lane t of the four holds thread t's part of the quad, in its
 * order. */
ATTN_FN void sum_weights(float (&sum)[2], const uint32_t (&p)[4][4])
{
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        sum[h] = 0.0f;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            float2 low = widen_half2(p[i][h]), high = widen_half2(p[i][2 + h]);
            sum[h] = sum[h] + low.x;
            sum[h] = sum[h] + low.y;
            sum[h] = sum[h] + high.x;
            sum[h] = sum[h] + high.y;
        }
        sum[h] = sum[h] + __shfl_xor_sync(~0u, sum[h], 1);
        sum[h] = sum[h] + __shfl_xor_sync(~0u, sum[h], 2);
    }
}

/* Rescales l and o of the two rows before a tile is folded into them. */
template <uint32_t N_TILES> ATTN_FN void rescale(float (&o)[N_TILES][4], const float (&alpha)[2])
{
    if (__all_sync(~0u, alpha[0] == 1.0f && alpha[1] == 1.0f)) /* most tiles: the maximum does not change */
        return;
#pragma unroll
    for (uint32_t n = 0; n < N_TILES; n++)
#pragma unroll
        for (uint32_t e = 0; e < 4; e++)
            o[n][e] = o[n][e] * alpha[e / 2];
}

/* A half of a word whose exponent bits are all set is infinite or NaN. */
ATTN_FN bool has_special(uint32_t word)
{
    return (((word & 0x7fff7fffu) + 0x04000400u) & 0x80008000u) != 0;
}

/* Returns whether V of a tile has a value that is not finite. The whole block calls it together. */
template <uint32_t D> ATTN_FN bool has_special_values(uint32_t values)
{
    bool special = false;
#pragma unroll 1
    for (uint32_t at = threadIdx.x; at < ATTN_TILE * D / 8; at += ATTN_THREADS) {
        uint4 v = *(const uint4 *)(k_shared + attn_chunk(attn_row<D>(values, at / (D / 8)), at % (D / 8)));
        special = special || has_special(v.x) || has_special(v.y) || has_special(v.z) || has_special(v.w);
    }
    return __syncthreads_or(special) != 0;
}

/* Adds p · v over a tile to o. o[n] is the chunk n × STEP after lane_at's; `first` is the chunk of n = 0. */
template <uint32_t D, uint32_t STEP, uint32_t N_TILES>
ATTN_FN void add_values(float (&o)[N_TILES][4], const uint32_t (&p)[4][4], uint32_t lane_at, uint32_t first)
{
#pragma unroll
    for (uint32_t n = 0; n < N_TILES; n++) {
        if (N_TILES * STEP * 8 > D && (first + n * STEP) * 8 >= D)
            break;
        uint32_t v[8];
        load_values<D>(v, lane_at, n * STEP);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            mma_f16(o[n], p[i], v[2 * i], v[2 * i + 1]);
    }
}

/* ---- splits ----------------------------------------------------------------------------------- */

/* Returns the factors that fold (m₂, l₂) into (m, l), and o₂ into o: o = fma(o, a, o₂ · b). */
ATTN_FN void fold_weights(float &m, float &l, float m2, float l2, float &a, float &b)
{
    float largest = fmaxf(m, m2);
    a = k_exp(m - largest);
    b = k_exp(m2 - largest);
    l = fmaf(l, a, l2 * b);
    m = largest;
}

/* Folds the head's sink, if there are sinks, into the merged state of all splits: one more split, (sink, 1, 0). Returns
 * the factor for o. */
ATTN_FN float fold_sink(const struct attention_mma &a, uint32_t head, float m, float &l)
{
    float fold_a = 1.0f, fold_b;
    if (a.sinks != NULL)
        fold_weights(m, l, a.sinks[head], 1.0f, fold_a, fold_b);
    return fold_a;
}

/* Returns o / l, with -0 replaced by +0: 0 · v has the sign of v, even if v is masked. */
ATTN_FN float attn_output(float o, float l)
{
    return o / l + 0.0f;
}

#endif
