/* A case's inputs on the host, in logical order: KV by sequence and position, not by block. Made
 * from the case alone, so that every backend sees the same. */
#ifndef QUIRE_KERNELS_OP_DATA_H
#define QUIRE_KERNELS_OP_DATA_H

#include "kernels/cases/op_table.h"

struct op_data {
    float *x;         /* [T, x_width] what the op reads for each token (logits for sampling) */
    uint32_t x_width;
    float *add;       /* [T, H] residual, or NULL */
    float *vector;    /* norm weight [H], bias [N], inverse frequencies or sinks [Q], or NULL */
    float *bias;      /* of a LayerNorm [H], or NULL */
    float *q_norm, *k_norm;   /* [D], or NULL */
    float *cos_sin;           /* [T, D] */
    unsigned char *weights;   /* [N, K] as stored */
    uint32_t *ids;            /* [T] token ids, positions, blocks copied; [N] rows picked by gather */
    void *k, *v;              /* attention: [sum of the sequences' ends, KV, D] as stored;
                               * a copy: [N, KV, block_tokens, D] */
    uint32_t kv_start[OP_MAX_SEQS]; /* a sequence's first row of k and v */
    struct k_sample_row *rows;      /* [T] */
    void *pool;                     /* what rows point to */
};

/* What an op wrote, in logical order: [T, width] arrays, one after the other. */
#define OP_MAX_OUTPUTS 3
struct op_output {
    uint32_t n_tokens;
    uint32_t n_outputs;
    struct op_array {
        unsigned char *bytes;
        size_t token_bytes; /* of one token's row */
        bool is_f16;        /* else f32 (k_sample_result for sampling) */
    } arrays[OP_MAX_OUTPUTS];
};

void op_data_make(const struct op_case *c, struct op_data *d);
void op_data_free(struct op_data *d);

/* Arrays of the case's outputs, zeroed. */
void op_output_make(const struct op_case *c, struct op_output *out);
void op_output_free(struct op_output *out);

/* Positions of the tokens of the step, in order; NULL-safe for cases without sequences. */
uint32_t op_token_position(const struct op_case *c, uint32_t token, uint32_t *seq);

/* A deterministic stream: splitmix64. */
uint64_t op_random(uint64_t *state);
float op_random_value(uint64_t *state, enum op_values values);

#endif
