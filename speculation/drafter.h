/* speculation/: drafts of the next tokens of a request. A draft changes when a token is known, never which token it is:
 * the model computes every token itself, at the next position or, with drafts, several of them in one step.
 *
 * A drafter is a source of drafts: a table of functions and its own state. After each step, the engine calls it for the
 * sequences that got a token and passes its drafts to sched_propose(). Slots identify running sequences, 0 … n_slots -
 * 1.
 *
 * Pure, like the scheduler: no clock, thread or I/O. The draft model, which computes, is part of the engine. One thread
 * at a time. Memory is allocated only when a drafter is created; a function reports the size in advance.
 */
#ifndef QUIRE_SPECULATION_DRAFTER_H
#define QUIRE_SPECULATION_DRAFTER_H

#include "base/hash.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Maximum drafts of one row: SCHED_MAX_DRAFT. */
#define DRAFT_MAX 64u

/* Tokens of a sequence that a drafter reads per call. A long prompt is read over the first rows of its answer, because
 * all sequences wait meanwhile: 131,072 tokens at once take 11 ms, this many 0.7 ms. */
#define DRAFT_AT_ONCE 8192u

/* The known tokens of a sequence. Borrowed for the call; the array does not move while the sequence runs. */
struct draft_text {
    const uint32_t *tokens; /* [n_tokens]: the prompt, then the generated tokens */
    uint32_t n_tokens, n_prompt;
    const struct key256 *domain; /* texts of one domain are never used for drafts of another */
    uint32_t tenant; /* if memory is short, texts of the tenant with most memory are evicted first */
    /* [n_expected]: the expected answer, from the request itself or a stored answer; NULL: unknown */
    const uint32_t *expected;
    uint32_t n_expected;
};

/* The request for drafts of one sequence, and the result. */
struct draft_ask {
    uint32_t slot;
    uint32_t seq; /* the scheduler's number, for a drafter that uses its blocks */
    struct draft_text text;
    uint32_t most; /* >= 1, at most DRAFT_MAX */
    uint32_t *drafts; /* [most] */
    uint32_t n; /* result: number of drafts written; the caller sets 0 */
};

struct drafter;
struct drafter_ops {
    const char *name; /* name of the method in --speculative-config */
    /* A sequence with its prompt starts in a free slot. */
    void (*begin)(struct drafter *d, uint32_t slot, const struct draft_text *text);
    /* Fills in all results. An error means that the backend failed; drafters without a backend never fail. */
    int (*propose)(struct drafter *d, struct draft_ask *asks, uint32_t n, struct quire_error *err);
    /* The sequence leaves its slot. is_answer: its text is an answer, complete or cancelled by its client, and may be
     * learned. Otherwise the sequence was preempted or rejected, and the text is empty. */
    void (*end)(struct drafter *d, uint32_t slot, const struct draft_text *text, bool is_answer);
    void (*destroy)(struct drafter *d);
};
/* The first member of each drafter's own struct. */
struct drafter {
    const struct drafter_ops *ops;
};

/* follow.c: follows the text of an expected answer, token by token. After a mismatch it searches for the position where
 * answer and text agree again. Used for OpenAI's `prediction` and for stored answers to similar questions. */
uint64_t follow_bytes(uint32_t n_slots);
int follow_create(uint32_t n_slots, struct drafter **out, struct quire_error *err);

#endif
