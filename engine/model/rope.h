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
    MODEL_ROPE_YARN
};

struct model_rope {
    enum model_rope_kind kind;
    uint32_t dim; /* of a head that it rotates */
    double theta;
    double factor; /* linear, llama3, yarn */
    double low_freq, high_freq; /* llama3: low_freq_factor, high_freq_factor */
    double original_max; /* llama3, yarn: original_max_position_embeddings */
    double beta_fast, beta_slow; /* yarn */
    bool truncate; /* yarn */
    double attention_factor; /* yarn: multiplies cos and sin; 1 elsewhere */
};

/* inv_freq[dim / 2] by numerics.md §8. */
void model_inv_freq(const struct model_rope *rope, float *inv_freq);

#endif
