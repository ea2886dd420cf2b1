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
    uint32_t default_shared; /* of shared_key */
    const char *shared_key; /* the inner size of the shared expert; NULL: there is no shared expert, or by `deepseek` */
    enum model_expert_names names;
    enum model_router router;
    bool shared_gate; /* the shared expert has one */
    bool normalizes; /* always; else norm_topk_prob says it */
    bool may_skip_layers; /* decoder_sparse_step and mlp_only_layers */
    bool
        deepseek; /* n_routed_experts, n_shared_experts, n_group, topk_group, routed_scaling_factor, first_k_dense_replace */
    double default_limit; /* swiglu_limit's, of the clamped gate; 0: the gate is SiLU's */
};

/* Gives each layer that has experts a block of them in place of its MLP. The layers are made. Errors name the field. */
int model_experts_config(const json_t *config, const struct model_expert_rules *rules, struct model_config *model,
                         struct quire_error *err);

#endif
