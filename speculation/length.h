/* How many drafts are worth it: for each sequence and step, from what became of its own drafts and from what a wider step
 * takes, down to none.
 *
 * A sequence's drafts are right with two chances, of the first and of each further one after a right one, both counted
 * with a memory of a few rows and begun with what its source's drafts are worth of late. What a step takes is learned
 * from the times of steps without prompts, by how many tokens they had, or begun with a cost model. The next draft goes to
 * the sequence whose next one is most likely to be kept, and of all ends of that order the one is taken where the step
 * gives most tokens for its time: with many rows a step's time grows with its tokens, and that end is soon none at all.
 *
 * A sequence that gets none pauses for 8 of its tokens, then 16, up to 256, and then tries one draft, unless what it paused for
 * was the step's time and not what became of its drafts: right, it is begun anew. Drafts that are never right are over after at most 32 rows whatever steps cost (length_test.c).
 *
 * Pure: times are arguments. One thread at a time.
 */
#ifndef QUIRE_SPECULATION_LENGTH_H
#define QUIRE_SPECULATION_LENGTH_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define LENGTH_N_SOURCES 2u
#define LENGTH_MAX_POINTS 24u

/* Decayed counts. */
struct length_odds {
    float first, first_right; /* rows; those whose first draft was right */
    float next, next_right; /* drafts after a right one; those that were right */
};

/* Of a sequence; all zero: a new one. */
struct draft_length {
    struct length_odds odds[LENGTH_N_SOURCES];
    uint16_t pause, wait; /* in its tokens: the last one; what is left of it */
    uint16_t n_empty; /* questions in a row that nobody had an answer to */
    uint16_t paused_rows; /* how many were running then */
    bool tries; /* after a pause: one draft, whatever is thought of it */
};

struct length_config {
    float first[LENGTH_N_SOURCES], next[LENGTH_N_SOURCES]; /* chances before anything is known of a source */
    uint32_t n_points; /* of what steps take, where somebody knows; rising */
    struct {
        uint32_t n_tokens;
        double us;
    } points[LENGTH_MAX_POINTS];
};

struct lengths;
uint64_t lengths_bytes(uint32_t max_items);
int lengths_create(const struct length_config *config, uint32_t max_items, struct lengths **out,
                   struct quire_error *err);
void lengths_destroy(struct lengths *l); /* NULL is fine */

/* A row's drafts were verified. */
void lengths_verified(struct lengths *l, struct draft_length *q, uint32_t source, uint32_t n_drafts, uint32_t n_right);
/* A step without prompts took so long, of so many tokens. */
void lengths_timed(struct lengths *l, uint32_t n_tokens, double us);
/* What such a step will take; 0: nothing is known yet. */
double lengths_us(const struct lengths *l, uint32_t n_tokens);

/* The sequence has a new token: whether drafters are to be asked for it now. n_rows: running sequences. */
bool length_is_due(struct draft_length *q, uint32_t n_rows);
/* They were, and had none. After 8 times it is asked so seldom that about 8 questions a step are in vain. */
void length_had_none(struct draft_length *q, uint32_t n_rows);
/* Nothing is to be expected: it pauses, or nobody had an answer of late. */
bool length_is_idle(const struct draft_length *q);

/* A sequence that could have drafts in the next step. */
struct length_item {
    struct draft_length *q;
    uint32_t source;
    uint32_t n_offered; /* drafts there are, or could be had */
    uint32_t n; /* the answer: how many to take */
    bool waits; /* to try, with its next token: enough others do */
};

/* What a choice followed from, for whoever wants to know. */
struct length_reason {
    uint32_t n_rows, n_items; /* running; of them, those with drafts */
    uint32_t n_offered, n_chosen;
    double us_without, us_with; /* what the step takes; 0: nothing is known yet */
    double n_right; /* drafts that are expected to be right */
};

/* For a step of n_rows rows with room for so many drafts. draft_us: of one draft for all items, where they are made only
 * after the choice; else 0. At most max_items. Who gets none begins to pause. */
void lengths_choose(struct lengths *l, struct length_item *items, uint32_t n, uint32_t n_rows, uint32_t room,
                    double draft_us, struct length_reason *reason);

#endif
