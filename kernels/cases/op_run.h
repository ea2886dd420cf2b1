/* Runs a case on a backend through kernels.h alone, in a chosen cut and block layout. */
#ifndef QUIRE_KERNELS_OP_RUN_H
#define QUIRE_KERNELS_OP_RUN_H

#include "kernels/cases/op_data.h"

#define OP_EPS 1e-6f

struct op_variant {
    uint32_t chunk;        /* tokens a call (of each sequence); 0 = all in one */
    uint32_t block_tokens; /* 0 = the case's */
    uint32_t table_seed;   /* which physical blocks the tables name */
    bool as_checkpoint;    /* weights as a file has them, row after row from a cache line on, and not
                            * misaligned and apart, which finds more errors */
    uint32_t n_threads;    /* of the backend, for its workspace; 0 = at most 4 */
};

/* Binds the inputs to backend memory, with guards around every buffer. */
struct op_binding;
struct op_binding *op_bind(struct k_backend *b, const struct op_case *c, const struct op_data *d,
                           const struct op_variant *variant);
/* One call of the operation per chunk, in one step. */
int op_call(struct op_binding *binding, struct quire_error *err);
/* The same within the step that the caller began; returns when the results are there. */
int op_call_in_step(struct op_binding *binding, struct quire_error *err);
/* The operation alone, once more and without waiting, with the rows and the plan that a call has made:
 * on a device many can be queued, or recorded. Not for variants in chunks. */
int op_queue(struct op_binding *binding, struct quire_error *err);
/* What the operation changes in place, as it was at first. */
int op_rewind(struct op_binding *binding, struct quire_error *err);
/* Copies the outputs out. False, with a line on stdout, when a guard, an input or a cache slot that
 * is not the op's changed. */
bool op_fetch(struct op_binding *binding, struct op_output *out);
void op_release(struct op_binding *binding);

/* All of it. False with a line on stdout when something fails. */
bool op_run(struct k_backend *b, const struct op_case *c, const struct op_data *d, const struct op_variant *variant,
            struct op_output *out);

#endif
