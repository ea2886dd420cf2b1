/* Attention over the paged KV cache (docs/internals/numerics.md §10): the arithmetic of an item.
 *
 * Each tile of 64 positions is computed with the item's queries in blocks of up to QUERIES, whose sums stay in
 * registers: first scores as lane sums of two keys with the block, then the weights, then the values in rising order of
 * position. A single block reads the cache in place and widens as it goes. So a decoding sequence is limited by memory
 * or, with many heads per KV head, by its multiply-adds; an 8-bit cache takes one more product per 16 elements, with
 * the row's scale. For more queries the tile is widened once, into the scratch. While one tile is computed the next is
 * prefetched, block by block of the cache, because no hardware prefetcher knows the block table.
 */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/lanes_math.h"

#if defined(__AVX512F__)
#define QUERIES 8u /* x 2 keys: 16 sums; x 2 groups of values: 16 outputs; of 32 registers */
#else
#define QUERIES 3u /* x 2 keys or groups, of two registers each: 12 of 16 */
#endif
#define TILE K_ATTN_TILE

/* Stops a compiler from rereading a value from memory for each use. */
#if defined(__AVX512F__)
#define IN_REGISTER(y) __asm__("" : "+v"(y))
#else
#define IN_REGISTER(y) ((void)0)
#endif

struct tile {
    uint32_t start;      /* absolute position of slot 0, a multiple of 64 */
    uint32_t begin, end; /* slots that at least one query reads */
    const unsigned char *k, *v; /* a slot's row is at its offset from these */
    uint64_t offset[TILE];      /* for a slot that no query reads: the offset of one that is read */
    uint64_t scale[TILE];       /* in 8 bits: the offset of the slot's scale, by the same rule */
};

struct states { /* the states of an item's queries, or of those from a given query on */
    float *m, *l; /* [queries] */
    float *o;     /* [queries][D] */
};

struct work { /* an item on its thread */
    const struct k_attention_args *a;
    const struct cpu_attn_item *item;
    uint32_t position; /* the item's first token's */
    uint32_t n_queries;
    bool widen;
    /* The positions of the current split's part: the sinks, or the window behind them. */
    bool on_sinks;
    uint32_t lowest, end;
    float *q;           /* [D / 16][n_queries][16]: of this part */
    float *k, *v;       /* [64][D]: a widened tile */
    struct states split, merged;
    struct tile tiles[2];
    float p[QUERIES][TILE]; /* scores, then weights, of a block */
};

/* The slots of a tile that a token reads. */
struct slots {
    uint32_t begin, end;
};

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static struct slots slots_of(const struct work *w, const struct tile *tile, uint32_t query)
{
    uint32_t position = w->position + query / w->item->n_heads;
    uint32_t lowest = max_u32(w->lowest, host_first_position(position, w->on_sinks ? 0 : w->a->window));
    uint32_t end = w->a->whole ? w->end : min_u32(w->end, position + 1);
    return (struct slots){max_u32(lowest, tile->start) - tile->start, min_u32(end - tile->start, TILE)};
}

/* ---- a tile of the cache --------------------------------------------------------------------- */

/* Finds the addresses of the tile's slots in their blocks. */
static void locate(const struct work *w, uint32_t start, struct tile *tile)
{
    const struct k_kv_shape *kv = w->a->kv;
    const uint32_t *table = w->a->tables_dev + w->item->row->table;
    const uint64_t row_bytes = k_format_bytes(kv->format, kv->head_dim), block_bytes = k_kv_block_bytes(kv),
                   scales_at = k_kv_scales_at(kv);
    tile->start = start;
    tile->k = w->a->layer->k_dev;
    tile->v = w->a->layer->v_dev;
    tile->begin = max_u32(w->lowest, start) - start;
    tile->end = min_u32(w->end - start, TILE);
    for (uint32_t slot = tile->begin; slot < tile->end;) {
        uint32_t offset = (start + slot) % kv->block_tokens;
        uint32_t run_end = min_u32(kv->block_tokens - offset, tile->end - slot) + slot;
        const uint64_t block = table[(start + slot) / kv->block_tokens] * block_bytes;
        const uint64_t row = (uint64_t)w->item->kv_head * kv->block_tokens + offset;
        uint64_t at = block + row * row_bytes, scale = block + scales_at + row * sizeof(float);
        for (; slot < run_end; slot++, at += row_bytes, scale += sizeof(float)) {
            tile->offset[slot] = at;
            tile->scale[slot] = scale;
        }
    }
    for (uint32_t slot = 0; slot < TILE; slot++) {
        if (slot >= tile->begin && slot < tile->end)
            continue;
        tile->offset[slot] = tile->offset[tile->begin];
        tile->scale[slot] = tile->scale[tile->begin];
    }
}

/* Prefetches into the second-level cache: with heads of 128, two tiles exceed the first level. One Zen 4 core, 16 KV
 * heads at 8,192 positions: 2.0 times the speed without prefetch, and 1.3 times the speed of prefetch into the first
 * level. */
CPU_INLINE void prefetch(const unsigned char *row, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)row + i, _MM_HINT_T1);
}

CPU_INLINE uint32_t bytes_of(enum k_dtype kind, uint32_t n)
{
    return kind == K_F32 ? 4 * n : kind == K_F16 ? 2 * n : n;
}

/* Returns the scale that load_row() needs for an 8-bit row. It includes the factor 256 for e4m3, which load_row() reads
 * as a 256th; exact. */
CPU_INLINE lanes load_scale(const unsigned char *cache, const struct tile *tile, uint32_t slot, enum k_dtype kind)
{
    float scale = 1.0f;
    if (kind != K_F32 && kind != K_F16)
        memcpy(&scale, cache + tile->scale[slot], sizeof scale);
    return lanes_splat(kind == K_E4M3 ? scale * 0x1p+8f : scale);
}

/* Returns 16 elements of a row. scale: of an 8-bit row. */
CPU_INLINE lanes load_row(const unsigned char *row, lanes scale, enum k_dtype kind, uint32_t d)
{
    switch (kind) {
    case K_F32: return lanes_load_f32((const float *)(const void *)row + d);
    case K_F16: return lanes_load_f16((const uint16_t *)(const void *)row + d);
    case K_INT: return lanes_mul(lanes_load_i8(row + d), scale);
    case K_E4M3: return lanes_mul(lanes_load_e4m3(row + d), scale);
    default: return lanes_mul(lanes_load_e5m2(row + d), scale);
    }
}

CPU_INLINE void prefetch_row(const unsigned char *cache, const struct tile *tile, uint32_t slot, enum k_dtype kind,
                             uint32_t head_dim)
{
    prefetch(cache + tile->offset[slot], bytes_of(kind, head_dim));
    if (kind != K_F32 && kind != K_F16)
        prefetch(cache + tile->scale[slot], 1);
}

CPU_INLINE void widen_rows(const struct work *w, const struct tile *tile, const struct tile *next, enum k_dtype kind)
{
    const uint32_t head_dim = w->a->kv->head_dim;
    for (uint32_t j = tile->begin; j < tile->end; j++) {
        const unsigned char *k = tile->k + tile->offset[j], *v = tile->v + tile->offset[j];
        const lanes k_scale = load_scale(tile->k, tile, j, kind), v_scale = load_scale(tile->v, tile, j, kind);
        if (next) {
            prefetch_row(next->k, next, j, kind, head_dim);
            prefetch_row(next->v, next, j, kind, head_dim);
        }
        for (uint32_t d = 0; d < head_dim; d += K_LANES) {
            lanes_store_f32(w->k + j * head_dim + d, load_row(k, k_scale, kind, d));
            lanes_store_f32(w->v + j * head_dim + d, load_row(v, v_scale, kind, d));
        }
    }
}

/* Widens the tile to f32 in the scratch and prefetches the next one. */
static void widen_tile(const struct work *w, struct tile *tile, const struct tile *next)
{
    const uint32_t head_dim = w->a->kv->head_dim;
    switch (w->a->kv->format.kind) {
    case K_F16: widen_rows(w, tile, next, K_F16); break;
    case K_INT: widen_rows(w, tile, next, K_INT); break;
    case K_E4M3: widen_rows(w, tile, next, K_E4M3); break;
    default: widen_rows(w, tile, next, K_E5M2); break;
    }
    tile->k = (const unsigned char *)w->k;
    tile->v = (const unsigned char *)w->v;
    for (uint32_t j = 0; j < TILE; j++) {
        uint32_t slot = j < tile->begin || j >= tile->end ? tile->begin : j;
        tile->offset[j] = slot * head_dim * sizeof(float);
    }
}

/* ---- a block of queries against a tile ------------------------------------------------------- */

struct block { /* N queries from `first` on, their slots and common data */
    const struct work *w;
    const struct tile *tile, *next; /* next: the tile to prefetch, or NULL */
    uint32_t first;
    float (*p)[TILE];
    struct states states;
    struct slots slots[QUERIES];
    struct slots any, all; /* union and intersection of the slots; may be empty */
};

#define ROUND_UP_4(n) (((n) + 3u) / 4u * 4u)

/* Stores the scores of two keys for one query or two. */
CPU_INLINE void store_pairs(float (*p)[TILE], uint32_t j, __m128 sums, const uint32_t n)
{
    _mm_storel_pi((__m64 *)(void *)&p[0][j], sums);
    if (n > 1)
        _mm_storeh_pi((__m64 *)(void *)&p[1][j], sums);
}

CPU_INLINE void score(const struct block *b, enum k_dtype dtype, const uint32_t N)
{
    const uint32_t head_dim = b->w->a->kv->head_dim;
    const uint64_t q_step = (uint64_t)b->w->n_queries * K_LANES;
    const float *queries = b->w->q + (uint64_t)b->first * K_LANES;
    for (uint32_t j = b->any.begin & ~1u; j < b->any.end; j += 2) {
        const unsigned char *k0 = b->tile->k + b->tile->offset[j];
        const unsigned char *k1 = b->tile->k + b->tile->offset[j + 1];
        const lanes scale0 = load_scale(b->tile->k, b->tile, j, dtype),
                    scale1 = load_scale(b->tile->k, b->tile, j + 1, dtype);
        const float *q = queries;
        lanes s[2 * ROUND_UP_4(QUERIES)]; /* [query][key] */
        if (b->next) {
            prefetch_row(b->next->k, b->next, j, dtype, head_dim);
            prefetch_row(b->next->k, b->next, j + 1, dtype, head_dim);
        }
#pragma GCC unroll 16
        for (uint32_t i = 0; i < 2 * ROUND_UP_4(N); i++)
            s[i] = lanes_zero();
        for (uint32_t d = 0; d < head_dim; d += K_LANES, q += q_step) {
            lanes x0 = load_row(k0, scale0, dtype, d), x1 = load_row(k1, scale1, dtype, d);
#pragma GCC unroll 8
            for (uint32_t i = 0; i < N; i++) {
                lanes y = lanes_load_f32(q + i * K_LANES);
                IN_REGISTER(y);
                s[2 * i] = lanes_fma(y, x0, s[2 * i]);
                s[2 * i + 1] = lanes_fma(y, x1, s[2 * i + 1]);
            }
        }
#pragma GCC unroll 2
        for (uint32_t i = 0; i < N; i += 4) {
            __m256 sums = lanes_fold8(s + 2 * i);
            store_pairs(b->p + i, j, _mm256_castps256_ps128(sums), N - i);
            if (i + 2 < N)
                store_pairs(b->p + i + 2, j, _mm256_extractf128_ps(sums, 1), N - i - 2);
        }
    }
}

/* Converts products to capped scores. A separate function, so that models without a cap pay one branch per tile.
 * weigh() then receives scaled scores. Slots that no query reads hold old values, or their caps; weigh() masks them. */
static void cap_scores(const struct block *b, uint32_t n)
{
    const float cap = b->w->a->softcap;
    const lanes scale = lanes_splat(b->w->a->scale), caps = lanes_splat(cap), inverse = lanes_splat(1.0f / cap);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < TILE; j += K_LANES) {
            lanes s = lanes_mul(lanes_load_f32(b->p[i] + j), scale);
            lanes_store_f32(b->p[i] + j, lanes_mul(lanes_tanh(lanes_mul(s, inverse)), caps));
        }
    }
}

/* Converts scores to weights, and rescales m, l and o to the new m. A masked score becomes -inf, whose weight is 0 and
 * changes no sum. */
CPU_INLINE void weigh(const struct block *b, const uint32_t N)
{
    const uint32_t head_dim = b->w->a->kv->head_dim;
    const bool is_capped = b->w->a->softcap != 0.0f;
    const lanes scale = lanes_splat(is_capped ? 1.0f : b->w->a->scale), low = lanes_splat(-__builtin_inff());
    if (is_capped)
        cap_scores(b, N);
    lanes largest[8], sums[8];
#pragma GCC unroll 8
    for (uint32_t i = 0; i < 8; i++)
        largest[i] = sums[i] = lanes_zero();
#pragma GCC unroll 8
    for (uint32_t i = 0; i < N; i++) {
        const int32_t begin = (int32_t)b->slots[i].begin, end = (int32_t)b->slots[i].end;
        largest[i] = low;
#pragma GCC unroll 4
        for (int32_t j = 0; j < (int32_t)TILE; j += K_LANES) {
            lanes s = lanes_mul(lanes_load_f32(b->p[i] + j), scale);
            s = lanes_range(s, low, begin - j, end - j);
            lanes_store_f32(b->p[i] + j, s);
            largest[i] = lanes_max(s, largest[i]);
        }
    }
    float m[8], alpha[8], l[8];
    __m256 old = _mm256_loadu_ps(b->states.m);
    __m256 new = _mm256_max_ps(lanes_largest8(largest), old);
    __m256 factors = lanes_exp8(_mm256_sub_ps(old, new));
    _mm256_storeu_ps(m, new);
    _mm256_storeu_ps(alpha, factors);
#pragma GCC unroll 8
    for (uint32_t i = 0; i < N; i++) {
        const lanes new_m = lanes_splat(m[i]);
#pragma GCC unroll 4
        for (uint32_t j = 0; j < TILE; j += K_LANES) {
            lanes e = lanes_exp(lanes_sub(lanes_load_f32(b->p[i] + j), new_m));
            lanes_store_f32(b->p[i] + j, e);
            sums[i] = lanes_add(sums[i], e);
        }
    }
    _mm256_storeu_ps(l, _mm256_fmadd_ps(_mm256_loadu_ps(b->states.l), factors, lanes_fold8(sums)));
    memcpy(b->states.m, m, N * sizeof *m);
    memcpy(b->states.l, l, N * sizeof *l);
    for (uint32_t i = 0; i < N; i++) {
        if (alpha[i] == 1.0f) /* most tiles leave m unchanged */
            continue;
        float *o = b->states.o + i * head_dim;
        for (uint32_t d = 0; d < head_dim; d += K_LANES)
            lanes_store_f32(o + d, lanes_mul(lanes_load_f32(o + d), lanes_splat(alpha[i])));
    }
}

/* o += p v over slots [begin, end), for G groups of 16 elements, starting at d. */
CPU_INLINE void add_group(const struct block *b, uint32_t i0, uint32_t begin, uint32_t end, uint32_t d,
                          const struct tile *next, enum k_dtype dtype, const uint32_t N, const uint32_t G)
{
    const uint32_t head_dim = b->w->a->kv->head_dim;
    const uint64_t step = head_dim;
    float *states = b->states.o + i0 * step + d;
    lanes o[QUERIES][2];
#pragma GCC unroll 8
    for (uint32_t i = 0; i < N; i++)
#pragma GCC unroll 2
        for (uint32_t g = 0; g < G; g++)
            o[i][g] = lanes_load_f32(states + i * step + g * K_LANES);
    for (uint32_t j = begin; j < end; j++) {
        const unsigned char *row = b->tile->v + b->tile->offset[j];
        const lanes scale = load_scale(b->tile->v, b->tile, j, dtype);
        lanes v[2];
        if (next)
            prefetch_row(next->v, next, j, dtype, head_dim);
#pragma GCC unroll 2
        for (uint32_t g = 0; g < G; g++)
            v[g] = load_row(row, scale, dtype, d + g * K_LANES);
#pragma GCC unroll 8
        for (uint32_t i = 0; i < N; i++) {
            lanes p = lanes_splat(b->p[i0 + i][j]);
#pragma GCC unroll 2
            for (uint32_t g = 0; g < G; g++)
                o[i][g] = lanes_fma(p, v[g], o[i][g]);
        }
    }
#pragma GCC unroll 8
    for (uint32_t i = 0; i < N; i++)
#pragma GCC unroll 2
        for (uint32_t g = 0; g < G; g++)
            lanes_store_f32(states + i * step + g * K_LANES, o[i][g]);
}

CPU_INLINE void add_range(const struct block *b, uint32_t i0, uint32_t begin, uint32_t end, const struct tile *next,
                          enum k_dtype dtype, const uint32_t N)
{
    const uint32_t head_dim = b->w->a->kv->head_dim;
    uint32_t d = 0;
    if (begin >= end)
        return;
    for (; d + 2 * K_LANES <= head_dim; d += 2 * K_LANES)
        add_group(b, i0, begin, end, d, d == 0 ? next : NULL, dtype, N, 2);
    if (d < head_dim)
        add_group(b, i0, begin, end, d, d == 0 ? next : NULL, dtype, N, 1);
}

/* A query's own slots. Not inline, because there are few. */
#define ADD_OWN(NAME, DTYPE) \
    static void NAME(const struct block *b, uint32_t i, uint32_t begin, uint32_t end) \
    { \
        add_range(b, i, begin, end, NULL, DTYPE, 1); \
    }
ADD_OWN(add_own_f32, K_F32)
ADD_OWN(add_own_f16, K_F16)
ADD_OWN(add_own_int, K_INT)
ADD_OWN(add_own_e4m3, K_E4M3)
ADD_OWN(add_own_e5m2, K_E5M2)
static void (*const add_own[])(const struct block *b, uint32_t i, uint32_t begin, uint32_t end) = {
    [K_F32] = add_own_f32,   [K_F16] = add_own_f16,   [K_INT] = add_own_int,
    [K_E4M3] = add_own_e4m3, [K_E5M2] = add_own_e5m2,
};

/* Most slots belong to every query; those before and after belong to some queries. */
CPU_INLINE void add_values(const struct block *b, enum k_dtype dtype, const uint32_t N)
{
    bool common = b->all.begin < b->all.end;
    for (uint32_t i = 0; i < N; i++)
        add_own[dtype](b, i, b->slots[i].begin, common ? b->all.begin : b->slots[i].end);
    if (!common)
        return;
    add_range(b, 0, b->all.begin, b->all.end, b->next, dtype, N);
    for (uint32_t i = 0; i < N; i++)
        add_own[dtype](b, i, b->all.end, b->slots[i].end);
}

CPU_INLINE void fold_block(const struct block *b, enum k_dtype dtype, const uint32_t N)
{
    score(b, dtype, N);
    weigh(b, N);
    add_values(b, dtype, N);
}

#if defined(__AVX512F__)
#define MORE_QUERIES(DTYPE) \
    case 4: fold_block(b, DTYPE, 4); break; \
    case 5: fold_block(b, DTYPE, 5); break; \
    case 6: fold_block(b, DTYPE, 6); break; \
    case 7: fold_block(b, DTYPE, 7); break; \
    case 8: fold_block(b, DTYPE, 8); break;
#else
#define MORE_QUERIES(DTYPE)
#endif

#define FOLD_BLOCKS(NAME, DTYPE) \
    static void NAME(const struct block *b, uint32_t n) \
    { \
        switch (n) { \
        case 1: fold_block(b, DTYPE, 1); break; \
        case 2: fold_block(b, DTYPE, 2); break; \
        case 3: \
            fold_block(b, DTYPE, 3); \
            break; \
            MORE_QUERIES(DTYPE) \
        default: break; \
        } \
    }
FOLD_BLOCKS(fold_blocks_f32, K_F32)
FOLD_BLOCKS(fold_blocks_f16, K_F16)
FOLD_BLOCKS(fold_blocks_int, K_INT)
FOLD_BLOCKS(fold_blocks_e4m3, K_E4M3)
FOLD_BLOCKS(fold_blocks_e5m2, K_E5M2)
static void (*const fold_blocks[])(const struct block *b, uint32_t n) = {
    [K_F32] = fold_blocks_f32,   [K_F16] = fold_blocks_f16,   [K_INT] = fold_blocks_int,
    [K_E4M3] = fold_blocks_e4m3, [K_E5M2] = fold_blocks_e5m2,
};

/* ---- an item --------------------------------------------------------------------------------- */

static struct states states_at(float *memory, uint32_t n)
{
    return (struct states){memory, memory + cpu_attn_padded(n), memory + 2 * cpu_attn_padded(n)};
}

/* Computes the tile for every query that reads one of its slots. Such queries have adjacent positions and so form a
 * run. */
static void fold_tile(struct work *w, struct tile *tile, const struct tile *next, struct states states)
{
    uint32_t n_heads = w->item->n_heads, n_tokens = w->item->n_tokens;
    const uint32_t first = max_u32(tile->start, w->on_sinks ? 0 : w->a->n_sink_positions); /* that a token may read */
    uint32_t t0 = first > w->position && !w->a->whole ? first - w->position : 0, t1 = t0;
    while (t1 < n_tokens && (w->on_sinks || host_first_position(w->position + t1, w->a->window) < tile->start + TILE))
        t1++;
    uint32_t at = t0 * n_heads, end = t1 * n_heads;
    if (w->widen)
        widen_tile(w, tile, next);
    for (uint32_t n_blocks = (end - at + QUERIES - 1) / QUERIES; n_blocks > 0; n_blocks--) {
        uint32_t n = (end - at) / n_blocks; /* blocks of nearly equal size */
        struct block b = {.w = w,
                          .tile = tile,
                          .next = w->widen ? NULL : next,
                          .first = at,
                          .p = w->p,
                          .states = {states.m + at, states.l + at, states.o + (uint64_t)at * w->a->kv->head_dim},
                          .any = {TILE, 0},
                          .all = {0, TILE}};
        for (uint32_t i = 0; i < n; i++) {
            struct slots s = slots_of(w, tile, at + i);
            b.slots[i] = s;
            b.any = (struct slots){min_u32(b.any.begin, s.begin), max_u32(b.any.end, s.end)};
            b.all = (struct slots){max_u32(b.all.begin, s.begin), min_u32(b.all.end, s.end)};
        }
        fold_blocks[w->widen ? K_F32 : w->a->kv->format.kind](&b, n);
        at += n;
    }
}

static void load_queries(struct work *w)
{
    const struct k_attention_args *a = w->a;
    const struct cpu_attn_item *item = w->item;
    const uint64_t head_dim = a->kv->head_dim;
    const float *all = w->on_sinks ? a->sink_q_dev : a->qkv_dev;
    const uint64_t n_heads = a->n_q_heads + (w->on_sinks ? 0 : 2 * (uint64_t)a->kv->n_kv_heads);
    for (uint32_t i = 0; i < w->n_queries; i++) {
        uint64_t token = (uint64_t)item->row->token + item->token + i / item->n_heads;
        const float *q = all + (token * n_heads + item->head + i % item->n_heads) * head_dim;
        for (uint32_t d = 0; d < head_dim; d += K_LANES)
            lanes_store_f32(w->q + (uint64_t)d * w->n_queries + i * K_LANES, lanes_load_f32(q + d));
    }
}

/* Selects the part of positions that has the split. */
static void select_part(struct work *w, uint32_t split)
{
    const bool on_sinks = cpu_attn_is_sinks(w->item, split);
    if (w->end > 0 && w->on_sinks == on_sinks)
        return;
    w->on_sinks = on_sinks;
    w->lowest = on_sinks ? 0 : w->item->lowest;
    w->end = on_sinks ? w->item->sinks_end : w->item->end;
    load_queries(w);
}

/* Computes the states of all queries in one split. */
static void fold_split(struct work *w, uint32_t split, struct states states)
{
    select_part(w, split);
    for (uint32_t i = 0; i < cpu_attn_padded(w->n_queries); i++) {
        states.m[i] = -__builtin_inff();
        states.l[i] = 0.0f;
    }
    memset(states.o, 0, (uint64_t)w->n_queries * w->a->kv->head_dim * sizeof *states.o);
    uint32_t start = w->on_sinks ? 0 : max_u32((split - 1) * K_ATTN_SPLIT, w->lowest / TILE * TILE);
    uint32_t end = w->on_sinks ? w->end : min_u32(split * K_ATTN_SPLIT, w->end);
    struct tile *tile = &w->tiles[0], *next = &w->tiles[1], *swap;
    locate(w, start, tile);
    for (; start < end; start += TILE) {
        bool more = start + TILE < w->end;
        if (more)
            locate(w, start + TILE, next);
        fold_tile(w, tile, more ? next : NULL, states);
        swap = tile;
        tile = next;
        next = swap;
    }
}

static void work_begin(struct work *w, const struct k_attention_args *a, const struct cpu_attn_item *item,
                       float *scratch)
{
    const uint64_t head_dim = a->kv->head_dim;
    w->a = a;
    w->item = item;
    w->position = item->row->position + item->token;
    w->n_queries = item->n_tokens * item->n_heads;
    w->end = 0; /* no part is selected */
    w->widen = a->kv->format.kind != K_F32 && w->n_queries > QUERIES;
    w->q = scratch;
    w->k = w->q + CPU_ATTN_QUERIES * head_dim;
    w->v = w->k + TILE * head_dim;
    float *states = w->v + TILE * head_dim;
    w->split = states_at(states, w->n_queries);
    w->merged = states_at(states + cpu_attn_states((uint32_t)head_dim, CPU_ATTN_QUERIES), w->n_queries);
    memset(w->p, 0, sizeof w->p);
}

/* Merges the next split into the merged states. The first split is copied. */
static void merge_states(struct states merged, struct states next, uint32_t n, uint32_t head_dim)
{
    for (uint32_t i = 0; i < n; i++, merged.o += head_dim, next.o += head_dim) {
        float m1 = merged.m[i], m2 = next.m[i], l1 = merged.l[i], l2 = next.l[i];
        if (l2 == 0.0f)
            continue;
        if (l1 == 0.0f) {
            merged.m[i] = m2;
            merged.l[i] = l2;
            memcpy(merged.o, next.o, head_dim * sizeof *next.o);
            continue;
        }
        float m = m2 > m1 ? m2 : m1;
        float a = k_exp(m1 - m), b = k_exp(m2 - m);
        merged.m[i] = m;
        merged.l[i] = __builtin_fmaf(l1, a, l2 * b);
        for (uint32_t d = 0; d < head_dim; d += K_LANES) {
            lanes o = lanes_mul(lanes_load_f32(next.o + d), lanes_splat(b));
            o = lanes_fma(lanes_load_f32(merged.o + d), lanes_splat(a), o);
            lanes_store_f32(merged.o + d, o);
        }
    }
}

/* Merges the sink of a head last, as a split of its own: a score with weight 1 and no value. */
static void merge_sink(float sink, float m, float *l, float *o, uint32_t head_dim)
{
    float largest = sink > m ? sink : m;
    float a = k_exp(m - largest), b = k_exp(sink - largest);
    *l = __builtin_fmaf(*l, a, b);
    for (uint32_t d = 0; d < head_dim; d += K_LANES)
        lanes_store_f32(o + d, lanes_fma(lanes_load_f32(o + d), lanes_splat(a), lanes_splat(0.0f * b)));
}

static void write_output(const struct k_attention_args *a, const struct cpu_attn_item *item, struct states merged)
{
    uint32_t head_dim = a->kv->head_dim;
    for (uint32_t i = 0; i < item->n_tokens * item->n_heads; i++) {
        float *o = merged.o + (uint64_t)i * head_dim;
        if (a->sinks_dev)
            merge_sink(a->sinks_dev[item->head + i % item->n_heads], merged.m[i], &merged.l[i], o, head_dim);
        uint64_t token = (uint64_t)item->row->token + item->token + i / item->n_heads;
        float *out = a->out_dev + (token * a->n_q_heads + item->head + i % item->n_heads) * head_dim;
        lanes l = lanes_splat(merged.l[i]);
        for (uint32_t d = 0; d < head_dim; d += K_LANES)
            lanes_store_f32(out + d, lanes_div(lanes_load_f32(o + d), l));
    }
}

void CPU_NAME(cpu_attn_item)(const struct k_attention_args *a, const struct cpu_attn_item *item, float *scratch)
{
    struct work w;
    work_begin(&w, a, item, scratch);
    uint32_t split = cpu_attn_first_split(item);
    fold_split(&w, split, w.merged);
    while (++split < cpu_attn_end_split(item)) {
        fold_split(&w, split, w.split);
        merge_states(w.merged, w.split, w.n_queries, a->kv->head_dim);
    }
    write_output(a, item, w.merged);
}

void CPU_NAME(cpu_attn_splits)(const struct k_attention_args *a, const struct cpu_attn_item *item, uint32_t begin,
                               uint32_t end, float *partials, float *scratch)
{
    struct work w;
    work_begin(&w, a, item, scratch);
    uint64_t step = cpu_attn_states(a->kv->head_dim, w.n_queries);
    for (uint32_t split = begin; split < end; split++) {
        float *partial = partials + (split - cpu_attn_first_split(item)) * step;
        fold_split(&w, split, states_at(partial, w.n_queries));
    }
}

void CPU_NAME(cpu_attn_merge)(const struct k_attention_args *a, const struct cpu_attn_item *item, float *partials)
{
    uint32_t n_queries = item->n_tokens * item->n_heads;
    uint32_t n_splits = cpu_attn_end_split(item) - cpu_attn_first_split(item);
    uint64_t step = cpu_attn_states(a->kv->head_dim, n_queries);
    struct states merged = states_at(partials, n_queries);
    for (uint32_t i = 1; i < n_splits; i++)
        merge_states(merged, states_at(partials + i * step, n_queries), n_queries, a->kv->head_dim);
    write_output(a, item, merged);
}
