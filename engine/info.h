/* Constant facts about an open engine, or about one that would be opened. Any thread; valid until engine_close(). */
#ifndef QUIRE_ENGINE_INFO_H
#define QUIRE_ENGINE_INFO_H

#include "base/status.h"
#include "engine/identity.h"

#include <stdbool.h>
#include <stdint.h>

struct engine;
struct engine_options;          /* engine/options.h */
struct engine_plan;             /* engine/plan.h */
struct model_desc;              /* engine/model/model.h */
struct sampling_defaults;       /* request/spec.h */

struct engine_info {
    const struct model_desc *desc;
    const struct sampling_defaults *sampling;
    const struct engine_plan *plan;
    /* The values that most callers need: */
    uint32_t vocab_size, n_eos;
    const uint32_t *eos; /* [n_eos] */
    uint32_t max_model_len, max_num_seqs, block_tokens, max_num_batched_tokens, max_queued_requests;
    uint32_t vector_size; /* size of a prompt's vector; 0: the model generates text and returns no vectors */
    bool vector_is_scores; /* the vector holds a classifier's scores of a pair of texts; otherwise an embedding */
    uint32_t n_blocks, n_host_blocks; /* of the first KV group; 0 if it does not exist */
    const char *device_why; /* the selected backend and the reason */
    const char *gemm_library; /* NULL, or the library that computes GEMMs of many tokens, in which case answers are
                               * not invariant */
    char gemms[96]; /* both as text for users */
    const char *placement; /* text: number of threads, their CPUs, and the location of memory */
    uint32_t n_graphs; /* recorded steps */
    uint64_t graph_bytes; /* GPU memory that they use; engine_plan_graph_reserve_bytes() were reserved */
    bool prefix_caching;
    const char *cache_dtype; /* dtype of the KV cache: "float16" */
    const char *draft_method; /* source of drafts for requests that bring no draft: "none", "ngram", "suffix" */
    uint32_t num_speculative_tokens; /* drafts of a row, at most */
    double open_seconds;
    struct engine_identity identity; /* everything that the answers' bits depend on */
};
const struct engine_info *engine_info(const struct engine *e);

/* Reports what engine_open() would do with these options, without arenas, copies or a thread. look is called once
 * with the findings, as far as they got (no architecture, no device_why, no plan's device). The status is the one
 * that engine_open() would return at that point. On a GPU this opens the driver and assumes its share of memory. */
int engine_examine(const struct engine_options *options, void (*look)(void *context, const struct engine_info *info),
                   void *context, struct quire_error *err);

#endif
