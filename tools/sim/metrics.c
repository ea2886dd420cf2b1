#include "tools/sim/metrics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_POSITIONS 8 /* drafts of a row in the table; the JSON has all */

/* ---- one request ---- */

static double tpot_us(const struct sim_record *r)
{
    return r->n_generated > 1 ? (r->last_us - r->first_us) / (r->n_generated - 1) : 0;
}

static double ttft_bound(const struct sim_request *q, const struct sim_bounds *b)
{
    double own = q->deadline_ms > 0 ? q->deadline_ms : b->class_ttft_ms[q->class_index];
    return own > 0 && own < b->ms[BENCH_TTFT] ? own : b->ms[BENCH_TTFT];
}

static bool is_good(const struct sim_request *q, const struct sim_record *r, const struct sim_bounds *b)
{
    return r->first_us - r->arrival_us <= ttft_bound(q, b) * 1e3 && tpot_us(r) <= b->ms[BENCH_TPOT] * 1e3 &&
           r->last_us - r->arrival_us <= b->ms[BENCH_E2EL] * 1e3;
}

/* ---- some requests ---- */

/* Of each request, except for SIM_ITL. */
static size_t collect(const struct sim_result *result, const uint32_t *which, size_t n, enum sim_latency latency,
                      double *out)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        const struct sim_record *r = &result->records[which[i]];
        if (r->fate != SIM_DONE || (latency != SIM_QUEUE && r->n_generated == 0) ||
            (latency == SIM_TPOT && r->n_generated < 2))
            continue;
        out[count++] = latency == SIM_TTFT   ? r->first_us - r->arrival_us
                       : latency == SIM_TPOT ? tpot_us(r)
                       : latency == SIM_E2EL ? r->last_us - r->arrival_us
                                             : r->admitted_us - r->arrival_us;
    }
    return count;
}

static struct sim_stat summarise(double *us, size_t n)
{
    bench_sort(us, n);
    return (struct sim_stat){bench_mean(us, n) * 1e-3, bench_percentile(us, n, 50) * 1e-3,
                             bench_percentile(us, n, 95) * 1e-3, bench_percentile(us, n, 99) * 1e-3};
}

static struct sim_stat summarise_histogram(const struct sim_histogram *h)
{
    return (struct sim_stat){h->n ? h->sum / (double)h->n : 0, sim_histogram_quantile(h, 50),
                             sim_histogram_quantile(h, 95), sim_histogram_quantile(h, 99)};
}

static void fill_group(const struct sim_metrics *m, const struct sim_bounds *bounds, const uint32_t *which, size_t n,
                       const struct sim_histogram *itl, double *scratch, struct sim_group *g)
{
    g->n = n;
    for (size_t i = 0; i < n; i++) {
        const struct sim_request *q = &m->workload->requests[which[i]];
        const struct sim_record *r = &m->result->records[which[i]];
        g->n_preemptions += r->n_preemptions;
        g->n_refused += r->fate == SIM_REFUSED;
        if (r->fate != SIM_DONE)
            continue;
        g->n_done++;
        g->n_good += is_good(q, r, bounds);
        g->n_input += q->n_prompt;
        g->n_output += r->n_generated;
        g->n_cached += r->n_cached;
    }
    for (enum sim_latency l = SIM_TTFT; l <= SIM_QUEUE; l++)
        g->latency[l] = summarise(scratch, collect(m->result, which, n, l, scratch));
    g->latency[SIM_ITL] = summarise_histogram(itl);
}

/* Numbers of the requests by key, from order + begins[key]; begins has n_keys + 1 entries. */
static void sort_by(const struct sim_workload *t, bool by_tenant, uint32_t n_keys, uint32_t *order, size_t *begins)
{
    memset(begins, 0, (n_keys + 1) * sizeof *begins);
    for (size_t i = 0; i < t->n; i++)
        begins[(by_tenant ? t->requests[i].tenant : t->requests[i].class_index) + 1]++;
    for (uint32_t k = 0; k < n_keys; k++)
        begins[k + 1] += begins[k];
    for (size_t i = t->n; i-- > 0;) /* backwards: begins[k + 1] decreases to the final begins[k] */
        order[--begins[(by_tenant ? t->requests[i].tenant : t->requests[i].class_index) + 1]] = (uint32_t)i;
    memmove(begins, begins + 1, n_keys * sizeof *begins);
    begins[n_keys] = t->n;
}

static void fill_all(struct sim_metrics *m, const struct sim_bounds *bounds, uint32_t *order, size_t *begins,
                     double *scratch)
{
    const struct sim_watch *w = m->result->watch;
    for (size_t i = 0; i < m->workload->n; i++)
        order[i] = (uint32_t)i;
    m->all.name = "all";
    fill_group(m, bounds, order, m->workload->n, &w->itl, scratch, &m->all);
    sort_by(m->workload, true, m->workload->n_tenants, order, begins);
    for (uint32_t t = 0; t < m->workload->n_tenants; t++) {
        m->tenants[t].name = m->workload->tenants[t].name;
        m->tenants[t].service = w->tokens.service[t];
        fill_group(m, bounds, order + begins[t], begins[t + 1] - begins[t], &w->tenant_itl[t], scratch, &m->tenants[t]);
    }
    sort_by(m->workload, false, SCHED_MAX_CLASSES, order, begins);
    for (uint32_t c = 0; c < SCHED_MAX_CLASSES; c++) {
        static const char *const names[SCHED_MAX_CLASSES] = {"0", "1", "2", "3", "4", "5", "6", "7"};
        m->classes[c].name = names[c];
        fill_group(m, bounds, order + begins[c], begins[c + 1] - begins[c], &w->class_itl[c], scratch, &m->classes[c]);
    }
}

static bool any_bound(const struct sim_workload *t, const struct sim_bounds *b)
{
    for (int i = 0; i < BENCH_N_METRICS; i++)
        if (isfinite(b->ms[i]))
            return true;
    for (size_t i = 0; i < t->n; i++)
        if (isfinite(ttft_bound(&t->requests[i], b)))
            return true;
    return false;
}

static double ratio(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

int sim_metrics_compute(const struct sim_workload *workload, const struct sim_result *result,
                        const struct sim_bounds *bounds, struct sim_metrics *out, struct quire_error *err)
{
    *out = (struct sim_metrics){.workload = workload,
                                .result = result,
                                .has_bounds = any_bound(workload, bounds),
                                .duration_s = (result->ended_us - result->began_us) * 1e-6};
    uint32_t n_keys = workload->n_tenants > SCHED_MAX_CLASSES ? workload->n_tenants : SCHED_MAX_CLASSES;
    uint32_t *order = malloc(workload->n * sizeof *order);
    size_t *begins = malloc((n_keys + 1) * sizeof *begins);
    double *scratch = malloc(workload->n * sizeof *scratch);
    out->tenants = calloc(workload->n_tenants, sizeof *out->tenants);
    bool ok = order && begins && scratch && out->tenants;
    if (ok)
        fill_all(out, bounds, order, begins, scratch);
    free(order);
    free(begins);
    free(scratch);
    const struct sim_watch *w = result->watch;
    out->hit_rate_blocks = ratio((double)result->n_cached_blocks, (double)result->n_prompt_blocks);
    out->hit_rate_tokens = ratio((double)result->n_cached_tokens, (double)result->n_prompt_tokens);
    out->kv_waste = ratio(w->slots_empty, w->slots);
    out->kv_waste_unshared = ratio(w->slots_empty, w->slots_unshared);
    return ok ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "out of memory for the results");
}

void sim_metrics_free(struct sim_metrics *m)
{
    free(m->tenants);
    *m = (struct sim_metrics){0};
}

double sim_goodput(const struct sim_metrics *m, const struct sim_group *g)
{
    return ratio((double)g->n_good, m->duration_s);
}

/* The improvement by drafts: rates with and without, and the inverse for times. */
struct gain {
    double output_throughput, ttft, tpot, e2el;
};

static double output_rate(const struct sim_metrics *m)
{
    return ratio((double)m->all.n_output, m->duration_s);
}

static struct gain gain_of(const struct sim_metrics *m)
{
    const struct sim_group *with = &m->all, *without = &m->without->all;
    return (struct gain){.output_throughput = ratio(output_rate(m), output_rate(m->without)),
                         .ttft = ratio(without->latency[SIM_TTFT].mean, with->latency[SIM_TTFT].mean),
                         .tpot = ratio(without->latency[SIM_TPOT].mean, with->latency[SIM_TPOT].mean),
                         .e2el = ratio(without->latency[SIM_E2EL].mean, with->latency[SIM_E2EL].mean)};
}

/* Tokens of a sequence in a step in which it got some. */
static double tokens_per_step(const struct draft_counts *c)
{
    return ratio((double)c->n_tokens, (double)c->n_sampled);
}

/* The share of rows whose drafts up to draft i were accepted, if all rows were as long: the form of
 * --speculative-acceptance. */
static double acceptance_up_to(const struct draft_counts *c, uint32_t i)
{
    double share = 1;
    for (uint32_t k = 0; k <= i; k++)
        share *= ratio((double)c->accepted[k], (double)c->tried[k]);
    return share;
}

/* ---- JSON ---- */

static json_t *stat_json(const struct sim_stat *s)
{
    return json_pack("{s:f, s:f, s:f, s:f}", "mean", s->mean, "p50", s->p50, "p95", s->p95, "p99", s->p99);
}

static json_t *real_or_null(bool known, double value)
{
    return known ? json_real(value) : json_null();
}

static json_t *group_json(const struct sim_metrics *m, const struct sim_group *g)
{
    json_t *object = json_pack(
        "{s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:I, s:f, s:I, s:I, s:f, s:f}", "requests", (json_int_t)g->n,
        "completed", (json_int_t)g->n_done, "refused", (json_int_t)g->n_refused, "ttft_ms",
        stat_json(&g->latency[SIM_TTFT]), "tpot_ms", stat_json(&g->latency[SIM_TPOT]), "itl_ms",
        stat_json(&g->latency[SIM_ITL]), "e2el_ms", stat_json(&g->latency[SIM_E2EL]), "queue_ms",
        stat_json(&g->latency[SIM_QUEUE]), "preemptions", (json_int_t)g->n_preemptions, "prefix_hit_rate_tokens",
        ratio((double)g->n_cached, (double)g->n_input), "total_input_tokens", (json_int_t)g->n_input,
        "total_output_tokens", (json_int_t)g->n_output, "request_throughput", ratio((double)g->n_done, m->duration_s),
        "output_throughput", ratio((double)g->n_output, m->duration_s));
    if (!object)
        return NULL;
    json_object_set_new(object, "goodput", real_or_null(m->has_bounds, sim_goodput(m, g)));
    json_object_set_new(object, "goodput_share", real_or_null(m->has_bounds, ratio((double)g->n_good, (double)g->n)));
    return object;
}

static json_t *groups_json(const struct sim_metrics *m, const struct sim_group *groups, uint32_t n, bool by_tenant)
{
    json_t *object = json_object();
    for (uint32_t i = 0; i < n; i++) {
        if (groups[i].n == 0)
            continue;
        json_t *group = group_json(m, &groups[i]);
        if (by_tenant) {
            json_object_set_new(group, "weight", json_integer(m->workload->tenants[i].weight));
            json_object_set_new(group, "service_tokens", real_or_null(!m->result->recorded, groups[i].service));
        }
        json_object_set_new(object, groups[i].name, group);
    }
    return object;
}

static json_t *gain_json(const struct sim_metrics *m)
{
    if (!m->without)
        return json_null();
    const struct gain gain = gain_of(m);
    return json_pack("{s:f, s:f, s:f, s:f}", "output_throughput", gain.output_throughput, "ttft_ms", gain.ttft,
                     "tpot_ms", gain.tpot, "e2el_ms", gain.e2el);
}

static json_t *speculation_json(const struct sim_metrics *m)
{
    const struct draft_counts *c = &m->result->drafts;
    json_t *rates = json_array();
    if (!m->without && c->n_rows == 0) {
        json_decref(rates);
        return json_null();
    }
    for (uint32_t i = 0; i < SCHED_MAX_DRAFT && c->tried[i] > 0; i++)
        json_array_append_new(rates, json_real(acceptance_up_to(c, i)));
    return json_pack("{s:I, s:I, s:I, s:f, s:o, s:f, s:o, s:o}", "drafts", (json_int_t)c->n_rows, "draft_tokens",
                     (json_int_t)c->n_drafts, "accepted_tokens", (json_int_t)c->n_accepted, "acceptance_rate",
                     ratio((double)c->n_accepted, (double)c->n_drafts), "acceptance_per_position", rates,
                     "tokens_per_step", tokens_per_step(c), "gain", gain_json(m), "without",
                     m->without ? group_json(m->without, &m->without->all) : json_null());
}

json_t *sim_metrics_json(const struct sim_metrics *m, const char *policy)
{
    const struct sim_result *r = m->result;
    char hex[65];
    json_t *object = group_json(m, &m->all);
    quire_key256_hex(&r->decisions, hex);
    json_t *rest = json_pack(
        "{s:s, s:f, s:I, s:f, s:f, s:f, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:s}", "policy",
        policy, "duration", m->duration_s, "steps", (json_int_t)r->stats.n_steps, "wall_s", r->wall_s,
        "prefix_hit_rate_blocks", m->hit_rate_blocks, "prefix_hit_rate_tokens", m->hit_rate_tokens,
        "fairness_gap_tokens", real_or_null(!r->recorded, r->watch->tokens.gap), "fairness_gap_ms",
        real_or_null(!r->recorded, r->watch->time.gap), "kv_waste", real_or_null(!r->recorded, m->kv_waste),
        "kv_waste_unshared", real_or_null(!r->recorded, m->kv_waste_unshared), "left_out",
        (json_int_t)m->workload->n_left_out, "recomputed_tokens", (json_int_t)r->stats.n_recomputed, "host_hit_tokens",
        (json_int_t)r->stats.n_host_hits, "evicted_blocks", (json_int_t)r->usage.n_evicted, "spilled_blocks",
        (json_int_t)r->usage.n_spilled, "loaded_blocks", (json_int_t)r->usage.n_loaded, "per_tenant",
        groups_json(m, m->tenants, m->workload->n_tenants, true), "per_class",
        groups_json(m, m->classes, SCHED_MAX_CLASSES, false), "decision_log_sha256", hex);
    if (!object || !rest || json_object_update(object, rest) != 0) {
        json_decref(object);
        json_decref(rest);
        return NULL;
    }
    json_decref(rest);
    json_object_set_new(object, "policy_figure",
                        r->figure_name ? json_pack("{s:s, s:f}", "name", r->figure_name, "value", r->figure)
                                       : json_null());
    json_object_set_new(object, "speculation", speculation_json(m));
    json_object_set_new(object, "machine", m->machine ? json_string(m->machine) : json_null());
    return object;
}

/* ---- the table ---- */

char *sim_time_text(double ms, int decimals, char out[24])
{
    if (fabs(ms) >= 10000)
        snprintf(out, 24, "%.2f s", ms * 1e-3);
    else
        snprintf(out, 24, "%.*f", decimals, ms);
    return out;
}

static void print_stat(const char *name, const struct sim_stat *s)
{
    char mean[24], p50[24], p95[24], p99[24];
    printf("%-24s %12s %12s %12s %12s\n", name, sim_time_text(s->mean, 2, mean), sim_time_text(s->p50, 2, p50),
           sim_time_text(s->p95, 2, p95), sim_time_text(s->p99, 2, p99));
}

static void print_groups(const struct sim_metrics *m, const char *what, const struct sim_group *groups, uint32_t n)
{
    uint32_t n_used = 0;
    for (uint32_t i = 0; i < n; i++)
        n_used += groups[i].n > 0;
    if (n_used < 2)
        return;
    printf("\n%-16s %8s %10s %10s %10s %10s %10s %9s\n", what, "requests", "TTFT p50", "TTFT p95", "TPOT p50",
           "E2EL p95", "queue p95", "goodput");
    for (uint32_t i = 0; i < n; i++) {
        const struct sim_group *g = &groups[i];
        if (g->n == 0)
            continue;
        char text[5][24];
        printf("%-16.16s %8zu %10s %10s %10s %10s %10s ", g->name, g->n,
               sim_time_text(g->latency[SIM_TTFT].p50, 1, text[0]), sim_time_text(g->latency[SIM_TTFT].p95, 1, text[1]),
               sim_time_text(g->latency[SIM_TPOT].p50, 2, text[2]), sim_time_text(g->latency[SIM_E2EL].p95, 1, text[3]),
               sim_time_text(g->latency[SIM_QUEUE].p95, 1, text[4]));
        if (m->has_bounds)
            printf("%8.1f%%\n", 100 * ratio((double)g->n_good, (double)g->n));
        else
            puts("        -");
    }
}

static void print_counts(const struct sim_metrics *m, const char *policy)
{
    const struct sim_result *r = m->result;
    if (m->machine)
        printf("%-36s %s\n", "Machine:", m->machine);
    printf("%-36s %s\n", "Policy:", policy);
    printf("%-36s %zu answered, %zu rejected, %zu left out\n", "Requests:", m->all.n_done, m->all.n_refused,
           m->workload->n_left_out);
    printf("%-36s %.2f in %llu steps (computed in %.2f s)\n", "Simulated seconds:", m->duration_s,
           (unsigned long long)r->stats.n_steps, r->wall_s);
    printf("%-36s %.2f requests/s, %.1f output tokens/s\n", "Throughput:", ratio((double)m->all.n_done, m->duration_s),
           ratio((double)m->all.n_output, m->duration_s));
    if (m->has_bounds)
        printf("%-36s %.2f requests/s, %.1f %% of all\n", "Goodput:", sim_goodput(m, &m->all),
               100 * ratio((double)m->all.n_good, (double)m->all.n));
    printf("%-36s %.2f %% of blocks, %.2f %% of tokens\n", "Prefix cache hits:", 100 * m->hit_rate_blocks,
           100 * m->hit_rate_tokens);
    printf("%-36s %llu, %llu tokens recomputed\n", "Preemptions:", (unsigned long long)m->all.n_preemptions,
           (unsigned long long)r->stats.n_recomputed);
    if (!r->recorded)
        printf("%-36s %.2f %% (%.2f %% without sharing)\n", "KV slots allocated but empty:", 100 * m->kv_waste,
               100 * m->kv_waste_unshared);
    if (!r->recorded && m->workload->n_tenants > 1)
        printf("%-36s %.0f weighted tokens, %.0f weighted ms\n", "Largest gap of service:", r->watch->tokens.gap,
               r->watch->time.gap);
    if (r->figure_name)
        printf("%-36s %.4g (%s)\n", "Figure of the policy:", r->figure, r->figure_name);
}

static void print_speculation(const struct sim_metrics *m)
{
    const struct draft_counts *c = &m->result->drafts;
    if (!m->without && c->n_rows == 0)
        return;
    printf("%-36s %llu of %llu were accepted (%.1f %%)", "Drafts:", (unsigned long long)c->n_accepted,
           (unsigned long long)c->n_drafts, 100 * ratio((double)c->n_accepted, (double)c->n_drafts));
    for (uint32_t i = 0; i < MAX_POSITIONS && i < SCHED_MAX_DRAFT && c->tried[i] > 0; i++)
        printf("%s%.2f", i ? "," : "; by position ", acceptance_up_to(c, i));
    puts(c->tried[MAX_POSITIONS] > 0 ? ",..." : "");
    printf("%-36s %.2f per sequence in a step that gives it some\n", "Tokens a step:", tokens_per_step(c));
    if (!m->without)
        return;
    const struct gain gain = gain_of(m);
    printf(
        "%-36s %.2f x tokens per second; time per output token %.2f x as short, end to end %.2f x, to the first %.2f "
        "x\n",
        "Compared with no drafts:", gain.output_throughput, gain.tpot, gain.e2el, gain.ttft);
}

void sim_metrics_print(const struct sim_metrics *m, const char *policy)
{
    char hex[65];
    quire_key256_hex(&m->result->decisions, hex);
    print_counts(m, policy);
    print_speculation(m);
    printf("\n%-24s %12s %12s %12s %12s\n", "Milliseconds", "mean", "p50", "p95", "p99");
    print_stat("Time to first token", &m->all.latency[SIM_TTFT]);
    print_stat("Time per output token", &m->all.latency[SIM_TPOT]);
    print_stat("Between tokens", &m->all.latency[SIM_ITL]);
    print_stat("End to end", &m->all.latency[SIM_E2EL]);
    print_stat("In the queue", &m->all.latency[SIM_QUEUE]);
    print_groups(m, "Tenant", m->tenants, m->workload->n_tenants);
    print_groups(m, "Class", m->classes, SCHED_MAX_CLASSES);
    printf("\nDecisions: %s\n", hex);
}
