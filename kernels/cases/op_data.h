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
    unsigned char *weights;   /* [N, K] as stored, where they are plain */
    struct k_weight_view parts[K_WEIGHT_MAX_PARTS]; /* where they are quantized; row after row */
    uint32_t *ids;            /* [T] token ids, positions, blocks copied; [N] rows picked by gather */
    void *k, *v;              /* attention: [sum of the sequences' ends, KV, D] as stored; a copy: [N] blocks */
    float *k_scales, *v_scales; /* attention on 8 bits: [sum of the sequences' ends, KV] */
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
        uint32_t
            element_bytes; /* 4: f32; 2: f16; 1: bytes, of a head's rows and then their scales; else a k_sample_result */
    } arrays[OP_MAX_OUTPUTS];
};

void op_data_make(const struct op_case *c, struct op_data *d);
void op_data_free(struct op_data *d);

/* Arrays of the case's outputs, zeroed. */
void op_output_make(const struct op_case *c, struct op_output *out);
void op_output_free(struct op_output *out);

/* Positions of the tokens of the step, in order; NULL-safe for cases without sequences. */
uint32_t op_token_position(const struct op_case *c, uint32_t token, uint32_t *seq);

/* op_quant.c: the parts of a quantized weight. */
void op_quant_make(const struct op_case *c, struct op_data *d, uint64_t *state);
void op_quant_free(struct op_data *d);

/* op_kv.c: rows of a cache in 8 bits, and the scales of n rows. */
void *op_kv_bytes(uint64_t n, enum k_dtype kind, uint64_t *state);
float *op_kv_scales(uint64_t n, enum k_dtype kind, uint64_t *state);

/* A deterministic stream: splitmix64. */
uint64_t op_random(uint64_t *state);
float op_random_value(uint64_t *state, enum op_values values);

#endif
