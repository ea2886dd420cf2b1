/* Tests whether the difference between two configurations is more than noise. Both are measured once per round, one
 * right after the other, so that other activity of the machine affects both of a pair.
 *
 * Without a difference, each pair's log ratio has either sign with the same probability, and Wilcoxon's signed ranks
 * give the exact probability. The estimate is Hodges and Lehmann's: the median of the means of all two log ratios. The
 * interval holds the ratios that the test at 1 % does not reject: five figures judged together are then all correct in
 * 95 of 100 comparisons. From 15 rounds on, one outlier of any size does not change the verdict.
 *
 * No global state; any thread.
 */
#ifndef QUIRE_TOOLS_BENCH_PAIRS_H
#define QUIRE_TOOLS_BENCH_PAIRS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

#define BENCH_PAIRS_CONFIDENCE 0.99
#define BENCH_PAIRS_MIN 8 /* 2 / 2^8 < 1 %: with fewer rounds, no verdict is possible */
#define BENCH_PAIRS_MAX 256

struct bench_pairs {
    double ratio;     /* b / a */
    double low, high; /* the interval */
    bool differs;     /* the interval does not contain 1 */
};

/* a[n], b[n]: all > 0; BENCH_PAIRS_MIN <= n <= BENCH_PAIRS_MAX. Otherwise QUIRE_INVALID. QUIRE_NO_MEMORY. */
int bench_pairs_compare(const double *a, const double *b, size_t n, struct bench_pairs *out, struct quire_error *err);

#endif
