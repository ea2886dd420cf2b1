#include "server/front/observe/metrics.h"

#include "server/front/observe/process_metrics.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* vLLM's bounds, so that its dashboards fit. Below its 10 ms between tokens, three more bounds, because small models
 * are faster. */
static const double ttft_bounds[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                     1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
static const double itl_bounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3,
                                    0.4,   0.5,    0.75,  1,    2.5,   5,    7.5,   10,  20,   40,  80};
static const double e2e_bounds[] = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                    30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
static const double token_bounds[] = {1,    2,    5,    10,    20,    50,    100,    200,    500,
                                      1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000};

static const double compile_bounds[] = {0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5};

static const double n_bounds[] = {1, 2, 5, 10, 20};

#define BOUNDS(name) {.bounds = name, .n_bounds = sizeof name / sizeof *name}

void metrics_init(struct metrics *m)
{
    *m = (struct metrics){.grammars = {.compile = BOUNDS(compile_bounds)},
#define ROW(member, bounds, ...) .member = BOUNDS(bounds##_bounds),
                          METRICS_HISTOGRAMS(ROW)
#undef ROW
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

void metrics_phases(struct metrics *m, double queue_s, double prefill_s, double decode_s, uint64_t n_tokens)
{
    histogram_observe(&m->queue, queue_s);
    histogram_observe(&m->prefill, prefill_s);
    histogram_observe(&m->decode, decode_s);
    histogram_observe(&m->inference, prefill_s + decode_s);
    if (n_tokens > 1)
        histogram_observe(&m->tpot, decode_s / (double)(n_tokens - 1));
}

/* ---- text ----------------------------------------------------------------------------------- */

struct writer {
    struct buffer *o;
    char labels[600]; /* model_name="...",engine="0" */
    char companion[600]; /* labels of the companion model; empty: not configured */
};

static void put_number(struct buffer *o, double value)
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
static void put_sample(struct writer *w, const char *name, const char *suffix, const char *more, double value)
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

static void put_bucket(struct writer *w, const char *name, double bound, uint64_t count)
{
    char label[48];
    snprintf(label, sizeof label, bound == (uint64_t)bound ? ",le=\"%.1f\"" : ",le=\"%.15g\"", bound);
    put_sample(w, name, "_bucket", label, (double)count);
}

/* last: bounds above it are omitted; 0: no bound is omitted. */
static void put_histogram_samples(struct writer *w, const char *name, const struct histogram *h, double last)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < h->n_bounds; i++) {
        count += h->counts[i];
        if (last == 0 || h->bounds[i] <= last)
            put_bucket(w, name, h->bounds[i], count);
    }
    count += h->counts[h->n_bounds];
    put_sample(w, name, "_bucket", ",le=\"+Inf\"", (double)count);
    put_sample(w, name, "_sum", "", h->sum);
    put_sample(w, name, "_count", "", (double)count);
}

static void put_histogram_to(struct writer *w, const char *name, const char *help, const struct histogram *h,
                             double last)
{
    put_type(w, name, "histogram", help);
    put_histogram_samples(w, name, h, last);
}

static void put_histogram(struct writer *w, const char *name, const char *help, const struct histogram *h)
{
    put_histogram_to(w, name, help, h, 0);
}

/* ,name="value": escapes backslash, quote and newline, and cuts a value that is too long. */
static void make_label(char *out, size_t size, const char *name, const char *value, size_t n_value)
{
    size_t n = (size_t)snprintf(out, size, "%s=\"", name);
    for (size_t i = 0; i < n_value && n + 4 < size; i++) {
        char c = value[i];
        if (c == '\\' || c == '"' || c == '\n')
            out[n++] = '\\';
        out[n++] = c == '\n' ? 'n' : c;
    }
    snprintf(out + n, size - n, "\"");
}

static void make_labels(struct writer *w, const char *model, const char *companion)
{
    char label[560];
    make_label(label, sizeof label, "model_name", model, strlen(model));
    snprintf(w->labels, sizeof w->labels, "%s,engine=\"0\"", label);
    w->companion[0] = '\0';
    if (!companion)
        return;
    make_label(label, sizeof label, "model_name", companion, strlen(companion));
    snprintf(w->companion, sizeof w->companion, "%s,engine=\"1\"", label);
}

/* Metrics of both models: the second model's samples follow the first's. */
static struct writer second_of(const struct writer *w)
{
    struct writer second = {.o = w->o};
    memcpy(second.labels, w->companion, sizeof second.labels);
    return second;
}

static void put_second(struct writer *w, const char *name, double value)
{
    struct writer second = second_of(w);
    if (w->companion[0] != '\0')
        put_sample(&second, name, "", "", value);
}

static void put_gauge_of_both(struct writer *w, const char *name, const char *help, double value, double companion)
{
    put_gauge(w, name, help, value);
    put_second(w, name, companion);
}

static void put_counter_of_both(struct writer *w, const char *name, const char *help, uint64_t value,
                                uint64_t companion)
{
    put_counter(w, name, help, value);
    put_second(w, name, (double)companion);
}

static void put_policy(struct writer *w, const struct wire_stats *s)
{
    char label[160];
    if (s->n_policy > 0) {
        make_label(label, sizeof label, ",policy", s->policy, s->n_policy);
        put_type(w, "quire:scheduling_policy_info", "gauge", "The scheduling policy that rules: 1.");
        put_sample(w, "quire:scheduling_policy_info", "", label, 1);
    }
    if (s->n_figure_name > 0) {
        make_label(label, sizeof label, ",figure", s->figure_name, s->n_figure_name);
        put_type(w, "quire:scheduling_policy_figure", "gauge", "A figure of the scheduling policy's own.");
        put_sample(w, "quire:scheduling_policy_figure", "", label, s->figure);
    }
}

/* Tokens of steps: counted by the engine, which plans the steps. */
static void put_steps(struct writer *w, const struct wire_stats *s)
{
    static const char name[] = "vllm:iteration_tokens_total";
    put_type(w, name, "histogram", "Tokens computed in a step.");
    for (uint32_t i = 0; i < s->n_step_buckets; i++) {
        struct wire_step_bucket bucket;
        wire_step_bucket_get(s, i, &bucket);
        put_bucket(w, name, (double)bucket.n_tokens, bucket.n_steps);
    }
    put_sample(w, name, "_bucket", ",le=\"+Inf\"", (double)s->n_steps);
    put_sample(w, name, "_sum", "", (double)s->n_step_tokens);
    put_sample(w, name, "_count", "", (double)s->n_steps);
}

static void put_cache_config(struct writer *w, const struct wire_stats *s)
{
    char dtype[160], labels[400];
    make_label(dtype, sizeof dtype, ",cache_dtype", s->cache_dtype, s->n_cache_dtype);
    snprintf(labels, sizeof labels,
             ",block_size=\"%u\",num_gpu_blocks=\"%u\",num_cpu_blocks=\"%u\",enable_prefix_caching=\"%s\"%s",
             s->n_block_tokens, s->n_blocks, s->n_host_blocks, s->prefix_caching ? "True" : "False", dtype);
    put_type(w, "vllm:cache_config_info", "gauge", "How the KV cache is laid out: 1.");
    put_sample(w, "vllm:cache_config_info", "", labels, 1);
}

/* ---- the rows of base/stats/rows.h ---- */

enum stats_type { STATS_U32, STATS_U64, STATS_F64, STATS_BOOL };
enum stats_shown { STATS_HIDDEN, STATS_COUNTER, STATS_GAUGE, STATS_COUNTER_OF_ALL, STATS_GAUGE_OF_ALL };
enum stats_group { STATS_MAIN, STATS_DRAFTS, STATS_LAST };
enum stats_unit { STATS_NUMBER, STATS_TOKENS, STATS_BLOCKS, STATS_BYTES, STATS_SHARE, STATS_MICROSECONDS };

struct stats_row {
    enum stats_type type;
    uint16_t at; /* in struct wire_stats, or in struct wire_tenant */
    enum stats_unit unit;
    enum stats_shown shown;
    enum stats_group group;
    const char *name, *help;
};
#define ROW(member, type, tag, from, unit, shown, group, name, help) \
    {STATS_##type, offsetof(struct wire_stats, member), STATS_##unit, STATS_##shown, STATS_##group, name, help},
static const struct stats_row stats_rows[] = {STATS_ROWS(ROW)};
#undef ROW
#define ROW(member, type, at, shown, name, help) \
    {STATS_##type, offsetof(struct wire_tenant, member), STATS_NUMBER, STATS_##shown, STATS_MAIN, name, help},
static const struct stats_row tenant_rows[] = {STATS_TENANT_ROWS(ROW)};
#undef ROW
#define N_ROWS(rows) (sizeof(rows) / sizeof(rows)[0])

/* The value in /metrics. values: the struct of the row. */
static double value_of(const struct stats_row *row, const void *values)
{
    const char *at = (const char *)values + row->at;
    double value = 0;
    uint32_t u32;
    uint64_t u64;
    switch (row->type) {
    case STATS_U32:
        memcpy(&u32, at, sizeof u32);
        value = u32;
        break;
    case STATS_U64:
        memcpy(&u64, at, sizeof u64);
        value = (double)u64;
        break;
    case STATS_F64: memcpy(&value, at, sizeof value); break;
    case STATS_BOOL: value = *at != 0; break;
    }
    return row->unit == STATS_MICROSECONDS ? value / 1e6 : value;
}

static const char *type_of(const struct stats_row *row)
{
    return row->shown == STATS_COUNTER || row->shown == STATS_COUNTER_OF_ALL ? "counter" : "gauge";
}

/* b: the companion engine's statistics. Only metrics common to all engines are written for it. */
static void put_rows(struct writer *w, enum stats_group group, const struct wire_stats *s, const struct wire_stats *b)
{
    for (size_t i = 0; i < N_ROWS(stats_rows); i++) {
        const struct stats_row *row = &stats_rows[i];
        if (row->shown == STATS_HIDDEN || row->group != group)
            continue;
        put_type(w, row->name, type_of(row), row->help);
        put_sample(w, row->name, "", "", value_of(row, s));
        if (row->shown == STATS_COUNTER_OF_ALL || row->shown == STATS_GAUGE_OF_ALL)
            put_second(w, row->name, value_of(row, b));
    }
}

/* Written without speculation too: they count from 0. */
static void put_drafts(struct writer *w, const struct wire_stats *s)
{
    static const char per_place[] = "vllm:spec_decode_num_accepted_tokens_per_pos_total";
    char label[64];
    if (s->n_draft_method > 0) {
        make_label(label, sizeof label, ",method", s->draft_method, s->n_draft_method);
        put_type(w, "quire:draft_method_info", "gauge", "Where drafts come from that no request brings: 1.");
        put_sample(w, "quire:draft_method_info", "", label, 1);
    }
    put_rows(w, STATS_DRAFTS, s, s);
    put_type(w, per_place, "counter", "Rows whose draft of this place was right.");
    for (uint32_t i = 0; i < s->n_accepted_at; i++) {
        snprintf(label, sizeof label, ",position=\"%u\"", i);
        put_sample(w, per_place, "", label, (double)wire_accepted_get(s, i));
    }
}

/* The time that each rank waited for each other one: a slow rank's cost has its number as `peer`. */
static void put_rank_waits(struct writer *w, const struct wire_stats *s)
{
    static const char name[] = "quire:rank_wait_seconds_total";
    uint32_t n = 0;
    while (n * n < s->n_rank_waits)
        n++;
    if (n == 0 || n * n != s->n_rank_waits)
        return;
    put_type(w, name, "counter", "Seconds that a rank waited, within steps, for a peer to come.");
    for (uint32_t i = 0; i < s->n_rank_waits; i++) {
        char label[48];
        snprintf(label, sizeof label, ",rank=\"%u\",peer=\"%u\"", i / n, i % n);
        if (i / n != i % n)
            put_sample(w, name, "", label, (double)wire_rank_wait_get(s, i) / 1e6);
    }
}

static void put_experts(struct writer *w, const struct wire_stats *s)
{
    static const char name[] = "quire:expert_tokens_total";
    if (s->n_expert_tokens > 0)
        put_type(w, name, "counter", "Tokens that an expert computed, over the layers.");
    for (uint32_t i = 0; i < s->n_expert_tokens; i++) {
        char label[32];
        snprintf(label, sizeof label, ",expert=\"%u\"", i);
        put_sample(w, name, "", label, (double)wire_expert_get(s, i));
    }
}

/* b: the companion engine's statistics. n_waiting_here: choices whose prompts the engine has not received yet. */
static void put_engine(struct writer *w, const struct wire_stats *s, const struct wire_stats *b,
                       uint64_t n_waiting_here)
{
    struct wire_stats all = *s;
    all.n_waiting += (uint32_t)n_waiting_here;
    put_cache_config(w, s);
    put_steps(w, s);
    put_rank_waits(w, s);
    put_experts(w, s);
    put_rows(w, STATS_MAIN, &all, b);
    put_drafts(w, s);
    put_policy(w, s);
    put_rows(w, STATS_LAST, &all, b);
}

/* w is a copy. Writes no samples for an engine that did not answer. */
static void put_engines(struct writer w, const struct wire_stats *s, const struct metrics_about *about)
{
    static const struct wire_stats none;
    if (!about->companion_stats)
        w.companion[0] = '\0';
    put_engine(&w, s, about->companion_stats ? about->companion_stats : &none, about->n_waiting);
}

/* ---- by tenant ---- */

static void put_background(struct writer *w, const struct metrics *m, const char *const *reasons)
{
    put_type(w, "quire:background_choices_total", "counter",
             "Choices of requests in the background that ended, by reason.");
    for (int i = 0; i < METRICS_N_FINISHES; i++)
        put_sample(w, "quire:background_choices_total", "", reasons[i], (double)m->finished[i]);
    put_type(w, "quire:background_tokens_total", "counter", "Tokens of requests in the background.");
    put_sample(w, "quire:background_tokens_total", "", ",kind=\"prompt\"", (double)m->n_prompt_tokens);
    put_sample(w, "quire:background_tokens_total", "", ",kind=\"generated\"", (double)m->n_generation_tokens);
}

static void put_tenant(struct writer *w, const char *name, const struct tenant *tenant, double value)
{
    char label[TENANT_MAX_NAME + 16];
    make_label(label, sizeof label, ",tenant", tenant->name, strlen(tenant->name));
    put_sample(w, name, "", label, value);
}

/* ---- parts of answers ---- */

struct answer_row {
    size_t at; /* in struct answer_counts */
    const char *name, *tenant_name, *help;
};
static const struct answer_row answer_rows[] = {
    {offsetof(struct answer_counts, n_calls), "quire:tool_calls_total", "quire:tenant_tool_calls_total",
     "Tool calls found in answers."},
    {offsetof(struct answer_counts, n_malformed), "quire:tool_calls_malformed_total",
     "quire:tenant_tool_calls_malformed_total", "Texts that began as a tool call and came back as text."},
    {offsetof(struct answer_counts, n_reasoning), "quire:reasoning_tokens_total", "quire:tenant_reasoning_tokens_total",
     "Generated tokens that belong to the reasoning."},
};

static double answer_count(const struct answer_counts *counts, const struct answer_row *row)
{
    uint64_t n;
    memcpy(&n, (const char *)counts + row->at, sizeof n);
    return (double)n;
}

static void put_answers(struct writer *w, const struct answer_counts *counts)
{
    for (size_t k = 0; k < N_ROWS(answer_rows); k++) {
        put_type(w, answer_rows[k].name, "counter", answer_rows[k].help);
        put_sample(w, answer_rows[k].name, "", "", answer_count(counts, &answer_rows[k]));
    }
}

static void put_tenants(struct writer *w, const struct wire_stats *stats, const struct tenants *tenants)
{
    uint32_t n = tenants_n(tenants);
    uint32_t n_told = stats && stats->n_tenants < n ? stats->n_tenants : n;
    for (size_t k = 0; stats && k < N_ROWS(tenant_rows); k++) {
        const struct stats_row *row = &tenant_rows[k];
        put_type(w, row->name, type_of(row), row->help);
        for (uint32_t i = 0; i < n_told; i++) {
            struct wire_tenant counted;
            wire_tenant_get(stats, i, &counted);
            put_tenant(w, row->name, tenants_at(tenants, i), value_of(row, &counted));
        }
    }
    put_type(w, "quire:tenant_rate_limited_total", "counter", "The tenant's requests refused for its limits.");
    for (uint32_t i = 0; i < n; i++)
        put_tenant(w, "quire:tenant_rate_limited_total", tenants_at(tenants, i),
                   (double)tenants_at(tenants, i)->n_limited);
    for (size_t k = 0; k < N_ROWS(answer_rows); k++) {
        const struct answer_row *row = &answer_rows[k];
        put_type(w, row->tenant_name, "counter", row->help);
        for (uint32_t i = 0; i < n; i++)
            put_tenant(w, row->tenant_name, tenants_at(tenants, i),
                       answer_count(&tenants_at(tenants, i)->answers, row));
    }
}

/* ---- the shadow policy ---- */

static void put_shadow_histogram(struct writer *w, const struct wire_stats *s, bool live)
{
    static const char name[] = "quire:shadow_time_to_first_token_seconds";
    const char *which = live ? ",scheduler=\"live\"" : ",scheduler=\"shadow\"";
    char labels[96];
    for (uint32_t i = 0; i < s->n_shadow_buckets; i++) {
        struct wire_shadow_bucket bucket;
        wire_shadow_bucket_get(s, i, &bucket);
        snprintf(labels, sizeof labels, "%s,le=\"%.15g\"", which, (double)bucket.bound_us / 1e6);
        put_sample(w, name, "_bucket", labels, (double)(live ? bucket.n_live : bucket.n_shadow));
    }
    snprintf(labels, sizeof labels, "%s,le=\"+Inf\"", which);
    put_sample(w, name, "_bucket", labels, (double)s->n_shadow);
    put_sample(w, name, "_sum", which, (live ? s->live_ttft_us : s->shadow_ttft_us) / 1e6);
    put_sample(w, name, "_count", which, (double)s->n_shadow);
}

static void put_shadow(struct writer *w, const struct wire_stats *s)
{
    char label[160];
    make_label(label, sizeof label, ",policy", s->shadow_policy, s->n_shadow_policy);
    put_type(w, "quire:shadow_policy_info", "gauge", "The policy that is tried beside the ruling one: 1.");
    put_sample(w, "quire:shadow_policy_info", "", label, 1);
    put_counter(w, "quire:shadow_requests_total", "Requests that both schedulers have given a first token.",
                s->n_shadow);
    put_counter(w, "quire:shadow_requests_refused_total",
                "Requests that the tried policy would have given up, of those taken.", s->n_shadow_refused);
    put_type(w, "quire:shadow_queue_seconds_total", "counter",
             "Their time in the queue, as it was and as the tried policy would have it.");
    put_sample(w, "quire:shadow_queue_seconds_total", "", ",scheduler=\"live\"", s->live_queue_us / 1e6);
    put_sample(w, "quire:shadow_queue_seconds_total", "", ",scheduler=\"shadow\"", s->shadow_queue_us / 1e6);
    put_type(w, "quire:shadow_time_to_first_token_seconds", "histogram",
             "From their arrival at the engine to the first token, likewise.");
    put_shadow_histogram(w, s, true);
    put_shadow_histogram(w, s, false);
}

/* Next to the engine's rows of the same prefix. */
static void put_grammars(struct writer *w, const struct grammar_counts *g, const struct metrics_about *about)
{
    static const char *const reasons[GRAMMAR_N_REJECTIONS] = {",reason=\"invalid\"", ",reason=\"unsupported\"",
                                                              ",reason=\"timeout\"", ",reason=\"busy\""};
    put_counter(w, "quire:grammar_cache_hits_total", "Requests with a grammar whose compilation was known.", g->n_hits);
    put_counter(w, "quire:grammar_cache_misses_total", "Requests with a grammar that had to be compiled.", g->n_misses);
    put_type(w, "quire:grammar_rejected_total", "counter", "Requests whose grammar was rejected, by reason.");
    for (int i = 0; i < GRAMMAR_N_REJECTIONS; i++)
        put_sample(w, "quire:grammar_rejected_total", "", reasons[i], (double)g->rejected[i]);
    put_histogram(w, "quire:grammar_compile_seconds", "Compilation of a grammar.", &g->compile);
    put_counter(w, "quire:grammar_compilations_given_up_total",
                "Compilations that had not ended at their limit or at the server's end.", about->n_given_up);
    put_gauge(w, "quire:grammar_threads_given_up", "Threads of such compilations that have not ended.",
              (double)about->n_given_up_now);
}

enum histogram_shown { HISTOGRAM_PLAIN, HISTOGRAM_TO_LENGTH, HISTOGRAM_OF_BOTH, HISTOGRAM_TWICE };
struct histogram_row {
    size_t at; /* in struct metrics */
    enum histogram_shown shown;
    const char *name, *help;
};
#define ROW(member, bounds, shown, name, help) {offsetof(struct metrics, member), HISTOGRAM_##shown, name, help},
static const struct histogram_row histogram_rows[] = {METRICS_HISTOGRAMS(ROW)};
#undef ROW

static const struct histogram *histogram_of(const struct metrics *m, const struct histogram_row *row)
{
    return (const struct histogram *)((const char *)m + row->at);
}

static void put_histograms(struct writer *w, const struct metrics *m, const struct metrics_about *about)
{
    for (size_t i = 0; i < N_ROWS(histogram_rows); i++) {
        const struct histogram_row *row = &histogram_rows[i];
        put_histogram_to(w, row->name, row->help, histogram_of(m, row),
                         row->shown == HISTOGRAM_TO_LENGTH ? about->max_model_len : 0);
        if (row->shown == HISTOGRAM_TWICE)
            put_histogram(w, "vllm:time_per_output_token_seconds",
                          "What vllm:inter_token_latency_seconds was called before: the same.", histogram_of(m, row));
        if (row->shown == HISTOGRAM_OF_BOTH && about->companion) {
            struct writer second = second_of(w);
            put_histogram_samples(&second, row->name, histogram_of(about->companion, row), 0);
        }
    }
}

void metrics_text(struct buffer *o, const struct metrics *m, const struct wire_stats *stats,
                  const struct metrics_about *about)
{
    static const char *const reasons[METRICS_N_FINISHES] = {
        ",finished_reason=\"stop\"",
        ",finished_reason=\"length\"",
        ",finished_reason=\"abort\"",
        ",finished_reason=\"error\"",
    };
    struct writer w = {.o = o};
    static const struct metrics none;
    const struct metrics *b = about->companion ? about->companion : &none;
    make_labels(&w, about->model, about->companion ? about->companion_model : NULL);
    put_gauge_of_both(&w, "quire:engine_up", "1 when the engine answers.", stats != NULL,
                      about->companion_stats != NULL);
    put_counter(&w, "quire:engine_restarts_total", "Times that the engine was started again (--restart).",
                about->n_engine_restarts);
    /* Without the engine's statistics, its metrics are omitted: a counter that falls to 0 would look like a restart. */
    if (stats)
        put_engines(w, stats, about);
    if (stats && stats->n_shadow_policy > 0)
        put_shadow(&w, stats);
    if (about->arithmetic[0] != '\0') {
        char label[160];
        make_label(label, sizeof label, ",identity", about->arithmetic, strlen(about->arithmetic));
        put_type(&w, "quire:identity_arithmetic_info", "gauge", "What the engine's bits depend on, as one SHA-256: 1.");
        put_sample(&w, "quire:identity_arithmetic_info", "", label, 1);
    }
    if (about->tenants)
        put_tenants(&w, stats, about->tenants);
    put_counter_of_both(&w, "vllm:prompt_tokens_total", "Prompt tokens of requests taken by the engine.",
                        m->n_prompt_tokens, b->n_prompt_tokens);
    put_counter_of_both(&w, "quire:vectors_total", "Texts, or pairs of them, that got a vector or a score.",
                        m->n_vectors, b->n_vectors);
    put_counter(&w, "vllm:generation_tokens_total", "Generated tokens received from the engine.",
                m->n_generation_tokens);
    put_answers(&w, &m->answers);
    put_type(&w, "vllm:request_success_total", "counter", "Choices that ended, by reason.");
    for (int i = 0; i < METRICS_N_FINISHES; i++)
        put_sample(&w, "vllm:request_success_total", "", reasons[i], (double)m->finished[i]);
    put_background(&w, about->background, reasons);
    put_counter_of_both(&w, "quire:requests_refused_total", "Requests answered with 429.", m->n_refused, b->n_refused);
    put_counter(&w, "quire:unknown_fields_total", "Fields of requests that the server does not know or cannot use.",
                m->n_unknown_fields);
    if (about->otlp) {
        put_counter(&w, "quire:otlp_spans_exported_total", "Spans that the collector took.", about->otlp->n_exported);
        put_counter(&w, "quire:otlp_spans_dropped_total", "Spans that it did not take.", about->otlp->n_dropped);
    }
    if (about->cache)
        cache_metrics_text(o, w.labels, about->cache);
    put_gauge(&w, "quire:http_connections", "Open connections.", about->n_connections);
    put_grammars(&w, &m->grammars, about);
    put_histograms(&w, m, about);
    process_metrics_text(o);
}
