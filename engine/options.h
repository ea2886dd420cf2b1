/* The options of engine_open(). Strings are borrowed until engine_open() returns. */
#ifndef QUIRE_ENGINE_OPTIONS_H
#define QUIRE_ENGINE_OPTIONS_H

#include "base/hash.h"
#include "scheduler/cost.h"
#include "scheduler/policy.h"
#include "speculation/config.h"

#include <stdbool.h>
#include <stdint.h>

struct engine_grammars; /* engine/grammars.h */
struct engine_watch; /* engine/watch.h: observes the scheduler */

/* How steps are made: the scheduler's configuration, and drafts. The fields that struct
 * sched_config has, too, have its meaning and its defaults. */
struct step_options {
    const char *scheduling_policy; /* of sched_policy_names() */
    struct sched_policy_options policy_options; /* all zero = the policy's defaults, one tenant; the
                                                   weights are copied */
    struct sched_cost cost; /* n_points = 0: no cost model */
    uint32_t long_prefill_token_threshold, max_partial_prefills;
    double step_target_ms; /* applies once there is a cost model */
    bool adaptive_budget;
    const char *batching; /* "continuous", "dynamic", "static" */
    uint32_t max_batch_size;
    double max_wait_ms; /* of dynamic batches */
    uint32_t class_batch_size[SCHED_MAX_CLASSES];
    uint64_t class_wait_us[SCHED_MAX_CLASSES];
    bool adaptive_batches;
    const char *preemption_mode; /* "auto", "swap", "recompute", "never" */
    uint32_t max_pinned_percent; /* 0: no pins */
    struct speculative_config speculative;
};
void step_options_default(struct step_options *options);

/* Receives what an engine does. It must outlive engine_open(). */
struct engine_observers {
    const struct engine_watch *const *watches; /* [n_watches], at most ENGINE_MAX_WATCHES; the array is
                                                  copied, what it points to must outlive the engine */
    uint32_t n_watches;

    /* NULL, or called by engine_open() on its caller's thread while the model's weights are made ready: `done` of about
     * `total` bytes are. First with 0, last with total. */
    void (*loading)(void *context, uint64_t done, uint64_t total);
    void *loading_context;

    /* NULL, or called on the engine's thread with each row of raw logits before its token is taken: of a prompt logprob,
     * forced is the prompt's token at `position`, else -1. row: [n_vocab], borrowed until it returns. Where a device
     * computes in its own memory, engine_open() returns QUIRE_UNSUPPORTED. */
    void (*logits)(void *context, uint32_t position, int64_t forced, const float *row, uint32_t n_vocab);
    void *logits_context;
};

/* For ranks that are started from outside. NULL and 0: read from the environment (parallel/hosts/rank_position.h). */
struct engine_placement {
    const char *rank_transport; /* "auto" like NULL, "shm", "tcp", "mpi": how ranks reach each other */
    const char *master_addr; /* of rank 0 */
    uint32_t master_port, nnodes, node_rank; /* node_rank: this process's rank */
};

struct engine_options {
    const char *model_dir;
    const char *device; /* "auto", "ref", "cpu", "cuda", "cuda:N"; to plan only, also the name of a
                                         GPU that k_device_find() knows */
    const char *task; /* "auto", "generate", "embed": what a model that generates is opened for; one that
                                         gives vectors does nothing else */
    const char *dtype; /* "auto", or the stored dtype's name, or "float32" (then KV is f32) */
    const char *kv_cache_dtype; /* "auto", "float16", "float32", "int8", "fp8" (which is "fp8_e4m3"), "fp8_e5m2" */
    const char *gemm_form; /* "auto", "lane", "tile", "mma" */
    const char *invariance; /* "strict", or "off": a GPU may compute GEMMs of many tokens by NVIDIA's library, and a
                                         request's bits then depend on what else is served */
    const char *quantization; /* NULL, or a name that quantization_choose() takes: "gptq", "int8", ... */
    bool ignore_unused_tensors; /* go on where the checkpoint has weights that the model does not compute with */
    const char *repack_cache; /* directory of cached repacked rows; NULL disables that cache */
    const char *activation_dtype; /* "auto", "float32", "int8" of quantized weights, or "bfloat16" in the tile form */
    uint32_t max_model_len; /* 0 = what the model says */
    uint32_t attention_window; /* 0 = off; else layers with full attention read this many positions, and the sinks */
    uint32_t attention_sinks; /* first positions that stay readable behind attention_window */
    uint32_t max_num_seqs; /* 0 = default */
    uint32_t max_num_batched_tokens; /* 0 = default */
    uint32_t block_size; /* 0 = 16 */
    bool prefix_caching;
    const char *prefix_cache_eviction; /* "lru", "reuse" */
    uint64_t swap_space; /* bytes of host memory for cached blocks that the pool gives up; 0 = none */
    uint32_t num_kv_blocks; /* 0 = from kv_cache_memory, or a share of free memory */
    uint64_t kv_cache_memory; /* bytes; 0 = default */
    uint32_t n_threads; /* 0 = default */
    double gpu_memory_utilization; /* share of a GPU's memory that the engine may take, the driver's part
                                         included; 0 = 0.9 */
    bool enforce_eager; /* run every step operation by operation: no recorded graphs */
    uint32_t tensor_parallel_size; /* processes that share each layer, of n_threads each; 0 and 1: one */
    bool enable_expert_parallel; /* these processes hold whole experts; else some of the columns of each expert */
    uint32_t pipeline_parallel_size; /* stages that have some of the layers each, of so many processes; 0 and 1: one */
    uint32_t local_ranks; /* ranks on this host; 0: all of them */
    uint64_t message_bytes; /* that each takes for messages to the others, where others start them; 0: rank 0 does */
    struct engine_placement *placement; /* NULL: read from the environment; read only, by engine_open() */
    const char *cpu_bind; /* "auto", "none", or the CPU of each compute thread: "0-3,8" */
    uint32_t max_queued_requests; /* 0 = 1,024 */
    uint64_t max_queued_tokens; /* 0 = no bound */

    struct step_options *steps; /* NULL = defaults; read only, by engine_step_options() */
    const struct engine_grammars *grammars; /* NULL: requests with a grammar are rejected. Must outlive the engine */
    const struct engine_observers *observers; /* NULL: it has none */

    bool has_seed; /* seeds of requests that bring none: derived from seed and a counter, else random */
    uint64_t seed;
    const struct key256 *chain_secret; /* NULL = fresh random */
};
void engine_options_default(struct engine_options *options);
/* The options of steps, or their defaults. */
const struct step_options *engine_step_options(const struct engine_options *options);
#define ENGINE_MAX_WATCHES 4u

#endif
