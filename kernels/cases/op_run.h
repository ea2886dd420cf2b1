/* Runs a case on a backend through the interface (kernels/backend.h) only, with a chosen chunk size and block layout.
 * The thread that owns the backend. */
#ifndef QUIRE_KERNELS_OP_RUN_H
#define QUIRE_KERNELS_OP_RUN_H

#include "kernels/cases/op_data.h"

#define OP_EPS 1e-6f

struct op_variant {
    uint32_t chunk;        /* tokens per call (of each sequence); 0: all in one call */
    uint32_t block_tokens; /* 0: the case's */
    uint32_t table_seed;   /* seed for the physical blocks in the tables */
    /* Weights in the layout of a file: consecutive rows from a cache line on. Otherwise they are misaligned and apart,
     * which finds more errors. */
    bool as_checkpoint;
    uint32_t n_threads; /* the backend's threads, for its workspace; 0: at most 4 */
};

/* Binds the inputs to backend memory, with guards around every buffer. On a failure *out is NULL. */
struct op_binding;
int op_bind(struct k_backend *b, const struct op_case *c, const struct op_data *d, const struct op_variant *variant,
            struct op_binding **out, struct quire_error *err);
/* Makes one call of the operation per chunk, in one step. */
int op_call(struct op_binding *binding, struct quire_error *err);
/* The same within the step that the caller began; returns when the results are available. */
int op_call_in_step(struct op_binding *binding, struct quire_error *err);
/* Queues the operation once more, without waiting, with the rows and the plan of an earlier call: on a device many
 * can be queued or recorded. Not for variants with chunks. */
int op_queue(struct op_binding *binding, struct quire_error *err);
/* Restores the data that the operation changes in place. */
int op_rewind(struct op_binding *binding, struct quire_error *err);
/* Copies the outputs out; the caller frees them. Returns QUIRE_INTERNAL if a guard, an input or a cache slot that the op
 * must not write has changed. On a failure *out is empty. */
int op_fetch(struct op_binding *binding, struct op_output *out, struct quire_error *err);
void op_release(struct op_binding *binding); /* NULL is allowed */

/* Does all of the above. On a failure *out is empty. */
int op_run(struct k_backend *b, const struct op_case *c, const struct op_data *d, const struct op_variant *variant,
           struct op_output *out, struct quire_error *err);

#endif
