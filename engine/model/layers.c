#include "engine/model/model.h"

#include <stddef.h>

void model_make_encoder_layers(struct model_desc *desc)
{
    const struct model_layer layer = {
        .n_blocks = 2,
        .blocks = {{.kind = BLOCK_ATTENTION, .norm = NORM_LAYER, .place = NORM_SUM, .mask = MASK_NONE},
                   {.kind = BLOCK_MLP, .norm = NORM_LAYER, .place = NORM_SUM, .activation = ACTIVATION_GELU}},
    };
    for (uint32_t l = 0; l < desc->n_layers; l++)
        desc->layers[l] = layer;
}

void model_make_layers(struct model_desc *desc, enum model_norm_place place, enum model_head_norm head_norm)
{
    const struct model_layer layer = {
        .n_blocks = 2,
        .blocks = {{.kind = BLOCK_ATTENTION, .place = place, .head_norm = head_norm},
                   {.kind = BLOCK_MLP, .place = place, .activation = ACTIVATION_SILU_MUL}},
    };
    for (uint32_t l = 0; l < desc->n_layers; l++)
        desc->layers[l] = layer;
}

const struct model_block *model_block_of(const struct model_desc *desc, uint32_t layer, enum model_block_kind kind)
{
    const struct model_layer *l = &desc->layers[layer];
    for (uint32_t i = 0; i < l->n_blocks; i++)
        if (l->blocks[i].kind == kind)
            return &l->blocks[i];
    return NULL;
}

uint32_t model_window(const struct model_desc *desc, uint32_t layer)
{
    const struct model_block *attention = model_block_of(desc, layer, BLOCK_ATTENTION);
    return attention && attention->mask == MASK_WINDOW ? attention->window : 0;
}

void model_set_window(struct model_desc *desc, uint32_t layer, uint32_t window)
{
    struct model_layer *l = &desc->layers[layer];
    for (uint32_t i = 0; i < l->n_blocks; i++) {
        if (l->blocks[i].kind != BLOCK_ATTENTION)
            continue;
        l->blocks[i].mask = window ? MASK_WINDOW : MASK_CAUSAL;
        l->blocks[i].window = window;
    }
}
