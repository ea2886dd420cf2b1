/* The architectures that config.json may name, for engine/model/describe.c only: a new one is a row of architecture.c's
 * table. Constant data; any thread. */
#ifndef QUIRE_ENGINE_MODEL_ARCHITECTURE_H
#define QUIRE_ENGINE_MODEL_ARCHITECTURE_H

#include "base/status.h"
#include "engine/model/experts/experts_config.h"
#include "engine/model/layer.h"
#include "engine/model/rope_config.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum window_rule {
    WINDOW_NONE,
    WINDOW_EVERY_LAYER, /* sliding_window, in all of them */
    WINDOW_EVERY_LAYER_OR_NONE, /* likewise, but without the field none */
    WINDOW_UPPER_LAYERS, /* use_sliding_window, and layer_types or max_window_layers */
    WINDOW_REFUSED, /* use_sliding_window must be false */
    WINDOW_LAYER_TYPES, /* use_sliding_window, and layer_types, which must be there then */
    WINDOW_PATTERN, /* layer_types, or all layers but each so-many-th */
};

/* The properties of an architecture, and the defaults of its config class in transformers for absent fields. */
struct architecture {
    const char *name;
    const char *model_type;
    uint32_t default_kv_heads; /* 0 = as many as query heads */
    uint32_t default_head_dim; /* 0 = hidden_size / num_attention_heads */
    uint32_t default_max_position;
    int64_t default_bos, default_eos; /* -1 = none */
    double default_rms_eps; /* 0 = 1e-6 */
    bool qkv_bias; /* always present; o_proj has no bias */
    bool reads_attention_bias; /* attention_bias puts one on q, k, v and o */
    bool attention_bias; /* its default */
    bool no_o_bias; /* it puts none on o */
    bool sinks;
    bool reads_mlp_bias;
    enum model_norm_position norm_place; /* of every block */
    enum model_head_norm head_norm;
    bool reads_head_norm; /* only where use_qk_norm is true */
    enum window_rule window;
    uint32_t default_window; /* sliding_window's; 0 = 4096 */
    const struct model_expert_rules *experts; /* NULL: no mixture of experts */
    uint32_t window_pattern; /* of WINDOW_PATTERN: sliding_window_pattern's default */
    struct model_rope_rule rope;
    bool tied; /* tie_word_embeddings' default */
    bool gemma; /* GELU by tanh, embeddings times the root of hidden_size, norms' weights stored minus 1 */
    double default_query_scalar; /* query_pre_attn_scalar's; 0 = it is not read, nor are the softcaps */
    double default_softcap, default_logit_softcap; /* 0 = none */
    bool fused; /* q, k and v in one matrix, and gate and up */
    bool reads_multipliers; /* embedding_, attention_ and residual_multiplier, and logits_scaling */
    bool encoder;
    bool classifier;
    bool roberta; /* encoders: RoBERTa's tensor names, and its first position is the padding token's id + 1 */
};

/* Finds the architecture by `architectures`, or by `model_type` without them. Errors name the field and all that are
 * supported. */
int architecture_find(const json_t *config, const struct architecture **out, struct quire_error *err);

#endif
