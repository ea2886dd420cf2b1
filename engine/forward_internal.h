/* What forward.c and forward_memory.c share. */
#ifndef QUIRE_ENGINE_FORWARD_INTERNAL_H
#define QUIRE_ENGINE_FORWARD_INTERNAL_H

#include "engine/forward.h"
#include "engine/layout.h"

struct forward {
    struct k_backend *backend;
    const struct model_desc *desc;
    const struct weights *weights;
    struct step_layout layout;
    uint32_t n_groups;
    struct k_kv_shape kv_shape;
    struct k_kv_layer *kv;     /* [n_layers] */
    struct k_kv_layer *host_kv; /* [n_layers]: the host tier; without one all NULL */
    uint8_t *layer_group;      /* [n_layers] */
    float scale;               /* of attention scores */

    uint8_t *staging;          /* host image of the step's input, layout.input_bytes */
    uint8_t *arena_dev;        /* layout.total */
    float *logits_dev;
    uint32_t *sampled_dev;
    uint8_t *workspace_dev;
    void *gemm_workspace_dev, *attention_workspace_dev, *sample_workspace_dev;
};

#endif
