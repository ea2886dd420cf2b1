/* Attention of the cpu backend: the declarations that its plan and its arithmetic share. The plan (attention_plan.c,
 * built once) assigns work to threads; the arithmetic (attention.c) is built once for each instruction set. */
#ifndef QUIRE_KERNELS_CPU_ATTENTION_H
#define QUIRE_KERNELS_CPU_ATTENTION_H

#include "kernels/host/host.h"
#include "kernels/planner.h"

/* Queries that share each tile of K and V: adjacent tokens of one sequence times query heads [head, head + n_heads) of
 * one KV head. Query i is token i / n_heads, head i % n_heads. Together they read positions [lowest, end); each query
 * reads its own subset. */
struct cpu_attn_item {
    const struct k_attn_row *row;
    uint32_t token, n_tokens; /* relative to the row's first token */
    uint32_t kv_head, head, n_heads;
    uint32_t lowest, end;
    uint32_t sinks_end; /* with attention sinks they also read [0, sinks_end), and [lowest, end) may be empty */
};
#define CPU_ATTN_QUERIES 64u /* maximum in an item */

/* The splits of an item, in the order in which they are merged: [first, end). The one that holds `lowest` has number
 * lowest / K_ATTN_SPLIT + 1. The number before it is the split of the sinks. */
static inline uint32_t cpu_attn_first_split(const struct cpu_attn_item *item)
{
    return item->lowest / K_ATTN_SPLIT + (item->sinks_end == 0);
}
static inline uint32_t cpu_attn_end_split(const struct cpu_attn_item *item)
{
    return item->end > item->lowest ? (item->end - 1) / K_ATTN_SPLIT + 2 : item->lowest / K_ATTN_SPLIT + 1;
}
static inline bool cpu_attn_is_sinks(const struct cpu_attn_item *item, uint32_t split)
{
    return split == item->lowest / K_ATTN_SPLIT;
}

/* The states of n queries in a split, or over merged splits: m [n], l [n], o [n][head_dim]. l is 0 until a position has
 * been read, and afterwards at least 1 or NaN. m and l have space for 8 floats from any query on, and end at a cache
 * line. */
static inline uint64_t cpu_attn_padded(uint64_t n)
{
    return (n + 7 + 15) / 16 * 16;
}
static inline uint64_t cpu_attn_states(uint32_t head_dim, uint64_t n) /* floats */
{
    return 2 * cpu_attn_padded(n) + n * head_dim;
}

/* Floats of scratch per thread: queries, K and V of a tile, states of a split and merged states. */
static inline uint64_t cpu_attn_scratch(uint32_t head_dim)
{
    return (CPU_ATTN_QUERIES + 2 * (uint64_t)K_ATTN_TILE) * head_dim + 2 * cpu_attn_states(head_dim, CPU_ATTN_QUERIES);
}

/* The arithmetic of an item. Partials are the states of its queries, one set per split. */
struct cpu_attn_functions {
    /* Computes all splits, merges them and writes the output. */
    void (*item)(const struct k_attention_args *a, const struct cpu_attn_item *item, float *scratch);
    /* Computes splits [begin, end) into partials. */
    void (*splits)(const struct k_attention_args *a, const struct cpu_attn_item *item, uint32_t begin, uint32_t end,
                   float *partials, float *scratch);
    /* Merges the partials of all splits and writes the output. */
    void (*merge)(const struct k_attention_args *a, const struct cpu_attn_item *item, float *partials);
};

static inline uint32_t cpu_attn_item_heads(uint32_t group)
{
    return group < CPU_ATTN_QUERIES ? group : CPU_ATTN_QUERIES;
}

/* Each costs an area for partials: 0.1 MB for a model of 0.5B parameters and 32,768 positions. */
#define CPU_ATTN_PIECES_PER_THREAD 4u

/* Returns the most splits of one token among n_positions, with that of the sinks. */
static inline uint64_t cpu_attn_most_splits(uint64_t n_positions, uint32_t window)
{
    const uint64_t n = (n_positions + K_ATTN_SPLIT - 1) / K_ATTN_SPLIT,
                   most = (window - UINT64_C(1)) / K_ATTN_SPLIT + 2;
    return (window > 0 && most < n ? most : n) + 1;
}

/* Returns the bytes of k_attention_args.workspace_dev: every thread's scratch, then partials. Only an item of one token
 * is divided over pieces, at most one item for each border between two pieces. It has at most as many splits as the
 * longest sequence, and that of the sinks. */
static inline uint64_t cpu_attn_workspace_bytes(const struct k_plan_dims *dims, uint64_t n_threads)
{
    uint64_t n_splits = cpu_attn_most_splits(dims->max_model_len, dims->window);
    uint64_t n_heads = dims->n_kv_heads ? cpu_attn_item_heads(dims->n_q_heads / dims->n_kv_heads) : 0;
    return (n_threads * cpu_attn_scratch(dims->head_dim) +
            (n_threads * (n_threads > 1 ? CPU_ATTN_PIECES_PER_THREAD : 1) - 1) * n_splits *
                cpu_attn_states(dims->head_dim, n_heads)) *
           sizeof(float);
}

int cpu_attention(struct k_backend *b, const struct k_attention_args *a, struct quire_error *err);

#endif
