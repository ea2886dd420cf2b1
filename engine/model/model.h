/* A model is data: one description, made from config.json, drives one forward pass.
 *
 * Differences between architectures are fields here, never branches on a name in the forward pass. Only
 * model_describe() knows the names of architectures. Any thread. */
#ifndef QUIRE_ENGINE_MODEL_MODEL_H
#define QUIRE_ENGINE_MODEL_MODEL_H

#include "engine/model/layer.h"
#include "engine/model/quantization/quantization.h"
#include "kernels/format.h"

#include <stdbool.h>
#include <stdint.h>

#define MODEL_MAX_LAYERS 256
#define MODEL_MAX_EOS 16

enum model_rope { MODEL_ROPE_NONE, MODEL_ROPE_DEFAULT, MODEL_ROPE_LINEAR, MODEL_ROPE_LLAMA3, MODEL_ROPE_YARN };

/* The way in which tokens become a text's vector. */
enum model_pooling {
    POOLING_NONE, /* nothing: the model generates */
    POOLING_MEAN, /* the mean of its tokens */
    POOLING_CLS,  /* its first token */
    POOLING_LAST, /* its last one */
};

/* The part of a model that this description covers (engine/model/share.h). */
struct model_share {
    uint32_t rank, n_ranks; /* n_ranks 0: the whole model, and the fields below are not set */
    uint32_t n_q_heads, n_kv_heads, intermediate_size; /* the whole model's */
};

/* The layers of a pipeline stage (engine/model/share.h). */
struct model_stage {
    uint32_t index, n_stages; /* n_stages 0: all layers, and the fields below are not set */
    uint32_t first_layer, end_layer;
    bool last_has_more; /* than the first one, of layers that do not divide */
};

struct model_desc {
    char architecture[64];   /* "Qwen2ForCausalLM" */
    enum k_dtype dtype;      /* dtype of the weights according to config.json (torch_dtype or dtype) */
    bool dtype_stated;       /* false: config.json has no dtype (dtype is K_F32), and the stored weights decide */
    struct k_format
        weight_format; /* format of most matrices, set once the checkpoint has been read; model_weight_format() */
    bool needs_lanes; /* a GEMM's matrix is neither float16 nor bfloat16, whatever most are; set with weight_format */
    char lanes_matrix[96]; /* the first such matrix; "" without */
    struct k_format lanes_format; /* its format */
    bool int8_activations; /* the weights were made to meet activations in int8 */
    struct quantization quantization;
    uint64_t repacked_bytes; /* bytes that the cpu backend repacks for the form int8; set with weight_format */
    uint64_t repacked_rows_bytes; /* bytes of rows that loading repacks; set with weight_format */
    uint32_t n_next_layers; /* behind the model's in the files: they guess tokens, and are not computed */
    uint32_t vocab_size, hidden_size, n_layers, n_q_heads, n_kv_heads, head_dim;
    uint32_t intermediate_size;
    struct model_share share; /* heads and intermediate_size are what the rank has */
    struct model_stage stage; /* n_layers and layers still describe the whole model */
    uint32_t max_position;   /* max_position_embeddings; times the linear factor; for YaRN, factor × original */
    float rms_eps;           /* of either norm */
    bool encoder; /* positions and segments are learned, attention sees the whole text, and no head makes logits */
    uint32_t n_positions; /* an encoder's: rows of its table; a text's first token has row first_position */
    uint32_t first_position;
    uint32_t n_segments;
    bool roberta; /* an encoder whose tensors are called as RoBERTa's are */
    enum model_pooling pooling;
    bool normalize; /* vectors have length 1 */
    uint32_t n_labels; /* > 0: a classifier, whose vector are these logits */
    uint32_t dense_size; /* > 0: outputs of sentence-transformers' Dense, a layer over what is pooled */
    bool dense_bias, dense_tanh;
    char dense_folder[MODEL_FOLDER_BYTES]; /* subfolder of the model directory that holds the Dense weights */
    enum k_dtype dense_dtype; /* dtype of those weights; set with weight_format */
    uint32_t vector_size; /* 0 where pooling is POOLING_NONE */
    enum model_norm final_norm;
    bool tied_embeddings;
    bool q_bias, k_bias, v_bias, o_bias, mlp_bias;
    struct model_layer layers[MODEL_MAX_LAYERS]; /* n_layers of them */

    enum model_rope rope;
    double rope_theta;
    double rope_factor; /* linear, llama3, yarn */
    double rope_low_freq, rope_high_freq; /* llama3: low_freq_factor, high_freq_factor */
    double rope_original_max; /* llama3, yarn: original_max_position_embeddings */
    double rope_beta_fast, rope_beta_slow; /* yarn */
    bool rope_truncate; /* yarn */
    double rope_attention_factor; /* yarn: multiplies cos and sin; 1 elsewhere */

    uint32_t n_eos;
    uint32_t eos[MODEL_MAX_EOS]; /* generation_config.json's, else config.json's */
    int64_t bos; /* -1 if the model has no bos */
};

/* Whether a text must be computed in one step: its KV or its vector depends on all of it. */
static inline bool model_reads_whole(const struct model_desc *desc)
{
    return desc->encoder || (desc->pooling != POOLING_NONE && desc->pooling != POOLING_LAST);
}

/* How the bulk of its matrices is stored; where no checkpoint was looked at, as config.json says. */
static inline struct k_format model_weight_format(const struct model_desc *desc)
{
    return desc->weight_format.bits ? desc->weight_format : k_format_of(desc->dtype);
}

/* NULL: the layer has no block of that kind. */
const struct model_block *model_block_of(const struct model_desc *desc, uint32_t layer, enum model_block_kind kind);

/* The layers that are computed here: [first, end). */
static inline uint32_t model_first_layer(const struct model_desc *desc)
{
    return desc->stage.n_stages ? desc->stage.first_layer : 0;
}
static inline uint32_t model_end_layer(const struct model_desc *desc)
{
    return desc->stage.n_stages ? desc->stage.end_layer : desc->n_layers;
}
/* The first stage has the embedding, the last one the final norm and the head. */
static inline bool model_is_first_stage(const struct model_desc *desc)
{
    return model_first_layer(desc) == 0;
}
static inline bool model_is_last_stage(const struct model_desc *desc)
{
    return model_end_layer(desc) == desc->n_layers;
}

/* How many positions a layer's attention looks back on, its own included; 0 = all. */
uint32_t model_window(const struct model_desc *desc, uint32_t layer);
void model_set_window(struct model_desc *desc, uint32_t layer, uint32_t window);

/* inv_freq[head_dim / 2] by numerics.md §8. */
void model_inv_freq(const struct model_desc *desc, float *inv_freq);

#endif
