/* The results of a server benchmark, with the definitions and names of `vllm bench serve`
 * (docs/guides/benchmarking.md). No global state; any thread on its own values. */
#ifndef QUIRE_TOOLS_BENCH_METRICS_H
#define QUIRE_TOOLS_BENCH_METRICS_H

#include "base/status.h"
#include "tools/bench/lib/drafts.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- order statistics ---- */

void bench_sort(double *values, size_t n);
/* Of sorted values, interpolated linearly between the two nearest, as numpy.percentile does. p: 0..100. 0 if n is 0. */
double bench_percentile(const double *sorted, size_t n, double p);
double bench_mean(const double *values, size_t n);
/* The population's standard deviation, as numpy.std. */
double bench_std(const double *values, size_t n);

/* ---- one request ---- */

struct bench_result {
    bool ok;
    char *error; /* owned; NULL when ok */
    double start_s; /* send time, since the beginning of the benchmark */
    double ttft_s; /* from there to the first token */
    double e2el_s; /* from there to the end of the answer */
    double *itls_s; /* owned, [n_itls]: between consecutive events with tokens */
    size_t n_itls, itls_capacity;
    uint32_t n_prompt, n_output;
};
/* QUIRE_NO_MEMORY. */
int bench_result_add_itl(struct bench_result *r, double seconds, struct quire_error *err);
/* Marks it as failed; keeps the first message. */
void bench_result_fail(struct bench_result *r, const char *message);
void bench_results_free(struct bench_result *results, size_t n); /* and frees the array */

/* ---- options ---- */

enum bench_metric { BENCH_TTFT, BENCH_TPOT, BENCH_ITL, BENCH_E2EL };
#define BENCH_N_METRICS 4
#define BENCH_MAX_PERCENTILES 16

struct bench_metrics_options {
    bool shown[BENCH_N_METRICS];
    double percentiles[BENCH_MAX_PERCENTILES];
    size_t n_percentiles;
    bool has_goodput;
    double goodput_ms[BENCH_N_METRICS]; /* limits of a good request; INFINITY: no limit */
};
/* metrics: "ttft,tpot,itl,e2el" or some of them; percentiles: "50,95,99.9"; goodput: n_goodput of "ttft:200", for ttft,
 * tpot and e2el. QUIRE_INVALID names the option and its value. */
int bench_metrics_options_parse(const char *metrics, const char *percentiles, const char *const *goodput,
                                size_t n_goodput, struct bench_metrics_options *out, struct quire_error *err);

/* ---- all requests ---- */

struct bench_metrics {
    double duration_s;
    size_t completed, failed;
    uint64_t total_input, total_output; /* of completed requests */
    double request_throughput, request_goodput, output_throughput, total_token_throughput;
    double max_output_tokens_per_s; /* events with tokens in the fullest second since the first request */
    size_t max_concurrent_requests;
    struct bench_stat {
        double mean_ms, median_ms, std_ms, percentiles_ms[BENCH_MAX_PERCENTILES];
    } stats[BENCH_N_METRICS];
    struct bench_drafts drafts; /* the server's, for this load; set by the caller */
    const char *first_error; /* borrowed from results; NULL if none failed */
};
/* TPOT is (e2el - ttft) / (n_output - 1) of each request with at least two tokens. QUIRE_NO_MEMORY. */
int bench_metrics_compute(const struct bench_result *results, size_t n, double duration_s,
                          const struct bench_metrics_options *options, struct bench_metrics *out,
                          struct quire_error *err);

/* Prints the table on standard output. max_concurrency 0 and request_rate INFINITY: not printed. */
void bench_metrics_print(const struct bench_metrics *m, const struct bench_metrics_options *options,
                         uint32_t max_concurrency, double request_rate);
/* The same as members of object. QUIRE_NO_MEMORY. */
int bench_metrics_json(const struct bench_metrics *m, const struct bench_metrics_options *options, json_t *object,
                       struct quire_error *err);

#endif
