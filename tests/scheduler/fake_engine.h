/* An engine without a model, and the oracle that watches the scheduler through it.
 *
 * The toy model's next token is a hash of all tokens before it, of the tenant and of the choice.
 * What a position leaves in the KV cache is the hash of the prefix up to it; a simulated block
 * store keeps it under the block ids that the scheduler's tables name. A row reads every position
 * it may attend to, through the table as it was at launch, and must find there what its own tokens
 * hash to: whatever sharing, eviction, preemption or windows do wrong shows as a wrong prefix hash.
 *
 * fake_* functions return false after the first failed check; fake_failure() says what it was.
 */
#ifndef QUIRE_TESTS_SCHEDULER_FAKE_ENGINE_H
#define QUIRE_TESTS_SCHEDULER_FAKE_ENGINE_H

#include "scheduler/scheduler.h"
#include "tests/scheduler/fake_model.h"

#include <stdbool.h>
#include <stdint.h>

#define FAKE_MAX_LEN 192   /* positions of a sequence */
#define FAKE_MAX_NAMES 128 /* sequences with a name at once */
#define FAKE_MAX_CHOICES 4
#define FAKE_MAX_BLOCKS 512
#define FAKE_MAX_SEQS 12

enum fake_fault {
    FAULT_NONE = 0,
    FAULT_KV,     /* one word of the block store is wrong */
    FAULT_TOKEN,  /* one result is not what the model gave */
    FAULT_SKIP,   /* one row is launched and not computed */
    FAULT_RETIRE, /* one sequence is thought to live on after it was retired */
    N_FAULTS
};

struct fake_request {
    uint64_t id;
    uint32_t prompt[FAKE_MAX_LEN];
    uint32_t n_prompt, max_tokens, n, tenant;
    int32_t priority;
    uint32_t stop_every; /* a token that is a multiple of it stops; 0 = none does */
    bool prompt_logprobs, no_prefix_hits;
    uint32_t adapter;
};

/* What the oracle knows of a sequence. */
struct fake_seq {
    bool used, over, running, held, planned; /* planned: had a row since its submission */
    bool stopped;                            /* the model stopped; later tokens are thrown away */
    uint64_t order;
    uint32_t choice, n_choices;
    struct fake_request request;
    uint32_t tokens[FAKE_MAX_LEN + 8];
    uint64_t prefix[FAKE_MAX_LEN + 8]; /* prefix[i]: hash of tokens 0 … i */
    uint32_t n;                        /* tokens known to the engine, sampled ones included */
    uint32_t n_committed;
    uint32_t n_logits;                 /* prompt positions whose logits came, in order */
    uint64_t last_step;
};

struct fake_launch {
    uint64_t step;
    bool executed;
    uint32_t n_rows;
    struct sched_row rows[FAKE_MAX_SEQS];
    uint32_t tokens[FAKE_MAX_SEQS][FAKE_MAX_LEN];
    uint32_t blocks[FAKE_MAX_SEQS][KV_MAX_GROUPS][FAKE_MAX_LEN];
    uint32_t n_results[FAKE_MAX_SEQS]; /* tokens sampled by the row */
    uint32_t results[FAKE_MAX_SEQS][3];
};

struct fake_engine {
    struct sched_config config;
    struct sched *sched;
    struct fake_random random;
    enum fake_fault fault;   /* planted once, when the chance comes */
    uint64_t next_id, next_order;
    struct fake_seq seqs[FAKE_MAX_NAMES];
    uint64_t *store[KV_MAX_GROUPS]; /* [n_blocks * block_tokens] */
    struct fake_launch launched[2]; /* oldest first */
    uint32_t n_launched;
    struct fake_request history; /* the last finished output as a prompt: what a chat sends next */
    struct {
        uint64_t steps, tokens, finished, cancelled, preempted, hit_tokens, refused, discarded;
    } seen;
    char failure[256];
};

/* Takes the config over; random is the seed of everything the engine decides itself. */
bool fake_open(struct fake_engine *e, const struct sched_config *config, uint64_t seed,
               enum fake_fault fault);
/* Frees all; checks first that the scheduler is idle and all blocks are free when `idle`. */
bool fake_close(struct fake_engine *e, bool idle);

/* id is chosen by the engine. A refusal that the scheduler owed is no failure. */
bool fake_submit(struct fake_engine *e, struct fake_request *request);
bool fake_plan(struct fake_engine *e);
bool fake_commit(struct fake_engine *e);
bool fake_cancel(struct fake_engine *e, uint64_t id);
bool fake_cancel_seq(struct fake_engine *e, uint32_t seq);
bool fake_hold(struct fake_engine *e, uint32_t seq, bool held);
/* After every event: sched_check, and what the scheduler must show to its caller. */
bool fake_check(struct fake_engine *e);

const char *fake_failure(const struct fake_engine *e);

#endif
