/* The groups that a rank of a pipeline computes in, of the one group that all ranks are: rank = stage * ranks of a stage + place.
 * Those of its stage add up what they share; each hands on what its place computed to the same place in the next stage; and
 * the last stage's first rank gives the logits to rank 0. Engine thread only.
 */
#ifndef QUIRE_ENGINE_PARTS_H
#define QUIRE_ENGINE_PARTS_H

#include "parallel/collective.h"

struct rank_parts {
    struct collective *stage; /* NULL: the rank is its stage's only one */
    struct collective *before, *next; /* groups of two ranks, the earlier stage's first; NULL at the ends of the
                                       * pipeline */
    struct collective *back; /* rank 0 and the first rank of the last stage; NULL on other ranks, or if both are the
                              * same rank */
    struct collective *whole; /* the caller's; where there is one stage, `stage` is it */
};

/* How many of them a rank has beside the whole group. Pure. */
uint32_t parts_count(uint32_t rank, uint32_t n_ranks, uint32_t n_stages);

/* n_stages divides the group's size. parts_close() it before the group is left; also where this failed. */
int parts_open(struct collective *whole, uint32_t n_stages, struct rank_parts *out, struct quire_error *err);
void parts_close(struct rank_parts *parts);

int parts_send(struct rank_parts *parts, const void *x, size_t n_bytes, struct quire_error *err);
int parts_receive(struct rank_parts *parts, void *x, size_t n_bytes, struct quire_error *err);
int parts_send_back(struct rank_parts *parts, const void *x, size_t n_bytes, struct quire_error *err);
int parts_receive_back(struct rank_parts *parts, void *x, size_t n_bytes, struct quire_error *err);

#endif
