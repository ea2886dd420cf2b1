/* A model is data: one description, made from config.json, drives one forward pass.
 *
 * What differs between architectures is a field here, never a branch on a name in the forward
 * pass. model_describe() is the only place that knows architecture names.
 */
#ifndef QUIRE_ENGINE_MODEL_H
#define QUIRE_ENGINE_MODEL_H

#include "base/status.h"
#include "kernels/kernels.h"

#include <stdbool.h>
#include <stdint.h>

#define MODEL_MAX_LAYERS 256
#define MODEL_MAX_EOS 16

enum model_rope { MODEL_ROPE_DEFAULT, MODEL_ROPE_LINEAR, MODEL_ROPE_LLAMA3, MODEL_ROPE_YARN };

struct model_desc {
    char architecture[64];   /* "Qwen2ForCausalLM" */
    enum k_dtype dtype;      /* of the weights as config.json says (torch_dtype or dtype) */
    bool dtype_stated;       /* false: it says nothing (dtype is K_F32), and the stored weights decide */
    uint32_t vocab_size, hidden_size, n_layers, n_q_heads, n_kv_heads, head_dim;
    uint32_t intermediate_size;
    uint32_t max_position;   /* max_position_embeddings; times the linear factor; for YaRN, factor × original */
    float rms_eps;
    bool tied_embeddings;
    bool q_bias, k_bias, v_bias, o_bias, mlp_bias;
    bool qk_norm;            /* RMSNorm over each q and k head, before RoPE */
    uint32_t window[MODEL_MAX_LAYERS]; /* 0 = full attention */

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

/* What generation_config.json sets for requests that say nothing. `has_*` false: the API's own default. */
struct model_sampling_defaults {
    bool has_temperature, has_top_p, has_top_k, has_min_p, has_repetition_penalty;
    double temperature, top_p, min_p, repetition_penalty;
    uint32_t top_k;
};

/* Reads config.json and, where present, generation_config.json of a directory. Both config layouts
 * (torch_dtype and rope_scaling; dtype and rope_parameters) are understood. QUIRE_INVALID or
 * QUIRE_UNSUPPORTED with "config.json: field: why". */
int model_describe(const char *model_dir, struct model_desc *out, struct model_sampling_defaults *sampling,
                   struct quire_error *err);

/* The same from texts in memory (generation may be NULL): what the fuzzer calls. */
int model_describe_json(const char *config, size_t n_config, const char *generation, size_t n_generation,
                        struct model_desc *out, struct model_sampling_defaults *sampling, struct quire_error *err);

/* inv_freq[head_dim / 2] by docs/numerics.md §8. */
void model_inv_freq(const struct model_desc *desc, float *inv_freq);

#endif
