/* Makes attention's plans, and computes the memory of plans and of attention.
 *
 * The query tiles of the step lie on a line. Each is as long as the number of KV tiles (64 positions) that it reads.
 * Block b's share ends at (b + 1) / n_blocks of the line. The planner walks the line once. It divides a query tile that
 * crosses the end of a share at the nearest end of a split. These errors do not accumulate: a share is at most one
 * split off. No division between splits can do better in all steps, and on a GPU of 132 SMs the error is less than a
 * 20th from 64 sequences of 5k on. A KV tile costs the same in both kernels: 32 KB (128 wide) take an SM's part of the
 * memory bandwidth 1.3 µs on an H100, and 64 queries times a tile are 2.1 MFLOP, 0.8 µs of a half-busy tensor core.
 *
 * A step of 256 decoding sequences with 8 KV heads has 2,048 query tiles, a few ns each.
 */
#include "kernels/cuda/plan/attention_plan.h"
#include "kernels/cuda/plan/plan.h"
#include "kernels/check.h"

#include <assert.h>

#define SPLIT_TILES (K_ATTN_SPLIT / K_ATTN_TILE)
#define PLAN_ALIGN 16u /* alignment of each part of a plan */
#define SLACK 48u /* a share may end early or late by this fraction of itself, to avoid a division */

struct planner {
    const struct k_attention_plan_args *args;
    uint32_t group, n_blocks, partial_rows;
    uint32_t *first_units; /* [n_blocks + 1] */
    uint32_t *arrivals;    /* [n_merges], all 0 */
    struct attn_merge *merges;
    struct attn_unit *units;
    uint32_t n_merges, n_units, n_partial_rows;
    uint64_t total, slack; /* length of the line and tolerance, in KV tiles */
    uint32_t block;        /* the block being filled */
    uint64_t at, target;   /* positions on the line: reached so far, and the end of the block's share */
};

struct query_tile {
    uint32_t query, n_queries;
    uint32_t first_tile, end_tile; /* KV tiles that at least one of its queries reads */
};

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t aligned(uint64_t bytes)
{
    return (uint32_t)((bytes + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN);
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a < b ? b - a : a - b;
}

static uint32_t tile_rows(uint64_t n_queries, uint32_t head_dim)
{
    return n_queries <= ATTN_SMALL || head_dim > ATTN_MOST_LARGE ? ATTN_SMALL : ATTN_LARGE;
}

bool attn_is_small(const struct k_attn_row *rows, uint32_t n_rows, uint32_t group, uint32_t head_dim)
{
    uint64_t most = 1;
    for (uint32_t r = 0; rows && r < n_rows; r++)
        most = rows[r].n_tokens > most ? rows[r].n_tokens : most;
    return tile_rows(most * group, head_dim) == ATTN_SMALL;
}

/* Returns the query tile of a sequence that begins with this query. */
static struct query_tile tile_at(const struct planner *p, const struct k_attn_row *row, uint64_t query)
{
    uint64_t n_queries = (uint64_t)row->n_tokens * p->group, rows = tile_rows(n_queries, p->args->kv->head_dim);
    uint64_t end = query + rows < n_queries ? query + rows : n_queries;
    uint32_t first = row->position + (uint32_t)(query / p->group);
    uint32_t last = row->position + (uint32_t)((end - 1) / p->group);
    uint32_t lowest = p->args->window != 0 && first >= p->args->window ? first - p->args->window + 1 : 0;
    return (struct query_tile){(uint32_t)query, (uint32_t)(end - query), lowest / K_ATTN_TILE, last / K_ATTN_TILE + 1};
}

static void next_block(struct planner *p)
{
    p->first_units[++p->block] = p->n_units;
    p->target = p->total / p->n_blocks * (p->block + 1) + p->total % p->n_blocks * (p->block + 1) / p->n_blocks;
}

/* Adds the line from `from` to the tile `end` of this query tile to the current block. Partials belong to the merge
 * made last. */
static void add_unit(struct planner *p, const struct k_attn_row *row, const struct query_tile *tile, uint32_t kv_head,
                     uint32_t from, uint32_t end, uint32_t partial)
{
    p->units[p->n_units++] = (struct attn_unit){
        .token = row->token,
        .position = row->position,
        .table = row->table,
        .query = tile->query,
        .kv_head = (uint16_t)kv_head,
        .n_queries = (uint8_t)tile->n_queries,
        .partial_rows = (uint8_t)(from == tile->first_tile ? 0 : tile->n_queries),
        .first_split = from / SPLIT_TILES,
        .end_split = (end - 1) / SPLIT_TILES + 1,
        .partial = partial};
    if (partial != ATTN_NO_PARTIAL) {
        p->units[p->n_units - 1].merge = p->n_merges - 1;
        p->merges[p->n_merges - 1].n_units++;
    }
    p->at += end - from;
}

/* Returns where to divide the query tile, starting at the tile `from`, for the current block: `from`, its end, or the
 * end of a split. */
static uint32_t cut_at(const struct planner *p, const struct query_tile *tile, uint32_t from)
{
    uint64_t end_at = p->at + (tile->end_tile - from);
    if (p->block + 1 == p->n_blocks || end_at <= p->target + p->slack)
        return tile->end_tile;
    if (p->at + p->slack >= p->target)
        return from;
    uint32_t wanted = from + (uint32_t)(p->target - p->at); /* before the end */
    uint32_t below = wanted / SPLIT_TILES * SPLIT_TILES, above = below + SPLIT_TILES;
    below = below < from ? from : below;
    above = min_u32(above, tile->end_tile);
    return distance(wanted, below) <= distance(above, wanted) ? below : above;
}

static void add_query_tile(struct planner *p, const struct k_attn_row *row, const struct query_tile *tile,
                           uint32_t kv_head)
{
    uint32_t from = tile->first_tile, partial = ATTN_NO_PARTIAL, n_partials = 0;
    bool is_whole = false;
    while (from < tile->end_tile) {
        uint32_t end = cut_at(p, tile, from);
        if (end == from) {
            next_block(p);
            continue;
        }
        if (end < tile->end_tile && partial == ATTN_NO_PARTIAL && !is_whole) {
            n_partials = 1 + (tile->end_tile - 1) / SPLIT_TILES + 1 - end / SPLIT_TILES;
            uint64_t n_rows = (uint64_t)n_partials * tile->n_queries;
            is_whole = p->n_partial_rows + n_rows > p->partial_rows;
            if (is_whole && end - from < tile->end_tile - end)
                next_block(p);
            if (!is_whole) {
                partial = p->n_partial_rows;
                p->n_partial_rows += (uint32_t)n_rows;
                p->arrivals[p->n_merges] = 0;
                p->merges[p->n_merges++] = (struct attn_merge){.token = row->token,
                                                               .query = tile->query,
                                                               .kv_head = (uint16_t)kv_head,
                                                               .n_queries = (uint16_t)tile->n_queries,
                                                               .partial = partial,
                                                               .n_partials = n_partials};
            }
        }
        if (is_whole) /* no space for partials: the block with the larger part gets all of it */
            end = tile->end_tile;
        add_unit(p, row, tile, kv_head, from, end, partial);
        if (partial != ATTN_NO_PARTIAL) {
            uint32_t n = from == tile->first_tile ? 1 : (end - 1) / SPLIT_TILES + 1 - from / SPLIT_TILES;
            partial += n * tile->n_queries;
        }
        from = end;
    }
}

uint64_t attn_plan_make(const struct k_attention_plan_args *a, uint32_t n_blocks, uint32_t partial_rows,
                        struct attn_plan *plan)
{
    assert(n_blocks > 0 && n_blocks <= ATTN_MAX_BLOCKS);
    struct planner p = {
        .args = a, .group = a->n_q_heads / a->kv->n_kv_heads, .n_blocks = n_blocks, .partial_rows = partial_rows};
    uint64_t n_query_tiles = 0;
    for (uint32_t r = 0; r < a->n_rows; r++) {
        uint64_t n_queries = (uint64_t)a->rows[r].n_tokens * p.group, rows = tile_rows(n_queries, a->kv->head_dim);
        for (uint64_t query = 0; query < n_queries; query += rows) {
            struct query_tile tile = tile_at(&p, &a->rows[r], query);
            p.total += (uint64_t)(tile.end_tile - tile.first_tile) * a->kv->n_kv_heads;
            n_query_tiles += a->kv->n_kv_heads;
        }
    }
    /* A query tile is divided at the end of a block's share, and only divided tiles have merges. */
    uint64_t most_merges = n_query_tiles < n_blocks ? n_query_tiles : n_blocks;
    p.first_units = (uint32_t *)(plan + 1);
    plan->arrivals_at = aligned(sizeof *plan + ((uint64_t)n_blocks + 1) * sizeof(uint32_t));
    p.arrivals = (uint32_t *)(void *)((char *)plan + plan->arrivals_at);
    plan->merges_at = aligned(plan->arrivals_at + most_merges * sizeof(uint32_t));
    p.merges = (struct attn_merge *)(void *)((char *)plan + plan->merges_at);
    plan->units_at = aligned(plan->merges_at + most_merges * sizeof(struct attn_merge));
    p.units = (struct attn_unit *)(void *)((char *)plan + plan->units_at);
    p.slack = p.total / n_blocks / SLACK;
    p.target = p.total / n_blocks;
    p.first_units[0] = 0;
    for (uint32_t r = 0; r < a->n_rows; r++) {
        uint64_t n_queries = (uint64_t)a->rows[r].n_tokens * p.group, rows = tile_rows(n_queries, a->kv->head_dim);
        for (uint64_t query = 0; query < n_queries; query += rows) {
            struct query_tile tile = tile_at(&p, &a->rows[r], query);
            for (uint32_t h = 0; h < a->kv->n_kv_heads; h++)
                add_query_tile(&p, &a->rows[r], &tile, h);
        }
    }
    while (p.block < n_blocks)
        next_block(&p);
    plan->n_blocks = n_blocks;
    plan->n_merges = p.n_merges;
    plan->n_units = p.n_units;
    return plan->units_at + (uint64_t)p.n_units * sizeof(struct attn_unit);
}

uint64_t attn_plan_bytes(uint64_t n_seqs, uint64_t n_tokens, uint32_t n_q_heads, uint32_t n_kv_heads, uint32_t head_dim)
{
    uint64_t group = n_kv_heads ? n_q_heads / n_kv_heads : 0;
    uint64_t n_query_tiles = (n_seqs + n_tokens * group / tile_rows(UINT64_MAX, head_dim)) * n_kv_heads;
    return sizeof(struct attn_plan) + (2 * ATTN_MAX_BLOCKS + 1) * sizeof(uint32_t) + 3 * PLAN_ALIGN +
           ATTN_MAX_BLOCKS * sizeof(struct attn_merge) + (n_query_tiles + ATTN_MAX_BLOCKS) * sizeof(struct attn_unit);
}

uint64_t cuda_attention_plan_bytes(const struct k_plan_dims *dims)
{
    return attn_plan_bytes(dims->n_seqs, dims->n_tokens, dims->n_q_heads, dims->n_kv_heads, dims->head_dim);
}

/* A query has at most as many partials as splits. */
uint64_t cuda_attention_workspace_bytes(const struct k_plan_dims *dims)
{
    uint64_t rows = (uint64_t)dims->n_tokens * dims->n_q_heads * ((uint64_t)dims->max_model_len / K_ATTN_SPLIT + 1);
    uint64_t most = attn_partial_rows(dims->head_dim);
    return (rows < most ? rows : most) * (uint64_t)ATTN_PARTIAL_FLOATS(dims->head_dim) * sizeof(float);
}
