/* A simulation: the server's scheduler, memory manager and policies, driven by a workload, a virtual clock and a cost
 * model instead of an engine. The same setup and workload give the same result, bit for bit.
 *
 * The loop is the engine's: requests that have arrived are submitted at a step boundary, and a step is planned. It
 * takes sched_cost_us() of its shape, and its tokens exist at its end. With overlap depth 1, the next step is planned
 * while one runs.
 *
 * No global state; any thread on its own result. The workload is only read.
 */
#ifndef QUIRE_TOOLS_SIM_H
#define QUIRE_TOOLS_SIM_H

#include "scheduler/types/account.h"
#include "scheduler/types/config.h"
#include "tools/sim/drafts.h"
#include "tools/sim/stages.h"
#include "tools/sim/workload.h"
#include "tools/sim/watch.h"

struct sim_setup {
    /* groups[0].n_blocks 0: enough that nothing is evicted. max_model_len 0, max_queued_requests 0 and max_logit_rows
     * 0: as the workload needs. Tenants and their weights come from the workload. */
    const struct sched_config *sched; /* borrowed */
    struct sched_cost cost; /* the clock */
    struct sim_stages stages; /* stages that share the layers; they need overlap depth 0 */
    bool one_by_one; /* each request runs alone, in arrival order, in no time, with its prompt only */
    bool oracle_lengths; /* policies know the length of each answer */
    uint32_t max_tokens; /* max_tokens of requests, if above their length, at which they stop */
    uint64_t seed; /* of the hash chain, and of the acceptance of drafts */
    uint32_t max_drafts; /* per row; 0: no speculation */
    bool
        adaptive; /* the number of drafts follows from their benefit (speculation/length.h), unless guesses are known */
    struct sched_cost draft_cost; /* of the passes of a draft model; n_points 0: drafts take no time */
    struct sim_acceptance acceptance; /* for requests without known guesses */
    /* Called at intervals from the thread that runs the simulation; may be NULL. */
    void (*progress)(void *context, uint64_t n_over);
    void *progress_context;
};

/* The course of request i of the workload; times are microseconds of the virtual clock. */
struct sim_record {
    enum sim_fate { SIM_WAITS, SIM_RUNS, SIM_DONE, SIM_REFUSED } fate;
    bool admitted;
    double arrival_us, admitted_us, first_us, last_us;
    uint32_t n_generated, n_cached, n_preemptions;
};

struct sim_result {
    struct sim_record *records; /* [workload->n] */
    size_t n_records;
    struct sim_watch *watch; /* owned */
    struct draft_counts drafts;
    struct sched_stats stats; /* at the end */
    struct kv_usage usage; /* of the first group, at the end */
    struct key256 decisions;
    double figure; /* the policy's figure, and its name or NULL */
    const char *figure_name;
    uint64_t n_cached_tokens, n_prompt_tokens; /* of admitted requests: tokens found in the cache, prompt tokens */
    uint64_t n_cached_blocks, n_prompt_blocks; /* the same in full blocks */
    double began_us, ended_us; /* first arrival, last event */
    double wall_s;
    bool recorded; /* from a recording: KV slots and fairness are unknown */
};

/* QUIRE_INVALID names the option to change. Call sim_result_free(), also after an error. */
int sim_run(const struct sim_setup *setup, const struct sim_workload *workload, struct sim_result *out,
            struct quire_error *err);
void sim_result_free(struct sim_result *result);

#endif
