/* A model is data: one description, made from config.json, drives one forward pass.
 *
 * What differs between architectures is a field here, never a branch on a name in the forward
 * pass. model_describe() is the only place that knows architecture names.
 */
#ifndef QUIRE_ENGINE_MODEL_H
#define QUIRE_ENGINE_MODEL_H

#include "base/status.h"
#include "kernels/kernels.h"
#include "request/spec.h"

#include <stdbool.h>
#include <stdint.h>

#define MODEL_MAX_LAYERS 256
#define MODEL_MAX_EOS 16

/* ---- layers ---------------------------------------------------------------------------------------- */

/* A layer is a list of blocks; each adds something to the residual stream x. */
enum model_block_kind { BLOCK_ATTENTION, BLOCK_MLP };
enum model_norm { NORM_RMS };
enum model_norm_place {
    NORM_PRE,  /* x += block(norm(x)) */
    NORM_POST, /* x += norm(block(x)); all blocks of a model, or none */
};
enum model_mask {
    MASK_CAUSAL, /* all positions up to a token's own */
    MASK_WINDOW, /* the last `window` of them */
};
enum model_head_norm {
    HEAD_NORM_NONE,
    HEAD_NORM_EACH, /* RMSNorm over each q and k head, before RoPE */
    HEAD_NORM_ALL,  /* over all q heads of a token, and all k heads */
};
enum model_activation { ACTIVATION_NONE, ACTIVATION_SILU_MUL };

struct model_block {
    enum model_block_kind kind;
    enum model_norm norm;
    enum model_norm_place place;
    /* attention */
    enum model_mask mask;
    uint32_t window; /* of MASK_WINDOW */
    enum model_head_norm head_norm;
    /* MLP */
    enum model_activation activation; /* of gate and up */
};

#define MODEL_MAX_BLOCKS 2
struct model_layer {
    uint32_t n_blocks;
    struct model_block blocks[MODEL_MAX_BLOCKS];
};

/* ---- the model ------------------------------------------------------------------------------------- */

enum model_rope { MODEL_ROPE_DEFAULT, MODEL_ROPE_LINEAR, MODEL_ROPE_LLAMA3, MODEL_ROPE_YARN };

struct model_desc {
    char architecture[64];   /* "Qwen2ForCausalLM" */
    enum k_dtype dtype;      /* of the weights as config.json says (torch_dtype or dtype) */
    bool dtype_stated;       /* false: it says nothing (dtype is K_F32), and the stored weights decide */
    uint32_t vocab_size, hidden_size, n_layers, n_q_heads, n_kv_heads, head_dim;
    uint32_t intermediate_size;
    uint32_t max_position;   /* max_position_embeddings; times the linear factor; for YaRN, factor × original */
    float rms_eps;
    enum model_norm final_norm;
    bool tied_embeddings;
    bool q_bias, k_bias, v_bias, o_bias, mlp_bias;
    struct model_layer layers[MODEL_MAX_LAYERS]; /* n_layers of them */

    enum model_rope rope;
    double rope_theta;
    double rope_factor;                /* linear, llama3, yarn */
    double rope_low_freq, rope_high_freq; /* llama3: low_freq_factor, high_freq_factor */
    double rope_original_max;          /* llama3, yarn: original_max_position_embeddings */
    double rope_beta_fast, rope_beta_slow; /* yarn */
    bool rope_truncate;                /* yarn */
    double rope_attention_factor;      /* yarn: multiplies cos and sin; 1 elsewhere */

    uint32_t n_eos;
    uint32_t eos[MODEL_MAX_EOS];       /* generation_config.json's, else config.json's */
    int64_t bos;                       /* -1 when there is none */
};

/* Reads config.json and, where present, generation_config.json of a directory. Both config layouts
 * (torch_dtype and rope_scaling; dtype and rope_parameters) are understood. QUIRE_INVALID or
 * QUIRE_UNSUPPORTED with "config.json: field: why". */
int model_describe(const char *model_dir, struct model_desc *out, struct sampling_defaults *sampling,
                   struct quire_error *err);

/* The same from texts in memory (generation may be NULL): what the fuzzer calls. */
int model_describe_json(const char *config, size_t n_config, const char *generation, size_t n_generation,
                        struct model_desc *out, struct sampling_defaults *sampling, struct quire_error *err);

/* Gives each of n_layers attention over all positions, then an MLP: what the architectures here have in common. */
void model_make_layers(struct model_desc *desc, enum model_norm_place place, enum model_head_norm head_norm);

/* NULL: the layer has no block of that kind. */
const struct model_block *model_block_of(const struct model_desc *desc, uint32_t layer, enum model_block_kind kind);

/* How many positions a layer's attention looks back on, its own included; 0 = all. */
uint32_t model_window(const struct model_desc *desc, uint32_t layer);
void model_set_window(struct model_desc *desc, uint32_t layer, uint32_t window);

/* inv_freq[head_dim / 2] by docs/numerics.md §8. */
void model_inv_freq(const struct model_desc *desc, float *inv_freq);

#endif
