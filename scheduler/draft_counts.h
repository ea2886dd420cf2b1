/* Counters of draft results. Pure; any thread on its own counters. */
#ifndef QUIRE_SCHEDULER_DRAFT_COUNTS_H
#define QUIRE_SCHEDULER_DRAFT_COUNTS_H

#include "scheduler/driver.h"

/* Of rows whose results were used. */
struct draft_counts {
    uint64_t n_sampled, n_tokens;          /* rows that gave tokens, and their tokens */
    uint64_t n_rows, n_drafts, n_accepted; /* rows that verified drafts, and their drafts */
    uint64_t tried[SCHED_MAX_DRAFT];       /* rows with a draft i whose earlier drafts were all accepted */
    uint64_t accepted[SCHED_MAX_DRAFT];    /* rows of these where draft i was accepted, too */
};

static inline void draft_counts_add(struct draft_counts *c, uint32_t n_draft, uint32_t n_accepted)
{
    c->n_sampled++;
    c->n_tokens += n_accepted + 1;
    c->n_rows += n_draft > 0;
    c->n_drafts += n_draft;
    c->n_accepted += n_accepted;
    for (uint32_t i = 0; i < n_draft && i <= n_accepted; i++) {
        c->tried[i]++;
        c->accepted[i] += i < n_accepted;
    }
}

/* The row of result i. `row` is the row of the previous result, or the plan's first: results come in row order. */
static inline const struct sched_row *sched_committed_row(const struct sched_committed *c, uint32_t i,
                                                          const struct sched_row *row)
{
    while (row->seq != c->results[i].seq)
        row++;
    return row;
}

#endif
