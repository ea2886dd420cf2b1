/* What config.json and the files next to it say about a model: a constant once it is described.
 *
 * model_describe() allocates it, and model_config_free() releases it with its arrays. Everything else borrows it as
 * const, so any thread may read it. facts.h has the facts of the weight files, and shard.h
 * one rank's part.
 *
 * Differences between architectures are fields here, never branches on a name in the forward pass. Only
 * architectures/architecture.c knows the names of architectures. */
#ifndef QUIRE_ENGINE_MODEL_CONFIG_H
#define QUIRE_ENGINE_MODEL_CONFIG_H

#include "base/status.h"
#include "engine/model/layer.h"
#include "engine/model/outputs.h"
#include "engine/model/quantization/quantization.h"
#include "engine/model/rope.h"
#include "kernels/format.h"

#include <stdbool.h>
#include <stdint.h>

#define MODEL_MAX_LAYERS 256
#define MODEL_MAX_EOS 16

/* An encoder: its attention sees the whole text, and no head makes logits of tokens. Its positions and segments are
 * learned. */
struct model_encoder {
    uint32_t n_positions; /* rows of its table; a text's first token has row first_position */
    uint32_t first_position;
    uint32_t n_segments;
    bool roberta; /* its tensors are called as RoBERTa's are */
};

/* Factors on the way from the embeddings to the logits; 0: none. */
struct model_factors {
    float embedding; /* of each token's embedding */
    float residual;  /* of what each block adds to x */
    float logits;
    float logit_softcap; /* then logits become softcap tanh(logits / softcap) */
};

/* Attention sinks and a window in place of full attention: texts may be longer than max_position. */
struct model_streaming {
    uint32_t n_sinks, window; /* window 0: off */
};

struct model_tokens {
    uint32_t n_eos;
    uint32_t eos[MODEL_MAX_EOS]; /* generation_config.json's, else config.json's */
    int64_t bos; /* -1 if the model has no bos */
};

struct model_config {
    char architecture[64]; /* "Qwen2ForCausalLM" */
    char multimodal[64];   /* "Gemma3ForConditionalGeneration", of which this is the text part; "" of a text model */
    enum k_dtype dtype;    /* dtype of the weights (torch_dtype or dtype); facts.h has what is stored */
    bool dtype_stated;     /* false: config.json has no dtype, and dtype is K_F32 */
    uint32_t vocab_size, hidden_size, n_layers;
    uint32_t n_next_layers; /* layers behind the model's in the files: they guess tokens, and are not computed */
    uint32_t max_position;  /* max_position_embeddings; times the linear factor; for YaRN, factor × original */
    float rms_eps;          /* of either norm */
    enum model_norm final_norm;
    bool fused; /* the files have q, k and v in one matrix, and gate and up */
    bool norms_add_one; /* the files have the norms' weights minus 1 */
    struct model_factors factors;
    bool tied_embeddings;
    struct model_encoder *encoder; /* owned; NULL: a decoder */
    struct model_layer *layers; /* [n_layers], owned */
    struct model_rope *ropes;   /* [n_ropes], owned; at most MODEL_MAX_ROPES */
    uint32_t n_ropes;
    struct model_streaming streaming;
    struct model_outputs outputs;
    struct model_tokens tokens;
    struct quantization *quantization; /* as config.json says; owned */
};

void model_config_free(struct model_config *config); /* NULL is fine */

/* All zero: a decoder. */
static inline struct model_encoder model_encoder_of(const struct model_config *config)
{
    return config->encoder ? *config->encoder : (struct model_encoder){0};
}

/* Gives each of n_layers the blocks of *layer, and the model one rope. It has neither yet. QUIRE_NO_MEMORY. */
int model_make_layers(struct model_config *config, const struct model_layer *layer, const struct model_rope *rope,
                      struct quire_error *err);

/* Attention over all positions, then an MLP: what the decoders here have in common. Sizes remain to be set. */
struct model_layer model_decoder_layer(enum model_norm_position place, enum model_head_norm head_norm);
/* Likewise an encoder's: LayerNorm of what a block adds to its input, attention over the whole text, GELU. */
struct model_layer model_encoder_layer(void);

/* Gives the layers with full attention a window and sinks. A layer with a window of its own keeps it. QUIRE_INVALID if
 * the two do not fit the model's positions or no layer has full attention; QUIRE_UNSUPPORTED if the model returns
 * vectors. Messages name --attention-sinks and --attention-window. */
int model_stream(struct model_config *config, uint32_t n_sinks, uint32_t window, struct quire_error *err);

/* How far apart two positions can be that attend to each other, among texts of max_model_len tokens. */
static inline uint32_t model_reach(const struct model_config *config, uint32_t max_model_len)
{
    const struct model_streaming *s = &config->streaming;
    return s->window && s->window + s->n_sinks < max_model_len ? s->window + s->n_sinks : max_model_len;
}

/* 0: the layer's attention sees all positions. */
void model_set_window(struct model_config *config, uint32_t layer, uint32_t window);

#endif
