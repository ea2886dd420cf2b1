/* Attention of the cpu backend: assigns work to pieces.
 *
 * All work lies on a line, in the order of rows, heads and tokens; each unit's length is its cost. Piece p of n takes
 * the units whose middle lies in the p-th of n equal parts. A unit is an item or, if the item has one token, a split of
 * it, so a few long sequences occupy all threads. If several pieces share an item, its partials are merged afterwards,
 * left to right, as a single thread does. So the bits do not depend on the division.
 */
#include "kernels/cpu/attention.h"
#include "kernels/cpu/cpu.h"

#include <stdatomic.h>

/* Reading a position costs about as much as computing it with four queries. */
#define READ_COST 4u
/* With fewer items per thread, a chunk is divided into smaller items. */
#define ITEMS_PER_THREAD 4u

struct attention {
    struct k_attention_args args;
    const struct cpu_attn_functions *run;
    uint32_t item_heads, item_tokens;
    uint32_t group, n_head_runs; /* query heads per KV head; runs of item_heads over all of them */
    uint64_t cost;
    float *scratch;
    float *partials; /* an area for each piece but the last, for the item that begins in that piece and ends in a
                      * later one */
    uint64_t area;   /* floats */
    bool merging;
    atomic_bool is_cut;
};

struct share { /* a piece's part of the line */
    uint64_t begin, end;
    struct k_piece piece;
};

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint64_t share_begin(const struct attention *t, uint32_t index, uint32_t count)
{
    return (uint64_t)((unsigned __int128)t->cost * index / count);
}

static bool is_mine(const struct share *share, uint64_t begin, uint64_t cost)
{
    uint64_t middle = begin + cost / 2;
    return middle >= share->begin && middle < share->end;
}

/* ---- the cost of a unit ----------------------------------------------------------------------- */

static uint64_t cost_of(uint32_t n_positions, uint64_t n_queries)
{
    return n_positions * (n_queries + READ_COST);
}

static struct cpu_attn_item item_at(const struct attention *t, const struct k_attn_row *row, uint32_t token)
{
    const uint32_t n = min_u32(t->item_tokens, row->n_tokens - token), n_sinks = t->args.n_sink_positions;
    const uint32_t end = row->position + (t->args.whole ? row->n_tokens : token + n);
    return (struct cpu_attn_item){
        .row = row,
        .token = token,
        .n_tokens = n,
        .lowest = max_u32(host_first_position(row->position + token, t->args.window), n_sinks),
        .end = end,
        .sinks_end = min_u32(n_sinks, end)};
}

static uint32_t n_positions(const struct cpu_attn_item *item)
{
    return item->sinks_end + (item->end > item->lowest ? item->end - item->lowest : 0);
}

static uint64_t row_cost(const struct attention *t, const struct k_attn_row *row)
{
    uint64_t cost = 0;
    for (uint32_t token = 0; token < row->n_tokens; token += t->item_tokens) {
        struct cpu_attn_item item = item_at(t, row, token);
        cost += cost_of(n_positions(&item), 0) * t->n_head_runs +
                (uint64_t)n_positions(&item) * item.n_tokens * t->args.n_q_heads;
    }
    return cost;
}

static uint64_t split_cost(const struct cpu_attn_item *item, uint32_t split)
{
    if (cpu_attn_is_sinks(item, split))
        return cost_of(item->sinks_end, item->n_heads);
    uint32_t begin = max_u32((split - 1) * K_ATTN_SPLIT, item->lowest);
    uint32_t end = min_u32(split * K_ATTN_SPLIT, item->end);
    return cost_of(end - begin, item->n_heads);
}

/* ---- a piece's units ------------------------------------------------------------------------- */

/* Takes this piece's splits of an item of one token, which begins at `at` on the line. */
static void take_splits(struct attention *t, const struct share *share, const struct cpu_attn_item *item, uint64_t at)
{
    uint32_t first = cpu_attn_first_split(item), end = cpu_attn_end_split(item);
    uint64_t first_middle = at + split_cost(item, first) / 2;
    uint32_t mine_begin = end, mine_end = end;
    for (uint32_t split = first; split < end; split++) {
        uint64_t cost = split_cost(item, split);
        if (is_mine(share, at, cost)) {
            mine_begin = min_u32(mine_begin, split);
            mine_end = split + 1;
        }
        at += cost;
    }
    if (mine_begin == end)
        return;
    bool is_whole = mine_begin == first && mine_end == end;
    float *scratch = t->scratch + share->piece.thread * cpu_attn_scratch(t->args.kv->head_dim);
    if (t->merging) {
        if (mine_begin == first && !is_whole)
            t->run->merge(&t->args, item, t->partials + share->piece.index * t->area);
        return;
    }
    if (is_whole) {
        t->run->item(&t->args, item, scratch);
        return;
    }
    uint32_t owner = share->piece.index; /* the piece that has the first split */
    while (share_begin(t, owner, share->piece.count) > first_middle)
        owner--;
    t->run->splits(&t->args, item, mine_begin, mine_end, t->partials + owner * t->area, scratch);
    atomic_store_explicit(&t->is_cut, true, memory_order_relaxed);
}

static void take_row(struct attention *t, const struct share *share, const struct k_attn_row *row, uint64_t at)
{
    for (uint32_t head = 0; head < t->args.n_q_heads;) {
        uint32_t n_heads = min_u32(t->item_heads, t->group - head % t->group);
        for (uint32_t token = 0; token < row->n_tokens; token += t->item_tokens) {
            struct cpu_attn_item item = item_at(t, row, token);
            item.kv_head = head / t->group;
            item.head = head;
            item.n_heads = n_heads;
            uint64_t cost = cost_of(n_positions(&item), (uint64_t)item.n_tokens * n_heads);
            if (item.n_tokens == 1)
                take_splits(t, share, &item, at);
            else if (!t->merging && is_mine(share, at, cost))
                t->run->item(&t->args, &item,
                             t->scratch + share->piece.thread * cpu_attn_scratch(t->args.kv->head_dim));
            at += cost;
        }
        head += n_heads;
    }
}

static void attention_task(void *context, struct k_piece piece)
{
    struct attention *t = context;
    struct share share = {share_begin(t, piece.index, piece.count), share_begin(t, piece.index + 1, piece.count),
                          piece};
    uint64_t at = 0;
    for (uint32_t r = 0; r < t->args.n_rows && at < share.end; r++) {
        uint64_t cost = row_cost(t, &t->args.rows[r]);
        if (at + cost > share.begin)
            take_row(t, &share, &t->args.rows[r], at);
        at += cost;
    }
}

/* ---- the operation --------------------------------------------------------------------------- */

static uint64_t n_items(const struct attention *t)
{
    uint64_t n = 0;
    for (uint32_t r = 0; r < t->args.n_rows; r++)
        n += (t->args.rows[r].n_tokens + t->item_tokens - 1) / t->item_tokens;
    return n * t->n_head_runs;
}

int cpu_attention(struct k_backend *b, const struct k_attention_args *a, struct quire_error *err)
{
    int status = k_check_attention(a, err);
    if (status != QUIRE_OK)
        return status;
    uint32_t n_threads = k_pool_n_threads(host_of(b)->pool);
    uint32_t group = a->n_q_heads / a->kv->n_kv_heads;
    uint32_t from = 0;
    const struct cpu_attention_kernel *kernel = (const void *)k_kernel_choose(&cpu_attention_kernels, &b->choice,
                                                                              b->form, cpu_arch_of(b), NULL, &from);
    struct attention t = {.args = *a, .run = &kernel->run, .group = group, .item_heads = cpu_attn_item_heads(group)};
    t.n_head_runs = (group + t.item_heads - 1) / t.item_heads * a->kv->n_kv_heads;
    t.item_tokens = CPU_ATTN_QUERIES / t.item_heads;
    while (n_threads > 1 && t.item_tokens > 1 && n_items(&t) < (uint64_t)ITEMS_PER_THREAD * n_threads)
        t.item_tokens = (t.item_tokens + 1) / 2;
    uint64_t n_splits = 0;
    for (uint32_t r = 0; r < a->n_rows; r++) {
        const struct k_attn_row *row = &a->rows[r];
        if (row->n_tokens == 0)
            continue;
        t.cost += row_cost(&t, row);
        const uint64_t most = cpu_attn_most_splits((uint64_t)row->position + row->n_tokens, a->window);
        n_splits = most > n_splits ? most : n_splits;
    }
    t.scratch = a->workspace_dev;
    t.partials = t.scratch + n_threads * cpu_attn_scratch(a->kv->head_dim);
    t.area = n_splits * cpu_attn_states(a->kv->head_dim, t.item_heads);
    uint32_t n_pieces = host_pieces(b, t.cost * a->kv->head_dim, CPU_ATTN_PIECES_PER_THREAD);
    k_pool_run(host_of(b)->pool, n_pieces, attention_task, &t);
    if (atomic_load_explicit(&t.is_cut, memory_order_relaxed)) {
        t.merging = true;
        k_pool_run(host_of(b)->pool, n_pieces, attention_task, &t);
    }
    return QUIRE_OK;
}
