#include "server/front/metrics.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* vLLM's bounds, so that dashboards made for it fit. */
static const double ttft_bounds[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                     0.25,  0.5,   0.75, 1,    2.5,  5,    7.5,  10,
                                     20,    40,    80,   160,  640,  2560};
static const double itl_bounds[] = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                                    0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
static const double e2e_bounds[] = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,  15,
                                    20,  30,  40,  50, 60,  120, 240, 480, 960, 1920, 7680};
static const double token_bounds[] = {1,    2,    5,     10,    20,    50,    100,    200,    500,
                                      1000, 2000, 5000,  10000, 20000, 50000, 100000, 200000,
                                      500000};

#define BOUNDS(name) {.bounds = name, .n_bounds = sizeof name / sizeof *name}

void metrics_init(struct metrics *m)
{
    *m = (struct metrics){
        .ttft = BOUNDS(ttft_bounds),
        .itl = BOUNDS(itl_bounds),
        .e2e = BOUNDS(e2e_bounds),
        .prompt_tokens = BOUNDS(token_bounds),
        .generation_tokens = BOUNDS(token_bounds),
    };
}

void histogram_observe(struct histogram *h, double value)
{
    uint32_t i = 0;
    while (i < h->n_bounds && value > h->bounds[i])
        i++;
    h->counts[i]++;
    h->sum += value;
}

uint64_t metrics_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* ---- text ----------------------------------------------------------------------------------- */

struct writer {
    struct json_out *o;
    char labels[600]; /* model_name="...",engine="0" */
};

static void put_number(struct json_out *o, double value)
{
    char text[40];
    snprintf(text, sizeof text, "%.15g", value);
    json_out_raw(o, text);
}

static void put_type(struct writer *w, const char *name, const char *type, const char *help)
{
    json_out_raw(w->o, "# HELP ");
    json_out_raw(w->o, name);
    json_out_raw(w->o, " ");
    json_out_raw(w->o, help);
    json_out_raw(w->o, "\n# TYPE ");
    json_out_raw(w->o, name);
    json_out_raw(w->o, " ");
    json_out_raw(w->o, type);
    json_out_raw(w->o, "\n");
}

/* name+suffix{labels,more} value */
static void put_sample(struct writer *w, const char *name, const char *suffix, const char *more,
                       double value)
{
    json_out_raw(w->o, name);
    json_out_raw(w->o, suffix);
    json_out_raw(w->o, "{");
    json_out_raw(w->o, w->labels);
    json_out_raw(w->o, more);
    json_out_raw(w->o, "} ");
    put_number(w->o, value);
    json_out_raw(w->o, "\n");
}

static void put_gauge(struct writer *w, const char *name, const char *help, double value)
{
    put_type(w, name, "gauge", help);
    put_sample(w, name, "", "", value);
}

static void put_counter(struct writer *w, const char *name, const char *help, uint64_t value)
{
    put_type(w, name, "counter", help);
    put_sample(w, name, "", "", (double)value);
}

static void put_histogram(struct writer *w, const char *name, const char *help,
                          const struct histogram *h)
{
    char bound[48];
    uint64_t count = 0;
    put_type(w, name, "histogram", help);
    for (uint32_t i = 0; i < h->n_bounds; i++) {
        count += h->counts[i];
        snprintf(bound, sizeof bound, ",le=\"%.15g\"", h->bounds[i]);
        put_sample(w, name, "_bucket", bound, (double)count);
    }
    count += h->counts[h->n_bounds];
    put_sample(w, name, "_bucket", ",le=\"+Inf\"", (double)count);
    put_sample(w, name, "_sum", "", h->sum);
    put_sample(w, name, "_count", "", (double)count);
}

/* A label's value: backslash, quote and newline are escaped. */
static void make_labels(struct writer *w, const char *model)
{
    size_t n = (size_t)snprintf(w->labels, sizeof w->labels, "model_name=\"");
    for (const char *c = model; *c && n + 24 < sizeof w->labels; c++) {
        if (*c == '\\' || *c == '"' || *c == '\n')
            w->labels[n++] = '\\';
        w->labels[n++] = *c == '\n' ? 'n' : *c;
    }
    snprintf(w->labels + n, sizeof w->labels - n, "\",engine=\"0\"");
}

static void put_engine(struct writer *w, const struct wire_stats *s)
{
    put_gauge(w, "vllm:num_requests_running", "Sequences in the running batch.", s->n_running);
    put_gauge(w, "vllm:num_requests_waiting", "Sequences waiting to be run.", s->n_waiting);
    put_gauge(w, "quire:num_waiting_tokens", "Prompt tokens of waiting sequences.",
              (double)s->n_waiting_tokens);
    put_gauge(w, "vllm:kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1.", s->kv_usage);
    put_counter(w, "vllm:prefix_cache_queries_total",
                "Prompt tokens looked up in the prefix cache.", s->n_prefix_queries);
    put_counter(w, "vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.",
                s->n_prefix_hits);
    put_counter(w, "vllm:num_preemptions_total", "Sequences preempted.", s->n_preemptions);
    put_counter(w, "quire:engine_prompt_tokens_total", "Prompt tokens computed by the engine.",
                s->n_prompt_tokens);
    put_counter(w, "quire:engine_generation_tokens_total", "Tokens generated by the engine.",
                s->n_generation_tokens);
    put_counter(w, "quire:engine_steps_total", "Steps of the engine.", s->n_steps);
    put_gauge(w, "quire:kv_blocks", "KV blocks there are.", s->n_blocks);
    put_gauge(w, "quire:kv_blocks_leaked", "KV blocks in use while no sequence lives: always 0.",
              (double)s->n_blocks_leaked);
}

void metrics_text(struct json_out *o, const struct metrics *m, const struct wire_stats *stats,
                  const char *model, uint32_t n_connections)
{
    static const char *const reasons[METRICS_N_FINISHES] = {
        ",finished_reason=\"stop\"",
        ",finished_reason=\"length\"",
        ",finished_reason=\"abort\"",
        ",finished_reason=\"error\"",
    };
    struct writer w = {.o = o};
    make_labels(&w, model);
    put_gauge(&w, "quire:engine_up", "1 when the engine answers.", stats != NULL);
    /* Without the engine's own numbers nothing is said: a counter that falls to 0 would look like
     * a restart. */
    if (stats)
        put_engine(&w, stats);
    put_counter(&w, "vllm:prompt_tokens_total", "Prompt tokens of requests taken by the engine.",
                m->n_prompt_tokens);
    put_counter(&w, "vllm:generation_tokens_total", "Generated tokens received from the engine.",
                m->n_generation_tokens);
    put_type(&w, "vllm:request_success_total", "counter", "Choices that ended, by reason.");
    for (int i = 0; i < METRICS_N_FINISHES; i++)
        put_sample(&w, "vllm:request_success_total", "", reasons[i], (double)m->finished[i]);
    put_counter(&w, "quire:requests_refused_total", "Requests answered with 429.", m->n_refused);
    put_gauge(&w, "quire:http_connections", "Open connections.", n_connections);
    put_histogram(&w, "vllm:time_to_first_token_seconds",
                  "From a request's arrival to its first token.", &m->ttft);
    put_histogram(&w, "vllm:inter_token_latency_seconds", "Between two tokens of a choice.",
                  &m->itl);
    put_histogram(&w, "vllm:e2e_request_latency_seconds",
                  "From a request's arrival to the end of its reply.", &m->e2e);
    put_histogram(&w, "vllm:request_prompt_tokens", "Prompt tokens of a request.",
                  &m->prompt_tokens);
    put_histogram(&w, "vllm:request_generation_tokens", "Generated tokens of a choice.",
                  &m->generation_tokens);
}
