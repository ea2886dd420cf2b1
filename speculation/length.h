/* The number of drafts that pay off, for each sequence and step, possibly 0. It follows from the fate of the sequence's
 * own drafts and from the cost of a wider step.
 *
 * A sequence's drafts have two acceptance rates: of the first draft, and of each further one after an accepted one.
 * Both are counted with a memory of a few rows and start with the recent rates of their source. The time of a step is
 * learned from the times of steps without prompts, by their number of tokens, or starts from a cost model. The next
 * draft goes to the sequence whose next draft is most likely to be accepted. Of all prefixes of that order, the one
 * with most tokens per time is chosen. With many rows, a step's time grows with its tokens, and the best prefix is soon
 * empty.
 *
 * A sequence without drafts pauses for 8 of its tokens, then 16, up to 256, and then tries one draft, unless it paused
 * because of the step's time and not because of its own drafts. If the draft is accepted, it starts afresh. Drafts that
 * are never accepted end after at most 32 rows, whatever steps cost (length_test.c).
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
    float first, first_right; /* rows; rows whose first draft was accepted */
    float next, next_right; /* drafts after an accepted one; accepted ones of these */
};

/* State of a sequence; all zero: a new one. */
struct draft_length {
    struct length_odds odds[LENGTH_N_SOURCES];
    uint16_t pause, wait; /* in its tokens: the last pause; what is left of it */
    uint16_t n_empty; /* consecutive requests for drafts without a result */
    uint16_t paused_rows; /* number of running sequences at that time */
    bool tries; /* after a pause: one draft, whatever its odds */
};

struct length_config {
    float first[LENGTH_N_SOURCES], next[LENGTH_N_SOURCES]; /* prior acceptance rates of a source */
    uint32_t n_points; /* prior cost of steps, if known; ascending */
    struct {
        uint32_t n_tokens;
        double us;
    } points[LENGTH_MAX_POINTS];
};

struct lengths;
uint64_t lengths_bytes(uint32_t max_items);
int lengths_create(const struct length_config *config, uint32_t max_items, struct lengths **out,
                   struct quire_error *err);
void lengths_destroy(struct lengths *l); /* NULL is allowed */

/* The drafts of a row were verified. */
void lengths_verified(struct lengths *l, struct draft_length *q, uint32_t source, uint32_t n_drafts, uint32_t n_right);
/* A step without prompts took this long, with this many tokens. */
void lengths_timed(struct lengths *l, uint32_t n_tokens, double us);
/* Expected time of such a step; 0: unknown. */
double lengths_us(const struct lengths *l, uint32_t n_tokens);

/* The sequence has a new token. Returns whether drafters are called for it now. n_rows: running sequences. */
bool length_is_due(struct draft_length *q, uint32_t n_rows);
/* They were called and had no drafts. After 8 times, a sequence is tried so rarely that about 8 calls per step are
 * wasted. */
void length_had_none(struct draft_length *q, uint32_t n_rows);
/* Returns whether no drafts are to be expected: it pauses, or recent calls had no result. */
bool length_is_idle(const struct draft_length *q);

/* A sequence that could have drafts in the next step. */
struct length_item {
    struct draft_length *q;
    uint32_t source;
    uint32_t n_offered; /* available drafts, or drafts that can be made */
    uint32_t n; /* result: how many to use */
    bool waits; /* it should try with its next token, because enough others try now */
};

/* The reasons of a choice, for observers. */
struct length_reason {
    uint32_t n_rows, n_items; /* running rows; rows among them with drafts */
    uint32_t n_offered, n_chosen;
    double us_without, us_with; /* time of the step; 0: unknown */
    double n_right; /* expected number of accepted drafts */
};

/* Chooses for a step of n_rows rows with space for this many drafts. draft_us: time of one draft for all items if
 * drafts are made after the choice; otherwise 0. At most max_items items. Items without drafts start a pause. */
void lengths_choose(struct lengths *l, struct length_item *items, uint32_t n, uint32_t n_rows, uint32_t room,
                    double draft_us, struct length_reason *reason);

#endif
