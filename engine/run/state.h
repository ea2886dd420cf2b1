/* The engine's state, shared by engine.c, loop.c, step.c and events.c. No other file includes this header. Functions
 * that these files share are declared in their own headers. */
#ifndef QUIRE_ENGINE_STATE_H
#define QUIRE_ENGINE_STATE_H

#include "engine/event.h"
#include "engine/info.h"
#include "engine/options.h"
#include "engine/plan.h"
#include "engine/forward/forward.h"
#include "engine/grammar/constraints.h"
#include "engine/run/draft_scratch.h"
#include "engine/run/mailbox.h"
#include "engine/run/request.h"
#include "engine/ranks/parts.h"
#include "engine/ranks/ranks.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/watch.h"
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

/* A logit row of a step and the choice that needs it. */
struct step_target {
    uint32_t seq;
    uint32_t position; /* position of the token that is drawn or reported */
    bool drawn;        /* false: a prompt token's logprob */
    bool rejected;     /* drawn after a draft that was wrong, or not at all: draft_scratch.h */
};

/* A launched step until it is committed. */
struct step_slot {
    uint64_t number;                 /* the plan's */
    uint64_t ticket;
    uint64_t launched_us, done_us;   /* before its moves, when its results were there; known with watches only */
    uint32_t n_targets;
    struct step_target *targets;     /* [max_logit_rows] each */
    struct k_sample_row *rows;
    const struct k_sample_result *results; /* [n_targets], the forward pass's */
    uint32_t n_vectors;
    const float *vectors;            /* [n_vectors, vector_size], likewise */
    struct draft_scratch scratch;          /* scratch that the rows of drafts point into */
};

/* Events of the current step, in order, until they leave through the sink. */
struct event_queue {
    struct engine_event *items;
    size_t n, capacity;
    struct request *finished; /* whose last event is among them */
};

struct speculation;
struct draft_model;

struct engine {
    struct model_config *config;   /* owned */
    struct checkpoint_facts facts;
    struct model_desc desc;        /* of these two: the whole model */
    struct sampling_defaults sampling_defaults;
    struct engine_plan plan;
    uint32_t block_shift; /* plan.block_tokens is 1 << block_shift */
    struct engine_info info;
    struct engine_sink_pair {
        engine_sink call;
        void *context;
    } sink;
    const struct engine_watch *watches[ENGINE_MAX_WATCHES];
    uint32_t n_watches;
    struct sched_policy_options policy_options; /* as opened; n_tenants >= 1 */
    uint32_t *tenant_weights;                   /* storage of the options' weights, or NULL */
    bool prefix_caching, is_static;             /* is_static: an incomplete batch waits */
    struct key256 chain_secret;
    bool has_seed;
    uint64_t seed;

    struct k_backend *backend;
    struct checkpoint *checkpoint;
    struct weights *weights;
    struct forward *forward;
    struct draft_model *draft_model; /* NULL if no draft model is used */
    uint32_t rank;
    struct model_desc own;           /* this rank's part of desc; all of it with one rank */
    struct collective *collective;   /* NULL: it computes alone. The group's of ranks, or engine_work()'s */
    struct rank_parts parts;         /* of `collective` */
    struct ranks *ranks;             /* NULL: this process computes alone, or is not rank 0 */
    struct rank_waits rank_waits;    /* as last reported */
    struct k_gpu_id gpu;             /* on rank 0 with a GPU: its GPU */
    bool has_told_gpus;              /* to the other ranks */
    bool is_across_hosts;            /* the ranks of its stage are; on a GPU, where it matters */
    struct mailbox *mailbox;
    struct constraints *constraints; /* NULL: this engine has no grammars */
    bool forced_tokens;              /* as drafts */

    pthread_t thread;
    bool has_thread;

    /* From here on: the engine thread's. */
    struct sched *sched;
    struct sched_driver *driver;
    struct seq_owner *owners; /* [n_owners] by sequence */
    uint32_t n_owners;
    struct speculation *speculation;
    struct event_queue events;
    struct request *parked;   /* whose grammar is still compiled; newest first */
    uint32_t n_parked;        /* their choices */
    bool no_more;             /* no request follows those */
    struct request *over;     /* flushed and unknown to the scheduler: freed by events_reap */
    struct step_slot slots[ENGINE_MAX_SLOTS];
    uint32_t depth;
    uint64_t planned_us;                /* when the last plan was there; known with watches only */
    uint32_t n_empty_plans;             /* in a row, though something lives and nothing left */
    uint64_t sleep_until_us;            /* nothing can run before, unless mail comes; 0 = something can */
    struct sched_tenant_stats *tenants; /* [n_tenants] as last published */
    uint64_t tenants_due_us;            /* when to publish them again */
    uint64_t next_key;
    uint64_t last_admitted;             /* the caller's id; 0: none admitted yet */
    bool dead;
    struct mailbox_report report;
    double logged_ratio;                /* last logged ratio of measured to predicted step times */
};

/* Calls a function of every watch that has it; the arguments are computed only then. */
#define ENGINE_WATCH(e, function, ...) \
    do { \
        for (uint32_t w_ = 0; w_ < (e)->n_watches; w_++) \
            if ((e)->watches[w_]->function) \
                (e)->watches[w_]->function((e)->watches[w_]->context, __VA_ARGS__); \
    } while (0)

#endif
