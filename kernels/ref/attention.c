/* Attention over the paged KV cache (docs/internals/numerics.md §10).
 *
 * A work item is up to REF_ATTN_QUERIES queries of one sequence that read the same KV head: adjacent tokens, or the
 * query heads of one token. They share each tile of 64 positions, which is widened to f32 once. Every query then uses
 * only its own positions of the tile. One thread computes an item from its first split to the merged output, so the
 * result does not depend on the number of threads.
 */
#include "kernels/math/activation.h"
#include "kernels/math/convert.h"
#include "kernels/math/lane_sum.h"
#include "kernels/ref/lanes.h"
#include "kernels/ref/ref.h"

#include <math.h>

struct item { /* queries: tokens [token, token + n_tokens) of row × heads [head, head + n_heads) */
    const struct k_attn_row *row;
    uint32_t token; /* relative to the row's first token */
    uint32_t n_tokens;
    uint32_t kv_head;
    uint32_t head, n_heads;
};

struct tile {
    uint32_t start;      /* absolute position of slot 0, a multiple of 64 */
    uint32_t begin, end; /* slots that at least one query reads */
};

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static float widen_byte(uint8_t u, enum k_dtype kind)
{
    return kind == K_INT ? (float)(int8_t)u : kind == K_E4M3 ? k_f32_from_e4m3(u) : k_f32_from_e5m2(u);
}

/* Widens n rows of a block, starting at row `row`. */
static void widen_rows(float *restrict out, const void *cache, const struct k_kv_shape *kv, uint64_t block,
                       uint64_t row, uint32_t n)
{
    const uint32_t head_dim = kv->head_dim;
    const unsigned char *from = (const unsigned char *)cache + block * k_kv_block_bytes(kv);
    if (kv->format.kind == K_F32) {
        memcpy(out, (const float *)(const void *)from + row * head_dim, (uint64_t)n * head_dim * sizeof *out);
    } else if (kv->format.kind == K_F16) {
        const uint16_t *h = (const uint16_t *)(const void *)from + row * head_dim;
        for (uint64_t i = 0; i < (uint64_t)n * head_dim; i += K_LANES) /* head_dim is a multiple of 16 */
            ref_store_f32(out + i, ref_load_f16(h + i));
    } else {
        const float *scales = (const float *)(const void *)(from + k_kv_scales_at(kv)) + row;
        for (uint32_t r = 0; r < n; r++)
            for (uint32_t d = 0; d < head_dim; d++)
                out[r * head_dim + d] = widen_byte(from[(row + r) * head_dim + d], kv->format.kind) * scales[r];
    }
}

/* Widens the tile's readable slots of one KV head from their blocks into the thread's scratch. */
static void load_tile(const struct k_attention_args *a, const struct item *item, struct tile tile,
                      struct ref_attn_scratch *scratch)
{
    const struct k_kv_shape *kv = a->kv;
    const uint32_t *table = a->tables_dev + item->row->table;
    for (uint32_t slot = tile.begin; slot < tile.end;) {
        uint32_t position = tile.start + slot;
        uint32_t offset = position % kv->block_tokens;
        uint32_t run = min_u32(kv->block_tokens - offset, tile.end - slot);
        uint64_t block = table[position / kv->block_tokens];
        uint64_t row = (uint64_t)item->kv_head * kv->block_tokens + offset;
        widen_rows(scratch->k + slot * kv->head_dim, a->layer->k_dev, kv, block, row, run);
        widen_rows(scratch->v + slot * kv->head_dim, a->layer->v_dev, kv, block, row, run);
        slot += run;
    }
}

static float score(const float *q, const float *k, uint32_t head_dim)
{
    struct ref_lanes s = ref_zero();
    for (uint32_t d = 0; d < head_dim; d += K_LANES)
        s = ref_fma(ref_load_f32(q + d), ref_load_f32(k + d), s);
    return ref_fold(s);
}

/* Computes o_d · α, then adds the slots' values in rising order, for 16 elements d. */
static inline struct ref_lanes fold_values(struct ref_lanes o, float alpha, const float *p, const float *v,
                                           uint32_t begin, uint32_t end, uint32_t head_dim)
{
    o.low *= alpha;
    o.high *= alpha;
    for (uint32_t j = begin; j < end; j++)
        o = ref_fma(ref_splat(p[j]), ref_load_f32(v + j * head_dim), o);
    return o;
}

/* Folds slots [begin, end) of a tile into a query's state. */
static void fold_tile(const struct k_attention_args *a, struct ref_attn_query *state, const float *q,
                      const struct ref_attn_scratch *scratch, uint32_t begin, uint32_t end)
{
    uint32_t head_dim = a->kv->head_dim;
    float p[K_ATTN_TILE] = {0}; /* scores, then weights; +0 in other slots changes no lane of a sum */
    float m = state->m;
    for (uint32_t j = begin; j < end; j++) {
        p[j] = score(q, scratch->k + j * head_dim, head_dim) * a->scale;
        if (a->softcap != 0.0f)
            p[j] = k_softcap(p[j], a->softcap, 1.0f / a->softcap);
        m = p[j] > m ? p[j] : m;
    }
    float alpha = k_exp(state->m - m);
    for (uint32_t j = begin; j < end; j++)
        p[j] = k_exp(p[j] - m);
    struct ref_lanes sum = ref_zero();
    for (uint32_t j = 0; j < K_ATTN_TILE; j += K_LANES) {
        struct ref_lanes group = ref_load_f32(p + j);
        sum.low += group.low;
        sum.high += group.high;
    }
    state->l = __builtin_fmaf(state->l, alpha, ref_fold(sum));
    state->m = m;
    state->used = true;
    for (uint32_t d = 0; d < head_dim; d += K_LANES) {
        struct ref_lanes o = ref_load_f32(state->o + d);
        o = fold_values(o, alpha, p, scratch->v + d, begin, end, head_dim);
        ref_store_f32(state->o + d, o);
    }
}

/* Merges the next split into the merged state. The first split is copied. */
static void merge_split(struct ref_attn_query *merged, const struct ref_attn_query *next, uint32_t head_dim)
{
    if (!next->used)
        return;
    if (!merged->used) {
        *merged = *next;
        return;
    }
    float m = next->m > merged->m ? next->m : merged->m;
    float a = k_exp(merged->m - m), b = k_exp(next->m - m);
    merged->l = __builtin_fmaf(merged->l, a, next->l * b);
    merged->m = m;
    for (uint32_t d = 0; d < head_dim; d++)
        merged->o[d] = __builtin_fmaf(merged->o[d], a, next->o[d] * b);
}

static void clear_state(struct ref_attn_query *state)
{
    state->m = -INFINITY;
    state->l = 0.0f;
    state->used = false;
    memset(state->o, 0, sizeof state->o);
}

/* The positions that a token reads are in two parts, each with queries of its own: those of the sinks, and those of the
 * window behind them. t is relative to the item's first token. */

static uint32_t lowest_of(const struct k_attention_args *a, const struct item *item, uint32_t t, bool of_sinks)
{
    return of_sinks
               ? 0
               : max_u32(host_first_position(item->row->position + item->token + t, a->window), a->n_sink_positions);
}

/* Returns one past the last position of the part that a token reads. */
static uint32_t end_of(const struct k_attention_args *a, const struct item *item, uint32_t t, bool of_sinks)
{
    uint32_t end = item->row->position + (a->whole ? item->row->n_tokens : item->token + t + 1);
    return of_sinks ? min_u32(end, a->n_sink_positions) : end;
}

static const float *query_of(const struct k_attention_args *a, const struct item *item, uint32_t t, uint32_t h,
                             bool of_sinks)
{
    const uint64_t token = (uint64_t)item->row->token + item->token + t, head_dim = a->kv->head_dim;
    const float *all = of_sinks ? a->sink_q_dev : a->qkv_dev;
    const uint64_t n_heads = a->n_q_heads + (of_sinks ? 0 : 2 * (uint64_t)a->kv->n_kv_heads);
    return all + (token * n_heads + item->head + h) * head_dim;
}

/* Computes every query of the item over the tiles of one split. */
static void run_split(const struct k_attention_args *a, const struct item *item, uint32_t split, bool of_sinks,
                      struct ref_attn_scratch *scratch)
{
    uint32_t lowest = lowest_of(a, item, 0, of_sinks);
    uint32_t end = end_of(a, item, item->n_tokens - 1, of_sinks);
    for (uint32_t start = split; start < min_u32(split + K_ATTN_SPLIT, end); start += K_ATTN_TILE) {
        if (start + K_ATTN_TILE <= lowest)
            continue;
        struct tile tile = {start, max_u32(lowest, start) - start, min_u32(end - start, K_ATTN_TILE)};
        load_tile(a, item, tile, scratch);
        for (uint32_t t = 0; t < item->n_tokens; t++) {
            uint32_t from = max_u32(lowest_of(a, item, t, of_sinks), start) - start;
            uint32_t to = min_u32(max_u32(end_of(a, item, t, of_sinks), start) - start, K_ATTN_TILE);
            if (from >= to)
                continue;
            for (uint32_t h = 0; h < item->n_heads; h++)
                fold_tile(a, &scratch->split[t * item->n_heads + h], query_of(a, item, t, h, of_sinks), scratch, from,
                          to);
        }
    }
}

/* Merges the sink of a head last, as a split of its own: a score with weight 1 and no value. */
static void merge_sink(struct ref_attn_query *merged, float sink, struct ref_attn_query *scratch, uint32_t head_dim)
{
    clear_state(scratch);
    scratch->m = sink;
    scratch->l = 1.0f;
    scratch->used = true;
    merge_split(merged, scratch, head_dim);
}

/* Computes the splits of one part and merges them behind those before. The sinks are one split. */
static void run_part(const struct k_attention_args *a, const struct item *item, bool of_sinks,
                     struct ref_attn_scratch *scratch)
{
    const uint32_t n_queries = item->n_tokens * item->n_heads, lowest = lowest_of(a, item, 0, of_sinks);
    const uint32_t end = end_of(a, item, item->n_tokens - 1, of_sinks);
    for (uint32_t split = lowest - lowest % K_ATTN_SPLIT; split < end; split += K_ATTN_SPLIT) {
        for (uint32_t i = 0; i < n_queries; i++)
            clear_state(&scratch->split[i]);
        run_split(a, item, split, of_sinks, scratch);
        for (uint32_t i = 0; i < n_queries; i++)
            merge_split(&scratch->merged[i], &scratch->split[i], a->kv->head_dim);
    }
}

static void run_item(const struct k_attention_args *a, const struct item *item, struct ref_attn_scratch *scratch)
{
    uint32_t head_dim = a->kv->head_dim, n_queries = item->n_tokens * item->n_heads;
    for (uint32_t i = 0; i < n_queries; i++)
        clear_state(&scratch->merged[i]);
    if (a->n_sink_positions > 0)
        run_part(a, item, true, scratch);
    run_part(a, item, false, scratch);
    for (uint32_t i = 0; i < n_queries; i++) {
        uint64_t token = item->row->token + item->token + i / item->n_heads;
        uint32_t head = item->head + i % item->n_heads;
        if (a->sinks_dev)
            merge_sink(&scratch->merged[i], a->sinks_dev[head], &scratch->split[i], head_dim);
        float *out = a->out_dev + (token * a->n_q_heads + head) * head_dim;
        for (uint32_t d = 0; d < head_dim; d++)
            out[d] = scratch->merged[i].o[d] / scratch->merged[i].l;
    }
}

struct attention_task {
    struct k_attention_args args;
    struct ref_attn_scratch *scratch; /* [threads] */
};

/* Pieces take items in turn, because later tokens of a chunk read more. */
static void attention_task(void *context, struct k_piece piece)
{
    const struct attention_task *task = context;
    const struct k_attention_args *a = &task->args;
    uint32_t group = a->n_q_heads / a->kv->n_kv_heads;
    uint32_t item_heads = min_u32(group, REF_ATTN_QUERIES);
    uint32_t item_tokens = REF_ATTN_QUERIES / item_heads;
    uint32_t turn = 0;
    for (uint32_t r = 0; r < a->n_rows; r++) {
        const struct k_attn_row *row = &a->rows[r];
        for (uint32_t t = 0; t < row->n_tokens; t += item_tokens) {
            for (uint32_t h = 0; h < a->n_q_heads;) {
                uint32_t in_group = group - h % group;
                struct item item = {row,       t, min_u32(item_tokens, row->n_tokens - t),
                                    h / group, h, min_u32(item_heads, in_group)};
                h += item.n_heads;
                if (turn == piece.index)
                    run_item(a, &item, &task->scratch[piece.thread]);
                turn = turn + 1 == piece.count ? 0 : turn + 1;
            }
        }
    }
}

int ref_attention(struct k_backend *b, const struct k_attention_args *a, struct quire_error *err)
{
    int status = k_check_attention(a, err);
    if (status != QUIRE_OK)
        return status;
    uint64_t work = 0;
    for (uint32_t i = 0; i < a->n_rows; i++)
        work += (uint64_t)a->rows[i].n_tokens * (a->rows[i].position + a->rows[i].n_tokens);
    struct attention_task task = {*a, ((struct ref_backend *)b)->attn_scratch};
    host_run(b, work * a->n_q_heads * a->kv->head_dim, attention_task, &task);
    return QUIRE_OK;
}

/* Does nothing: the kernel divides the work itself. */
int ref_attention_plan(struct k_backend *b, const struct k_attention_plan_args *a, struct quire_error *err)
{
    (void)b;
    (void)a;
    (void)err;
    return QUIRE_OK;
}
