#include "app/replay/streaming.h"

static const struct model_attention *attention_of(const struct model_config *config, uint32_t layer)
{
    const struct model_block *block = model_layer_block(&config->layers[layer], BLOCK_ATTENTION);
    return block ? &block->attention : NULL;
}

static bool has_full_attention(const struct model_config *config)
{
    for (uint32_t l = 0; l < config->n_layers; l++) {
        const struct model_attention *a = attention_of(config, l);
        if (a && a->mask == MASK_CAUSAL)
            return true;
    }
    return false;
}

/* Whether a layer has this window without options. */
static bool is_own(const struct model_config *config, uint32_t window)
{
    for (uint32_t l = 0; l < config->n_layers; l++) {
        const struct model_attention *a = attention_of(config, l);
        if (a && a->mask == MASK_WINDOW && a->window == window)
            return true;
    }
    return false;
}

struct replay_streaming replay_streaming_of(const struct kv_config *kv, const struct model_config *config)
{
    struct replay_streaming out = {0, 0};
    for (uint32_t g = 0; g < kv->n_groups; g++)
        if (kv->groups[g].window == 0)
            return out; /* with the options, no layer reads everything */
    if (!has_full_attention(config))
        return out;
    out.window = kv->groups[0].window; /* if all are a layer's own, the option is equal to it */
    for (uint32_t g = 0; g < kv->n_groups; g++) {
        const bool has_sinks = kv->groups[g].sinks > 0;
        if (has_sinks || !is_own(config, kv->groups[g].window))
            out = (struct replay_streaming){kv->groups[g].window, kv->groups[g].sinks};
        if (has_sinks)
            break;
    }
    return out;
}
