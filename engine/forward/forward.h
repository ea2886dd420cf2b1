/* One forward pass over a step: the order of numerics.md §12, driven by the description alone.
 *
 * Owns the step's buffers, the logits, the workspace, the KV storage in backend memory and its host
 * tier, all allocated by forward_create(); a step allocates nothing. Borrows backend, description and
 * weights. Engine thread only.
 *
 * A step works as follows. forward_begin() hands out host arrays of the step's size, and the caller fills them.
 * forward_run() plans attention and sampling, moves the input to the device in one copy, queues every operation up
 * to sampling, and queues a copy of the results. A backend that computes in host memory, one step at a time, reads
 * the input and writes the results in the host's arrays. With 256 sequences the two copies were a sixth of the
 * host's instructions per step. The last layer computes K and V for all tokens, and the rest only for tokens whose
 * logits are needed.
 *
 * If the backend records graphs, a step in which every row decodes one token is padded to the next recorded size and
 * runs as one launch between the two copies. Padding rows write and read no K or V and are not sampled, and no row
 * depends on another. The bits are therefore those of the unpadded step. If the rows need more masks, biases and
 * counts than one copy holds, the step is not recorded and is sampled in rounds.
 *
 * A pipeline stage computes its layers of a step in micro-batches and passes each to the next stage when it is
 * ready, so that stages compute at the same time. At the end rank 0 holds the logits of all micro-batches and
 * samples.
 */
#ifndef QUIRE_ENGINE_FORWARD_H
#define QUIRE_ENGINE_FORWARD_H

#include "base/status.h"
#include "engine/forward/batch.h"
#include "engine/plan.h"
#include "engine/model/weights.h"
#include "kernels/group.h"
#include "engine/model/model.h"

#include <stdint.h>

struct forward;

/* The operations of the process group that a rank's pass needs. All ranks make the same calls. A status other than
 * QUIRE_OK ends the pass. */
struct forward_group {
    struct k_group stage; /* the ranks of this one's stage: what its backend joins; n_ranks 1: there is no other */
    void *context;
    /* Checks that all ranks of the stage have the same digest; err names a rank that differs. NULL if the stage has
     * one rank. */
    int (*agree)(void *context, uint64_t digest, struct quire_error *err);
    /* Between stages: moves data in host memory from this rank to the rank at the same position in the next stage,
     * and receives it there from the previous stage. */
    int (*send)(void *context, const void *x, size_t n_bytes, struct quire_error *err);
    int (*receive)(void *context, void *x, size_t n_bytes, struct quire_error *err);
    /* From the last stage's first rank to rank 0. */
    int (*send_back)(void *context, const void *x, size_t n_bytes, struct quire_error *err);
    int (*receive_back)(void *context, void *x, size_t n_bytes, struct quire_error *err);
};

/* engine_observers.logits: fn NULL: nobody looks on. */
struct forward_logits_watch {
    void (*fn)(void *context, uint32_t position, int64_t forced, const float *row, uint32_t n_vocab);
    void *context;
};

/* group: NULL, or of a rank's description (desc->share), copied. */
int forward_create(struct k_backend *backend, const struct model_desc *desc, const struct engine_plan *plan,
                   const struct weights *weights, const struct forward_group *group, struct forward **out,
                   struct quire_error *err);
/* Before the first step, of ranks once all have loaded: the backend joins its stage's ranks. graphs: and records steps, where
 * it can. */
int forward_ready(struct forward *f, bool graphs, struct quire_error *err);
/* Before the first step. Calls watch with every row of logits before it is sampled. QUIRE_UNSUPPORTED where the host does
 * not read the backend's memory. */
int forward_watch_logits(struct forward *f, struct forward_logits_watch watch, struct quire_error *err);
void forward_destroy(struct forward *f); /* NULL is fine */
uint32_t forward_n_graphs(const struct forward *f);
uint64_t forward_graph_bytes(const struct forward *f); /* device memory that disappeared while steps were recorded */

/* Hands out the arrays of a step (batch.h) with sizes within the plan's limits. The arrays belong to the caller until forward_run(), which must be the next call.
 * They are reused once the step before the next one has completed. */
void forward_begin(struct forward *f, uint32_t n_tokens, uint32_t n_rows, uint32_t n_outputs, uint32_t n_entries,
                   struct forward_batch *out);

/* Queues the copies between the KV cache and the host tier, in their order, before any later
 * forward_run(). */
int forward_move(struct forward *f, const struct kv_move *moves, uint32_t n_moves, struct quire_error *err);

/* Copies whole blocks within the KV cache, in every group, before any later forward_run(). No block is filled twice. */
int forward_copy(struct forward *f, const struct k_block_pair *pairs, uint32_t n_pairs, struct quire_error *err);

/* rows and *results: [n_outputs]. Results are valid once forward_wait(ticket) has returned, until forward_run() of the
 * step after the next one. */
int forward_run(struct forward *f, struct forward_batch *batch, const struct k_sample_row *rows,
                const struct k_sample_result **results, uint64_t *ticket, struct quire_error *err);
/* The same of a model that gives vectors: *vectors is [n_outputs, vector_size], of which the caller has set
 * pool_rows and, where a vector is its last token's alone, output_tokens. */
int forward_run_vectors(struct forward *f, struct forward_batch *batch, const float **vectors, uint64_t *ticket,
                        struct quire_error *err);
/* The same without a draw: the pass of a rank whose rank 0 draws. Returns when it is computed. */
int forward_follow(struct forward *f, struct forward_batch *batch, struct quire_error *err);
int forward_wait(struct forward *f, uint64_t ticket, struct quire_error *err);

/* Returns the number of experts of a layer, at most `most`, and 0 if the model has none or a device computes. tokens:
 * [most], of each expert the tokens that it computed in all of this rank's layers. *imbalance: the busiest expert's tokens as a
 * multiple of the mean, of the layer where this is largest. */
uint32_t forward_expert_load(const struct forward *f, uint64_t *tokens, uint32_t most, double *imbalance);

#endif
