/* A simulation: the scheduler, memory and policy that serve, driven by a workload, a virtual clock and a cost model in the
 * engine's place. The same setup and workload give the same result, bit for bit.
 *
 * The loop is the engine's: what has arrived is submitted at a step boundary, a step is planned, it takes what
 * sched_cost_us() says of its shape, and its tokens are there at its end. With overlap depth 1 the next step is planned
 * while one runs.
 *
 * No global state; any thread on its own result. The workload is only read.
 */
#ifndef QUIRE_TOOLS_SIM_H
#define QUIRE_TOOLS_SIM_H

#include "scheduler/scheduler.h"
#include "tools/sim/drafts.h"
#include "tools/sim/stages.h"
#include "tools/sim/workload.h"
#include "tools/sim/watch.h"

struct sim_setup {
    struct sched_config sched; /* groups[0].n_blocks 0: as many as never evict anything. max_model_len 0,
                                   max_queued_requests 0 and max_logit_rows 0: what the workload needs. The tenants and their
                                   weights are the workload's. */
    struct sched_cost cost; /* the clock */
    struct sim_stages stages; /* that share the layers; with some, overlap depth 0 */
    bool one_by_one; /* each request runs alone, in arrival order, in no time: only its prompt */
    bool oracle_lengths; /* policies are told how long each answer will be */
    uint32_t max_tokens; /* what requests ask for, where it is more than their length, at which they stop */
    uint64_t seed; /* of the hash chain, and of which drafts are right */
    uint32_t max_drafts; /* of a row; 0: no speculation */
    bool
        adaptive; /* how many there are follows from what they are worth (speculation/length.h), unless guesses are known */
    struct sched_cost draft_cost; /* of the passes of a draft model; n_points 0: guesses take no time */
    struct sim_acceptance acceptance; /* of requests whose guesses are not known */
    /* Called now and then from the thread that runs it; may be NULL. */
    void (*progress)(void *context, uint64_t n_over);
    void *progress_context;
};

/* What happened to request i of the workload; times are microseconds of the virtual clock. */
struct sim_record {
    enum sim_fate { SIM_WAITS, SIM_RUNS, SIM_DONE, SIM_REFUSED } fate;
    bool admitted;
    double arrival_us, admitted_us, first_us, last_us;
    uint32_t n_generated, n_cached, n_preemptions;
};

struct sim_result {
    struct sim_record *records; /* [workload->n] */
    size_t n_records;
    struct sim_watch watch;
    struct draft_counts drafts;
    struct sched_stats stats; /* at the end */
    struct kv_usage usage; /* of the first group, likewise */
    struct key256 decisions;
    double figure; /* the policy's own, and its name or NULL */
    const char *figure_name;
    uint64_t n_cached_tokens, n_prompt_tokens; /* of requests that were admitted: found, asked for */
    uint64_t n_cached_blocks, n_prompt_blocks; /* likewise, full blocks */
    double began_us, ended_us; /* the first arrival, the last event */
    double wall_s;
    bool recorded; /* it is what a recording says: nothing is known of KV slots and fairness */
};

/* QUIRE_INVALID names the option to change. Out is freed by sim_result_free(), also after a failure. */
int sim_run(const struct sim_setup *setup, const struct sim_workload *workload, struct sim_result *out,
            struct quire_error *err);
void sim_result_free(struct sim_result *result);

#endif
