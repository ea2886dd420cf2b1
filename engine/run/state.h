/* The engine's state by owner: what opening fixes, and what only the engine thread touches. Private to engine/run.
 * Functions that its files share are declared in their own headers, and state that one file alone uses is in that file. */
#ifndef QUIRE_ENGINE_STATE_H
#define QUIRE_ENGINE_STATE_H

#include "engine/event.h"
#include "engine/info.h"
#include "engine/options.h"
#include "engine/plan.h"
#include "engine/forward/forward.h"
#include "engine/grammar/constraints.h"
#include "engine/run/mail/mailbox.h"
#include "engine/run/request.h"
#include "engine/ranks/ranks.h"
#include "engine/watch.h"
#include "engine/model/opened.h"
#include "engine/model/weights.h"
#include "scheduler/driver.h"
#include "scheduler/types/account.h"
#include "kernels/open.h"

#include <pthread.h>

/* Most steps in flight at once: one more than the deepest overlap. */
#define ENGINE_MAX_SLOTS 2u

/* Which choice of which request a scheduler's sequence is. */
struct seq_owner {
    struct request *request; /* NULL: the name is free */
    uint32_t choice;
    uint32_t sampled_row;    /* place of its newest token among the results of */
    uint64_t sampled_step;   /* the step of this number, the last that draws one of it */
    uint32_t draft_slot;     /* 1, 2, …: its slot in the drafters; 0: no slot */
};

struct cost_fitter;
struct draft_model;
struct events;
struct loop;
struct rank_shared;
struct speculation;
struct steps;

/* What only the engine thread touches from the moment it starts. Each file's own part is opaque. */
struct engine_run {
    struct sched *sched;
    struct sched_driver *driver;
    struct seq_owner *owners; /* [n_owners] by sequence */
    uint32_t n_owners;
    struct events *events;           /* events.c */
    struct steps *steps;             /* step.c */
    struct loop *loop;               /* loop.c */
    struct cost_fitter *fitter;      /* fits the cost model to the steps; NULL: --cost-model gives it */
    struct mailbox_report report;    /* counted since it was last published */
};

/* The scheduling policy's options as opened, and later policies' tenants. n_tenants >= 1. */
struct policy_at_open {
    struct sched_policy_options options; /* its tenants are NULL or those below */
    struct sched_tenant tenants[];       /* [n_tenants] */
};

/* The model as opened: constant once opening is over. Owned by its engine, with all that it points to. */
struct engine_model {
    struct opened_model *files;
    struct model_desc desc; /* of these files: the whole model */
    struct model_desc own;  /* this rank's part of desc; all of it with one rank */
    struct weights *weights;
};

/* An engine. Opening fixes all but what `run`, `speculation`, `mailbox` and `shared` point to: any thread may read it afterwards. The
 * backend, the forward pass and the draft model compute on the engine thread only. */
struct engine {
    struct sampling_defaults sampling_defaults;
    struct engine_model *model;
    struct engine_plan *plan;
    struct engine_info *info; /* what callers see: engine_info() */
    struct engine_sink_pair {
        engine_sink call;
        void *context;
    } sink;
    const struct engine_watch *watches[ENGINE_MAX_WATCHES];
    uint32_t n_watches;
    struct policy_at_open *policy;
    struct key256 chain_secret;
    bool has_seed;
    uint64_t seed;

    struct k_backend *backend;
    struct forward *forward;
    struct draft_model *draft_model; /* NULL if no draft model is used */
    struct speculation *speculation; /* speculate.c: any thread reads its method, the rest is the engine thread's */
    struct constraints *constraints; /* NULL: this engine has no grammars */

    uint32_t rank;
    struct collective *collective; /* NULL: it computes alone. The group's of ranks, or engine_work()'s */
    struct ranks *ranks; /* NULL: this process computes alone, or is not rank 0 */
    struct rank_shared *shared; /* rank.c: its part of the group */

    struct mailbox *mailbox; /* between other threads and the engine thread; NULL of ranks other than 0, as below */
    struct engine_run *run;
    pthread_t thread;
    bool has_thread;
};

/* Calls a function of every watch that has it; the arguments are computed only then. */
#define ENGINE_WATCH(e, function, ...) \
    do { \
        for (uint32_t w_ = 0; w_ < (e)->n_watches; w_++) \
            if ((e)->watches[w_]->function) \
                (e)->watches[w_]->function((e)->watches[w_]->context, __VA_ARGS__); \
    } while (0)

#endif
