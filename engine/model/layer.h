/* The layers of a model's description. A layer is a list of blocks. Data only; any thread. */
#ifndef QUIRE_ENGINE_MODEL_LAYER_H
#define QUIRE_ENGINE_MODEL_LAYER_H

#include <stdint.h>

/* A layer is a list of blocks; each adds something to the residual stream x. */
enum model_block_kind { BLOCK_ATTENTION, BLOCK_MLP };
enum model_norm { NORM_RMS, NORM_LAYER };
enum model_norm_position {
    NORM_PRE,  /* x += block(norm(x)) */
    NORM_POST, /* x += norm(block(x)); all blocks of a model, or none */
    NORM_SUM,  /* x = norm(x + block(x)), of NORM_LAYER; likewise */
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
enum model_activation { ACTIVATION_NONE, ACTIVATION_SILU_MUL, ACTIVATION_GELU };

struct model_block {
    enum model_block_kind kind;
    enum model_norm norm;
    enum model_norm_position place;
    /* attention */
    enum model_mask mask;
    uint32_t window; /* of MASK_WINDOW */
    enum model_head_norm head_norm;
    /* MLP */
    enum model_activation activation; /* of gate and up; GELU has up only */
};

#define MODEL_MAX_BLOCKS 2
#define MODEL_FOLDER_BYTES 65
struct model_layer {
    uint32_t n_blocks;
    struct model_block blocks[MODEL_MAX_BLOCKS];
};

#endif
