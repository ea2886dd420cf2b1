/* A model's description with its parts in one struct, so that tests can make, copy and change it. */
#ifndef QUIRE_TESTS_DESCRIBED_H
#define QUIRE_TESTS_DESCRIBED_H

#include "engine/model/model.h"

#include <string.h>

struct described {
    struct model_config config;
    struct checkpoint_facts facts;
    struct model_layer layers[MODEL_MAX_LAYERS];
    struct model_rope ropes[MODEL_MAX_ROPES];
    struct model_desc desc; /* of the above */
};

/* After a copy or a change of the struct: its pointers lead to its own parts. */
static inline const struct model_desc *described_desc(struct described *d)
{
    d->config.layers = d->layers;
    d->config.ropes = d->ropes;
    d->config.quantization = &d->facts.quantization;
    d->desc = (struct model_desc){.config = &d->config, .facts = &d->facts, .shard = d->desc.shard};
    return &d->desc;
}

/* Copies a config and frees it. The facts are what config.json says. */
static inline void described_take(struct model_config *config, struct described *out)
{
    memset(out, 0, sizeof *out);
    out->config = *config;
    memcpy(out->layers, config->layers, config->n_layers * sizeof *config->layers);
    memcpy(out->ropes, config->ropes, config->n_ropes * sizeof *config->ropes);
    out->facts.dtype = config->dtype;
    out->facts.quantization = *config->quantization;
    out->config.quantization = &out->facts.quantization;
    described_desc(out);
    model_config_free(config);
}

/* The attention and the MLP of a layer. */
static inline struct model_attention *described_attention(struct described *d, uint32_t layer)
{
    return &d->layers[layer].blocks[0].attention;
}
static inline struct model_mlp *described_mlp(struct described *d, uint32_t layer)
{
    return &d->layers[layer].blocks[1].mlp;
}

/* Makes every layer a decoder's, with these sizes and one RoPE. */
static inline void described_layers(struct described *d, enum model_norm_position place, enum model_head_norm head_norm,
                                    struct model_attention sizes, uint32_t inner_size)
{
    struct model_layer layer = model_decoder_layer(place, head_norm);
    sizes.head_norm = head_norm;
    sizes.v_dim = sizes.k_dim;
    layer.blocks[0].attention = sizes;
    layer.blocks[1].mlp.inner_size = inner_size;
    for (uint32_t l = 0; l < d->config.n_layers; l++)
        d->layers[l] = layer;
    d->ropes[0] = (struct model_rope){
        .kind = MODEL_ROPE_DEFAULT, .dim = sizes.k_dim, .theta = 10000, .factor = 1, .attention_factor = 1};
    d->config.n_ropes = 1;
    described_desc(d);
}

#endif
