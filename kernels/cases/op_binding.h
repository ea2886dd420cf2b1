/* A case's arrays in a backend's memory, between op_bind() and op_release(). Shared by op_run.c, which owns them, and
 * op_calls.c, which calls the operations. The thread of the backend. */
#ifndef QUIRE_KERNELS_CASES_OP_BINDING_H
#define QUIRE_KERNELS_CASES_OP_BINDING_H

#include "kernels/args/attention.h"
#include "kernels/args/kv_copy.h"
#include "kernels/cases/op_run.h"
#include "kernels/cases/op_sample.h"

#define OP_MAX_BUFFERS 14

struct op_buffer {
    unsigned char *base; /* guard, data, guard */
    uint64_t bytes;
    bool is_host;     /* memory from alloc_host() */
    const void *host; /* the expected contents after the call; NULL: an output */
};

/* The KV cache of an operation, and how attention reads it. */
struct op_cache {
    struct k_kv_shape kv;
    struct k_kv_layer layer; /* layer that the op writes or reads; the destination of a block copy */
    struct k_kv_layer source;     /* block copy only */
    struct k_block_pair *pairs;   /* [T], block copy only */
    uint64_t kv_bytes, n_blocks;
    uint32_t *host_slots;  /* [all positions of all sequences] */
    uint32_t slot_start[OP_MAX_SEQS];
    uint32_t *token_slots; /* [T] */
    uint32_t *host_tables; /* block tables of the sequences, concatenated */
    uint32_t table_start[OP_MAX_SEQS];
    unsigned char *host_k, *host_v; /* the cache before the op */
    struct k_attn_row *rows, *rows_dev;
    uint32_t n_rows;       /* of the last call */
    void *plan, *plan_dev; /* of these rows, on the host, and its device copy */
    uint64_t plan_bytes;
};

/* The inputs and outputs of operations on experts besides x, ids and out. */
struct op_moe_binding {
    float *router, *correction, *gate, *weights, *shared, *shared_weights;
    uint32_t *experts_out;
    float *shared_out;
};

struct op_binding {
    struct k_backend *b;
    const struct op_case *c;
    const struct op_data *d;
    struct op_variant variant;
    struct op_buffer buffers[OP_MAX_BUFFERS];
    uint32_t n_buffers;
    uint32_t n_tokens;
    int status; /* the first failure, and err says why */
    struct quire_error err;
    struct k_weight *weight;
    unsigned char *weight_memory;
    float *x, *add, *vector, *bias, *q_norm, *k_norm, *cos_sin, *sink_cos_sin, *sink_q, *out, *gate_up;
    uint32_t *ids, *slots, *tables;
    struct k_pool_row *texts; /* pooling only */
    void *workspace;
    struct op_cache *cache;     /* zeros if the op has no KV cache; follows this struct */
    struct op_sampler *sampler; /* zeros if the op does not sample; follows the cache */
    struct op_moe_binding *moe; /* zeros if the op has no experts; follows the sampler */
};

/* By operation: calls it on tokens [t, t + count). Attention: on the rows for which the last plan was made. */
extern int (*const op_calls[])(struct op_binding *n, uint64_t t, uint32_t count, struct quire_error *err);

#endif
