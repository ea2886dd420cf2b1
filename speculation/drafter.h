/* speculation/: what a request will say next, guessed. A guess changes when a token is known and never which: the model
 * computes every token itself, at the next position or, with a draft there, several of them in one step.
 *
 * A drafter is whatever guesses: a table of functions and a state of its own. The engine asks it after each step for the
 * sequences that got a token; what it answers goes to sched_propose(). Slots name running sequences, 0 … n_slots - 1.
 *
 * Pure, as the scheduler is: no clock, thread or I/O (a draft model, which computes, lives in the engine); one thread at
 * a time. Memory is allocated when a drafter is made, by a function that also says how much it will be, and not later.
 */
#ifndef QUIRE_SPECULATION_DRAFTER_H
#define QUIRE_SPECULATION_DRAFTER_H

#include "base/hash.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Most drafts of one row: SCHED_MAX_DRAFT. */
#define DRAFT_MAX 64u

/* Tokens of a sequence that a drafter takes in at once. A long prompt is taken in over the first rows of its answer, since
 * everybody waits meanwhile: 131,072 tokens together would be 11 ms, this many are 0.7. */
#define DRAFT_AT_ONCE 8192u

/* A sequence as far as it is known. Borrowed for the call; tokens stay where they are while the sequence runs. */
struct draft_text {
    const uint32_t *tokens; /* [n_tokens]: the prompt, then what was generated */
    uint32_t n_tokens, n_prompt;
    const struct key256 *domain; /* whose it is: what one domain says is never guessed from another's texts */
    uint32_t tenant; /* who pays: of memory that is short, those who hold most give way */
    const uint32_t *expected; /* [n_expected]: what the answer is expected to be, by the request itself or by a
                                    stored answer; NULL */
    uint32_t n_expected;
};

/* One sequence's question, and its answer. */
struct draft_ask {
    uint32_t slot;
    uint32_t seq; /* what the scheduler calls it: for a drafter that computes on its blocks */
    struct draft_text text;
    uint32_t most; /* >= 1, at most DRAFT_MAX */
    uint32_t *drafts; /* [most] */
    uint32_t n; /* the answer: how many were written; 0 from the asker */
};

struct drafter;
struct drafter_ops {
    const char *name; /* the method's, as --speculative-config has it */
    /* A sequence with its prompt comes to a slot that is free. */
    void (*begin)(struct drafter *d, uint32_t slot, const struct draft_text *text);
    /* Answers all. Other than QUIRE_OK: the backend broke; drafters without one never fail. */
    int (*propose)(struct drafter *d, struct draft_ask *asks, uint32_t n, struct quire_error *err);
    /* It leaves. is_answer: its text is an answer, whole or as far as its client wanted it, and may be learned from; else it was
     * preempted or refused, and the text is empty. */
    void (*end)(struct drafter *d, uint32_t slot, const struct draft_text *text, bool is_answer);
    void (*destroy)(struct drafter *d);
};
/* First in each drafter's own struct. */
struct drafter {
    const struct drafter_ops *ops;
};

/* follow.c: a text that the answer is expected to be, token by token; after a mismatch it looks for the place where
 * answer and text agree again. Serves OpenAI's `prediction`, and stored answers to similar questions. */
uint64_t follow_bytes(uint32_t n_slots);
int follow_create(uint32_t n_slots, struct drafter **out, struct quire_error *err);

#endif
