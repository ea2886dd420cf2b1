/* Sizes of a model, by layer: the whole model's, and those of the part that a rank holds (numerics.md §5). A rank owns
 * whole segments of the sums that ranks share, so that the sums have the same bits for any number of ranks.
 *
 * layer: n_layers for what lies beside the layers, which has no size of a block: 0. Sizes are in elements. Pure; any
 * thread. */
#ifndef QUIRE_ENGINE_MODEL_SIZES_H
#define QUIRE_ENGINE_MODEL_SIZES_H

#include "engine/model/model.h"

struct model_range {
    uint32_t first, n;
};

/* A size of the whole model, whose tensors the checkpoint holds. */
uint32_t model_whole_size(const struct model_desc *desc, uint32_t layer, enum model_size size);

/* The range of a size that `rank` holds; the whole range if the model is not divided. SIZE_VOCAB: rows of the head. */
struct model_range model_share_of(const struct model_desc *desc, uint32_t rank, uint32_t layer, enum model_size size);

/* Of several matrices of one shape those that `rank` holds: experts if ranks hold them whole, else all. */
struct model_range model_count_of(const struct model_desc *desc, uint32_t rank, uint32_t layer, enum model_size count);

/* What desc's rank computes with: its range's length, but all of the vocabulary. */
uint32_t model_size_of(const struct model_desc *desc, uint32_t layer, enum model_size size);

/* The most that any rank has. */
uint32_t model_share_most(const struct model_desc *desc, uint32_t layer, enum model_size size);

/* The largest size of any layer that desc's stage computes: its rank's, and the whole model's. */
uint32_t model_largest(const struct model_desc *desc, enum model_size size);
uint32_t model_largest_whole(const struct model_desc *desc, enum model_size size);

/* Heads of a layer's attention that desc's rank computes; all 0 of a layer without attention. */
struct model_heads {
    uint32_t n_q, n_kv, k_dim, v_dim;
};
struct model_heads model_heads_of(const struct model_desc *desc, uint32_t layer);

/* Whether the K and V of two layers can be one group of the KV cache: the same window, sinks and heads of
 * the whole model, so that groups do not depend on ranks. */
bool model_same_kv(const struct model_desc *desc, uint32_t a, uint32_t b);

#endif
