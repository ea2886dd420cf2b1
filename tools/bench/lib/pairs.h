/* Is the difference between two configurations more than noise? Both were measured once in each round, one right after
 * the other, so that what the machine does otherwise falls on both of a pair.
 *
 * Were there no difference, each pair's log ratio would be as likely of either sign, and Wilcoxon's signed ranks say
 * exactly how likely. The estimate is Hodges and Lehmann's: the median of the means of all two log ratios. The interval
 * holds the ratios that the test at 1 % does not refuse: chosen so that five figures judged together are all right in 95 of
 * 100 comparisons. From 15 rounds on, one that is off without bound does not change what is said.
 *
 * No global state; any thread.
 */
#ifndef QUIRE_TOOLS_BENCH_PAIRS_H
#define QUIRE_TOOLS_BENCH_PAIRS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

#define BENCH_PAIRS_CONFIDENCE 0.99
#define BENCH_PAIRS_MIN 8 /* 2 / 2^8 < 1 %: with fewer, nothing could ever be said */
#define BENCH_PAIRS_MAX 256

struct bench_pairs {
    double ratio;     /* b / a */
    double low, high; /* the interval */
    bool differs;     /* 1 is not in it */
};

/* a[n], b[n]: all > 0; BENCH_PAIRS_MIN <= n <= BENCH_PAIRS_MAX. QUIRE_INVALID otherwise. QUIRE_NO_MEMORY. */
int bench_pairs_compare(const double *a, const double *b, size_t n, struct bench_pairs *out, struct quire_error *err);

#endif
