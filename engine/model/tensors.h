/* The one table of a model's tensors: what a checkpoint calls each, how large it is, which weight it is a part of and
 * which of its axes tensor parallelism cuts. Binding, the memory plan, destruction and error messages walk these rows,
 * so a new tensor is a row here and a use in the forward pass. Pure; any thread.
 */
#ifndef QUIRE_ENGINE_TENSORS_H
#define QUIRE_ENGINE_TENSORS_H

#include "engine/model/model.h"
#include "kernels/kv.h"
#include "kernels/planner.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where a weight is applied. */
enum model_site {
    SITE_QKV,     /* [(Q + 2 KV) D, H]: q, k and v stacked */
    SITE_O,       /* [H, Q D] */
    SITE_GATE_UP, /* [2 I, H]: gate, then up; an encoder's [I, H]: up alone */
    SITE_DOWN,    /* [H, I] */
    SITE_EMBED,   /* [V, H] */
    SITE_POSITIONS,  /* [P, H] */
    SITE_SEGMENTS,   /* [S, H] */
    SITE_POOLER,     /* [H, H]: a classifier's */
    SITE_CLASSIFIER, /* [L, H] */
    SITE_DENSE,      /* [D, H]: sentence-transformers' */
    SITE_LM_HEAD, /* [V, H]; absent where embeddings are tied: model_head_site() */
    MODEL_N_SITES,
};

/* Vectors that are no bias of a site. */
enum model_vector {
    VEC_ATTENTION_NORM, /* [H] */
    VEC_MLP_NORM,       /* [H] */
    VEC_Q_NORM,         /* [D], or [Q D] over all heads */
    VEC_K_NORM,         /* [D], or [KV D] */
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

/* A length that the description knows. */
enum model_size {
    SIZE_ONE,
    SIZE_HIDDEN,
    SIZE_Q,
    SIZE_KV,
    SIZE_INNER,
    SIZE_VOCAB,
    SIZE_HEAD_DIM,
    SIZE_POSITIONS,
    SIZE_SEGMENTS,
    SIZE_LABELS,
    SIZE_DENSE
};

/* The part that each of several devices would hold: the whole tensor, some of its rows, or some of its columns.
 * Sites divided by rows produce the input of sites divided by columns, so that a block needs one sum over the
 * devices. */
enum model_shard { SHARD_NONE, SHARD_ROWS, SHARD_COLS };

/* What it belongs to. */
enum model_owner { OF_ATTENTION, OF_MLP, OF_MODEL };

/* The condition under which a model has a tensor. */
enum model_condition {
    ALWAYS,
    IF_Q_BIAS,
    IF_K_BIAS,
    IF_V_BIAS,
    IF_O_BIAS,
    IF_MLP_BIAS,
    IF_NORM_PRE,
    IF_NORM_POST,
    IF_HEAD_NORM_EACH,
    IF_HEAD_NORM_ALL,
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
    const char *name; /* as transformers saves it, BERT's for RoBERTa's; '*' is the layer's number */
    enum model_size rows, cols; /* SIZE_ONE columns of a bias or a vector */
    enum model_shard shard;
    enum model_condition when;
};
extern const struct model_tensor model_tensors[];
extern const size_t model_n_tensors;

/* One object in memory: a vector, or neighbouring matrices or biases of one site, its parts from top to bottom. */
struct model_stack {
    const struct model_tensor *parts;
    uint32_t n_parts;
    uint32_t layer; /* n_layers: beside the layers */
    uint32_t rows;  /* of all parts */
    uint32_t cols;
};

/* The next object that the model has: begin with a zeroed stack. false: there is no other. Layer by layer; what lies
 * beside the layers comes last. */
bool model_next_stack(const struct model_desc *desc, struct model_stack *stack);

/* layer: n_layers of what lies beside the layers. */
bool model_has_tensor(const struct model_desc *desc, uint32_t layer, const struct model_tensor *tensor);
uint32_t model_size_of(const struct model_desc *desc, enum model_size size);
/* A size of the whole model, whose tensors the checkpoint holds, if desc belongs to a rank. */
uint32_t model_whole_size(const struct model_desc *desc, enum model_size size);

/* Prefix under which the Dense module's own file joins the model's tensors (weights_open()). */
#define MODEL_DENSE_PREFIX "dense."
#define MODEL_NAME_BYTES 160
/* bare: of a checkpoint saved from the model without its head, whose names have no "model.", "bert." or "roberta." */
void model_tensor_name(const struct model_desc *desc, const struct model_tensor *tensor, uint32_t layer, bool bare,
                       char out[MODEL_NAME_BYTES]);

/* Whether this is the name of a tensor that the model computes with; of one that is quantized, "...weight" for all its parts. */
bool model_uses_name(const struct model_desc *desc, bool bare, const char *name);
/* Whether a name is one of the architecture's, used or not. */
bool model_knows_name(const struct model_desc *desc, const char *name);

/* Columns to a unit of the segments in which a matrix' GEMM sums (numerics.md §5): a head, or what k_segment_unit() says,
 * where devices share it by columns; else 0. */
uint32_t model_unit_of(const struct model_desc *desc, const struct model_tensor *tensor);

/* The site whose weight makes logits. */
enum model_site model_head_site(const struct model_desc *desc);

/* Floats that a stack of vectors takes in the parameter arena, where each vector begins on a 64-byte boundary. NULL:
 * the whole arena, in the order of model_next_stack(), with the inverse frequencies at its end. */
uint64_t model_stack_floats(const struct model_stack *stack);
uint64_t model_param_floats(const struct model_desc *desc);

/* The format that --quantization produces for a matrix; bits 0: it stays as stored. */
struct k_format model_made_format(const struct model_desc *desc, const struct model_tensor *tensor);

/* Bytes of a device's copy of every matrix; 0 where the backend uses them in place. */
uint64_t model_weight_bytes(const struct model_desc *desc, const struct k_planner *planner);

#endif
