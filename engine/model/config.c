#include "engine/model/config.h"

#include <stdlib.h>

void model_config_free(struct model_config *config)
{
    if (!config)
        return;
    free(config->layers);
    free(config->ropes);
    free(config->quantization);
    free(config);
}

int model_make_layers(struct model_config *config, const struct model_layer *layer, const struct model_rope *rope,
                      struct quire_error *err)
{
    config->layers = calloc(config->n_layers, sizeof *config->layers);
    config->ropes = calloc(MODEL_MAX_ROPES, sizeof *config->ropes);
    if (!config->layers || !config->ropes)
        return quire_fail(err, QUIRE_NO_MEMORY, "model description: out of memory");
    for (uint32_t l = 0; l < config->n_layers; l++)
        config->layers[l] = *layer;
    config->ropes[0] = *rope;
    config->n_ropes = 1;
    return QUIRE_OK;
}

struct model_layer model_decoder_layer(enum model_norm_position place, enum model_head_norm head_norm)
{
    return (struct model_layer){
        .n_blocks = 2,
        .blocks = {{.kind = BLOCK_ATTENTION, .place = place, .attention = {.head_norm = head_norm}},
                   {.kind = BLOCK_MLP, .place = place, .mlp = {.activation = ACTIVATION_SILU_MUL}}},
    };
}

struct model_layer model_encoder_layer(void)
{
    return (struct model_layer){
        .n_blocks = 2,
        .blocks = {{.kind = BLOCK_ATTENTION, .norm = NORM_LAYER, .place = NORM_SUM, .attention = {.mask = MASK_NONE}},
                   {.kind = BLOCK_MLP, .norm = NORM_LAYER, .place = NORM_SUM, .mlp = {.activation = ACTIVATION_GELU}}},
    };
}

void model_set_window(struct model_config *config, uint32_t layer, uint32_t window)
{
    struct model_layer *l = &config->layers[layer];
    for (uint32_t i = 0; i < l->n_blocks; i++) {
        if (l->blocks[i].kind != BLOCK_ATTENTION)
            continue;
        l->blocks[i].attention.mask = window ? MASK_WINDOW : MASK_CAUSAL;
        l->blocks[i].attention.window = window;
    }
}
