/* One forward pass over a step: the order of numerics.md §12, driven by the description alone.
 *
 * Owns the step's buffers, the logits, the workspace, the KV storage in backend memory and its host
 * tier, all allocated by forward_create(); a step allocates nothing. Borrows backend, description and
 * weights. Engine thread only.
 *
 * A step: forward_begin() hands out host arrays cut to the step's size; the caller fills them;
 * forward_run() plans attention and sampling beside them, moves all of it in by one copy and queues every operation up to
 * sampling, and a copy of the results. A backend that computes in host memory, a step at a time, reads the input and writes
 * the results where the host has them: of 256 sequences the two copies were a sixth of the host's instructions a step. The
 * last layer computes, of all tokens, K and V, and the rest for those whose logits are wanted.
 *
 * Where the backend records graphs, a step in which every row decodes one token is filled up to the next recorded
 * size and run as one launch, between the two copies. What fills it up writes no K or V, reads none, is not sampled,
 * and no row sees another: the bits are those of the step as it is. Rows with more masks, biases and counts than a copy
 * has room for make a step that is not recorded, and are sampled in rounds.
 *
 * A stage of a pipeline computes its layers of a step in micro-batches, which go on to the next stage as they are ready, so
 * that stages compute at the same time; rank 0 has the logits of all of them in the end, and samples.
 */
#ifndef QUIRE_ENGINE_FORWARD_H
#define QUIRE_ENGINE_FORWARD_H

#include "base/status.h"
#include "engine/engine.h"
#include "engine/plan.h"
#include "engine/model/weights.h"
#include "memory/kv_cache.h"

#include <stdint.h>

struct forward;

/* What a pass that is one rank's of several needs of the others, who make the same calls; a status that is not QUIRE_OK ends
 * the pass. */
struct forward_group {
    struct k_group stage; /* the ranks of this one's stage: what its backend joins; n_ranks 1: there is no other */
    void *context;
    /* Whether all ranks of the stage have the same digest; an error names one that has not. NULL where the stage has one rank. */
    int (*agree)(void *context, uint64_t digest, struct quire_error *err);
    /* Of stages, what lies in host memory: from this rank to the one of its place in the next stage, and there from the one
     * before. */
    int (*send)(void *context, const void *x, size_t n_bytes, struct quire_error *err);
    int (*receive)(void *context, void *x, size_t n_bytes, struct quire_error *err);
    /* From the last stage's first rank to rank 0. */
    int (*send_back)(void *context, const void *x, size_t n_bytes, struct quire_error *err);
    int (*receive_back)(void *context, void *x, size_t n_bytes, struct quire_error *err);
};

/* group: NULL, or of a rank's description (desc->share), copied. */
int forward_create(struct k_backend *backend, const struct model_desc *desc, const struct engine_plan *plan,
                   const struct weights *weights, const struct forward_group *group, struct forward **out,
                   struct quire_error *err);
/* Before the first step, of ranks once all have loaded: the backend joins its stage's ranks. graphs: and records steps, where
 * it can. */
int forward_ready(struct forward *f, bool graphs, struct quire_error *err);
void forward_destroy(struct forward *f); /* NULL is fine */
uint32_t forward_n_graphs(const struct forward *f);
uint64_t forward_graph_bytes(const struct forward *f); /* of the device's memory, as it was seen to go */

/* Host arrays of one step. The caller's rows of all KV groups use the same table offsets. */
struct forward_batch {
    uint32_t n_tokens, n_rows, n_logits, n_entries; /* n_logits: of a model that gives vectors, how many */
    uint32_t *ids; /* [n_tokens] */
    uint32_t *segments; /* [n_tokens] of an encoder: which text of a pair */
    struct k_pool_row *pool_rows; /* [n_logits] of a model that gives vectors: the tokens of each, by rising token */
    struct k_pool_row
        *vector_rows; /* [n_logits] where something is made of what is pooled: each alone. The pass's own */
    uint32_t *positions; /* [n_tokens] */
    uint32_t *slots[KV_MAX_GROUPS]; /* [n_tokens]: block id * block_tokens + offset */
    uint32_t *tables[KV_MAX_GROUPS]; /* [n_entries] block ids */
    struct k_attn_row *rows; /* [n_rows] */
    uint32_t *logit_tokens; /* [n_logits]: tokens whose logits are wanted, ascending, each once */
    /* Tokens that the step launched last is still sampling: ids[token] is that step's results[row]. */
    struct k_token_source *sources; /* [n_rows] */
    uint32_t n_sources; /* 0 from forward_begin() */
    /* Made by forward_run(): the rows of each group, whose tables follow each other, and of the tokens with logits; plans. */
    struct k_attn_row *group_rows[KV_MAX_GROUPS]; /* [n_rows]; the first are `rows` */
    struct k_attn_row *logit_rows; /* [n_logits] */
    uint32_t n_logit_rows;
    uint8_t *attention_plans; /* one for each group, and one for logit_rows */
    uint64_t attention_plan_stride;
    uint8_t *sample_plan, *sample_parts;
    const struct forward_graph *graph; /* of forward.c: how the step will be run */
};

/* Sizes within the plan's limits. The arrays are the caller's until forward_run(), which must come next, and are used
 * again once the step before the next one was waited for. */
void forward_begin(struct forward *f, uint32_t n_tokens, uint32_t n_rows, uint32_t n_logits, uint32_t n_entries,
                   struct forward_batch *out);

/* Queues the copies between the KV cache and the host tier, in their order, before any later
 * forward_run(). */
int forward_move(struct forward *f, const struct kv_move *moves, uint32_t n_moves, struct quire_error *err);

/* Copies whole blocks within the KV cache, in every group, before any later forward_run(). No block is filled twice. */
int forward_copy(struct forward *f, const struct k_block_pair *pairs, uint32_t n_pairs, struct quire_error *err);

/* rows and *results: [n_logits]. Results are valid once forward_wait(ticket) has returned, until forward_run() of the step
 * after the next one. */
int forward_run(struct forward *f, struct forward_batch *batch, const struct k_sample_row *rows,
                const struct k_sample_result **results, uint64_t *ticket, struct quire_error *err);
/* The same of a model that gives vectors: *vectors is [n_logits, vector_size], of which the caller has set
 * pool_rows and, where a vector is its last token's alone, logit_tokens. */
int forward_run_vectors(struct forward *f, struct forward_batch *batch, const float **vectors, uint64_t *ticket,
                        struct quire_error *err);
/* The same without a draw: the pass of a rank whose rank 0 draws. Returns when it is computed. */
int forward_follow(struct forward *f, struct forward_batch *batch, struct quire_error *err);
int forward_wait(struct forward *f, uint64_t ticket, struct quire_error *err);

#endif
