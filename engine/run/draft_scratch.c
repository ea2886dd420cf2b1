#include "engine/run/draft_scratch.h"

#include <stdlib.h>
#include <string.h>

/* 64 KiB a sequence: with a penalty, eight drafts of a text of a thousand distinct tokens. One sequence alone gets
 * the space of sixteen, and a thousand sequences together no more than the space of 256. Pages that are never
 * touched cost no memory. */
#define ITEMS_OF_ONE 8192u
#define LEAST_SEQS 16u
#define MOST_SEQS 256u

#define ITEM_BYTES 8u
_Static_assert(sizeof(struct k_token_count) == ITEM_BYTES && sizeof(struct k_logit_bias) == ITEM_BYTES, "one size");

uint32_t draft_scratch_items(uint32_t max_num_seqs)
{
    uint32_t n = max_num_seqs > LEAST_SEQS ? max_num_seqs : LEAST_SEQS;
    return (n < MOST_SEQS ? n : MOST_SEQS) * ITEMS_OF_ONE;
}

uint64_t draft_scratch_bytes(uint32_t max_num_seqs, uint32_t overlap_depth)
{
    return (uint64_t)(overlap_depth + 1) * draft_scratch_items(max_num_seqs) * ITEM_BYTES;
}

int draft_scratch_create(struct draft_scratch *scratch, uint32_t max_num_seqs, struct quire_error *err)
{
    scratch->n = 0;
    scratch->capacity = draft_scratch_items(max_num_seqs);
    scratch->items = malloc((size_t)scratch->capacity * ITEM_BYTES);
    return scratch->items ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "steps: out of memory");
}

void draft_scratch_destroy(struct draft_scratch *scratch)
{
    free(scratch->items);
}

/* Items for the draw after `draft` drafts more than the choice's own counts hold. */
static uint64_t items_of(const struct sampling *s, uint64_t n_counts)
{
    return (sampling_counts_output(s) ? n_counts : 0) + sampling_row_scratch(s);
}

uint64_t draft_scratch_needed(const struct request *r, uint32_t choice, uint32_t n_drafts)
{
    const struct sampling *s = &r->sampling;
    return sampling_needs_tokens(s) ? n_drafts * items_of(s, (uint64_t)r->choices[choice].counts.n + n_drafts) : 0;
}

bool draft_scratch_take(struct draft_scratch *scratch, const struct sampling *s, uint32_t draft,
                        struct token_counts *counts, struct k_logit_bias **row_scratch)
{
    uint64_t needed = items_of(s, (uint64_t)counts->n + 1);
    if (!sampling_needs_tokens(s))
        return true;
    if (needed > scratch->capacity - scratch->n)
        return false;
    struct k_token_count *at = (struct k_token_count *)scratch->items + scratch->n;
    scratch->n += (uint32_t)needed;
    if (sampling_counts_output(s)) {
        memcpy(at, counts->items, counts->n * sizeof *at);
        *counts = (struct token_counts){.items = at, .n = counts->n, .capacity = counts->n + 1};
        token_counts_add(counts, draft);
        at += counts->capacity;
    }
    *row_scratch = (void *)at;
    return true;
}
