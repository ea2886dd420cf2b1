/* Rotary position embeddings. A model has a list of them, and each attention block names one. Pure; any thread. */
#ifndef QUIRE_ENGINE_MODEL_ROPE_H
#define QUIRE_ENGINE_MODEL_ROPE_H

#include <stdbool.h>
#include <stdint.h>

#define MODEL_MAX_ROPES 4

enum model_rope_kind {
    MODEL_ROPE_NONE, /* frequencies of 0, which change nothing */
    MODEL_ROPE_DEFAULT,
    MODEL_ROPE_LINEAR,
    MODEL_ROPE_LLAMA3,
    MODEL_ROPE_YARN,
    MODEL_ROPE_LONG,
    MODEL_ROPE_DYNAMIC /* NTK: theta grows with the longest text */
};

#define MODEL_ROPE_MAX_FREQS 128

struct model_rope {
    enum model_rope_kind kind;
    uint32_t dim; /* of a head that it rotates: its first numbers */
    double theta;
    double factor; /* linear, llama3, yarn, dynamic */
    double low_freq, high_freq; /* llama3: low_freq_factor, high_freq_factor */
    double original_max; /* llama3, yarn, dynamic: original_max_position_embeddings */
    double longest; /* dynamic: the longest text, at least original_max; model_rope_choose() sets it */
    double beta_fast, beta_slow; /* yarn */
    bool truncate; /* yarn */
    double attention_factor; /* yarn, long: multiplies cos and sin; 1 elsewhere */
    /* long: each frequency is divided by a factor of its own. The engine takes `long_factors` if a text may be longer than
     * original_max, else `short_factors`, for all texts. */
    bool is_long;
    float short_factors[MODEL_ROPE_MAX_FREQS], long_factors[MODEL_ROPE_MAX_FREQS];
};

/* inv_freq[dim / 2] by numerics.md §8. */
void model_inv_freq(const struct model_rope *rope, float *inv_freq);

/* Chooses the factors or the theta of texts of up to max_model_len tokens. */
void model_rope_choose(struct model_rope *rope, uint32_t max_model_len);

#endif
