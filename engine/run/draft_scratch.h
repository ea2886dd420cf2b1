/* Scratch memory for the counts and last tokens that the samplers of drafts read. A row that verifies drafts draws
 * after each of them. If counts or last tokens matter (penalties, bad words of several tokens), each draw needs
 * those before it, including its own row's drafts. A step has a fixed amount of this scratch, allocated once.
 * Otherwise a penalty over a long prompt would copy its counts for every logit row. Drafts that do not fit are not
 * proposed, or, if they were proposed, not verified.
 *
 * Engine thread only. One per step in flight, because the sampler's rows point into it until the step's results are
 * taken.
 */
#ifndef QUIRE_ENGINE_DRAFT_SCRATCH_H
#define QUIRE_ENGINE_DRAFT_SCRATCH_H

#include "base/status.h"
#include "engine/run/request.h"

#include <stdbool.h>
#include <stdint.h>

struct draft_scratch {
    void *items; /* [capacity] of 8 bytes: counts and biases */
    uint32_t capacity, n;
};

/* Items of one room, and bytes of those of an engine with such an overlap: for the memory plan. */
uint32_t draft_scratch_items(uint32_t max_num_seqs);
uint64_t draft_scratch_bytes(uint32_t max_num_seqs, uint32_t overlap_depth);
int draft_scratch_create(struct draft_scratch *scratch, uint32_t max_num_seqs, struct quire_error *err);
void draft_scratch_destroy(struct draft_scratch *scratch);

/* Items that so many drafts of a choice take; 0 where the sampler looks at no tokens. */
uint64_t draft_scratch_needed(const struct request *r, uint32_t choice, uint32_t n_drafts);
/* For the draw after one draft more: *counts become what they were and the draft, *row_scratch is that draw's own. False, and
 * nothing changed: there is no room. */
bool draft_scratch_take(struct draft_scratch *scratch, const struct sampling *s, uint32_t draft,
                        struct token_counts *counts, struct k_logit_bias **row_scratch);

#endif
