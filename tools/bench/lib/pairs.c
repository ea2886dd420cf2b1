#include "tools/bench/lib/pairs.h"

#include "tools/bench/lib/metrics.h"

#include <math.h>
#include <stdlib.h>

#define MAX_SUM (BENCH_PAIRS_MAX * (BENCH_PAIRS_MAX + 1) / 2)

/* Number of means to cut off at each end: the largest k with 2 P(W < k) <= 1 - confidence, where W is the sum of those
 * ranks 1..n that a fair coin selects. */
static size_t n_cut(size_t n)
{
    double p[MAX_SUM + 1] = {1}, tail = 0;
    for (size_t rank = 1; rank <= n; rank++)
        for (size_t sum = n * (n + 1) / 2; sum + 1 > 0; sum--)
            p[sum] = (p[sum] + (sum >= rank ? p[sum - rank] : 0)) / 2;
    size_t k = 0;
    while (2 * (tail + p[k]) <= 1 - BENCH_PAIRS_CONFIDENCE)
        tail += p[k++];
    return k;
}

int bench_pairs_compare(const double *a, const double *b, size_t n, struct bench_pairs *out, struct quire_error *err)
{
    if (n < BENCH_PAIRS_MIN || n > BENCH_PAIRS_MAX)
        return quire_fail(err, QUIRE_INVALID, "%zu pairs: must be %d to %d", n, BENCH_PAIRS_MIN, BENCH_PAIRS_MAX);
    for (size_t i = 0; i < n; i++)
        if (!(a[i] > 0 && isfinite(a[i]) && b[i] > 0 && isfinite(b[i])))
            return quire_fail(err, QUIRE_INVALID, "pair %zu: must be positive numbers", i);
    size_t n_means = n * (n + 1) / 2, at = 0;
    double *means = malloc(n_means * sizeof *means);
    if (!means)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j <= i; j++)
            means[at++] = (log(b[i] / a[i]) + log(b[j] / a[j])) / 2;
    bench_sort(means, n_means);
    size_t k = n_cut(n);
    out->ratio = exp(bench_percentile(means, n_means, 50));
    out->low = exp(means[k - 1]);
    out->high = exp(means[n_means - k]);
    out->differs = means[k - 1] > 0 || means[n_means - k] < 0;
    free(means);
    return QUIRE_OK;
}
