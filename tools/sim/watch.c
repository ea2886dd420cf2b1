#include "tools/sim/watch.h"

#include <stdlib.h>
#include <string.h>

#define LOWEST_EXPONENT (-14)
#define FIRST_INTERVAL_US 1000

/* ---- histogram ---- */

/* The upper bits of a float are its exponent and the first bits of its mantissa: bins that grow by 1/256. */
static uint32_t bin_of(double ms)
{
    float value = (float)ms;
    uint32_t bits, first = (uint32_t)(127 + LOWEST_EXPONENT) << 8;
    memcpy(&bits, &value, sizeof bits);
    bits >>= 15;
    if (!(ms > 0) || bits < first)
        return 0;
    return bits - first + 1 < SIM_HISTOGRAM_BINS ? bits - first + 1 : SIM_HISTOGRAM_BINS - 1;
}

static double middle_of(uint32_t bin)
{
    if (bin == 0)
        return 0;
    uint32_t bits = ((bin - 1 + ((uint32_t)(127 + LOWEST_EXPONENT) << 8)) << 15) | 1u << 14;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void sim_histogram_add(struct sim_histogram *h, double ms)
{
    h->bins[bin_of(ms)]++;
    h->n++;
    h->sum += ms;
}

double sim_histogram_quantile(const struct sim_histogram *h, double p)
{
    if (h->n == 0)
        return 0;
    uint64_t rank = (uint64_t)(p / 100 * (double)(h->n - 1) + 0.5), seen = 0;
    uint32_t bin = 0;
    while ((seen += h->bins[bin]) <= rank)
        bin++;
    return middle_of(bin);
}

/* ---- fairness ---- */

static void compare(struct sim_shares *s, size_t n, size_t i, size_t j)
{
    size_t pair = i * n + j;
    double before = s->before[i] - s->before[j], now = s->service[i] - s->service[j];
    if (!s->together[pair])
        s->low[pair] = s->high[pair] = before;
    s->together[pair] = true;
    if (now < s->low[pair])
        s->low[pair] = now;
    if (now > s->high[pair])
        s->high[pair] = now;
    if (s->high[pair] - s->low[pair] > s->gap)
        s->gap = s->high[pair] - s->low[pair];
}

/* Ends the tenant's intervals with all others. */
static void part(struct sim_shares *s, size_t n, size_t i)
{
    memset(s->together + i * n, 0, i * sizeof *s->together);
    for (size_t j = i + 1; j < n; j++)
        s->together[j * n + i] = false;
}

static void compare_all(const struct sim_watch *w, struct sim_shares *s)
{
    for (size_t i = 0; i < w->n_tenants; i++) {
        if (w->was_backlogged[i] && !w->backlogged[i])
            part(s, w->n_tenants, i);
        for (size_t j = 0; w->backlogged[i] && j < i; j++)
            if (w->backlogged[j])
                compare(s, w->n_tenants, i, j);
    }
    memcpy(s->before, s->service, w->n_tenants * sizeof *s->before);
}

void sim_watch_fairness(struct sim_watch *w)
{
    compare_all(w, &w->tokens);
    compare_all(w, &w->time);
    memcpy(w->was_backlogged, w->backlogged, w->n_tenants * sizeof *w->backlogged);
}

/* ---- curves ---- */

struct sim_point *sim_watch_point(struct sim_watch *w, double now_us)
{
    if (w->n_points > 0 && now_us < w->next_us)
        return NULL;
    if (w->n_points == SIM_MAX_POINTS) {
        for (uint32_t i = 1; 2 * i < SIM_MAX_POINTS; i++)
            w->points[i] = w->points[2 * i];
        w->n_points = SIM_MAX_POINTS / 2;
        w->interval_us *= 2;
    }
    w->next_us = now_us + w->interval_us;
    struct sim_point *p = &w->points[w->n_points++];
    p->at_us = now_us;
    return p;
}

/* ---- all of it ---- */

void sim_watch_token_gap(struct sim_watch *w, uint32_t tenant, uint32_t class_index, double ms)
{
    sim_histogram_add(&w->itl, ms);
    sim_histogram_add(&w->tenant_itl[tenant], ms);
    sim_histogram_add(&w->class_itl[class_index], ms);
}

static bool make_histograms(struct sim_histogram *h, size_t n)
{
    for (size_t i = 0; h && i < n; i++)
        if (!(h[i].bins = calloc(SIM_HISTOGRAM_BINS, sizeof *h[i].bins)))
            return false;
    return h != NULL;
}

static bool make_shares(struct sim_shares *s, size_t n)
{
    s->service = calloc(n, sizeof *s->service);
    s->before = calloc(n, sizeof *s->before);
    s->low = calloc(n * n, sizeof *s->low);
    s->high = calloc(n * n, sizeof *s->high);
    s->together = calloc(n * n, sizeof *s->together);
    return s->service && s->before && s->low && s->high && s->together;
}

static void free_shares(struct sim_shares *s)
{
    free(s->service);
    free(s->before);
    free(s->low);
    free(s->high);
    free(s->together);
}

static bool allocate(struct sim_watch *w)
{
    size_t n = w->n_tenants;
    w->tenant_itl = calloc(n, sizeof *w->tenant_itl);
    w->class_itl = calloc(w->n_classes, sizeof *w->class_itl);
    bool ok = make_histograms(&w->itl, 1);
    ok &= make_histograms(w->tenant_itl, n);
    ok &= make_histograms(w->class_itl, w->n_classes);
    w->points = calloc(SIM_MAX_POINTS, sizeof *w->points);
    w->backlogged = calloc(n, sizeof *w->backlogged);
    w->was_backlogged = calloc(n, sizeof *w->was_backlogged);
    ok &= make_shares(&w->tokens, n);
    ok &= make_shares(&w->time, n);
    return ok && w->points && w->backlogged && w->was_backlogged;
}

static void free_histograms(struct sim_histogram *h, size_t n)
{
    for (size_t i = 0; h && i < n; i++)
        free(h[i].bins);
}

void sim_watch_free(struct sim_watch *w)
{
    if (!w)
        return;
    free(w->itl.bins);
    free_histograms(w->tenant_itl, w->n_tenants);
    free_histograms(w->class_itl, w->n_classes);
    free(w->tenant_itl);
    free(w->class_itl);
    free(w->points);
    free(w->backlogged);
    free(w->was_backlogged);
    free_shares(&w->tokens);
    free_shares(&w->time);
    free(w);
}

int sim_watch_create(uint32_t n_tenants, uint32_t n_classes, struct sim_watch **out, struct quire_error *err)
{
    struct sim_watch *w = calloc(1, sizeof *w);
    bool ok = w != NULL;
    *out = NULL;
    if (ok) {
        *w = (struct sim_watch){.n_tenants = n_tenants, .n_classes = n_classes, .interval_us = FIRST_INTERVAL_US};
        ok = allocate(w);
    }
    if (ok) {
        *out = w;
        return QUIRE_OK;
    }
    sim_watch_free(w);
    return quire_fail(err, QUIRE_NO_MEMORY, "out of memory for the measurements of %u tenants", n_tenants);
}
