/* A block of experts: its sizes, and what a checkpoint calls its matrices (docs/internals/numerics.md §20). Data only;
 * any thread. */
#ifndef QUIRE_ENGINE_EXPERTS_H
#define QUIRE_ENGINE_EXPERTS_H

#include <stdbool.h>
#include <stdint.h>

/* How a token's experts are scored. */
enum model_router {
    ROUTER_SOFTMAX, /* softmax over all experts, then the choice */
    ROUTER_TOP_SOFTMAX, /* the choice by logits, then softmax over what is chosen */
    ROUTER_SIGMOID, /* sigmoid of each logit, then the choice with corrections, within the best groups */
};
/* What a checkpoint calls the matrices of an expert, and how it stores them. */
enum model_expert_names {
    EXPERTS_GATE_PROJ, /* mlp.experts.0.gate_proj, up_proj, down_proj; mlp.shared_expert, or without a gate _experts */
    EXPERTS_GATE_PROJ_BIAS, /* likewise, with biases of the matrices and the router: gpt-oss in GGUF */
    EXPERTS_W1, /* block_sparse_moe.experts.0.w1, w3, w2 */
    EXPERTS_LINEAR, /* block_sparse_moe.input_linear, gate above up, and output_linear, of all experts; shared_mlp */
    EXPERTS_TRANSPOSED, /* mlp.experts.gate_up_proj and down_proj of all experts, whose rows are inputs */
};

struct model_experts {
    uint32_t n_experts, n_used; /* of each layer, and of each token */
    uint32_t inner_size; /* of an expert */
    uint32_t shared_size; /* the inner size of the shared expert; 0: the layer has no shared expert */
    uint32_t n_groups, n_groups_used; /* of ROUTER_SIGMOID: the choice falls within the best of these groups */
    enum model_router router;
    enum model_expert_names names;
    bool shared_gate; /* the shared expert has one */
    bool normalize; /* a token's weights are divided by their sum */
    float scale; /* then multiplied by it */
    float limit; /* of the clamped gate; 0: the gate is SiLU's */
};

#endif
