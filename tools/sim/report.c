#include "tools/sim/report.h"

#include "tools/bench/lib/plot.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(SIM_MAX_CURVES <= PLOT_MAX_LINES, "each curve is a line");
#define CDF_POINTS 200
#define NO_MEMORY "out of memory for the page"

static void draw_plot(FILE *f, const struct plot *p)
{
    fprintf(f, "<figure><figcaption>%s</figcaption>", p->title);
    plot_draw(f, p);
    fputs("</figure>\n", f);
}

/* ---- plots ---- */

/* The share of answered requests below each of CDF_POINTS of their latencies, in milliseconds. */
static size_t make_cdf(const struct sim_result *r, bool e2el, double *sorted, double *x, double *y)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n_records; i++) {
        const struct sim_record *record = &r->records[i];
        if (record->fate == SIM_DONE && record->n_generated > 0)
            sorted[n++] = ((e2el ? record->last_us : record->first_us) - record->arrival_us) * 1e-3;
    }
    bench_sort(sorted, n);
    for (size_t i = 0; n > 0 && i < CDF_POINTS; i++) {
        y[i] = 100.0 * (double)i / (CDF_POINTS - 1);
        x[i] = bench_percentile(sorted, n, y[i]);
    }
    return n > 0 ? CDF_POINTS : 0;
}

static int draw_latencies(FILE *f, const struct sim_metrics *m)
{
    double x[2][CDF_POINTS], y[2][CDF_POINTS];
    double *sorted = malloc(m->result->n_records * sizeof *sorted);
    if (!sorted)
        return QUIRE_NO_MEMORY;
    struct plot p = {.title = "Requests that waited less",
                     .x_label = "milliseconds",
                     .y_label = "% of requests",
                     .log_x = true,
                     .n_lines = 2};
    p.lines[0] = (struct plot_line){"first token", x[0], y[0], make_cdf(m->result, false, sorted, x[0], y[0])};
    p.lines[1] = (struct plot_line){"whole answer", x[1], y[1], make_cdf(m->result, true, sorted, x[1], y[1])};
    draw_plot(f, &p);
    free(sorted);
    return QUIRE_OK;
}

enum curve { RUNNING, WAITING, USED, CACHED, SERVICE };

static double value_of(const struct sim_point *p, int curve)
{
    switch (curve) {
    case RUNNING: return p->n_running;
    case WAITING: return p->n_waiting;
    case USED: return p->n_used_blocks;
    case CACHED: return p->n_cached_blocks;
    default: return p->service[curve - SERVICE];
    }
}

static int draw_curves(FILE *f, const struct sim_metrics *m, const char *title, const char *y_label, int first,
                       size_t n, const char *const *names)
{
    const struct sim_watch *w = m->result->watch;
    double *values = malloc((n + 1) * (w->n_points + 1) * sizeof *values);
    if (!values)
        return QUIRE_NO_MEMORY;
    struct plot p = {.title = title, .x_label = "seconds", .y_label = y_label, .n_lines = n};
    for (size_t i = 0; i < w->n_points; i++)
        values[i] = (w->points[i].at_us - m->result->began_us) * 1e-6;
    for (size_t l = 0; l < n; l++) {
        double *y = values + (l + 1) * w->n_points;
        for (size_t i = 0; i < w->n_points; i++)
            y[i] = value_of(&w->points[i], first + (int)l);
        p.lines[l] = (struct plot_line){names[l], values, y, w->n_points};
    }
    draw_plot(f, &p);
    free(values);
    return QUIRE_OK;
}

static int draw_service(FILE *f, const struct sim_metrics *m)
{
    const char *names[SIM_MAX_CURVES];
    size_t n = m->workload->n_tenants < SIM_MAX_CURVES ? m->workload->n_tenants : SIM_MAX_CURVES;
    for (size_t i = 0; i < n; i++)
        names[i] = m->workload->tenants[i].name;
    if (n < 2)
        return QUIRE_OK;
    return draw_curves(f, m, "Service of each tenant", "weighted tokens", SERVICE, n, names);
}

/* ---- numbers ---- */

static void write_stat(FILE *f, const char *name, const struct sim_stat *s)
{
    char mean[24], p50[24], p95[24], p99[24];
    fprintf(f, "<tr><th>%s<td>%s<td>%s<td>%s<td>%s\n", name, sim_time_text(s->mean, 2, mean),
            sim_time_text(s->p50, 2, p50), sim_time_text(s->p95, 2, p95), sim_time_text(s->p99, 2, p99));
}

static void write_groups(FILE *f, const struct sim_metrics *m, const char *what, const struct sim_group *groups,
                         uint32_t n)
{
    fprintf(f,
            "<table><tr><th>%s<th>requests<th>refused<th>TTFT p50<th>TTFT p95<th>TPOT p50<th>E2E p95<th>queue p95"
            "<th>good\n",
            what);
    for (uint32_t i = 0; i < n; i++) {
        const struct sim_group *g = &groups[i];
        if (g->n == 0)
            continue;
        char text[5][24];
        fprintf(
            f, "<tr><th>%s<td>%zu<td>%zu<td>%s<td>%s<td>%s<td>%s<td>%s<td>", g->name, g->n, g->n_refused,
            sim_time_text(g->latency[SIM_TTFT].p50, 1, text[0]), sim_time_text(g->latency[SIM_TTFT].p95, 1, text[1]),
            sim_time_text(g->latency[SIM_TPOT].p50, 2, text[2]), sim_time_text(g->latency[SIM_E2EL].p95, 1, text[3]),
            sim_time_text(g->latency[SIM_QUEUE].p95, 1, text[4]));
        if (m->has_bounds)
            fprintf(f, "%.1f %%\n", 100 * (double)g->n_good / (double)g->n);
        else
            fputs("-\n", f);
    }
    fputs("</table>\n", f);
}

static void write_escaped(FILE *f, const char *text)
{
    for (; *text; text++) {
        if (strchr("<>&", *text))
            fprintf(f, "&#%d;", *text);
        else
            fputc(*text, f);
    }
}

static void write_facts(FILE *f, const struct sim_metrics *m, const char *policy)
{
    const struct sim_result *r = m->result;
    char hex[65];
    quire_key256_hex(&r->decisions, hex);
    fputs("<dl>", f);
    if (m->machine) {
        fputs("<dt>Machine<dd>", f);
        write_escaped(f, m->machine);
    }
    fprintf(f, "<dt>Policy<dd>%s<dt>Requests<dd>%zu answered, %zu rejected<dt>Simulated<dd>%.1f s, %llu steps", policy,
            m->all.n_done, m->all.n_refused, m->duration_s, (unsigned long long)r->stats.n_steps);
    if (m->has_bounds)
        fprintf(f, "<dt>Goodput<dd>%.2f requests/s, %.1f %% of all", sim_goodput(m, &m->all),
                100 * (double)m->all.n_good / (double)m->all.n);
    fprintf(f,
            "<dt>Prefix hits<dd>%.2f %% of blocks, %.2f %% of tokens<dt>Preemptions<dd>%llu<dt>KV slots held and empty"
            "<dd>%.2f %%",
            100 * m->hit_rate_blocks, 100 * m->hit_rate_tokens, (unsigned long long)m->all.n_preemptions,
            100 * m->kv_waste);
    if (m->workload->n_tenants > 1)
        fprintf(f, "<dt>Largest gap of service<dd>%.0f weighted tokens, %.0f weighted ms", r->watch->tokens.gap,
                r->watch->time.gap);
    if (r->drafts.n_rows > 0)
        fprintf(f, "<dt>Drafts<dd>%llu of %llu were accepted, %.2f tokens per step",
                (unsigned long long)r->drafts.n_accepted, (unsigned long long)r->drafts.n_drafts,
                (double)r->drafts.n_tokens / (double)r->drafts.n_sampled);
    if (m->without)
        fprintf(f, "<dt>Without drafts<dd>time per output token %.2f ms, end to end %.1f ms",
                m->without->all.latency[SIM_TPOT].mean, m->without->all.latency[SIM_E2EL].mean);
    if (r->figure_name)
        fprintf(f, "<dt>Figure of the policy<dd>%.4g (%s)", r->figure, r->figure_name);
    fprintf(f, "<dt>Decisions<dd><code>%s</code></dl>\n", hex);
    fputs("<table><tr><th>milliseconds<th>mean<th>p50<th>p95<th>p99\n", f);
    write_stat(f, "time to first token", &m->all.latency[SIM_TTFT]);
    write_stat(f, "time per output token", &m->all.latency[SIM_TPOT]);
    write_stat(f, "between tokens", &m->all.latency[SIM_ITL]);
    write_stat(f, "end to end", &m->all.latency[SIM_E2EL]);
    write_stat(f, "in the queue", &m->all.latency[SIM_QUEUE]);
    fputs("</table>\n", f);
}

/* ---- the page ---- */

static const char head[] =
    "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
    "<title>quire sim</title>\n<style>\n"
    ":root{color-scheme:light dark;--grid:#8884}\n"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:1180px;margin:2em auto;padding:0 1em}\n"
    ".plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,34em),1fr));gap:1em}\n"
    "figure{margin:0}figcaption{font-weight:600}svg{width:100%;height:auto}\n"
    "table{border-collapse:collapse;margin:1em 0}\n"
    "th,td{padding:.15em .8em;text-align:right;border-bottom:1px solid var(--grid);font-variant-numeric:tabular-nums}\n"
    "th:first-child{text-align:left}dl{display:grid;grid-template-columns:max-content 1fr;gap:.1em 1.5em}dd{margin:0}\n"
    "code{overflow-wrap:anywhere}\n</style>\n<h1>Simulation</h1>\n";

static int write_page(FILE *f, const struct sim_metrics *m, const char *policy)
{
    static const char *const requests[] = {"running", "waiting"}, *const blocks[] = {"in use", "cached, free"};
    fputs(head, f);
    write_facts(f, m, policy);
    fputs("<div class=plots>\n", f);
    int status = draw_latencies(f, m);
    if (status == QUIRE_OK)
        status = draw_curves(f, m, "Requests", "requests", RUNNING, 2, requests);
    if (status == QUIRE_OK)
        status = draw_curves(f, m, "KV blocks", "blocks", USED, 2, blocks);
    if (status == QUIRE_OK)
        status = draw_service(f, m);
    fputs("</div>\n", f);
    if (m->workload->n_tenants > 1)
        write_groups(f, m, "Tenant", m->tenants, m->workload->n_tenants);
    write_groups(f, m, "Class", m->classes, SCHED_MAX_CLASSES);
    return status;
}

int sim_report_write(const char *path, const struct sim_metrics *m, const char *policy, struct quire_error *err)
{
    FILE *f = fopen(path, "we");
    if (!f)
        return quire_fail(err, QUIRE_IO, "--html %.200s: cannot be written: %s", path, strerror(errno));
    int status = write_page(f, m, policy);
    bool bad = ferror(f) != 0;
    bad |= fclose(f) != 0;
    if (status != QUIRE_OK)
        return quire_fail(err, QUIRE_NO_MEMORY, NO_MEMORY);
    return bad ? quire_fail(err, QUIRE_IO, "--html %.200s: cannot be written", path) : QUIRE_OK;
}
