#include "engine/model/sizes.h"

#include "kernels/segments.h"

uint32_t model_whole_size(const struct model_desc *desc, uint32_t layer, enum model_size size)
{
    const struct model_config *config = desc->config;
    switch (size) {
    case SIZE_ONE: return 1;
    case SIZE_HIDDEN: return config->hidden_size;
    case SIZE_VOCAB: return config->vocab_size;
    case SIZE_POSITIONS: return model_encoder_of(config).n_positions;
    case SIZE_SEGMENTS: return model_encoder_of(config).n_segments;
    case SIZE_LABELS: return config->outputs.n_labels;
    case SIZE_DENSE: return config->outputs.dense.size;
    default: break;
    }
    const struct model_layer *l = layer < config->n_layers ? &config->layers[layer] : NULL;
    for (uint32_t i = 0; l && i < l->n_blocks; i++) {
        const uint32_t n = model_block_size(&l->blocks[i], size);
        if (n)
            return n;
    }
    return 0;
}

static uint32_t n_ranks_of(const struct model_desc *desc)
{
    return desc->shard.n_ranks > 1 ? desc->shard.n_ranks : 1;
}

static struct model_range heads_of(uint32_t n_heads, uint32_t head_dim, uint32_t rank, uint32_t n_ranks)
{
    if (n_heads < n_ranks) /* one, that neighbours have, too */
        return (struct model_range){(uint32_t)((uint64_t)rank * n_heads / n_ranks) * head_dim, head_dim};
    return (struct model_range){rank * (n_heads / n_ranks) * head_dim, n_heads / n_ranks * head_dim};
}

/* Whole segments of the sum over an MLP's inner columns. */
static struct model_range segments_of(uint32_t n_cols, uint32_t rank, uint32_t n_ranks)
{
    const uint32_t unit = k_segment_unit(n_cols), per = K_SEGMENTS / n_ranks;
    const uint32_t first = k_segment_begin(n_cols, unit, rank * per);
    return (struct model_range){first, k_segment_begin(n_cols, unit, (rank + 1) * per) - first};
}

/* Whether each rank has some of the layer's experts, with all of their columns. */
static bool deals_experts(const struct model_desc *desc, uint32_t layer)
{
    return desc->shard.whole_experts && layer < desc->config->n_layers && model_block_of(desc, layer, BLOCK_EXPERTS);
}

struct model_range model_count_of(const struct model_desc *desc, uint32_t rank, uint32_t layer, enum model_size count)
{
    const uint64_t n_ranks = n_ranks_of(desc), whole = model_whole_size(desc, layer, count);
    if (n_ranks == 1 || count != SIZE_EXPERTS || !deals_experts(desc, layer))
        return (struct model_range){0, (uint32_t)whole};
    const uint32_t first = (uint32_t)(rank * whole / n_ranks);
    return (struct model_range){first, (uint32_t)((rank + 1) * whole / n_ranks) - first};
}

struct model_range model_share_of(const struct model_desc *desc, uint32_t rank, uint32_t layer, enum model_size size)
{
    const uint32_t n_ranks = n_ranks_of(desc), whole = model_whole_size(desc, layer, size);
    const struct model_block *block = layer < desc->config->n_layers ? model_block_of(desc, layer, BLOCK_ATTENTION)
                                                                     : NULL;
    if (n_ranks == 1 || whole == 0)
        return (struct model_range){0, whole};
    switch (size) {
    case SIZE_Q:
    case SIZE_K: return heads_of(whole / block->attention.k_dim, block->attention.k_dim, rank, n_ranks);
    case SIZE_Q_HEADS: return heads_of(whole, 1, rank, n_ranks);
    case SIZE_V:
    case SIZE_HEADS: return heads_of(whole / block->attention.v_dim, block->attention.v_dim, rank, n_ranks);
    case SIZE_INNER:
        return deals_experts(desc, layer) ? (struct model_range){0, whole} : segments_of(whole, rank, n_ranks);
    case SIZE_SHARED_INNER: return segments_of(whole, rank, n_ranks);
    case SIZE_VOCAB: {
        const uint32_t most = (whole - 1) / n_ranks + 1, first = rank * most < whole ? rank * most : whole;
        return (struct model_range){first, whole - first < most ? whole - first : most};
    }
    default: return (struct model_range){0, whole};
    }
}

uint32_t model_size_of(const struct model_desc *desc, uint32_t layer, enum model_size size)
{
    return size == SIZE_VOCAB ? desc->config->vocab_size : model_share_of(desc, desc->shard.rank, layer, size).n;
}

uint32_t model_share_most(const struct model_desc *desc, uint32_t layer, enum model_size size)
{
    uint32_t most = 0;
    for (uint32_t r = 0; r < n_ranks_of(desc); r++) {
        const uint32_t n = model_share_of(desc, r, layer, size).n;
        most = n > most ? n : most;
    }
    return most;
}

static uint32_t largest(const struct model_desc *desc, enum model_size size,
                        uint32_t (*of)(const struct model_desc *desc, uint32_t layer, enum model_size size))
{
    uint32_t most = 0;
    for (uint32_t l = model_first_layer(desc); l < model_end_layer(desc); l++) {
        const uint32_t n = of(desc, l, size);
        most = n > most ? n : most;
    }
    return most;
}

uint32_t model_largest(const struct model_desc *desc, enum model_size size)
{
    return largest(desc, size, model_size_of);
}

uint32_t model_largest_whole(const struct model_desc *desc, enum model_size size)
{
    return largest(desc, size, model_whole_size);
}

struct model_heads model_heads_of(const struct model_desc *desc, uint32_t layer)
{
    const struct model_block *block = model_block_of(desc, layer, BLOCK_ATTENTION);
    if (!block)
        return (struct model_heads){0};
    const struct model_attention *a = &block->attention;
    return (struct model_heads){.n_q = model_size_of(desc, layer, SIZE_Q) / a->k_dim,
                                .n_kv = model_size_of(desc, layer, SIZE_K) / a->k_dim,
                                .k_dim = a->k_dim,
                                .v_dim = a->v_dim};
}

bool model_same_kv(const struct model_desc *desc, uint32_t a, uint32_t b)
{
    const struct model_block *p = model_block_of(desc, a, BLOCK_ATTENTION),
                             *q = model_block_of(desc, b, BLOCK_ATTENTION);
    if (!p || !q)
        return !p && !q;
    const struct model_attention *x = &p->attention, *y = &q->attention;
    return model_window(desc, a) == model_window(desc, b) && model_sinks(desc, a) == model_sinks(desc, b) &&
           x->n_q_heads == y->n_q_heads && x->n_kv_heads == y->n_kv_heads && x->k_dim == y->k_dim &&
           x->v_dim == y->v_dim;
}
