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

static void compare(struct sim_watch *w, size_t i, size_t j)
{
    size_t pair = i * w->n_tenants + j;
    double before = w->before[i] - w->before[j], now = w->service[i] - w->service[j];
    if (!w->together[pair])
        w->low[pair] = w->high[pair] = before;
    w->together[pair] = true;
    if (now < w->low[pair])
        w->low[pair] = now;
    if (now > w->high[pair])
        w->high[pair] = now;
    if (w->high[pair] - w->low[pair] > w->gap_tokens)
        w->gap_tokens = w->high[pair] - w->low[pair];
}

/* Ends the tenant's intervals with all others. */
static void part(struct sim_watch *w, size_t i)
{
    memset(w->together + i * w->n_tenants, 0, i * sizeof *w->together);
    for (size_t j = i + 1; j < w->n_tenants; j++)
        w->together[j * w->n_tenants + i] = false;
}

void sim_watch_fairness(struct sim_watch *w)
{
    for (size_t i = 0; i < w->n_tenants; i++) {
        if (w->was_backlogged[i] && !w->backlogged[i])
            part(w, i);
        w->was_backlogged[i] = w->backlogged[i];
        for (size_t j = 0; w->backlogged[i] && j < i; j++)
            if (w->backlogged[j])
                compare(w, i, j);
    }
    memcpy(w->before, w->service, w->n_tenants * sizeof *w->before);
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

static bool allocate(struct sim_watch *w)
{
    size_t n = w->n_tenants, n_pairs = n * n;
    w->tenant_itl = calloc(n, sizeof *w->tenant_itl);
    w->class_itl = calloc(w->n_classes, sizeof *w->class_itl);
    bool ok = make_histograms(&w->itl, 1);
    ok &= make_histograms(w->tenant_itl, n);
    ok &= make_histograms(w->class_itl, w->n_classes);
    w->points = calloc(SIM_MAX_POINTS, sizeof *w->points);
    w->service = calloc(n, sizeof *w->service);
    w->before = calloc(n, sizeof *w->before);
    w->backlogged = calloc(n, sizeof *w->backlogged);
    w->was_backlogged = calloc(n, sizeof *w->was_backlogged);
    w->low = calloc(n_pairs, sizeof *w->low);
    w->high = calloc(n_pairs, sizeof *w->high);
    w->together = calloc(n_pairs, sizeof *w->together);
    return ok && w->points && w->service && w->before && w->backlogged && w->was_backlogged && w->low && w->high &&
           w->together;
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
    free(w->service);
    free(w->before);
    free(w->backlogged);
    free(w->was_backlogged);
    free(w->low);
    free(w->high);
    free(w->together);
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
