#include "scheduler/fit/least_squares.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define MAX_TERMS LEAST_SQUARES_MAX_TERMS

static void mirror(struct least_squares *p)
{
    for (uint32_t a = 0; a < p->n; a++)
        for (uint32_t b = 0; b < a; b++)
            p->gram[b][a] = p->gram[a][b];
}

/* Columns of length 1, so that the units of terms do not matter. */
static void scale_columns(struct least_squares *p, double *lengths)
{
    for (uint32_t a = 0; a < p->n; a++)
        lengths[a] = p->gram[a][a] > 0 ? sqrt(p->gram[a][a]) : 1;
    for (uint32_t a = 0; a < p->n; a++) {
        p->right[a] /= lengths[a];
        for (uint32_t b = 0; b < p->n; b++)
            p->gram[a][b] /= lengths[a] * lengths[b];
    }
}

/* Solves for the included terms by Cholesky; the others are 0. A term that cannot be distinguished from earlier ones
 * (pure decode has as many tokens as rows) gets a small share by the ridge instead of a division by 0. */
static void solve(const struct least_squares *p, const bool *in, double *x)
{
    double l[MAX_TERMS][MAX_TERMS], y[MAX_TERMS];
    uint32_t index[MAX_TERMS], n = 0;
    for (uint32_t a = 0; a < p->n; a++) {
        x[a] = 0;
        if (in[a])
            index[n++] = a;
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k <= i; k++) {
            double sum = p->gram[index[i]][index[k]] + (i == k ? 1e-10 : 0);
            for (uint32_t j = 0; j < k; j++)
                sum -= l[i][j] * l[k][j];
            l[i][k] = i == k ? sqrt(sum > 1e-12 ? sum : 1e-12) : sum / l[k][k];
        }
        y[i] = p->right[index[i]];
        for (uint32_t j = 0; j < i; j++)
            y[i] -= l[i][j] * y[j];
        y[i] /= l[i][i];
    }
    for (uint32_t i = n; i-- > 0;) {
        for (uint32_t j = i + 1; j < n; j++)
            y[i] -= l[j][i] * x[index[j]];
        x[index[i]] = y[i] / l[i][i];
    }
}

/* The excluded term whose growth would lower the error most, or -1. */
static int steepest(const struct least_squares *p, const bool *in, const double *x)
{
    int best = -1;
    double most = 1e-9;
    for (uint32_t a = 0; a < p->n; a++) {
        double slope = p->right[a];
        for (uint32_t b = 0; b < p->n; b++)
            slope -= p->gram[a][b] * x[b];
        if (!in[a] && slope > most) {
            most = slope;
            best = (int)a;
        }
    }
    return best;
}

/* Moves x towards z until an included term would become negative, and excludes that one. Returns whether it reached z.
 */
static bool step_towards(const struct least_squares *p, bool *in, const double *z, double *x)
{
    double share = 1;
    int stop = -1;
    for (uint32_t a = 0; a < p->n; a++) {
        if (!in[a] || z[a] > 0)
            continue;
        double until = x[a] > 0 ? x[a] / (x[a] - z[a]) : 0;
        if (stop < 0 || until < share) {
            share = until;
            stop = (int)a;
        }
    }
    for (uint32_t a = 0; a < p->n; a++)
        x[a] += share * (z[a] - x[a]);
    if (stop < 0)
        return true;
    x[stop] = 0;
    in[stop] = false;
    return false;
}

void least_squares_solve(struct least_squares *p, double *x)
{
    bool in[MAX_TERMS] = {false};
    double z[MAX_TERMS], lengths[MAX_TERMS];
    int next;
    mirror(p);
    scale_columns(p, lengths);
    memset(x, 0, sizeof *x * p->n);
    /* Every round lowers the error, so none repeats; the bound covers rounding. */
    for (uint32_t round = 0; round < 4 * MAX_TERMS && (next = steepest(p, in, x)) >= 0; round++) {
        in[next] = true;
        do
            solve(p, in, z);
        while (!step_towards(p, in, z, x));
    }
    for (uint32_t a = 0; a < p->n; a++)
        x[a] /= lengths[a];
}
