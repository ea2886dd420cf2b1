#include "engine/run/draft_room.h"

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

uint32_t draft_room_items(uint32_t max_num_seqs)
{
    uint32_t n = max_num_seqs > LEAST_SEQS ? max_num_seqs : LEAST_SEQS;
    return (n < MOST_SEQS ? n : MOST_SEQS) * ITEMS_OF_ONE;
}

uint64_t draft_room_bytes(uint32_t max_num_seqs, uint32_t overlap_depth)
{
    return (uint64_t)(overlap_depth + 1) * draft_room_items(max_num_seqs) * ITEM_BYTES;
}

int draft_room_create(struct draft_room *room, uint32_t max_num_seqs, struct quire_error *err)
{
    room->n = 0;
    room->capacity = draft_room_items(max_num_seqs);
    room->items = malloc((size_t)room->capacity * ITEM_BYTES);
    return room->items ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "steps: out of memory");
}

void draft_room_destroy(struct draft_room *room)
{
    free(room->items);
}

/* Items for the draw after `draft` drafts more than the choice's own counts hold. */
static uint64_t items_of(const struct sampling *s, uint64_t n_counts)
{
    return (s->counts_output ? n_counts : 0) + sampling_row_room(s);
}

uint64_t draft_room_needed(const struct request *r, uint32_t choice, uint32_t n_drafts)
{
    const struct sampling *s = &r->sampling;
    return sampling_needs_tokens(s) ? n_drafts * items_of(s, (uint64_t)r->choices[choice].counts.n + n_drafts) : 0;
}

bool draft_room_take(struct draft_room *room, const struct sampling *s, uint32_t draft, struct token_counts *counts,
                     struct k_logit_bias **row_room)
{
    uint64_t needed = items_of(s, (uint64_t)counts->n + 1);
    if (!sampling_needs_tokens(s))
        return true;
    if (needed > room->capacity - room->n)
        return false;
    struct k_token_count *at = (struct k_token_count *)room->items + room->n;
    room->n += (uint32_t)needed;
    if (s->counts_output) {
        memcpy(at, counts->items, counts->n * sizeof *at);
        *counts = (struct token_counts){.items = at, .n = counts->n, .capacity = counts->n + 1};
        token_counts_add(counts, draft);
        at += counts->capacity;
    }
    *row_room = (void *)at;
    return true;
}
