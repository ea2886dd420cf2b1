/* The sum of the ranks' vectors (docs/internals/numerics.md section 5). Pure; any thread. */
#ifndef QUIRE_PARALLEL_TREE_H
#define QUIRE_PARALLEL_TREE_H

#include <stddef.h>
#include <stdint.h>

/* to[i] = the tree's sum of from[0 .. n_ranks - 1][i]; n_ranks: 2, 4 or 8. to does not overlap any of them. */
void tree_sum(float *restrict to, const float *const *from, uint32_t n_ranks, size_t n);

#endif
