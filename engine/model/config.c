#include "engine/model/config.h"

#include "kernels/args/attention.h"

#include <stdlib.h>

void model_config_free(struct model_config *config)
{
    if (!config)
        return;
    free(config->layers);
    free(config->ropes);
    free(config->quantization);
    free(config->encoder);
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

/* Whether a layer's attention reads all positions up to a token's own. */
static bool is_full(const struct model_config *config, uint32_t layer)
{
    const struct model_block *block = model_layer_block(&config->layers[layer], BLOCK_ATTENTION);
    return block && block->attention.mask == MASK_CAUSAL;
}

static int check_stream(const struct model_config *config, uint32_t n_sinks, uint32_t window, struct quire_error *err)
{
    uint32_t n_full = 0;
    if (window == 0)
        return quire_fail(err, QUIRE_INVALID,
                          "--attention-sinks %u: needs --attention-window, the number of positions that stay readable",
                          n_sinks);
    if (config->outputs.kind != OUTPUT_TOKENS)
        return quire_fail(err, QUIRE_UNSUPPORTED,
                          "--attention-window %u: a model that returns vectors reads whole texts: leave it out",
                          window);
    if (n_sinks > K_MAX_SINK_POSITIONS)
        return quire_fail(err, QUIRE_INVALID, "--attention-sinks: must be at most %u, got %u", K_MAX_SINK_POSITIONS,
                          n_sinks);
    if ((uint64_t)window + n_sinks > config->max_position)
        return quire_fail(err, QUIRE_INVALID,
                          "--attention-window %u with --attention-sinks %u is more than the %u positions the model was"
                          " made for (config.json: max_position_embeddings)",
                          window, n_sinks, config->max_position);
    for (uint32_t l = 0; l < config->n_layers; l++)
        n_full += is_full(config, l);
    if (n_full == 0)
        return quire_fail(err, QUIRE_INVALID,
                          "--attention-window %u: every layer of this model has a window of its own: leave it out",
                          window);
    return QUIRE_OK;
}

int model_stream(struct model_config *config, uint32_t n_sinks, uint32_t window, struct quire_error *err)
{
    const int status = check_stream(config, n_sinks, window, err);
    if (status != QUIRE_OK)
        return status;
    for (uint32_t l = 0; l < config->n_layers; l++) {
        if (!is_full(config, l))
            continue;
        model_set_window(config, l, window);
        for (uint32_t i = 0; i < config->layers[l].n_blocks; i++)
            if (config->layers[l].blocks[i].kind == BLOCK_ATTENTION)
                config->layers[l].blocks[i].attention.n_sinks = n_sinks;
    }
    config->streaming = (struct model_streaming){.n_sinks = n_sinks, .window = window};
    return QUIRE_OK;
}
