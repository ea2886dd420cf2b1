/* Attention in the lane form: docs/internals/numerics.md §10, bit for bit, over a cache of any format. It is the
 * reference for checking suspicious answers, and computes F32 models and caches and 8-bit caches. It puts simplicity
 * first.
 *
 * A block of 128 threads computes one query head of one token, one split of 512 positions after the other. So only the
 * token's position and its row decide the order of summation, no workspace is needed, and the grid depends only on
 *   n_tokens. Scores: a thread has one position at a time, four of each split. It holds the 16 lanes of that sum in
 *   registers: 16 chains of fmas, without shuffles.
 *   Tiles: 16 threads compute one of the split's 8 tiles, like the specification's lanes: thread j has its positions j,
 *   j + 16, j + 32, j + 48. All tiles' scores are known by then, so one scan gives the running maxima of the eight.
 *   Values: a thread has two adjacent elements d and reads the positions in rising order, 2, 4 or 8 bytes each. In 8
 *   bits the positions' scales of V are loaded with the scores.
 *
 * A split takes D / 16 · 64 fmas per thread for the scores and a chain of up to 512 for the values: about 4 µs, for 256
 * KB of K and V (heads of 128, f16). One block streams 65 GB/s, so a decode step of 32 heads over 4,096 positions takes
 * 30 µs per layer. 512 concurrent blocks would be limited by memory if the query heads of a KV head did not share L2.
 * Grid: x is the token, so that they do.
 */
#include "kernels/cuda/factors.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/widen.cuh"
#include "kernels/check.h"
#include "kernels/math/activation.h"
#include "kernels/math/lane_sum.h"

#define THREADS 128u
#define MIN_BLOCKS 4 /* per SM, which allows 128 registers; without it the compiler takes 48 and spills */
#define TILES (K_ATTN_SPLIT / K_ATTN_TILE)
#define NO_ROW UINT32_MAX

struct attention_lane {
    const float *qkv;
    float *out;
    const struct k_attn_row *rows;
    const uint32_t *tables;
    const void *k_cache, *v_cache;
    const float *sinks;
    uint64_t block_bytes, scales_at;
    uint32_t n_rows, n_q_heads, n_kv_heads, head_dim, block_tokens, window;
    float scale, softcap, softcap_inverse;
    bool whole; /* a token reads its row up to the end */
    bool as_factors; /* out is only for GEMMs: an F32 cache in the mma form */
    const float *sink_q; /* [T, Q, D]: of the kernel with attention sinks */
    uint32_t n_sink_positions;
};

#define IS_BYTES(kind) ((kind) != K_F32 && (kind) != K_F16)
#define ELEMENT_BYTES(kind) ((kind) == K_F32 ? 4u : (kind) == K_F16 ? 2u : 1u)

struct split { /* shared memory of a block */
    __align__(16) float q[K_MAX_HEAD_DIM];
    float p[K_ATTN_SPLIT]; /* scores, then weights */
    uint64_t at[K_ATTN_SPLIT]; /* byte offset of a position's head in K and in V */
    float max[TILES]; /* of the tile's scores */
    float alpha[TILES], sum[TILES];
    uint32_t row;
};

struct range {
    uint32_t begin, end;
};

/* Returns the slots of the tile that the token reads; positions [first, end) are readable. */
static __device__ __forceinline__ struct range readable(uint32_t start, uint32_t n, uint32_t first, uint32_t end)
{
    struct range r = {max(start, first) - start, min(max(end, start) - start, n)};
    return r;
}

/* Finds the token's row. Checks all rows, because padding rows may be anywhere. */
static __device__ __forceinline__ void find_row(struct split *shared, const struct attention_lane &a, uint32_t token)
{
    if (threadIdx.x == 0)
        shared->row = NO_ROW;
    __syncthreads();
    for (uint32_t r = threadIdx.x; r < a.n_rows; r += THREADS)
        if (token - a.rows[r].token < a.rows[r].n_tokens)
            shared->row = r;
    __syncthreads();
}

/* Loads elements [d, d + 4) of a key. */
template <enum k_dtype dtype>
static __device__ __forceinline__ float4 load_key(const unsigned char *k, float k_scale, uint32_t d)
{
    if constexpr (IS_BYTES(dtype))
        return widen_bytes<dtype>(((const uint32_t *)k)[d / 4], k_scale);
    else
        return widen4<dtype>(k, d);
}

/* Returns the lane sum of q · k. k_scale: the scale of an 8-bit key. */
template <enum k_dtype dtype>
static __device__ __forceinline__ float dot(const float *q, const unsigned char *k, float k_scale, uint32_t head_dim)
{
    float lanes[K_LANES];
#pragma unroll
    for (uint32_t j = 0; j < K_LANES; j++)
        lanes[j] = 0.0f;
#pragma unroll 4
    for (uint32_t d = 0; d < head_dim; d += K_LANES) {
#pragma unroll
        for (uint32_t j = 0; j < K_LANES; j += 4) {
            float4 b = load_key<dtype>(k, k_scale, d + j), c = *(const float4 *)(q + d + j);
            lanes[j] = fmaf(c.x, b.x, lanes[j]);
            lanes[j + 1] = fmaf(c.y, b.y, lanes[j + 1]);
            lanes[j + 2] = fmaf(c.z, b.z, lanes[j + 2]);
            lanes[j + 3] = fmaf(c.w, b.w, lanes[j + 3]);
        }
    }
    return k_lane_fold(lanes);
}

/* Loads a row's scale: (head, offset) of a block. */
template <enum k_dtype dtype>
static __device__ __forceinline__ float load_scale(const void *cache, const struct attention_lane &a, uint64_t block,
                                                   uint32_t row)
{
    const float *scales = (const float *)((const unsigned char *)cache + block * a.block_bytes + a.scales_at);
    return widen_scale<dtype>(scales[row]);
}

/* Computes the scores of the split's slots and the addresses of their values. */
template <enum k_dtype dtype, bool is_capped>
static __device__ __forceinline__ void score(struct split *shared, float *v_scales, const struct attention_lane &a,
                                             const uint32_t *table, uint32_t kv_head, uint32_t start,
                                             struct range slots)
{
    for (uint32_t j = slots.begin + threadIdx.x; j < slots.end; j += THREADS) {
        uint32_t position = start + j;
        uint64_t block = table[position / a.block_tokens];
        uint32_t row = kv_head * a.block_tokens + position % a.block_tokens;
        uint64_t at = block * a.block_bytes + (uint64_t)row * (a.head_dim * ELEMENT_BYTES(dtype));
        float k_scale = 1.0f;
        shared->at[j] = at;
        if constexpr (IS_BYTES(dtype)) {
            k_scale = load_scale<dtype>(a.k_cache, a, block, row);
            v_scales[j] = load_scale<dtype>(a.v_cache, a, block, row);
        }
        float scaled = dot<dtype>(shared->q, (const unsigned char *)a.k_cache + at, k_scale, a.head_dim) * a.scale;
        shared->p[j] = is_capped ? k_softcap(scaled, a.softcap, a.softcap_inverse) : scaled;
    }
}

static __device__ __forceinline__ float larger(float a, float b)
{
    return b > a ? b : a;
}

/* Computes the tiles' maxima, α and sums, and replaces scores by weights. At the end m is the split's maximum. */
static __device__ __forceinline__ void weigh(struct split *shared, uint32_t start, uint32_t first, uint32_t end,
                                             float *m)
{
    uint32_t tile = threadIdx.x / K_LANES, lane = threadIdx.x % K_LANES;
    struct range mine = readable(start + tile * K_ATTN_TILE, K_ATTN_TILE, first, end);
    float *p = shared->p + tile * K_ATTN_TILE;
    const float low = k_f32_from_bits(0xff800000u);
    float top = low;
    for (uint32_t j = lane; j < K_ATTN_TILE; j += K_LANES)
        if (j >= mine.begin && j < mine.end)
            top = larger(top, p[j]);
    for (uint32_t apart = K_LANES / 2; apart > 0; apart /= 2)
        top = larger(top, __shfl_xor_sync(~0u, top, apart, K_LANES));
    if (lane == 0)
        shared->max[tile] = top; /* −inf for an excluded tile, which is never the maximum */
    __syncthreads();
    float before = low, after = low;
    for (uint32_t t = 0; t < TILES; t++) {
        before = t <= tile ? after : before;
        after = t <= tile ? larger(after, shared->max[t]) : after;
    }
    *m = after;
    for (uint32_t t = tile + 1; t < TILES; t++)
        *m = larger(*m, shared->max[t]);
    float sum = 0.0f;
    for (uint32_t j = lane; j < K_ATTN_TILE; j += K_LANES) {
        if (j >= mine.begin && j < mine.end) {
            float weight = k_exp(p[j] - after);
            p[j] = weight;
            sum = sum + weight;
        }
    }
    for (uint32_t apart = K_LANES / 2; apart > 0; apart /= 2)
        sum = sum + __shfl_xor_sync(~0u, sum, apart, K_LANES);
    if (lane == 0) {
        shared->alpha[tile] = k_exp(before - after);
        shared->sum[tile] = sum;
    }
    __syncthreads();
}

/* Loads elements d and d + 1 of a position's value. j is relative to the split. */
template <enum k_dtype dtype>
static __device__ __forceinline__ float2 load_value(const struct split *shared, const float *v_scales,
                                                    const void *cache, uint32_t j, uint32_t d)
{
    const unsigned char *value = (const unsigned char *)cache + shared->at[j] + d * ELEMENT_BYTES(dtype);
    if constexpr (IS_BYTES(dtype)) {
        float4 two = widen_bytes<dtype>(*(const uint16_t *)value, v_scales[j]);
        return make_float2(two.x, two.y);
    }
    if (dtype == K_F32)
        return *(const float2 *)value;
    return widen_half2(*(const uint32_t *)value);
}

/* Adds up a split's weighted values, elements d and d + 1, and its weights in *l. */
template <enum k_dtype dtype>
static __device__ __forceinline__ float2 add_values(const struct split *shared, const float *v_scales,
                                                    const struct attention_lane &a, uint32_t start, uint32_t first,
                                                    uint32_t end, uint32_t d, float *l)
{
    float2 o = {0.0f, 0.0f};
    for (uint32_t tile = 0; tile < TILES; tile++) {
        uint32_t at = tile * K_ATTN_TILE;
        struct range slots = readable(start + at, K_ATTN_TILE, first, end);
        if (slots.begin >= slots.end)
            continue;
        *l = fmaf(*l, shared->alpha[tile], shared->sum[tile]);
        if (d >= a.head_dim)
            continue;
        o.x = o.x * shared->alpha[tile];
        o.y = o.y * shared->alpha[tile];
#pragma unroll 8
        for (uint32_t j = at + slots.begin; j < at + slots.end; j++) {
            float2 v = load_value<dtype>(shared, v_scales, a.v_cache, j, d);
            o.x = fmaf(shared->p[j], v.x, o.x);
            o.y = fmaf(shared->p[j], v.y, o.y);
        }
    }
    return o;
}

static __device__ __forceinline__ uint32_t first_position(const struct attention_lane &a, uint32_t position)
{
    return a.window != 0 && position >= a.window ? position - a.window + 1 : 0;
}

/* Writes the output from the merged state of all splits. */
static __device__ __forceinline__ void finish(const struct attention_lane &a, uint32_t token, uint32_t head, float m,
                                              float l, float2 o)
{
    uint32_t d = 2 * threadIdx.x;
    if (a.sinks != NULL) { /* one more split: a score with weight 1 and no value */
        float sink = a.sinks[head], top = larger(m, sink), x = k_exp(m - top), y = k_exp(sink - top);
        l = fmaf(l, x, y);
        o.x = fmaf(o.x, x, 0.0f * y);
        o.y = fmaf(o.y, x, 0.0f * y);
    }
    if (d < a.head_dim)
        store2(a.out, a.as_factors, ((uint64_t)token * a.n_q_heads + head) * a.head_dim + d, o.x / l, o.y / l);
}

static __device__ __forceinline__ void load_query(struct split *shared, const float *q, uint32_t head_dim)
{
    for (uint32_t i = threadIdx.x; i < head_dim; i += THREADS)
        shared->q[i] = q[i];
}

/* Attention sinks are the first split: positions [0, min(end, n_sink_positions)), with a query of their own. The window
 * has the positions behind them, perhaps none. */
template <enum k_dtype dtype, bool is_capped, bool has_sinks>
static __device__ __forceinline__ void attend(struct split &shared, float *v_scales, const struct attention_lane &a)
{
    uint32_t token = blockIdx.x, head = blockIdx.y;
    find_row(&shared, a, token);
    if (shared.row == NO_ROW)
        return;
    const struct k_attn_row *row = &a.rows[shared.row];
    const uint32_t *table = a.tables + row->table;
    uint32_t position = row->position + (token - row->token);
    uint32_t end = a.whole ? row->position + row->n_tokens : position + 1;
    uint32_t first = first_position(a, position);
    uint32_t kv_head = head / (a.n_q_heads / a.n_kv_heads), d = 2 * threadIdx.x;
    const float *q = a.qkv + ((uint64_t)token * (a.n_q_heads + 2 * a.n_kv_heads) + head) * a.head_dim;
    bool of_sinks = has_sinks;
    if (has_sinks) {
        first = 0;
        end = min(end, a.n_sink_positions);
    }
    load_query(&shared, has_sinks ? a.sink_q + ((uint64_t)token * a.n_q_heads + head) * a.head_dim : q, a.head_dim);
    float merged_m = 0.0f, merged_l = 0.0f;
    float2 merged = {0.0f, 0.0f};
    bool is_first = true;
    for (uint32_t start = first - first % K_ATTN_SPLIT; start < end; start += K_ATTN_SPLIT) {
        __syncthreads(); /* q is loaded, and the previous split is finished */
        score<dtype, is_capped>(&shared, v_scales, a, table, kv_head, start, readable(start, K_ATTN_SPLIT, first, end));
        __syncthreads();
        float m, l = 0.0f;
        weigh(&shared, start, first, end, &m);
        const float2 o = add_values<dtype>(&shared, v_scales, a, start, first, end, d, &l);
        if (is_first) {
            merged_m = m;
            merged_l = l;
            merged = o;
        } else {
            float top = larger(merged_m, m), x = k_exp(merged_m - top), y = k_exp(m - top);
            merged_l = fmaf(merged_l, x, l * y);
            merged.x = fmaf(merged.x, x, o.x * y);
            merged.y = fmaf(merged.y, x, o.y * y);
            merged_m = top;
        }
        is_first = false;
        if (has_sinks && of_sinks) {
            of_sinks = false;
            first = max(first_position(a, position), a.n_sink_positions);
            end = position + 1;
            if (first >= end)
                break;
            start = first - first % K_ATTN_SPLIT - K_ATTN_SPLIT; /* the loop adds a split */
            load_query(&shared, q, a.head_dim); /* all threads have computed their scores */
        }
    }
    finish(a, token, head, merged_m, merged_l, merged);
}

template <enum k_dtype dtype, bool is_capped>
static __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) attention_lane_kernel(struct attention_lane a)
{
    __shared__ struct split shared;
    __shared__ float v_scales[IS_BYTES(dtype) ? K_ATTN_SPLIT : 1];
    attend<dtype, is_capped, false>(shared, v_scales, a);
}

template <enum k_dtype dtype, bool is_capped>
static __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) attention_lane_sinks_kernel(struct attention_lane a)
{
    __shared__ struct split shared;
    __shared__ float v_scales[IS_BYTES(dtype) ? K_ATTN_SPLIT : 1];
    attend<dtype, is_capped, true>(shared, v_scales, a);
}

template <enum k_dtype dtype, bool is_capped>
static cudaError_t launch_of(cudaStream_t stream, dim3 grid, const struct attention_lane &a)
{
    const dim3 block(THREADS);
    return a.n_sink_positions > 0 ? K_LAUNCH((attention_lane_sinks_kernel<dtype, is_capped>), grid, block, 0, stream, a)
                                  : K_LAUNCH((attention_lane_kernel<dtype, is_capped>), grid, block, 0, stream, a);
}

template <bool is_capped>
static cudaError_t launch(cudaStream_t stream, enum k_dtype kind, dim3 grid, const struct attention_lane &a)
{
    switch (kind) {
    case K_F32: return launch_of<K_F32, is_capped>(stream, grid, a);
    case K_F16: return launch_of<K_F16, is_capped>(stream, grid, a);
    case K_INT: return launch_of<K_INT, is_capped>(stream, grid, a);
    case K_E4M3: return launch_of<K_E4M3, is_capped>(stream, grid, a);
    default: return launch_of<K_E5M2, is_capped>(stream, grid, a);
    }
}

cudaError_t launch_attention_lane(cudaStream_t stream, const struct k_attention_args *a)
{
    const struct k_kv_shape *kv = a->kv;
    struct attention_lane args = {
        a->qkv_dev,   a->out_dev,           a->rows_dev,        a->tables_dev,      a->layer->k_dev, a->layer->v_dev,
        a->sinks_dev, k_kv_block_bytes(kv), k_kv_scales_at(kv), a->n_rows,          a->n_q_heads,    kv->n_kv_heads,
        kv->head_dim, kv->block_tokens,     a->window,          a->scale,           a->softcap,      1.0f / a->softcap,
        a->whole,     a->for_gemm,          a->sink_q_dev,      a->n_sink_positions};
    const dim3 grid(a->n_tokens, a->n_q_heads);
    return a->softcap != 0.0f ? launch<true>(stream, kv->format.kind, grid, args)
                              : launch<false>(stream, kv->format.kind, grid, args);
}
