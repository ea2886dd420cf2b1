/* Attention in the lane form: docs/numerics.md §10, bit for bit, over a cache of f16 or f32. What a suspicious answer is checked
 * by, and what F32 models and caches use: simple first.
 *
 * A block of 128 threads has one query head of one token and does the splits of 512 positions in turn, so nothing but the token's
 * position and its row decides what is summed in which order, no workspace is needed, and the grid depends on n_tokens only.
 *   Scores: a thread has a position, four of each split. It holds the 16 lanes of that sum in registers: 16 chains of fmas, no shuffle.
 *   Tiles: 16 threads have one of the split's 8 tiles, as the page's lanes do: thread j has its positions j, j + 16, j + 32, j + 48.
 *   All tiles' scores are known by then, so the running maxima of the eight come from one scan.
 *   Values: a thread has two neighbouring elements d and follows the positions in rising order, 4 or 8 bytes each.
 *
 * A split takes D / 16 · 64 fmas a thread for the scores and a chain of up to 512 for the values: about 4 µs, against 256 KB of K and V
 * (heads of 128, f16). One block would stream 65 GB/s, a decode step of 32 heads over 4,096 positions takes 30 µs a layer; 512 blocks at
 * once would be bound by memory if the query heads of a KV head did not meet in L2. Grid: x is the token, so that these do. */
#include "kernels/cuda/factors.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/widen.cuh"
#include "kernels/check.h"

#define THREADS 128u
#define MIN_BLOCKS 4 /* of an SM: up to 128 registers; left to itself the compiler takes 48 and spills */
#define TILES (K_ATTN_SPLIT / K_ATTN_TILE)
#define NO_ROW UINT32_MAX

struct attention_lane {
    const float *qkv;
    float *out;
    const struct k_attn_row *rows;
    const uint32_t *tables;
    const void *k_cache, *v_cache;
    const float *sinks;
    uint32_t n_rows, n_q_heads, n_kv_heads, head_dim, block_tokens, window;
    float scale, softcap, softcap_inverse;
    bool whole; /* a token reads its row to the end */
    bool as_factors; /* so out, for GEMMs alone: an F32 cache in the mma form */
};

struct split { /* what a block shares */
    __align__(16) float q[K_MAX_HEAD_DIM];
    float p[K_ATTN_SPLIT]; /* scores, then weights */
    uint64_t element[K_ATTN_SPLIT]; /* where a position's head begins in K and in V */
    float max[TILES]; /* of the tile's scores */
    float alpha[TILES], sum[TILES];
    uint32_t row;
};

struct range {
    uint32_t begin, end;
};

/* Slots of the tile that the token reads; positions [first, end) are readable. */
static __device__ __forceinline__ struct range readable(uint32_t start, uint32_t n, uint32_t first, uint32_t end)
{
    struct range r = {max(start, first) - start, min(max(end, start) - start, n)};
    return r;
}

/* The row that the token is of: padding rows may stand anywhere, so all are looked at. */
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

/* The lane sum of q · k. */
template <enum k_dtype dtype>
static __device__ __forceinline__ float dot(const float *q, const unsigned char *k, uint32_t head_dim)
{
    float lanes[K_LANES];
#pragma unroll
    for (uint32_t j = 0; j < K_LANES; j++)
        lanes[j] = 0.0f;
#pragma unroll 4
    for (uint32_t d = 0; d < head_dim; d += K_LANES) {
#pragma unroll
        for (uint32_t j = 0; j < K_LANES; j += 4) {
            float4 b = widen4<dtype>(k, d + j), c = *(const float4 *)(q + d + j);
            lanes[j] = fmaf(c.x, b.x, lanes[j]);
            lanes[j + 1] = fmaf(c.y, b.y, lanes[j + 1]);
            lanes[j + 2] = fmaf(c.z, b.z, lanes[j + 2]);
            lanes[j + 3] = fmaf(c.w, b.w, lanes[j + 3]);
        }
    }
    return k_lane_fold(lanes);
}

/* Scores of the split's slots, and where their values lie. */
template <enum k_dtype dtype, bool is_capped>
static __device__ __forceinline__ void score(struct split *shared, const struct attention_lane &a,
                                             const uint32_t *table, uint32_t kv_head, uint32_t start,
                                             struct range slots)
{
    const uint32_t element_bytes = dtype == K_F32 ? 4 : 2;
    for (uint32_t j = slots.begin + threadIdx.x; j < slots.end; j += THREADS) {
        uint32_t position = start + j;
        uint64_t block = table[position / a.block_tokens];
        uint64_t element = ((block * a.n_kv_heads + kv_head) * a.block_tokens + position % a.block_tokens) * a.head_dim;
        shared->element[j] = element;
        float scaled = dot<dtype>(shared->q, (const unsigned char *)a.k_cache + element * element_bytes, a.head_dim) *
                       a.scale;
        shared->p[j] = is_capped ? k_softcap(scaled, a.softcap, a.softcap_inverse) : scaled;
    }
}

static __device__ __forceinline__ float larger(float a, float b)
{
    return b > a ? b : a;
}

/* The tiles' maxima, α and sums, and weights in the place of scores. m is the split's maximum in the end. */
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
        shared->max[tile] = top; /* −inf of a tile that is left out: no one's maximum */
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

/* Elements d and d + 1 of a position's value. */
template <enum k_dtype dtype> static __device__ __forceinline__ float2 load_value(const void *cache, uint64_t element)
{
    if (dtype == K_F32)
        return *(const float2 *)((const float *)cache + element);
    return widen_half2(*(const uint32_t *)((const uint16_t *)cache + element));
}

template <enum k_dtype dtype, bool is_capped>
static __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) attention_lane_kernel(struct attention_lane a)
{
    __shared__ struct split shared;
    uint32_t token = blockIdx.x, head = blockIdx.y;
    find_row(&shared, a, token);
    if (shared.row == NO_ROW)
        return;
    const struct k_attn_row *row = &a.rows[shared.row];
    const uint32_t *table = a.tables + row->table;
    uint32_t position = row->position + (token - row->token);
    uint32_t end = a.whole ? row->position + row->n_tokens : position + 1;
    uint32_t first = a.window != 0 && position >= a.window ? position - a.window + 1 : 0;
    uint32_t kv_head = head / (a.n_q_heads / a.n_kv_heads), d = 2 * threadIdx.x;
    const float *q = a.qkv + ((uint64_t)token * (a.n_q_heads + 2 * a.n_kv_heads) + head) * a.head_dim;
    for (uint32_t i = threadIdx.x; i < a.head_dim; i += THREADS)
        shared.q[i] = q[i];
    float merged_m = 0.0f, merged_l = 0.0f;
    float2 merged = {0.0f, 0.0f};
    bool is_first = true;
    for (uint32_t start = first - first % K_ATTN_SPLIT; start < end; start += K_ATTN_SPLIT) {
        __syncthreads(); /* q is there, and the split before is done with */
        score<dtype, is_capped>(&shared, a, table, kv_head, start, readable(start, K_ATTN_SPLIT, first, end));
        __syncthreads();
        float m, l = 0.0f;
        weigh(&shared, start, first, end, &m);
        float2 o = {0.0f, 0.0f};
        for (uint32_t tile = 0; tile < TILES; tile++) {
            uint32_t at = tile * K_ATTN_TILE;
            struct range slots = readable(start + at, K_ATTN_TILE, first, end);
            if (slots.begin >= slots.end)
                continue;
            l = fmaf(l, shared.alpha[tile], shared.sum[tile]);
            if (d >= a.head_dim)
                continue;
            o.x = o.x * shared.alpha[tile];
            o.y = o.y * shared.alpha[tile];
#pragma unroll 8
            for (uint32_t j = at + slots.begin; j < at + slots.end; j++) {
                float2 v = load_value<dtype>(a.v_cache, shared.element[j] + d);
                o.x = fmaf(shared.p[j], v.x, o.x);
                o.y = fmaf(shared.p[j], v.y, o.y);
            }
        }
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
    }
    if (a.sinks != NULL) { /* one more split: a score of weight 1 without a value */
        float sink = a.sinks[head], top = larger(merged_m, sink), x = k_exp(merged_m - top), y = k_exp(sink - top);
        merged_l = fmaf(merged_l, x, y);
        merged.x = fmaf(merged.x, x, 0.0f * y);
        merged.y = fmaf(merged.y, x, 0.0f * y);
    }
    if (d < a.head_dim) {
        store2(a.out, a.as_factors, ((uint64_t)token * a.n_q_heads + head) * a.head_dim + d, merged.x / merged_l,
               merged.y / merged_l);
    }
}

cudaError_t launch_attention_lane(cudaStream_t stream, const struct k_attention_args *a)
{
    const struct k_kv_shape *kv = a->kv;
    struct attention_lane args = {a->qkv_dev,        a->out_dev,       a->rows_dev, a->tables_dev, a->layer->k_dev,
                                  a->layer->v_dev,   a->sinks_dev,     a->n_rows,   a->n_q_heads,  kv->n_kv_heads,
                                  kv->head_dim,      kv->block_tokens, a->window,   a->scale,      a->softcap,
                                  1.0f / a->softcap, a->whole,         a->for_gemm};
    dim3 grid(a->n_tokens, a->n_q_heads), block(THREADS);
    if (a->softcap != 0.0f)
        return kv->format.kind == K_F32 ? K_LAUNCH((attention_lane_kernel<K_F32, true>), grid, block, 0, stream, args)
                                        : K_LAUNCH((attention_lane_kernel<K_F16, true>), grid, block, 0, stream, args);
    return kv->format.kind == K_F32 ? K_LAUNCH((attention_lane_kernel<K_F32, false>), grid, block, 0, stream, args)
                                    : K_LAUNCH((attention_lane_kernel<K_F16, false>), grid, block, 0, stream, args);
}
