/* The KV cache of a forward pass: the shape of each group, and each layer's memory. Owned by struct forward; engine
 * thread only. */
#ifndef QUIRE_ENGINE_FORWARD_KV_H
#define QUIRE_ENGINE_FORWARD_KV_H

#include "kernels/kv.h"
#include "kernels/planner.h"
#include "memory/kv_cache.h"

/* Layers with the same window, sinks and heads (engine_plan.groups). */
struct forward_kv_group {
    struct k_kv_shape shape; /* of this rank's heads */
    uint32_t n_q_heads, window, n_sinks;
    struct k_plan_dims dims; /* of the largest step, for its layers */
};

/* The KV cache and its host tier. Constant once it is allocated. */
struct forward_kv {
    uint32_t n_groups;
    struct forward_kv_group groups[KV_MAX_GROUPS]; /* [n_groups] */
    struct k_kv_layer *layers; /* [n_layers]; NULL of a layer without attention or of another stage */
    struct k_kv_layer *host_layers; /* [n_layers]: the host tier; without one all NULL */
    uint8_t *layer_group; /* [n_layers]; 0 of a layer without attention */
};

#endif
