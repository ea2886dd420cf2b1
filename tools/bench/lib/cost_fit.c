#include "tools/bench/lib/cost_fit.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { ROW, LOGIT, CONTEXT, PAIR, N_PRICES };
#define MAX_TERMS (SCHED_COST_MAX_POINTS + N_PRICES)

/* The normal equations of the weighted problem, with columns scaled to length 1. */
struct problem {
    uint32_t n_terms;
    double gram[MAX_TERMS][MAX_TERMS], right[MAX_TERMS];
};

/* ---- terms ---- */

/* Powers of two up to the largest step and that step itself, without those that no step distinguishes from the one
 * before. */
static void choose_points(const struct cost_sample *samples, size_t n, struct sched_cost *cost)
{
    uint32_t most = 1, last = 0;
    for (size_t i = 0; i < n; i++)
        if (samples[i].shape.n_tokens > most)
            most = samples[i].shape.n_tokens;
    cost->n_points = 0;
    for (uint64_t at = 1; last < most && cost->n_points < SCHED_COST_MAX_POINTS; at *= 2) {
        uint32_t point = at < most ? (uint32_t)at : most;
        bool is_seen = point == 1;
        for (size_t i = 0; i < n && !is_seen; i++)
            is_seen = samples[i].shape.n_tokens > last && samples[i].shape.n_tokens <= point;
        if (is_seen)
            cost->points[cost->n_points++].n_tokens = last = point;
    }
}

/* T is a constant plus, for each further point, a ramp that rises from 0 at the previous point to 1 and stays there: T
 * never decreases if the ramps are not negative. No step exceeds the last point. */
static void terms_of(const struct sched_cost *cost, const struct sched_shape *shape, double *terms)
{
    terms[0] = 1;
    for (uint32_t i = 1; i < cost->n_points; i++) {
        double from = cost->points[i - 1].n_tokens, to = cost->points[i].n_tokens;
        double share = (shape->n_tokens - from) / (to - from);
        terms[i] = share < 0 ? 0 : share > 1 ? 1 : share;
    }
    double *prices = terms + cost->n_points;
    prices[ROW] = shape->n_rows;
    prices[LOGIT] = shape->n_logits;
    prices[CONTEXT] = (double)shape->n_context;
    prices[PAIR] = (double)shape->n_pairs;
}

static void add_samples(const struct sched_cost *cost, const struct cost_sample *samples, size_t n, struct problem *p)
{
    double terms[MAX_TERMS];
    for (size_t i = 0; i < n; i++) {
        terms_of(cost, &samples[i].shape, terms);
        for (uint32_t a = 0; a < p->n_terms; a++) {
            terms[a] /= samples[i].us;
            p->right[a] += terms[a];
            for (uint32_t b = 0; b <= a; b++)
                p->gram[a][b] += terms[a] * terms[b];
        }
    }
    for (uint32_t a = 0; a < p->n_terms; a++)
        for (uint32_t b = 0; b < a; b++)
            p->gram[b][a] = p->gram[a][b];
}

static void scale_columns(struct problem *p, double *lengths)
{
    for (uint32_t a = 0; a < p->n_terms; a++)
        lengths[a] = p->gram[a][a] > 0 ? sqrt(p->gram[a][a]) : 1;
    for (uint32_t a = 0; a < p->n_terms; a++) {
        p->right[a] /= lengths[a];
        for (uint32_t b = 0; b < p->n_terms; b++)
            p->gram[a][b] /= lengths[a] * lengths[b];
    }
}

/* ---- non-negative least squares ---- */

/* Solves for the included terms by Cholesky; the others are 0. A term that cannot be distinguished from earlier ones
 * (pure decode has as many tokens as rows) gets a small share by the ridge instead of a division by 0. */
static void solve(const struct problem *p, const bool *in, double *x)
{
    double l[MAX_TERMS][MAX_TERMS], y[MAX_TERMS];
    uint32_t index[MAX_TERMS], n = 0;
    for (uint32_t a = 0; a < p->n_terms; a++) {
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
static int steepest(const struct problem *p, const bool *in, const double *x)
{
    int best = -1;
    double most = 1e-9;
    for (uint32_t a = 0; a < p->n_terms; a++) {
        double slope = p->right[a];
        for (uint32_t b = 0; b < p->n_terms; b++)
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
static bool step_towards(const struct problem *p, bool *in, const double *z, double *x)
{
    double share = 1;
    int stop = -1;
    for (uint32_t a = 0; a < p->n_terms; a++) {
        if (!in[a] || z[a] > 0)
            continue;
        double until = x[a] > 0 ? x[a] / (x[a] - z[a]) : 0;
        if (stop < 0 || until < share) {
            share = until;
            stop = (int)a;
        }
    }
    for (uint32_t a = 0; a < p->n_terms; a++)
        x[a] += share * (z[a] - x[a]);
    if (stop < 0)
        return true;
    x[stop] = 0;
    in[stop] = false;
    return false;
}

static void solve_non_negative(const struct problem *p, double *x)
{
    bool in[MAX_TERMS] = {false};
    double z[MAX_TERMS];
    int next;
    memset(x, 0, sizeof *x * p->n_terms);
    /* Every round lowers the error, so none repeats; the bound covers rounding. */
    for (uint32_t round = 0; round < 4 * MAX_TERMS && (next = steepest(p, in, x)) >= 0; round++) {
        in[next] = true;
        do
            solve(p, in, z);
        while (!step_towards(p, in, z, x));
    }
}

/* ---- the fit ---- */

int cost_fit(const struct cost_sample *samples, size_t n, struct sched_cost *out, struct quire_error *err)
{
    double lengths[MAX_TERMS], x[MAX_TERMS];
    if (n == 0)
        return quire_fail(err, QUIRE_INVALID, "no steps to fit a cost model to");
    struct problem *p = calloc(1, sizeof *p);
    if (!p)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    *out = (struct sched_cost){0};
    choose_points(samples, n, out);
    p->n_terms = out->n_points + N_PRICES;
    add_samples(out, samples, n, p);
    scale_columns(p, lengths);
    solve_non_negative(p, x);
    free(p);
    double us = 0;
    for (uint32_t i = 0; i < out->n_points; i++)
        out->points[i].us = us += x[i] / lengths[i];
    const double *prices = x + out->n_points, *scales = lengths + out->n_points;
    out->row_us = prices[ROW] / scales[ROW];
    out->logit_us = prices[LOGIT] / scales[LOGIT];
    out->context_us = prices[CONTEXT] / scales[CONTEXT];
    out->pair_us = prices[PAIR] / scales[PAIR];
    return sched_cost_check(out, err);
}

/* ---- errors ---- */

const char *cost_kind_name(enum cost_kind kind)
{
    static const char *const names[] = {"decode", "prefill", "mixed", "verify"};
    return names[kind];
}

void cost_fit_errors(const struct sched_cost *cost, const struct cost_sample *samples, size_t n,
                     struct cost_error errors[COST_N_KINDS + 1])
{
    double measured[COST_N_KINDS + 1] = {0}, predicted[COST_N_KINDS + 1] = {0};
    memset(errors, 0, sizeof *errors * (COST_N_KINDS + 1));
    for (size_t i = 0; i < n; i++) {
        double us = sched_cost_us(cost, &samples[i].shape);
        const int kinds[] = {(int)samples[i].kind, COST_N_KINDS};
        for (int k = 0; k < 2; k++) {
            errors[kinds[k]].n++;
            errors[kinds[k]].mean_absolute += fabs(us - samples[i].us) / samples[i].us;
            measured[kinds[k]] += samples[i].us;
            predicted[kinds[k]] += us;
        }
    }
    for (int k = 0; k <= COST_N_KINDS; k++)
        if (errors[k].n > 0) {
            errors[k].mean_absolute /= (double)errors[k].n;
            errors[k].bias = predicted[k] / measured[k] - 1;
        }
}
