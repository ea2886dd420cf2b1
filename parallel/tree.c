#include "parallel/tree.h"

void tree_sum(float *restrict to, const float *const *from, uint32_t n_ranks, size_t n)
{
    const float *restrict a = from[0], *restrict b = from[1];
    if (n_ranks == 2) {
        for (size_t i = 0; i < n; i++)
            to[i] = a[i] + b[i];
        return;
    }
    const float *restrict c = from[2], *restrict d = from[3];
    if (n_ranks == 4) {
        for (size_t i = 0; i < n; i++)
            to[i] = (a[i] + b[i]) + (c[i] + d[i]);
        return;
    }
    const float *restrict e = from[4], *restrict f = from[5], *restrict g = from[6], *restrict h = from[7];
    for (size_t i = 0; i < n; i++)
        to[i] = ((a[i] + b[i]) + (c[i] + d[i])) + ((e[i] + f[i]) + (g[i] + h[i]));
}
