/* A case's inputs on the host, in logical order: KV by sequence and position, not by block. The case alone
 * determines them, so every backend gets the same inputs. The functions own no state; any thread. */
#ifndef QUIRE_KERNELS_OP_DATA_H
#define QUIRE_KERNELS_OP_DATA_H

#include "kernels/args/sample.h"
#include "kernels/cases/op_table.h"

struct op_moe_data { /* NULL: the operation does not read it */
    float *router; /* [E, H] */
    float *correction; /* [E] */
    float *gate; /* [H] of the shared expert */
    float *weights; /* [T, C] */
    float *shared, *shared_weights; /* [T, H], [T] */
};

struct op_data {
    float *x;         /* [T, x_width] input of the op for each token (logits for sampling) */
    uint32_t x_width;
    float *add;       /* [T, H] residual, or NULL */
    float *vector;    /* norm weight [H], bias [N], inverse frequencies or sinks [Q], or NULL */
    float *bias;      /* LayerNorm's bias [H], or NULL */
    float *q_norm, *k_norm;   /* [D], or NULL */
    float *cos_sin;           /* [T, D] */
    float *sink_cos_sin;      /* [T, D], or NULL */
    float *sink_q;            /* attention: [T, Q, D], or NULL */
    unsigned char *weights;   /* [N, K] as stored, if they are plain */
    struct k_weight_view parts[K_WEIGHT_MAX_PARTS]; /* if they are quantized; consecutive rows */
    struct op_moe_data *moe; /* owned; NULL: no operation on experts */
    uint32_t *ids;            /* [T] token ids, positions, blocks copied; [N] rows picked by gather; [T, C] experts */
    void *k, *v;              /* attention: [sum of the sequences' ends, KV, D] as stored; a copy: [N] blocks */
    float *k_scales, *v_scales; /* attention on an 8-bit cache: [sum of the sequences' ends, KV] */
    uint32_t kv_start[OP_MAX_SEQS]; /* a sequence's first row of k and v */
    struct k_sample_row *rows;      /* [T] */
    void *pool;                     /* memory to which rows point */
};

/* The outputs of an op in logical order: [T, width] arrays, one after the other. */
#define OP_MAX_OUTPUTS 4
struct op_output {
    uint32_t n_tokens;
    uint32_t n_outputs;
    struct op_array {
        unsigned char *bytes;
        size_t token_bytes; /* bytes of one token's row */
        /* 4: f32; 2: f16; 1: bytes, first of a head's rows and then of their scales; otherwise a k_sample_result. */
        uint32_t element_bytes;
    } arrays[OP_MAX_OUTPUTS];
};

/* Returns QUIRE_NO_MEMORY, and then *d is empty. */
int op_data_make(const struct op_case *c, struct op_data *d, struct quire_error *err);
void op_data_free(struct op_data *d);

/* Allocates the arrays of the case's outputs, with zeros. Returns QUIRE_NO_MEMORY, and then *out is empty. */
int op_output_make(const struct op_case *c, struct op_output *out, struct quire_error *err);
void op_output_free(struct op_output *out);

/* Returns the position of a token of the step and sets *seq to the index of its sequence. The case must have
 * sequences. */
uint32_t op_token_position(const struct op_case *c, uint32_t token, uint32_t *seq);

/* op_quant.c: makes the parts of a quantized weight. Returns false if memory is out; op_quant_free() frees what there is. */
bool op_quant_make(const struct op_case *c, struct op_data *d, uint64_t *state);
void op_quant_free(struct op_data *d);

/* op_moe.c: makes the inputs of operations on experts, but for their matrices: those are one below the other in `weights` or
 * in parts[0]. Returns false if memory is out; op_moe_free() frees what there is. */
bool op_moe_make(const struct op_case *c, struct op_data *d, uint64_t *state);
void op_moe_free(struct op_data *d);
/* One expert's rows of a view of all. */
struct k_weight_view op_expert_view(const struct op_case *c, const struct k_weight_view *all, uint32_t expert);
/* The GEMM of one choice as a case of its own, whose data are parts of d. */
void op_moe_choice(const struct op_case *c, const struct op_data *d, uint64_t choice, struct op_case *one,
                   struct op_data *of);

/* op_kv.c: make the rows of an 8-bit cache, and the scales of n rows. NULL: memory is out. */
void *op_kv_bytes(uint64_t n, enum k_dtype kind, uint64_t *state);
float *op_kv_scales(uint64_t n, enum k_dtype kind, uint64_t *state);

/* The next value of a deterministic stream: splitmix64. */
uint64_t op_random(uint64_t *state);
float op_random_value(uint64_t *state, enum op_values values);

#endif
