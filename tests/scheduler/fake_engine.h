/* An engine without a model, and an oracle that checks the scheduler through it.
 *
 * The toy model's next token is a hash of all tokens before it, of the tenant and of the choice. The KV data of a
 * position is the hash of the prefix up to it. A simulated block store holds it under the block ids of the scheduler's
 * tables. A row reads every position it may attend to, through the table at launch, and must find the hash of its own
 * tokens there. Any error of sharing, eviction, preemption or windows shows as a wrong prefix hash.
 *
 * fake_* functions return false after the first failed check; fake_failure() describes it.
 */
#ifndef QUIRE_TESTS_SCHEDULER_FAKE_ENGINE_H
#define QUIRE_TESTS_SCHEDULER_FAKE_ENGINE_H

#include "scheduler/types/config.h"
#include "scheduler/types/plan.h"
#include "tests/scheduler/fake_fault.h"
#include "tests/scheduler/fake_model.h"

#include <stdbool.h>
#include <stdint.h>

#define FAKE_MAX_LEN 192   /* positions of a sequence */
#define FAKE_MAX_NAMES 128 /* sequences with a name at once */
#define FAKE_MAX_CHOICES 4
#define FAKE_MAX_BLOCKS 512
#define FAKE_MAX_SEQS 12
#define FAKE_MAX_HOST_BLOCKS 64
#define FAKE_TENANTS 4
#define FAKE_MAX_PINS 64
#define FAKE_MAX_DRAFTS 7

struct fake_request {
    uint64_t id;
    uint32_t prompt[FAKE_MAX_LEN];
    uint32_t n_prompt, max_tokens, n, tenant;
    int32_t priority;
    uint32_t stop_every; /* a token that is a multiple of it stops; 0: none does */
    bool prompt_logprobs, no_prefix_hits, background, host_gated, vector;
    uint32_t adapter, class_index, expected_tokens;
    uint64_t arrival_us, deadline_us, pin_us, keep_us;
};

/* The oracle's view of a sequence. */
struct fake_seq {
    bool used, over, running, planned; /* planned: had a row since its submission */
    bool stopped;                            /* the model stopped; later tokens are discarded */
    bool gated;                              /* its drafts come from the host */
    uint64_t order;
    uint32_t choice, n_choices;
    struct fake_request request;
    uint32_t tokens[FAKE_MAX_LEN + 8];
    uint64_t prefix[FAKE_MAX_LEN + 8]; /* prefix[i]: hash of tokens 0 … i */
    uint32_t n;                        /* tokens known to the engine, including sampled ones */
    uint32_t n_committed;
    uint32_t n_logits;                 /* prompt positions whose logits arrived, in order */
    uint32_t n_sampling;               /* launched rows that give tokens */
    uint32_t drafts[FAKE_MAX_DRAFTS], n_drafts; /* proposed for the next of these */
    uint64_t last_step;
    /* The expected account. */
    bool admitted;
    uint32_t n_overtaken; /* by first admissions of later ones */
    bool reached[FAKE_MAX_LEN + 8];    /* positions that were in a row */
    uint32_t n_preempted, n_recomputed;
    bool may_wait;  /* another sequence computes the beginning of its prompt in this plan */
    bool lost; /* it waits because its seat or its blocks may have been taken: the oracle does not know its rank */
    bool lent; /* since its admission, others may have waited for its prompt: the best of their ranks */
    __int128 lent_rank;
    uint64_t preempted_us, preempted_at_us;
};

/* The expected pin: the first n_blocks of a prompt. */
struct fake_pin {
    uint32_t tenant, n_blocks;
    uint32_t tokens[FAKE_MAX_LEN];
    uint64_t ttl_us, due_us;
};

struct fake_launch {
    uint64_t step;
    bool executed;
    uint32_t n_rows;
    struct sched_row rows[FAKE_MAX_SEQS];
    uint32_t tokens[FAKE_MAX_SEQS][FAKE_MAX_LEN];
    uint32_t blocks[FAKE_MAX_SEQS][KV_MAX_GROUPS][FAKE_MAX_LEN];
    uint32_t n_results[FAKE_MAX_SEQS]; /* tokens of the row */
    uint32_t results[FAKE_MAX_SEQS][FAKE_MAX_DRAFTS + 1];
};

struct fake_engine {
    struct sched_config config;
    struct sched *sched;
    struct {
        uint32_t max_seats, max_blocks; /* 0: no limit */
    } limits[FAKE_TENANTS];
    struct fake_random random;
    enum fake_fault fault; /* planted once, at the first opportunity */
    uint64_t next_id, next_order;
    struct fake_seq seqs[FAKE_MAX_NAMES];
    uint64_t *store[KV_MAX_GROUPS]; /* [n_blocks * block_tokens] */
    uint64_t *host[KV_MAX_GROUPS]; /* [n_host_blocks * block_tokens] */
    uint64_t now_us, plan_us; /* the time, and that of the last plan */
    bool only_preempted; /* the last plan preempted a sequence and had no row */
    bool no_more;
    struct {
        uint64_t n_prompt, n_generated;
    } tenants[FAKE_TENANTS];
    struct fake_pin pins[FAKE_MAX_PINS]; /* the newest first */
    uint32_t n_pins;
    bool pins_unknown; /* with windows, it is unknown which of several pins could not be kept */
    struct fake_launch launched[2]; /* oldest first */
    uint32_t n_launched;
    struct fake_request history; /* the last finished output as a prompt: the next turn of a chat */
    struct {
        uint64_t steps, tokens, finished, cancelled, preempted, hit_tokens, refused, discarded;
        uint64_t given_up, loads, spills, pinned, policies;
        uint64_t verified, accepted, background;
        uint64_t drafts_preempted, drafts_cancelled; /* of sequences, while a row verified their drafts */
    } seen;
    char failure[256];
};

/* Takes ownership of the config; random is the seed of the engine's own decisions. */
bool fake_open(struct fake_engine *e, const struct sched_config *config, uint64_t seed, enum fake_fault fault);
/* Frees everything. With `idle`, first checks that the scheduler is idle and all blocks are free. */
bool fake_close(struct fake_engine *e, bool idle);

/* The engine chooses id. An expected rejection is not a failure. */
bool fake_submit(struct fake_engine *e, struct fake_request *request);
bool fake_plan(struct fake_engine *e);
bool fake_commit(struct fake_engine *e);
bool fake_cancel(struct fake_engine *e, uint64_t id);
bool fake_cancel_seq(struct fake_engine *e, uint32_t seq);
/* Proposes drafts for the sequence, some of them correct. */
bool fake_propose(struct fake_engine *e, uint32_t seq);
/* Changes whether its drafts come from the host. */
bool fake_gate(struct fake_engine *e, uint32_t seq);
/* After every event: sched_check, and everything that the scheduler must report to its caller. */
bool fake_check(struct fake_engine *e);

bool fake_set_policy(struct fake_engine *e, const struct sched_policy *policy,
                     const struct sched_policy_options *options);
/* Refused while a step is in flight. The cost must live as long as the engine. */
bool fake_set_cost(struct fake_engine *e, const struct sched_cost *cost);
bool fake_unpin(struct fake_engine *e, uint32_t tenant);
void fake_no_more(struct fake_engine *e);

const char *fake_failure(const struct fake_engine *e);

#endif
