/* Attention of the cpu backend: what is shared by its plan (attention_plan.c: which thread computes
 * what, built once) and its arithmetic (attention.c, built once for each instruction set). */
#ifndef QUIRE_KERNELS_CPU_ATTENTION_H
#define QUIRE_KERNELS_CPU_ATTENTION_H

#include "kernels/host/host.h"

/* Queries that share each tile of K and V: some neighbouring tokens of one sequence times query
 * heads [head, head + n_heads) of one KV head, query i being token i / n_heads, head i % n_heads.
 * They read positions [lowest, end), each query those that are its own. */
struct cpu_attn_item {
    const struct k_attn_row *row;
    uint32_t token, n_tokens; /* counted from the row's first */
    uint32_t kv_head, head, n_heads;
    uint32_t lowest, end;
};
#define CPU_ATTN_QUERIES 64u /* at most in an item */

static inline uint32_t cpu_attn_first_split(const struct cpu_attn_item *item)
{
    return item->lowest / K_ATTN_SPLIT;
}
static inline uint32_t cpu_attn_end_split(const struct cpu_attn_item *item)
{
    return (item->end - 1) / K_ATTN_SPLIT + 1;
}

/* n queries' states in a split, or of splits merged: m [n], l [n], o [n][head_dim]. l is 0 as long as
 * no position has been read, else at least 1 or NaN. m and l have room for 8 floats from any query
 * on, and end with a cache line. */
static inline uint64_t cpu_attn_padded(uint64_t n)
{
    return (n + 7 + 15) / 16 * 16;
}
static inline uint64_t cpu_attn_states(uint32_t head_dim, uint64_t n) /* floats */
{
    return 2 * cpu_attn_padded(n) + n * head_dim;
}

/* Floats of scratch for one thread: queries, K and V of a tile, states in a split and merged. */
static inline uint64_t cpu_attn_scratch(uint32_t head_dim)
{
    return (CPU_ATTN_QUERIES + 2 * (uint64_t)K_ATTN_TILE) * head_dim + 2 * cpu_attn_states(head_dim, CPU_ATTN_QUERIES);
}

/* The arithmetic of an item. Partials: states of its queries for each of its splits. */
struct cpu_attn_functions {
    /* All splits, merged, into the output. */
    void (*item)(const struct k_attention_args *a, const struct cpu_attn_item *item, float *scratch);
    /* Splits [begin, end) into partials. */
    void (*splits)(const struct k_attention_args *a, const struct cpu_attn_item *item, uint32_t begin, uint32_t end,
                   float *partials, float *scratch);
    /* Partials of all splits, merged, into the output. */
    void (*merge)(const struct k_attention_args *a, const struct cpu_attn_item *item, float *partials);
};

static inline uint32_t cpu_attn_item_heads(uint32_t group)
{
    return group < CPU_ATTN_QUERIES ? group : CPU_ATTN_QUERIES;
}

/* Each costs an area for partials, of 0.1 MB for a model of 0.5B parameters and 32,768 positions. */
#define CPU_ATTN_PIECES_PER_THREAD 4u

/* Bytes of k_attention_args.workspace_dev: every thread's scratch, then partials. Only an item of
 * one token is cut over pieces, at most one for each border between two pieces, and it has at
 * most as many splits as the longest sequence. */
static inline uint64_t cpu_attn_workspace_bytes(const struct k_plan_dims *dims, uint64_t n_threads)
{
    uint64_t n_splits = ((uint64_t)dims->max_model_len + K_ATTN_SPLIT - 1) / K_ATTN_SPLIT;
    uint64_t n_heads = dims->n_kv_heads ? cpu_attn_item_heads(dims->n_q_heads / dims->n_kv_heads) : 0;
    return (n_threads * cpu_attn_scratch(dims->head_dim) +
            (n_threads * (n_threads > 1 ? CPU_ATTN_PIECES_PER_THREAD : 1) - 1) * n_splits *
                cpu_attn_states(dims->head_dim, n_heads)) *
           sizeof(float);
}

int cpu_attention(struct k_backend *b, const struct k_attention_args *a, struct quire_error *err);

#endif
