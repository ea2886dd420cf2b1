#include "tools/bench/lib/cost_fit.h"

#include "scheduler/fit/least_squares.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { ROW, LOGIT, CONTEXT, PAIR, N_PRICES };
#define MAX_TERMS (SCHED_COST_MAX_POINTS + N_PRICES)

_Static_assert(MAX_TERMS <= LEAST_SQUARES_MAX_TERMS, "every term of a model");

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

static void add_samples(const struct sched_cost *cost, const struct cost_sample *samples, size_t n,
                        struct least_squares *p)
{
    double terms[MAX_TERMS];
    for (size_t i = 0; i < n; i++) {
        terms_of(cost, &samples[i].shape, terms);
        for (uint32_t a = 0; a < p->n; a++) {
            terms[a] /= samples[i].us;
            p->right[a] += terms[a];
            for (uint32_t b = 0; b <= a; b++)
                p->gram[a][b] += terms[a] * terms[b];
        }
    }
}

/* ---- the fit ---- */

int cost_fit(const struct cost_sample *samples, size_t n, struct sched_cost *out, struct quire_error *err)
{
    double x[MAX_TERMS];
    if (n == 0)
        return quire_fail(err, QUIRE_INVALID, "no steps to fit a cost model to");
    struct least_squares *p = calloc(1, sizeof *p);
    if (!p)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    *out = (struct sched_cost){0};
    choose_points(samples, n, out);
    p->n = out->n_points + N_PRICES;
    add_samples(out, samples, n, p);
    least_squares_solve(p, x);
    free(p);
    double us = 0;
    for (uint32_t i = 0; i < out->n_points; i++)
        out->points[i].us = us += x[i];
    const double *prices = x + out->n_points;
    out->row_us = prices[ROW];
    out->logit_us = prices[LOGIT];
    out->context_us = prices[CONTEXT];
    out->pair_us = prices[PAIR];
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
