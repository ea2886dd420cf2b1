#include "tools/bench/lib/metrics.h"

#include "base/encoding/number.h"
#include "speculation/figures.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *key, *name, *heading;
} metrics[BENCH_N_METRICS] = {
    [BENCH_TTFT] = {"ttft", "TTFT", "Time to First Token"},
    [BENCH_TPOT] = {"tpot", "TPOT", "Time per Output Token (excl. 1st token)"},
    [BENCH_ITL] = {"itl", "ITL", "Inter-token Latency"},
    [BENCH_E2EL] = {"e2el", "E2EL", "End-to-end Latency"},
};

/* ---- order statistics ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void bench_sort(double *values, size_t n)
{
    if (n > 1)
        qsort(values, n, sizeof *values, by_value);
}

double bench_percentile(const double *sorted, size_t n, double p)
{
    if (n == 0)
        return 0;
    double at = p / 100 * (double)(n - 1);
    size_t below = (size_t)at;
    if (below + 1 >= n)
        return sorted[n - 1];
    return sorted[below] + (sorted[below + 1] - sorted[below]) * (at - (double)below);
}

double bench_mean(const double *values, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += values[i];
    return n ? sum / (double)n : 0;
}

double bench_std(const double *values, size_t n)
{
    double mean = bench_mean(values, n), sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (values[i] - mean) * (values[i] - mean);
    return n ? sqrt(sum / (double)n) : 0;
}

/* ---- one request ---- */

int bench_result_add_itl(struct bench_result *r, double seconds, struct quire_error *err)
{
    if (r->n_itls == r->itls_capacity) {
        size_t capacity = r->itls_capacity ? 2 * r->itls_capacity : 64;
        double *grown = realloc(r->itls_s, capacity * sizeof *grown);
        if (!grown)
            return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
        r->itls_s = grown;
        r->itls_capacity = capacity;
    }
    r->itls_s[r->n_itls++] = seconds;
    return QUIRE_OK;
}

void bench_result_fail(struct bench_result *r, const char *message)
{
    r->ok = false;
    if (!r->error)
        r->error = strdup(message); /* if memory is short, it fails without a message */
}

void bench_results_free(struct bench_result *results, size_t n)
{
    for (size_t i = 0; results && i < n; i++) {
        free(results[i].error);
        free(results[i].itls_s);
    }
    free(results);
}

/* ---- options ---- */

static int find_metric(const char *name, size_t n)
{
    for (int i = 0; i < BENCH_N_METRICS; i++)
        if (strlen(metrics[i].key) == n && strncmp(metrics[i].key, name, n) == 0)
            return i;
    return -1;
}

static int parse_shown(const char *text, struct bench_metrics_options *out, struct quire_error *err)
{
    const char *at = text;
    do {
        const size_t n = strcspn(at, ",");
        const int metric = find_metric(at, n);
        if (metric < 0)
            return quire_fail(err, QUIRE_INVALID, "--percentile-metrics: \"%.*s\": must be some of ttft,tpot,itl,e2el",
                              (int)n, at);
        out->shown[metric] = true;
        at += n;
    } while (*at++);
    return QUIRE_OK;
}

static int parse_percentiles(const char *text, struct bench_metrics_options *out, struct quire_error *err)
{
    const char *at = text;
    do {
        const char *const from = at;
        double p;
        if (!quire_take_number(&at, 100, &p) || (*at && *at != ','))
            return quire_fail(err, QUIRE_INVALID,
                              "--metric-percentiles: \"%.*s\": must be numbers from 0 to 100, such as 50,95,99",
                              (int)strcspn(from, ","), from);
        if (out->n_percentiles == BENCH_MAX_PERCENTILES)
            return quire_fail(err, QUIRE_INVALID, "--metric-percentiles: more than %d", BENCH_MAX_PERCENTILES);
        out->percentiles[out->n_percentiles++] = p;
    } while (*at++);
    return QUIRE_OK;
}

static int parse_goodput(const char *text, struct bench_metrics_options *out, struct quire_error *err)
{
    size_t n = strcspn(text, ":");
    int metric = find_metric(text, n);
    const char *at = text + n + (text[n] == ':');
    double ms;
    if (metric < 0 || metric == BENCH_ITL || text[n] != ':' || !quire_take_number(&at, DBL_MAX, &ms) || *at)
        return quire_fail(err, QUIRE_INVALID,
                          "--goodput: \"%.60s\": must be ttft:MS, tpot:MS or e2el:MS, the limit of a good request in "
                          "milliseconds",
                          text);
    out->goodput_ms[metric] = ms;
    out->has_goodput = true;
    return QUIRE_OK;
}

int bench_metrics_options_parse(const char *shown, const char *percentiles, const char *const *goodput,
                                size_t n_goodput, struct bench_metrics_options *out, struct quire_error *err)
{
    *out = (struct bench_metrics_options){.goodput_ms = {INFINITY, INFINITY, INFINITY, INFINITY}};
    int status = parse_shown(shown, out, err);
    if (status == QUIRE_OK)
        status = parse_percentiles(percentiles, out, err);
    for (size_t i = 0; status == QUIRE_OK && i < n_goodput; i++)
        status = parse_goodput(goodput[i], out, err);
    return status;
}

/* ---- all requests ---- */

static double tpot_of(const struct bench_result *r)
{
    return r->n_output > 1 ? (r->e2el_s - r->ttft_s) / (r->n_output - 1) : 0;
}

/* As in vLLM, a request with one token has a TPOT of 0 here. */
static bool is_good(const struct bench_result *r, const struct bench_metrics_options *o)
{
    return r->ttft_s * 1e3 <= o->goodput_ms[BENCH_TTFT] && tpot_of(r) * 1e3 <= o->goodput_ms[BENCH_TPOT] &&
           r->e2el_s * 1e3 <= o->goodput_ms[BENCH_E2EL];
}

/* Writes the metric's values to out, which has space for all; returns their number. */
static size_t collect(const struct bench_result *results, size_t n, enum bench_metric metric, double *out)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        const struct bench_result *r = &results[i];
        if (!r->ok)
            continue;
        if (metric == BENCH_ITL) {
            if (r->n_itls > 0)
                memcpy(out + count, r->itls_s, r->n_itls * sizeof *out);
            count += r->n_itls;
        } else if (metric == BENCH_TTFT) {
            out[count++] = r->ttft_s;
        } else if (metric == BENCH_E2EL) {
            out[count++] = r->e2el_s;
        } else if (r->n_output > 1) {
            out[count++] = tpot_of(r);
        }
    }
    return count;
}

static void summarise(double *values, size_t n, const struct bench_metrics_options *options, struct bench_stat *out)
{
    bench_sort(values, n);
    out->mean_ms = bench_mean(values, n) * 1e3;
    out->std_ms = bench_std(values, n) * 1e3;
    out->median_ms = bench_percentile(values, n, 50) * 1e3;
    for (size_t i = 0; i < options->n_percentiles; i++)
        out->percentiles_ms[i] = bench_percentile(values, n, options->percentiles[i]) * 1e3;
}

/* Maximum of requests in flight at one time: a request counts from its start until just before its end. */
static size_t peak_concurrency(double *starts, double *ends, size_t n)
{
    size_t live = 0, peak = 0, over = 0;
    bench_sort(starts, n);
    bench_sort(ends, n);
    for (size_t i = 0; i < n; i++) {
        while (over < n && ends[over] <= starts[i]) {
            over++;
            live--;
        }
        if (++live > peak)
            peak = live;
    }
    return peak;
}

/* Events with tokens in the fullest whole second since the first start. times: of all events. */
static double peak_rate(double *times, size_t n, double first)
{
    size_t most = 0, count = 0;
    bench_sort(times, n);
    for (size_t i = 0; i < n; i++) {
        bool same = i > 0 && floor(times[i] - first) == floor(times[i - 1] - first);
        count = same ? count + 1 : 1;
        if (count > most)
            most = count;
    }
    return (double)most;
}

static void find_peaks(const struct bench_result *results, size_t n, double *values, struct bench_metrics *m)
{
    size_t n_ok = 0, n_times = 0;
    double first = INFINITY;
    for (size_t i = 0; i < n; i++) {
        const struct bench_result *r = &results[i];
        if (!r->ok)
            continue;
        double at = r->start_s + r->ttft_s;
        values[n_times++] = at;
        for (size_t k = 0; k < r->n_itls; k++)
            values[n_times++] = at += r->itls_s[k];
        if (r->start_s < first)
            first = r->start_s;
    }
    m->max_output_tokens_per_s = peak_rate(values, n_times, first);
    double *starts = values, *ends = values + m->completed;
    for (size_t i = 0; i < n; i++) {
        if (!results[i].ok)
            continue;
        starts[n_ok] = results[i].start_s;
        ends[n_ok++] = results[i].start_s + results[i].e2el_s;
    }
    m->max_concurrent_requests = peak_concurrency(starts, ends, n_ok);
}

int bench_metrics_compute(const struct bench_result *results, size_t n, double duration_s,
                          const struct bench_metrics_options *options, struct bench_metrics *out,
                          struct quire_error *err)
{
    size_t n_itls = 0, n_good = 0;
    *out = (struct bench_metrics){.duration_s = duration_s};
    for (size_t i = 0; i < n; i++) {
        const struct bench_result *r = &results[i];
        if (!r->ok) {
            out->failed++;
            if (!out->first_error)
                out->first_error = r->error ? r->error : "unknown reason";
            continue;
        }
        out->completed++;
        out->total_input += r->n_prompt;
        out->total_output += r->n_output;
        n_good += is_good(r, options);
        n_itls += r->n_itls;
    }
    double *values = calloc(2 * n + n_itls + 1, sizeof *values); /* space for the largest step */
    if (!values)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    double per_s = duration_s > 0 ? 1 / duration_s : 0;
    out->request_throughput = (double)out->completed * per_s;
    out->request_goodput = options->has_goodput ? (double)n_good * per_s : 0;
    out->output_throughput = (double)out->total_output * per_s;
    out->total_token_throughput = (double)(out->total_input + out->total_output) * per_s;
    for (int i = 0; i < BENCH_N_METRICS; i++)
        summarise(values, collect(results, n, (enum bench_metric)i, values), options, &out->stats[i]);
    find_peaks(results, n, values, out);
    free(values);
    return QUIRE_OK;
}

/* ---- out ---- */

#define TABLE_WIDTH 50

static void print_line(char fill, const char *title)
{
    size_t n = strlen(title), left = n < TABLE_WIDTH ? (TABLE_WIDTH - n) / 2 : 0;
    for (size_t i = 0; i < left; i++)
        putchar(fill);
    fputs(title, stdout);
    for (size_t i = left + n; i < TABLE_WIDTH; i++)
        putchar(fill);
    putchar('\n');
}

static void print_count(const char *what, uint64_t n)
{
    printf("%-40s %-10llu\n", what, (unsigned long long)n);
}

static void print_value(const char *what, double x)
{
    printf("%-40s %-10.2f\n", what, x);
}

/* "50", "99.9". */
static void percentile_text(double p, char out[32])
{
    snprintf(out, 32, "%.10g", p);
}

static void print_stat(const struct bench_stat *s, const struct bench_metrics_options *options, int metric)
{
    const char *name = metrics[metric].name;
    char line[96], p[32];
    print_line('-', metrics[metric].heading);
    snprintf(line, sizeof line, "Mean %s (ms):", name);
    print_value(line, s->mean_ms);
    snprintf(line, sizeof line, "Median %s (ms):", name);
    print_value(line, s->median_ms);
    for (size_t i = 0; i < options->n_percentiles; i++) {
        percentile_text(options->percentiles[i], p);
        snprintf(line, sizeof line, "P%s %s (ms):", p, name);
        print_value(line, s->percentiles_ms[i]);
    }
}

/* vLLM's lines and definitions; tokens per step include steps that verified nothing. */
static double tokens_a_step(const struct bench_metrics *m)
{
    return draft_tokens_a_step(m->total_output, (uint64_t)m->drafts.n_accepted);
}

static bool has_drafts(const struct bench_drafts *d)
{
    return d->known && d->n_drafts > 0 && d->n_draft_tokens > 0;
}

static void print_drafts(const struct bench_metrics *m)
{
    const struct bench_drafts *d = &m->drafts;
    if (!has_drafts(d))
        return;
    print_line('-', "Speculative Decoding");
    print_value("Acceptance rate (%):", 100 * d->n_accepted / d->n_draft_tokens);
    print_value("Acceptance length:", 1 + d->n_accepted / d->n_drafts);
    print_value("Tokens a step:", tokens_a_step(m));
    print_count("Drafts:", (uint64_t)d->n_drafts);
    print_count("Draft tokens:", (uint64_t)d->n_draft_tokens);
    print_count("Accepted tokens:", (uint64_t)d->n_accepted);
}

void bench_metrics_print(const struct bench_metrics *m, const struct bench_metrics_options *options,
                         uint32_t max_concurrency, double request_rate)
{
    print_line('=', " Serving Benchmark Result ");
    print_count("Successful requests:", m->completed);
    print_count("Failed requests:", m->failed);
    if (max_concurrency > 0)
        print_count("Maximum request concurrency:", max_concurrency);
    if (isfinite(request_rate))
        print_value("Request rate configured (RPS):", request_rate);
    print_value("Benchmark duration (s):", m->duration_s);
    print_count("Total input tokens:", m->total_input);
    print_count("Total generated tokens:", m->total_output);
    print_value("Request throughput (req/s):", m->request_throughput);
    if (options->has_goodput)
        print_value("Request goodput (req/s):", m->request_goodput);
    print_value("Output token throughput (tok/s):", m->output_throughput);
    print_value("Peak output token throughput (tok/s):", m->max_output_tokens_per_s);
    print_value("Peak concurrent requests:", (double)m->max_concurrent_requests);
    print_value("Total token throughput (tok/s):", m->total_token_throughput);
    for (int i = 0; i < BENCH_N_METRICS; i++)
        if (options->shown[i])
            print_stat(&m->stats[i], options, i);
    print_drafts(m);
    print_line('=', "");
}

static int set_real(json_t *object, const char *prefix, const char *key, double value)
{
    char name[64];
    snprintf(name, sizeof name, "%s_%s_ms", prefix, key);
    return json_object_set_new(object, name, json_real(value));
}

static int drafts_json(const struct bench_metrics *m, json_t *object)
{
    const struct bench_drafts *d = &m->drafts;
    if (!has_drafts(d))
        return 0;
    json_t *places = json_array();
    json_t *rest = json_pack("{s:f, s:f, s:f, s:I, s:I, s:I}", "spec_decode_acceptance_rate",
                             100 * d->n_accepted / d->n_draft_tokens, "spec_decode_acceptance_length",
                             1 + d->n_accepted / d->n_drafts, "spec_decode_tokens_a_step", tokens_a_step(m),
                             "spec_decode_num_drafts", (json_int_t)d->n_drafts, "spec_decode_draft_tokens",
                             (json_int_t)d->n_draft_tokens, "spec_decode_accepted_tokens", (json_int_t)d->n_accepted);
    int bad = !rest || !places || json_object_update(object, rest) != 0;
    for (size_t i = 0; i < d->n_places && !bad; i++)
        bad = json_array_append_new(places, json_real(d->accepted_at[i] / d->n_drafts));
    json_decref(rest);
    return json_object_set_new(object, "spec_decode_per_position_acceptance_rates", places) || bad;
}

int bench_metrics_json(const struct bench_metrics *m, const struct bench_metrics_options *options, json_t *object,
                       struct quire_error *err)
{
    json_t *rest = json_pack("{s:f, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:I}", "duration", m->duration_s,
                             "completed", (json_int_t)m->completed, "failed", (json_int_t)m->failed,
                             "total_input_tokens", (json_int_t)m->total_input, "total_output_tokens",
                             (json_int_t)m->total_output, "request_throughput", m->request_throughput,
                             "output_throughput", m->output_throughput, "total_token_throughput",
                             m->total_token_throughput, "max_output_tokens_per_s", m->max_output_tokens_per_s,
                             "max_concurrent_requests", (json_int_t)m->max_concurrent_requests);
    int bad = !rest || json_object_update(object, rest) != 0;
    json_decref(rest);
    bad |= json_object_set_new(object, "request_goodput",
                               options->has_goodput ? json_real(m->request_goodput) : json_null());
    for (int i = 0; i < BENCH_N_METRICS && !bad; i++) {
        const struct bench_stat *s = &m->stats[i];
        if (!options->shown[i])
            continue;
        bad |= set_real(object, "mean", metrics[i].key, s->mean_ms);
        bad |= set_real(object, "median", metrics[i].key, s->median_ms);
        bad |= set_real(object, "std", metrics[i].key, s->std_ms);
        for (size_t p = 0; p < options->n_percentiles; p++) {
            char prefix[40] = "p";
            percentile_text(options->percentiles[p], prefix + 1);
            bad |= set_real(object, prefix, metrics[i].key, s->percentiles_ms[p]);
        }
    }
    bad |= drafts_json(m, object);
    return bad ? quire_fail(err, QUIRE_NO_MEMORY, "out of memory") : QUIRE_OK;
}
