/* quire sim: the server's scheduler on a virtual clock. */
#include "app/command/command.h"
#include "app/command/commands.h"
#include "app/command/progress.h"
#include "tools/sim/metrics.h"
#include "tools/sim/recording.h"
#include "tools/sim/report.h"
#include "tools/sim/settings.h"
#include "tools/sim/sweep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one simulation ---- */

struct day { /* both owned; NULL until they are there */
    struct sim_result *result;
    struct sim_metrics *metrics;
};

struct simulation {
    struct sim_workload workload;
    struct day day, without; /* without: without speculation, if there is some */
};

static void show_progress(void *context, uint64_t n_over)
{
    bench_progress_set(context, n_over);
}

/* The day and, if there are drafts, the same day without them for comparison. */
static int simulate_days(const struct sim_settings *s, struct sim_setup *setup, const struct sim_workload *workload,
                         struct day *day, struct day *without, struct quire_error *err)
{
    struct day *const days[] = {day, without};
    int status = QUIRE_OK, n = setup->max_drafts > 0 ? 2 : 1;
    for (int i = 0; i < n && status == QUIRE_OK; i++) {
        setup->max_drafts = i == 0 ? setup->max_drafts : 0;
        days[i]->result = calloc(1, sizeof *day->result);
        days[i]->metrics = calloc(1, sizeof *day->metrics);
        if (!days[i]->result || !days[i]->metrics)
            return quire_fail(err, QUIRE_NO_MEMORY, "out of memory for the results");
        status = sim_run(setup, workload, days[i]->result, err);
        if (status == QUIRE_OK)
            status = sim_metrics_compute(workload, days[i]->result, &s->bounds, days[i]->metrics, err);
        days[i]->metrics->machine = s->has_service_time ? NULL : s->machine;
    }
    if (n > 1)
        day->metrics->without = without->metrics;
    return status;
}

static void free_day(struct day *day)
{
    if (day->metrics)
        sim_metrics_free(day->metrics);
    if (day->result)
        sim_result_free(day->result);
    free(day->metrics);
    free(day->result);
}

/* progress: NULL if another one draws the bar. */
static int simulate(const struct sim_settings *s, bool with_progress, struct simulation *out, struct quire_error *err)
{
    struct bench_progress progress;
    struct sim_setup setup = *s->setup;
    memset(out, 0, sizeof *out);
    int status = sim_workload_open(s->workload, &out->workload, err);
    if (status != QUIRE_OK)
        return status;
    bench_progress_begin(&progress, "requests", out->workload.n);
    if (with_progress) {
        setup.progress = show_progress;
        setup.progress_context = &progress;
    }
    status = simulate_days(s, &setup, &out->workload, &out->day, &out->without, err);
    bench_progress_end(&progress);
    return status;
}

static void free_simulation(struct simulation *s)
{
    free_day(&s->day);
    free_day(&s->without);
    sim_workload_close(&s->workload);
}

static int save(const char *path, const json_t *value)
{
    char text[320];
    if (value && json_dump_file(value, path, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0)
        return 0;
    snprintf(text, sizeof text, "--save %.200s: cannot be written", path);
    return command_fail(1, text);
}

/* Prints, saves and draws the requested results. Takes the reference. */
static int report(const struct sim_settings *s, const struct sim_metrics *m, const char *policy, json_t *json)
{
    struct quire_error err;
    int code = s->save ? save(s->save, json) : 0;
    if (s->html && sim_report_write(s->html, m, policy, &err) != QUIRE_OK)
        code = command_fail(1, err.text);
    if (s->json)
        return command_print_json(json) | code;
    sim_metrics_print(m, policy);
    json_decref(json);
    return code;
}

static int run_one(const struct sim_settings *s)
{
    struct simulation sim;
    struct quire_error err;
    int code, status = simulate(s, true, &sim, &err);
    const char *policy = s->sched->policy->name;
    if (status == QUIRE_OK) {
        if (sim.workload.n_left_out > 0 && !s->json)
            fprintf(stderr, "quire: %zu requests are longer than %u tokens and were left out\n",
                    sim.workload.n_left_out, s->workload->max_model_len);
        code = report(s, sim.day.metrics, policy, sim_metrics_json(sim.day.metrics, policy));
    } else {
        code = command_fail(status == QUIRE_INVALID ? 2 : 1, err.text);
    }
    free_simulation(&sim);
    return code;
}

/* ---- recordings ---- */

/* Error of the prediction, in percent of the recorded value. */
static double off_by(double predicted, double recorded)
{
    return recorded > 0 ? 100 * (predicted - recorded) / recorded : 0;
}

static json_t *off_json(const struct sim_stat *predicted, const struct sim_stat *recorded)
{
    return json_pack("{s:f, s:f}", "mean", off_by(predicted->mean, recorded->mean), "p95",
                     off_by(predicted->p95, recorded->p95));
}

static json_t *prediction_json(const struct sim_metrics *predicted, const char *policy,
                               const struct sim_metrics *recorded, const char *recorded_policy)
{
    const struct sim_group *p = &predicted->all, *r = &recorded->all;
    json_t *json = sim_metrics_json(predicted, policy);
    json_object_set_new(json, "recorded", sim_metrics_json(recorded, recorded_policy));
    json_object_set_new(json, "error_percent",
                        json_pack("{s:o, s:o, s:o, s:o}", "ttft_ms",
                                  off_json(&p->latency[SIM_TTFT], &r->latency[SIM_TTFT]), "tpot_ms",
                                  off_json(&p->latency[SIM_TPOT], &r->latency[SIM_TPOT]), "e2el_ms",
                                  off_json(&p->latency[SIM_E2EL], &r->latency[SIM_E2EL]), "queue_ms",
                                  off_json(&p->latency[SIM_QUEUE], &r->latency[SIM_QUEUE])));
    return json;
}

static void print_off(const char *name, const struct sim_stat *p, const struct sim_stat *r)
{
    char text[4][24];
    printf("%-24s %10s %10s %+8.2f %% %10s %10s %+8.2f %%\n", name, sim_time_text(r->mean, 2, text[0]),
           sim_time_text(p->mean, 2, text[1]), off_by(p->mean, r->mean), sim_time_text(r->p95, 2, text[2]),
           sim_time_text(p->p95, 2, text[3]), off_by(p->p95, r->p95));
}

/* Under another policy, the difference is the result, not an error. */
static void print_prediction(const struct sim_metrics *predicted, const struct sim_metrics *recorded, const char *other)
{
    const struct sim_group *p = &predicted->all, *r = &recorded->all;
    const char *name = other ? other : "predicted", *difference = other ? "change" : "off by";
    printf("\n%-24s %10s %10s %10s %10s %10s %10s\n", "Milliseconds", "mean", name, difference, "p95", name,
           difference);
    print_off("Time to first token", &p->latency[SIM_TTFT], &r->latency[SIM_TTFT]);
    print_off("Time per output token", &p->latency[SIM_TPOT], &r->latency[SIM_TPOT]);
    print_off("End to end", &p->latency[SIM_E2EL], &r->latency[SIM_E2EL]);
    print_off("In the queue", &p->latency[SIM_QUEUE], &r->latency[SIM_QUEUE]);
}

/* Uses the recorded drafts, or those of the options. */
static void predict_drafts(const struct sim_settings *s, struct sim_recording *r, struct sim_setup *setup)
{
    uint32_t asked = sim_drafts_asked(s);
    setup->max_drafts = asked > 0 ? asked : r->guesses ? SCHED_MAX_DRAFT : 0;
    setup->adaptive = asked > 0 && s->steps->speculative.adaptive;
    setup->draft_cost = s->setup->draft_cost;
    setup->acceptance = s->acceptance_text ? s->setup->acceptance : sim_acceptance_of(&r->live->drafts);
    for (size_t i = 0; asked > 0 && i < r->workload->n; i++)
        r->workload->requests[i].guesses = NULL;
}

static int predict(const struct sim_settings *s, struct sim_recording *r, const struct sim_metrics *recorded,
                   struct quire_error *err)
{
    struct sched_config sched = *r->config;
    struct sim_setup setup = {
        .sched = &sched, .cost = s->steps->cost, .stages = s->setup->stages, .oracle_lengths = s->oracle_lengths};
    struct day day = {0}, without = {0};
    const char *asked = s->steps->scheduling_policy;
    if (asked)
        sched.policy = sched_policy_find(asked); /* sim_settings_check() has validated it */
    if (s->n_ranks * s->n_stages > 1)
        sched.overlap_depth = 0;
    const char *policy = sched.policy->name;
    predict_drafts(s, r, &setup);
    if (sim_drafts_asked(s) > 0 && setup.acceptance.n == 0)
        return command_fail(2, "--speculative-config: no drafts were verified in the recording: set the share of "
                               "accepted drafts, such as --speculative-acceptance 0.7");
    int code = 1, status = simulate_days(s, &setup, r->workload, &day, &without, err);
    if (status == QUIRE_OK) {
        code = report(s, day.metrics, policy, prediction_json(day.metrics, policy, recorded, r->config->policy->name));
        if (!s->json)
            print_prediction(day.metrics, recorded, sched.policy != r->config->policy ? policy : NULL);
    } else {
        command_fail(code, err->text);
    }
    free_day(&day);
    free_day(&without);
    return code;
}

/* Drives the scheduler with the recorded times and compares its decisions with the live ones. */
static int force(const struct sim_settings *s, const struct sim_recording *r, const struct sim_metrics *m)
{
    const struct recording_run *run = &r->run;
    char recorded[65], text[160];
    json_t *json = sim_metrics_json(m, r->config->policy->name);
    quire_key256_hex(&run->recorded_decisions, recorded);
    json_object_set_new(json, "decisions_agree", json_boolean(run->agrees));
    json_object_set_new(json, "recorded_decision_log_sha256", json_string(recorded));
    json_object_set_new(json, "closed", json_boolean(run->closed));
    int code = report(s, m, r->config->policy->name, json);
    if (!s->json)
        printf("Recorded:  %s (%s)\n", recorded, run->agrees ? "the same" : "different");
    if (run->agrees)
        return code;
    snprintf(text, sizeof text, "the decisions differ from the recorded ones at byte %llu",
             (unsigned long long)run->wrong_offset);
    return command_fail(1, text);
}

static int run_recording(const struct sim_settings *s)
{
    struct sim_recording r;
    struct sim_workload workload;
    struct sim_result live;
    struct sim_metrics recorded = {.tenants = NULL};
    struct quire_error err;
    int code;
    if (!s->workload->path)
        return command_fail(2, "--trace-format recording needs --trace FILE");
    int status = sim_recording_open(s->workload->path, &r, &workload, &live, &err);
    if (status == QUIRE_OK && recording_left_out(r.file) > 0)
        fprintf(stderr, "quire: the recording ends within a record: its last %llu bytes were ignored\n",
                (unsigned long long)recording_left_out(r.file));
    if (status == QUIRE_OK)
        status = sim_metrics_compute(&workload, &live, &s->bounds, &recorded, &err);
    if (status != QUIRE_OK)
        code = command_fail(status == QUIRE_INVALID ? 2 : 1, err.text);
    else if (s->predict)
        code = predict(s, &r, &recorded, &err);
    else
        code = force(s, &r, &recorded);
    sim_metrics_free(&recorded);
    sim_result_free(&live);
    sim_workload_close(&workload);
    sim_recording_close(&r);
    return code;
}

/* ---- many ---- */

struct sweep_context {
    struct sim_sweep sweep;
    struct sim_settings *settings; /* [sweep.n] */
};

static json_t *run_of_sweep(void *context, struct sim_sweep_run *run)
{
    struct sweep_context *c = context;
    const struct sim_settings *s = &c->settings[run - c->sweep.runs];
    struct simulation sim;
    json_t *json = NULL;
    if (simulate(s, false, &sim, &run->err) == QUIRE_OK) {
        json = sim_metrics_json(sim.day.metrics, s->sched->policy->name);
        if (!json)
            quire_fail(&run->err, QUIRE_NO_MEMORY, "out of memory");
    }
    free_simulation(&sim);
    return json;
}

/* Reads every combination's command line before the first run. */
static int parse_sweep(int argc, char **argv, struct sweep_context *c, struct quire_error *err)
{
    char **all = calloc((size_t)argc + SIM_SWEEP_MAX_KEYS, sizeof *all);
    c->settings = calloc(c->sweep.n, sizeof *c->settings);
    int status = all && c->settings ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "--sweep: out of memory");
    for (size_t i = 0; status == QUIRE_OK && i < c->sweep.n; i++) {
        bool help;
        size_t n = 0;
        for (; n < c->sweep.runs[i].n_arguments; n++) /* its options come after those of the command line */
            all[(size_t)argc + n] = c->sweep.runs[i].arguments[n];
        memcpy(all, argv, (size_t)argc * sizeof *all);
        status = sim_settings_parse(argc + (int)n, all, &c->settings[i], &help, err);
        if (status == QUIRE_OK)
            status = sim_settings_check(&c->settings[i], err);
        if (status != QUIRE_OK)
            quire_error_prefix(err, "--sweep %s", c->sweep.runs[i].label);
    }
    free(all);
    return status;
}

static int report_sweep(const struct sim_settings *s, const struct sim_sweep *sweep)
{
    json_t *all = json_array();
    size_t n_failed = 0;
    int code = 0;
    for (size_t i = 0; i < sweep->n; i++) {
        n_failed += sweep->runs[i].result == NULL;
        if (sweep->runs[i].result)
            json_array_append(all, sweep->runs[i].result);
        else if (s->json)
            fprintf(stderr, "quire: %s: %s\n", sweep->runs[i].label, sweep->runs[i].err.text);
    }
    if (s->save)
        code = save(s->save, all);
    if (s->json) {
        code |= command_print_json(all);
    } else {
        sim_sweep_print(sweep);
        json_decref(all);
    }
    return code ? code : n_failed > 0;
}

static int run_sweep(int argc, char **argv, const struct sim_settings *s)
{
    struct sweep_context c = {.settings = NULL};
    struct quire_error err;
    int status = sim_sweep_create(&s->sweep, &c.sweep, &err);
    if (status == QUIRE_OK)
        status = parse_sweep(argc, argv, &c, &err);
    if (status == QUIRE_OK)
        status = sim_sweep_execute(&c.sweep, run_of_sweep, &c, &err);
    int code = status == QUIRE_OK ? report_sweep(s, &c.sweep) : command_fail(status == QUIRE_INVALID ? 2 : 1, err.text);
    for (size_t i = 0; c.settings && i < c.sweep.n; i++)
        sim_settings_free(&c.settings[i]);
    sim_sweep_free(&c.sweep);
    free(c.settings);
    return code;
}

static int run(int argc, char **argv, struct sim_settings *s)
{
    struct quire_error err;
    bool help;
    if (sim_settings_parse(argc, argv, s, &help, &err) != QUIRE_OK)
        return command_fail(2, err.text);
    if (help)
        return 0;
    if (s->sweep.n > 0) /* checks each combination, not only the common options */
        return run_sweep(argc, argv, s);
    if (sim_settings_check(s, &err) != QUIRE_OK)
        return command_fail(2, err.text);
    return strcmp(s->workload->format, "recording") == 0 ? run_recording(s) : run_one(s);
}

int command_sim(int argc, char **argv)
{
    struct sim_settings s;
    int code = run(argc, argv, &s);
    sim_settings_free(&s);
    return code;
}
