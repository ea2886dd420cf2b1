/* The fields of config.json that describe a mixture of experts. Pure; any thread. */
#ifndef QUIRE_ENGINE_EXPERTS_CONFIG_H
#define QUIRE_ENGINE_EXPERTS_CONFIG_H

#include "base/status.h"
#include "engine/model/config.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* What an architecture's config class says about absent fields. */
struct model_expert_rules {
    uint32_t default_experts, default_used;
    uint32_t default_inner; /* of moe_intermediate_size; 0: an expert's inner size is intermediate_size */
    uint32_t default_shared; /* of shared_expert_intermediate_size; 0: there is no shared expert */
    enum model_expert_names names;
    bool normalizes; /* always; else norm_topk_prob says it */
    bool may_skip_layers; /* decoder_sparse_step and mlp_only_layers */
};

/* Gives each layer that has experts a block of them in place of its MLP. The layers are made. Errors name the field. */
int model_experts_config(const json_t *config, const struct model_expert_rules *rules, struct model_config *model,
                         struct quire_error *err);

#endif
