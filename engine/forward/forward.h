/* One forward pass over a step: the order of docs/numerics.md §12, driven by the description alone.
 *
 * Owns the step's buffers, the logits, the workspace, the KV storage in backend memory and its host
 * tier, all allocated by forward_create(); a step allocates nothing. Borrows backend, description and
 * weights. Engine thread only.
 *
 * A step: forward_begin() hands out host arrays cut to the step's size; the caller fills them;
 * forward_run() moves them in and queues every operation up to sampling. The last layer computes, of
 * all tokens, K and V, and the rest for those whose logits are wanted.
 *
 * Where the backend records graphs, a step in which every row decodes one token is filled up to the next recorded
 * size and run as one launch, between the copies and the sampling. What fills it up writes no K or V, reads none,
 * and no row sees another: the bits are those of the step as it is.
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

/* graphs: record steps, where the backend can. */
int forward_create(struct k_backend *backend, const struct model_desc *desc, const struct engine_plan *plan,
                   const struct weights *weights, bool graphs, struct forward **out, struct quire_error *err);
void forward_destroy(struct forward *f); /* NULL is fine */
uint32_t forward_n_graphs(const struct forward *f);

/* Host arrays of one step. Rows of all KV groups use the same table offsets. */
struct forward_batch {
    uint32_t n_tokens, n_rows, n_logits, n_entries;
    uint32_t *ids;                    /* [n_tokens] */
    uint32_t *positions;              /* [n_tokens] */
    uint32_t *slots[KV_MAX_GROUPS];   /* [n_tokens]: block id * block_tokens + offset */
    uint32_t *tables[KV_MAX_GROUPS];  /* [n_entries] block ids */
    struct k_attn_row *rows;          /* [n_rows] */
    uint32_t *logit_tokens;           /* [n_logits]: tokens whose logits are wanted, ascending, each once */
    /* Tokens that the step launched last is still sampling: ids[token] is that step's results[row]. */
    struct k_token_source *sources;   /* [n_rows] */
    uint32_t n_sources;               /* 0 from forward_begin() */
    /* Their attention rows, made by forward_run(). */
    struct k_attn_row *logit_rows;    /* [n_logits] */
    uint32_t n_logit_rows;
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

/* rows and results: [n_logits]. Results are valid once forward_wait(ticket) has returned. */
int forward_run(struct forward *f, struct forward_batch *batch, const struct k_sample_row *rows,
                struct k_sample_result *results, uint64_t *ticket, struct quire_error *err);
int forward_wait(struct forward *f, uint64_t ticket, struct quire_error *err);

#endif
