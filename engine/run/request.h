/* One request inside the engine: what engine_submit() was given, checked, and where each of its choices stands.
 *
 * Made on the submitter's thread, then handed to the engine thread by the mailbox. From then on
 * the engine thread owns it, but for `mail` and what is marked "mailbox", which the mailbox's
 * mutex guards. Freed by the engine thread once every choice has had its DONE event and left the
 * scheduler.
 */
#ifndef QUIRE_ENGINE_REQUEST_H
#define QUIRE_ENGINE_REQUEST_H

#include "base/hash.h"
#include "base/status.h"
#include "engine/event.h"
#include "engine/grammar/compiler.h"
#include "engine/grammar/constraint.h"
#include "engine/model/model.h"
#include "engine/run/sampling.h"
#include "request/spec.h"
#include "scheduler/types/request.h"

#include <stdbool.h>
#include <stdint.h>

struct request_choice {
    /* Fields that a step reads for every row come first, in one cache line. */
    uint32_t seq;          /* the scheduler's name for it, once placed */
    uint32_t n_generated;
    bool done;             /* its DONE event was given */
    enum engine_finish finish; /* its end has been reported */
    struct token_counts counts;
    struct k_logit_bias *row_scratch; /* of sampling_row_scratch() */
    uint32_t n_drafted, n_accepted; /* drafts verified, and those of them that were right */
    uint32_t n_predicted, n_predicted_right; /* the part of those that came from the request's prediction */
    struct engine_account account; /* as of then */
    bool admitted;
    uint64_t blocker;      /* the caller's id of the request admitted before it; 0 = none */
    bool cancel_asked;     /* mailbox */
    bool cancel_now;       /* engine thread: to be carried out */
};

/* The prefix hashes of a prompt, until the scheduler has its copy. */
struct request_hashes {
    struct key256 chain_first;
    struct key256 blocks[]; /* one for each full block */
};

/* The grammar of a request's answer. */
struct request_grammar {
    struct compiled *compiled;
    struct request *next_parked; /* among those whose grammar is not compiled yet */
    struct constraint choices[]; /* [spec->n] */
};

/* What the mailbox's mutex guards, and its links. */
struct request_mail {
    struct request *next_live; /* in its bucket */
    struct request *next_cancel;
    bool in_cancels;
    bool has_prediction; /* from its spec or later, which is at most once */
    struct request *next_predicted; /* in the list of the later ones, until a drain and after it */
    uint32_t *late_prediction; /* malloc'd; owned by the mailbox, and by the spec after the drain */
    uint32_t n_late_prediction;
};

struct request {
    struct request_mail mail;  /* the mailbox's */
    struct request *next;      /* next in its list: submitted or finished requests */
    struct request *next_to_end; /* among the cancels of one drain */

    uint64_t arrival_us; /* of CLOCK_MONOTONIC */
    struct request_hashes *hashes; /* NULL without prefix caching */
    struct k_token_count *counts_memory; /* the prompt's, then all choices' counts */
    uint32_t n_prompt_counts;

    uint32_t retry_after_ms;   /* of a REFUSED finish */
    bool flushed;              /* its last DONE event has left through the sink */
    enum quire_status status;  /* whose fault an ERROR finish was, as in struct engine_event */
    struct quire_error error;  /* and its text */

    /* Fields that a step reads for every row come last: the spec follows in memory, and its first fields are read, too. */
    uint64_t key; /* ours, never 0 and never reused: the scheduler's id */
    uint64_t engine_id; /* the caller's */
    uint32_t n_open; /* choices without a DONE event */
    uint32_t n_placed; /* choices the scheduler still knows */
    uint32_t next_prompt_logprob; /* the next prompt position to report; n_prompt when all are */
    bool prompt_counted; /* in stats.n_prompt_tokens */
    struct request_choice *choices; /* [spec->n] */
    struct request_grammar *grammar; /* NULL: the answer is free */
    struct request_spec *spec; /* ours; its prompt until the scheduler has its copy, and with a seed */
    struct sampling sampling;
};

struct request_limits {
    const struct model_desc *desc;
    uint32_t max_model_len;
    uint32_t block_tokens;
    uint32_t n_tenants;
    bool prefix_caching;
    const struct key256 *chain_secret;
};

/* Checks everything of a request, which arrives now, and makes the hashes of its full blocks where prefixes are cached.
 * Takes what spec has, also when it fails; it has a seed. QUIRE_INVALID names the parameter. */
int request_create(uint64_t id, struct request_spec *spec, const struct request_limits *limits, uint64_t now_us,
                   struct request **out, struct quire_error *err);
void request_free(struct request *r); /* NULL is fine */

/* Takes the grammar, one reference. The request's answer is restricted once the grammar is ready:
 * request_constrain(). */
int request_take_grammar(struct request *r, struct compiled *grammar, struct quire_error *err);
void request_constrain(struct request *r, const struct engine_grammars *grammars);

/* Makes the scheduler's request from a spec with this arrival time; borrows from the spec. The caller adds the
 * hashes, the fields that depend on the sampler, and the positions at which the prompt must not come from the cache. */
struct sched_request request_schedule(const struct request_spec *spec, uint64_t id, uint64_t arrival_us);
/* Moves a late prediction to the spec, which has no prediction of its own. */
void request_take_prediction(struct request *r);
/* Hands the prompt to the caller, for the scheduler. */
uint32_t *request_take_prompt(struct request *r);
/* The scheduler has copied the hashes: ours go. */
void request_drop_hashes(struct request *r);

/* The choice's counts, made from the prompt's when its first token is drawn. */
struct token_counts *request_counts(struct request *r, uint32_t choice);

#endif
