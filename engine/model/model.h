/* A model is data: one description drives one forward pass. It has three parts by lifetime: what config.json says
 * (config.h), what the weight files are (facts.h), and the part that this rank holds (shard.h).
 *
 * The description borrows the first two, which must outlive it. Copy it freely. Any thread. */
#ifndef QUIRE_ENGINE_MODEL_MODEL_H
#define QUIRE_ENGINE_MODEL_MODEL_H

#include "engine/model/config.h"
#include "engine/model/facts.h"
#include "engine/model/shard.h"

struct model_desc {
    const struct model_config *config;
    const struct checkpoint_facts *facts;
    struct model_shard shard;
};

/* Whether a text must be computed in one step: its KV or its vector depends on all of it. */
static inline bool model_reads_whole(const struct model_config *config)
{
    return config->encoder || (config->outputs.kind != OUTPUT_TOKENS && config->outputs.pooling != POOLING_LAST);
}

/* How the bulk of its matrices is stored; where no checkpoint was inspected, as the dtype says. */
static inline struct k_format model_weight_format(const struct model_desc *desc)
{
    const struct checkpoint_facts *facts = desc->facts;
    return facts->weight_format.bits ? facts->weight_format : k_format_of(facts->dtype);
}

/* NULL: the layer has no block of that kind. */
static inline const struct model_block *model_block_of(const struct model_desc *desc, uint32_t layer,
                                                       enum model_block_kind kind)
{
    return model_layer_block(&desc->config->layers[layer], kind);
}

/* The layers that are computed here: [first, end). */
static inline uint32_t model_first_layer(const struct model_desc *desc)
{
    return desc->shard.n_stages ? desc->shard.first_layer : 0;
}
static inline uint32_t model_end_layer(const struct model_desc *desc)
{
    return desc->shard.n_stages ? desc->shard.end_layer : desc->config->n_layers;
}
/* The first stage has the embedding, the last one the final norm and the head. */
static inline bool model_is_first_stage(const struct model_desc *desc)
{
    return model_first_layer(desc) == 0;
}
static inline bool model_is_last_stage(const struct model_desc *desc)
{
    return model_end_layer(desc) == desc->config->n_layers;
}

/* How many positions a layer's attention looks back on, its own included; 0 = all. */
static inline uint32_t model_window(const struct model_desc *desc, uint32_t layer)
{
    const struct model_block *block = model_block_of(desc, layer, BLOCK_ATTENTION);
    return block && block->attention.mask == MASK_WINDOW ? block->attention.window : 0;
}
/* The first positions that the layer's attention reads besides its window. */
static inline uint32_t model_sinks(const struct model_desc *desc, uint32_t layer)
{
    const struct model_block *block = model_block_of(desc, layer, BLOCK_ATTENTION);
    return block && block->attention.mask == MASK_WINDOW ? block->attention.n_sinks : 0;
}

#endif
