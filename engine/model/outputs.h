/* What a model returns. Data only; any thread. */
#ifndef QUIRE_ENGINE_MODEL_OUTPUTS_H
#define QUIRE_ENGINE_MODEL_OUTPUTS_H

#include <stdbool.h>
#include <stdint.h>

#define MODEL_FOLDER_BYTES 65

enum model_output_kind {
    OUTPUT_TOKENS, /* logits of the next token: it generates */
    OUTPUT_VECTOR, /* a text's embedding */
    OUTPUT_SCORES, /* a classifier's logits of a text or a pair of texts */
};

/* The way in which tokens become a text's vector, or the input of its scores. */
enum model_pooling {
    POOLING_NONE, /* OUTPUT_TOKENS */
    POOLING_MEAN, /* the mean of its tokens */
    POOLING_CLS,  /* its first token */
    POOLING_LAST, /* its last one */
};

/* sentence-transformers' Dense, a layer over what is pooled. */
struct model_dense {
    uint32_t size; /* outputs; 0: the model has no such layer */
    bool bias, tanh;
    char folder[MODEL_FOLDER_BYTES]; /* subfolder of the model directory that holds the weights */
};

struct model_outputs {
    enum model_output_kind kind;
    enum model_pooling pooling;
    bool normalize;       /* vectors have length 1 */
    uint32_t n_labels;    /* of OUTPUT_SCORES */
    uint32_t vector_size; /* numbers of a vector, or of the scores; 0 of OUTPUT_TOKENS */
    struct model_dense dense;
};

#endif
