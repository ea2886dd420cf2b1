/* The engine's state, shared by engine.c, loop.c, step.c and events.c. Nobody else includes
 * this. */
#ifndef QUIRE_ENGINE_INTERNAL_H
#define QUIRE_ENGINE_INTERNAL_H

#include "engine/engine.h"
#include "engine/run/forward.h"
#include "engine/run/mailbox.h"
#include "engine/run/request.h"
#include "engine/model/safetensors.h"
#include "engine/watch.h"
#include "engine/model/weights.h"
#include "scheduler/scheduler.h"

#include <pthread.h>

/* Most steps in flight at once: one more than the deepest overlap. */
#define ENGINE_MAX_SLOTS 2u

/* Which choice of which request a scheduler's sequence is. */
struct seq_owner {
    struct request *request; /* NULL: the name is free */
    uint32_t choice;
    uint32_t sampled_row;    /* of the results of the step that last drew a token of it, */
    uint64_t sampled_step;   /* the so-many-th launched */
};

/* A logit row of a step and who wanted it. */
struct step_target {
    uint32_t seq;
    uint32_t position; /* of the token that is drawn or reported */
    bool drawn;        /* false: a prompt token's logprob */
};

/* A launched step until it is committed. */
struct step_slot {
    const struct sched_plan *plan;
    uint64_t ticket;
    uint64_t launched_us;            /* before its moves; known with watches only */
    uint32_t n_targets;
    struct step_target *targets;     /* [max_logit_rows] each */
    struct k_sample_row *rows;
    struct k_sample_result *results;
};

/* Events of the current step, in order, until they leave through the sink. */
struct event_queue {
    struct engine_event *items;
    size_t n, capacity;
    struct request *finished; /* whose last event is among them */
};

struct engine {
    struct model_desc desc;
    struct model_sampling_defaults sampling_defaults;
    struct engine_plan plan;
    struct engine_info info;
    struct engine_sink_pair {
        engine_sink call;
        void *context;
    } sink;
    const struct engine_watch *watches[ENGINE_MAX_WATCHES];
    uint32_t n_watches;
    struct sched_policy_options policy_options; /* as opened; n_tenants >= 1 */
    uint32_t *tenant_weights;                   /* what they point to, or NULL */
    bool prefix_caching, is_static;             /* is_static: an incomplete batch waits */
    struct key256 chain_secret;
    bool has_seed;
    uint64_t seed;

    struct k_backend *backend;
    struct safetensors *checkpoint;
    struct weights *weights;
    struct forward *forward;
    struct mailbox *mailbox;

    pthread_t thread;
    bool has_thread;

    /* From here on: the engine thread's. */
    struct sched *sched;
    struct seq_owner *owners; /* [n_owners] by sequence */
    uint32_t n_owners;
    struct event_queue events;
    struct request *over;     /* flushed and unknown to the scheduler: freed by events_reap */
    struct step_slot slots[ENGINE_MAX_SLOTS];
    uint32_t depth, n_in_flight;
    uint64_t n_launched;
    struct sched_result *sched_results; /* [max_num_seqs] */
    uint32_t *sched_tokens;             /* [max_num_seqs]: the token of each result */
    uint32_t n_empty_plans;             /* in a row, though something lives */
    uint64_t sleep_until_us;            /* nothing can run before, unless mail comes; 0 = something can */
    struct sched_tenant_stats *tenants; /* [n_tenants] as last published */
    uint64_t tenants_due_us;            /* when to publish them again */
    uint64_t next_key;
    uint64_t last_admitted;             /* the caller's id; 0 = none yet */
    bool dead;
    struct mailbox_report report;
    double logged_ratio;                /* of measured to predicted step times, when last logged */
};

/* Calls a function of every watch that has it; the arguments are computed only then. */
#define ENGINE_WATCH(e, function, ...) \
    do { \
        for (uint32_t w_ = 0; w_ < (e)->n_watches; w_++) \
            if ((e)->watches[w_]->function) \
                (e)->watches[w_]->function((e)->watches[w_]->context, __VA_ARGS__); \
    } while (0)

/* ---- events.c ---- */

int events_create(struct engine *e, struct quire_error *err);
void events_destroy(struct engine *e);
void event_token(struct engine *e, struct request *r, uint32_t choice, uint32_t position,
                 const struct k_sample_result *result);
void event_prompt_logprob(struct engine *e, struct request *r, uint32_t position, const struct k_sample_result *result);
/* The choice is over; once only. stop_token: the eos or stop id it ended by, or -1. */
void event_done(struct engine *e, struct request *r, uint32_t choice, enum engine_finish finish, int64_t stop_token);
/* Hands the queued events to the sink and forgets the ids of requests that are over. Frees none: a
 * full queue may flush while somebody walks a list of requests. */
void events_flush(struct engine *e);
/* Frees what is over. */
void events_reap(struct engine *e);
/* The scheduler no longer knows one choice. Frees the request when that was all that kept it. */
void request_left_scheduler(struct request *r);

/* ---- step.c ---- */

int step_slots_create(struct engine *e, struct quire_error *err);
void step_slots_destroy(struct engine *e);
/* Queues the plan's copies between the KV cache and the host tier. */
int step_move(struct engine *e, const struct sched_plan *plan, struct quire_error *err);
/* Builds the step's arrays and queues it on the backend. */
int step_launch(struct engine *e, struct step_slot *slot, const struct sched_plan *plan, struct quire_error *err);
/* Waits for the step and carries its results to the scheduler and the events. */
int step_commit(struct engine *e, struct step_slot *slot, struct quire_error *err);
/* Ends every open choice of a request and takes it out of the scheduler. */
void request_end(struct engine *e, struct request *r, enum engine_finish finish, const char *message);

/* ---- loop.c ---- */

/* Makes the engine's counters known; by engine_open() before there is an engine thread, then by that. */
void engine_publish(struct engine *e, uint64_t busy_us);

void *engine_main(void *engine);

#endif
