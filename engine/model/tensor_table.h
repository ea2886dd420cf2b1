/* The one table of a model's tensors: what a checkpoint calls each, how large it is, which weight it is a part of and
 * which of its axes tensor parallelism cuts. Binding, the memory plan, destruction and error messages walk these rows,
 * so a new tensor is a row of tensors.c and a use in the forward pass. Constant data; any thread. */
#ifndef QUIRE_ENGINE_MODEL_TENSOR_TABLE_H
#define QUIRE_ENGINE_MODEL_TENSOR_TABLE_H

#include "engine/model/layer.h"

#include <stddef.h>
#include <stdint.h>

/* Where a weight is applied. */
enum model_site {
    SITE_QKV,     /* [(Q + 2 KV) D, H]: q, k and v stacked */
    SITE_O,       /* [H, Q D] */
    SITE_GATE_UP, /* [2 I, H]: gate, then up; an encoder's [I, H]: up alone; of experts, of each */
    SITE_DOWN,    /* [H, I]; of experts, of each */
    SITE_SHARED_GATE_UP, /* of the shared expert */
    SITE_SHARED_DOWN,
    SITE_EMBED,   /* [V, H] */
    SITE_POSITIONS,  /* [P, H] */
    SITE_SEGMENTS,   /* [S, H] */
    SITE_POOLER,     /* [H, H]: a classifier's */
    SITE_CLASSIFIER, /* [L, H] */
    SITE_DENSE,      /* [D, H]: sentence-transformers' */
    SITE_LM_HEAD, /* [V, H]; absent where embeddings are tied: model_head_site() */
    MODEL_N_SITES,
};

/* Vectors that are no bias of a site, and matrices that are used as f32. */
enum model_vector {
    VEC_ATTENTION_NORM, /* [H] */
    VEC_MLP_NORM,       /* [H] */
    VEC_SINKS,          /* [Q heads] */
    VEC_ROUTER,         /* [E, H] */
    VEC_ROUTER_BIAS,    /* [E] */
    VEC_CORRECTION,     /* [E]: added to the scores for the choice */
    VEC_SHARED_GATE,    /* [1, H] */
    VEC_Q_NORM,         /* [D], or [Q D] over all heads */
    VEC_K_NORM,         /* [D], or [KV D] */
    VEC_ATTENTION_POST_NORM, /* [H], of NORM_BOTH: behind the block */
    VEC_MLP_POST_NORM,
    VEC_FINAL_NORM,     /* [H] */
    VEC_ATTENTION_NORM_BIAS, /* [H], of NORM_LAYER */
    VEC_MLP_NORM_BIAS,
    VEC_EMBED_NORM,
    VEC_EMBED_NORM_BIAS,
    MODEL_N_VECTORS,
};

enum model_tensor_kind {
    TENSOR_MATRIX, /* a part of a site's weight */
    TENSOR_BIAS,   /* a part of a site's bias; parts that the model does not have are zeros */
    TENSOR_VECTOR,
};

/* The part that each of several devices would hold: the whole tensor, some of its rows, or some of its columns.
 * Sites divided by rows produce the input of sites divided by columns, so that a block needs one sum over the
 * devices. */
enum model_division { SHARD_NONE, SHARD_ROWS, SHARD_COLS };

/* The condition under which a model has a tensor. */
enum model_condition {
    ALWAYS,
    IF_SPLIT, /* not fused */
    IF_FUSED,
    IF_Q_BIAS,
    IF_K_BIAS,
    IF_V_BIAS,
    IF_O_BIAS,
    IF_MLP_BIAS,
    IF_NORM_PRE,
    IF_NORM_POST,
    IF_NORM_BOTH,
    IF_NORM_FIRST, /* before the block: NORM_PRE or NORM_BOTH */
    IF_HEAD_NORM_EACH,
    IF_HEAD_NORM_ALL,
    IF_SINKS,
    IF_EXPERTS_GATE_PROJ,
    IF_EXPERTS_GATE_PROJ_BIAS,
    IF_EXPERTS_W1,
    IF_EXPERTS_LINEAR, /* of gate and up: fused */
    IF_EXPERTS_TRANSPOSED, /* likewise, gate's and up's rows in turn; matrices are [count, cols, rows] */
    IF_SHARED_EXPERT,
    IF_SHARED_EXPERTS,
    IF_SHARED_MLP, /* fused */
    IF_CORRECTION,
    IF_UNTIED,
    IF_ENCODER, /* this and the following apply to encoders only, those above to decoders only */
    IF_SEGMENTS,
    IF_BERT_CLASSIFIER,
    IF_ROBERTA_CLASSIFIER,
    IF_DENSE, /* from here on of either kind */
    IF_DENSE_BIAS,
};

struct model_tensor {
    enum model_owner owner;
    enum model_tensor_kind kind;
    uint32_t place;   /* enum model_site, of a vector enum model_vector */
    /* As transformers saves it, BERT's for RoBERTa's. '*' is the layer's number, a second '*' the matrix's among `count`.
     * A file that has all of them in one tensor [count, rows, cols] calls it so without the second "*.". Without a second '*'
     * no file has them otherwise. Neighbouring rows of one name, site and condition are parts of one tensor, from top to
     * bottom. */
    const char *name;
    enum model_size count; /* matrices of one shape: SIZE_ONE, or experts */
    enum model_size rows, cols; /* SIZE_ONE columns of a bias or a vector; else a vector is a matrix in the file */
    enum model_division shard;
    enum model_condition when;
};
extern const struct model_tensor model_tensors[];
extern const size_t model_n_tensors;

#endif
