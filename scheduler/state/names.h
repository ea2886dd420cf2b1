/* The names of sequences: numbers below n. A new sequence takes a free name. A sequence that is over is retired with its
 * name, and the name is free again once it has been collected. Names are collected in the order in which they were
 * retired. */
#ifndef QUIRE_SCHEDULER_STATE_NAMES_H
#define QUIRE_SCHEDULER_STATE_NAMES_H

#include <stdbool.h>
#include <stdint.h>

struct names {
    uint32_t n;
    uint32_t n_free;
    uint32_t retired_head, n_retired;
    uint32_t *retired; /* ring of n, in the same allocation */
    uint32_t free[]; /* stack of n */
};

/* All are free. The caller frees it with free(). Returns NULL if memory is short. */
struct names *names_create(uint32_t n);
/* At least one must be free. */
uint32_t names_take(struct names *names);
void names_give_back(struct names *names, uint32_t name);
void names_retire(struct names *names, uint32_t name);
/* Removes the name that was retired first, which is not free yet. Returns false if none is retired. */
bool names_next_retired(struct names *names, uint32_t *name);

#endif
