/* The layers of a model. A layer is a list of blocks; each block has sizes of its own. All sizes here are the whole
 * model's: share.h gives those of one rank. Data only; any thread. */
#ifndef QUIRE_ENGINE_MODEL_LAYER_H
#define QUIRE_ENGINE_MODEL_LAYER_H

#include "engine/model/experts/experts.h"

#include <stdbool.h>
#include <stdint.h>

/* A layer is a list of blocks; each adds something to the residual stream x. */
enum model_block_kind { BLOCK_ATTENTION, BLOCK_MLP, BLOCK_EXPERTS };
/* What a tensor belongs to: a block, by its kind, or what lies beside the layers. */
enum model_owner { OF_ATTENTION = BLOCK_ATTENTION, OF_MLP = BLOCK_MLP, OF_EXPERTS = BLOCK_EXPERTS, OF_MODEL };
enum model_norm { NORM_RMS, NORM_LAYER };
enum model_norm_position {
    NORM_PRE,  /* x += block(norm(x)) */
    NORM_POST, /* x += norm(block(x)); all blocks of a model, or none */
    NORM_SUM,  /* x = norm(x + block(x)), of NORM_LAYER; likewise */
    NORM_BOTH, /* x += norm(block(norm(x))), with norms of their own; likewise */
};
enum model_mask {
    MASK_CAUSAL, /* all positions up to a token's own */
    MASK_WINDOW, /* the last `window` of them */
    MASK_NONE,   /* all of the text, which is computed in one step */
};
enum model_head_norm {
    HEAD_NORM_NONE,
    HEAD_NORM_EACH, /* RMSNorm over each q and k head, before RoPE */
    HEAD_NORM_ALL,  /* over all q heads of a token, and all k heads */
};
enum model_activation { ACTIVATION_NONE, ACTIVATION_SILU_MUL, ACTIVATION_GELU, ACTIVATION_GELU_TANH_MUL };

struct model_attention {
    uint32_t n_q_heads, n_kv_heads;
    uint32_t k_dim; /* of a head of q and of k */
    uint32_t v_dim; /* of a head of v, and of what attention gives for each q head */
    enum model_mask mask;
    uint32_t window; /* of MASK_WINDOW */
    uint32_t n_sinks; /* of MASK_WINDOW: the first positions, which all tokens read too (model_stream()) */
    enum model_head_norm head_norm;
    bool q_bias, k_bias, v_bias, o_bias;
    bool sinks; /* gpt-oss: each q head has a logit that joins the softmax without a value */
    uint32_t rope; /* index into model_config.ropes. A layer without RoPE names a rope of the kind MODEL_ROPE_NONE */
    float scale;   /* of scores */
    float softcap; /* of scores, after scale; 0: none */
};

struct model_mlp {
    uint32_t inner_size;
    enum model_activation activation; /* of gate and up; GELU has up only */
    bool bias;
};

struct model_block {
    enum model_block_kind kind;
    enum model_norm norm;
    enum model_norm_position place;
    union { /* by kind */
        struct model_attention attention;
        struct model_mlp mlp;
        struct model_experts experts;
    };
};

#define MODEL_MAX_BLOCKS 2
struct model_layer {
    uint32_t n_blocks;
    struct model_block blocks[MODEL_MAX_BLOCKS];
};

/* A length that the description knows. */
enum model_size {
    SIZE_ONE,
    SIZE_HIDDEN,
    SIZE_VOCAB,
    SIZE_POSITIONS,
    SIZE_SEGMENTS,
    SIZE_LABELS,
    SIZE_DENSE,
    /* Of blocks: */
    SIZE_Q,
    SIZE_K,
    SIZE_V,
    SIZE_Q_HEADS, /* q heads: a number for each */
    SIZE_HEADS, /* what attention gives: v_dim for each q head */
    SIZE_HEAD_DIM, /* of q and k */
    SIZE_INNER, /* of an MLP, or of one expert */
    SIZE_EXPERTS,
    SIZE_USED, /* experts of a token */
    SIZE_SHARED_INNER /* of the shared expert */
};

static inline uint32_t model_experts_size(const struct model_experts *e, enum model_size size)
{
    switch (size) {
    case SIZE_INNER: return e->inner_size;
    case SIZE_EXPERTS: return e->n_experts;
    case SIZE_USED: return e->n_used;
    case SIZE_SHARED_INNER: return e->shared_size;
    default: return 0;
    }
}

/* 0: a block of this kind has no such size. */
static inline uint32_t model_block_size(const struct model_block *block, enum model_size size)
{
    const struct model_attention *a = &block->attention;
    if (block->kind == BLOCK_MLP)
        return size == SIZE_INNER ? block->mlp.inner_size : 0;
    if (block->kind == BLOCK_EXPERTS)
        return model_experts_size(&block->experts, size);
    switch (size) {
    case SIZE_Q: return a->n_q_heads * a->k_dim;
    case SIZE_Q_HEADS: return a->n_q_heads;
    case SIZE_K: return a->n_kv_heads * a->k_dim;
    case SIZE_V: return a->n_kv_heads * a->v_dim;
    case SIZE_HEADS: return a->n_q_heads * a->v_dim;
    case SIZE_HEAD_DIM: return a->k_dim;
    default: return 0;
    }
}

/* NULL: the layer has no block of that kind. */
static inline const struct model_block *model_layer_block(const struct model_layer *layer, enum model_block_kind kind)
{
    for (uint32_t i = 0; i < layer->n_blocks; i++)
        if (layer->blocks[i].kind == kind)
            return &layer->blocks[i];
    return 0;
}

#endif
