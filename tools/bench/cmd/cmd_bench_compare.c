/* quire bench compare: two configurations of the engine in turns on the same requests. */
#include "tools/bench/cmd/engine.h"
#include "tools/bench/lib/pairs.h"
#include "tools/bench/cmd/cmd_bench.h"
#include "app/command/command.h"
#include "app/flags/engine_flags.h"
#include "app/models/cache.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WORDS 64

enum figure { MEAN_TTFT, P95_TTFT, MEAN_TPOT, MEAN_E2EL, OUTPUT_RATE, N_FIGURES };
static const struct {
    const char *key, *name, *unit;
    bool more_is_better;
} figures[N_FIGURES] = {
    [MEAN_TTFT] = {"mean_ttft_ms", "Mean TTFT", "ms", false},
    [P95_TTFT] = {"p95_ttft_ms", "P95 TTFT", "ms", false},
    [MEAN_TPOT] = {"mean_tpot_ms", "Mean TPOT", "ms", false},
    [MEAN_E2EL] = {"mean_e2el_ms", "Mean E2EL", "ms", false},
    [OUTPUT_RATE] = {"output_throughput", "Output throughput", "tok/s", true},
};

/* The command line. */
struct compare_options {
    struct engine_options *engine; /* of both */
    const char *sides[2]; /* --a and --b; NULL: not given */
    struct bench_input_options input;
    double rate, burstiness;
    uint32_t n_rounds;
    bool json;
};

struct side {
    struct engine_options *options; /* of this side alone */
    struct step_options *steps;     /* options->steps */
    struct engine_placement placement; /* options->placement points here */
    char *words;                    /* a copy of --a or --b that its options point into */
    double *values[N_FIGURES];      /* [n_rounds] each */
};

struct compare {
    const struct compare_options *options;
    struct side sides[2];
    struct quire_text *text;
    struct bench_inputs *in; /* created with the first engine */
    double *arrivals;
    struct bench_pairs pairs[N_FIGURES];
    bool is_judged[N_FIGURES]; /* TPOT is undefined if every answer has one token */
};

/* ---- the two configurations ---- */

/* The common options, changed by the side's own words. */
static int parse_side(const struct compare_options *o, int i, struct side *side, struct quire_error *err)
{
    struct cli_option rows[ENGINE_FLAGS_MAX + 1];
    char *argv[MAX_WORDS], *rest;
    int argc = 0;
    enum cli_help help;
    const char name = "ab"[i];
    side->options = malloc(sizeof *side->options);
    side->steps = malloc(sizeof *side->steps);
    side->words = strdup(o->sides[i] ? o->sides[i] : "");
    if (!side->options || !side->steps || !side->words)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    *side->options = *o->engine;
    *side->steps = *o->engine->steps;
    side->placement = *o->engine->placement;
    side->options->steps = side->steps;
    side->options->placement = &side->placement;
    rows[engine_flags(side->options, rows)] = (struct cli_option){0};
    for (char *word = strtok_r(side->words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        if (argc == MAX_WORDS)
            return quire_fail(err, QUIRE_INVALID, "--%c: more than %d words", name, MAX_WORDS);
        argv[argc++] = word;
    }
    const struct cli_command command = {.name = "bench compare", .usage = "--a \"--max-num-seqs 8\"", .options = rows};
    int status = cli_parse(&command, argc, argv, &help, err);
    if (status == QUIRE_OK && help != CLI_HELP_NONE)
        status = quire_fail(err, QUIRE_INVALID, "takes engine options; quire bench compare --help all lists them");
    if (status != QUIRE_OK)
        quire_error_prefix(err, "--%c", name);
    if (side->options->max_queued_requests < o->input.num_prompts)
        side->options->max_queued_requests = o->input.num_prompts;
    return status;
}

static int prepare(struct compare *c, struct quire_error *err)
{
    int status = QUIRE_OK;
    for (int i = 0; i < 2 && status == QUIRE_OK; i++) {
        struct side *side = &c->sides[i];
        status = parse_side(c->options, i, side, err);
        for (int f = 0; f < N_FIGURES && status == QUIRE_OK; f++) {
            side->values[f] = calloc(c->options->n_rounds, sizeof *side->values[f]);
            if (!side->values[f])
                status = quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
        }
    }
    return status;
}

static void clean_up(struct compare *c)
{
    for (int i = 0; i < 2; i++) {
        free(c->sides[i].options);
        free(c->sides[i].steps);
        free(c->sides[i].words);
        for (int f = 0; f < N_FIGURES; f++)
            free(c->sides[i].values[f]);
    }
    free(c->arrivals);
    bench_inputs_close(c->in);
    quire_text_close(c->text);
}

/* ---- measuring ---- */

static int open_inputs(struct compare *c, const struct bench_engine *engine, struct quire_error *err)
{
    const struct compare_options *o = c->options;
    uint64_t seed = o->engine->has_seed ? o->engine->seed : 0;
    int status = bench_engine_open_inputs(engine, o->engine->model_dir, &o->input, seed, &c->text, &c->in, err);
    if (status != QUIRE_OK)
        return status;
    c->arrivals = calloc(c->in->n, sizeof *c->arrivals);
    if (!c->arrivals)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    bench_inputs_arrivals(c->in, o->rate, o->burstiness, seed, c->arrivals);
    return QUIRE_OK;
}

static int take_figures(struct side *side, uint32_t round, const struct bench_run *run, struct quire_error *err)
{
    static const struct bench_metrics_options options = {
        .percentiles = {95}, .n_percentiles = 1, .goodput_ms = {INFINITY, INFINITY, INFINITY, INFINITY}};
    struct bench_metrics m;
    int status = bench_metrics_compute(run->results, run->n, run->elapsed_s, &options, &m, err);
    if (status != QUIRE_OK)
        return status;
    side->values[MEAN_TTFT][round] = m.stats[BENCH_TTFT].mean_ms;
    side->values[P95_TTFT][round] = m.stats[BENCH_TTFT].percentiles_ms[0];
    side->values[MEAN_TPOT][round] = m.stats[BENCH_TPOT].mean_ms;
    side->values[MEAN_E2EL][round] = m.stats[BENCH_E2EL].mean_ms;
    side->values[OUTPUT_RATE][round] = m.output_throughput;
    return QUIRE_OK;
}

/* On a fresh engine, so that no run uses the cache of another. */
static int run_one(struct compare *c, struct side *side, uint32_t round, struct quire_error *err)
{
    struct bench_engine *engine;
    struct bench_run run = {0};
    int status = bench_engine_open(side->options, &engine, err);
    if (status == QUIRE_OK && !c->in)
        status = open_inputs(c, engine, err);
    if (status == QUIRE_OK)
        status = bench_engine_warm_up(engine, err);
    if (status == QUIRE_OK)
        status = bench_engine_run(engine, c->in, c->arrivals, NULL, &run, err);
    if (status == QUIRE_OK)
        status = take_figures(side, round, &run, err);
    bench_run_free(&run);
    bench_engine_close(engine);
    return status;
}

/* A B, B A, A B, ...: a machine that becomes slower, or a slow first run, favours neither. */
static int run_all(struct compare *c, struct quire_error *err)
{
    struct bench_progress progress;
    int status = prepare(c, err);
    bench_progress_begin(&progress, "runs", 2 * c->options->n_rounds);
    for (uint32_t i = 0; i < 2 * c->options->n_rounds && status == QUIRE_OK; i++) {
        uint32_t round = i / 2, which = (i + round) % 2;
        status = run_one(c, &c->sides[which], round, err);
        if (status != QUIRE_OK)
            quire_error_prefix(err, "%c", "AB"[which]);
        bench_progress_set(&progress, i + 1);
    }
    bench_progress_end(&progress);
    for (int f = 0; f < N_FIGURES && status == QUIRE_OK; f++) {
        c->is_judged[f] = c->sides[0].values[f][0] > 0;
        if (c->is_judged[f])
            status = bench_pairs_compare(c->sides[0].values[f], c->sides[1].values[f], c->options->n_rounds,
                                         &c->pairs[f], err);
    }
    return status;
}

/* ---- out ---- */

static double median_of(const struct compare *c, const double *values)
{
    double sorted[BENCH_PAIRS_MAX];
    memcpy(sorted, values, c->options->n_rounds * sizeof *values);
    bench_sort(sorted, c->options->n_rounds);
    return bench_percentile(sorted, c->options->n_rounds, 50);
}

static const char *verdict_of(const struct compare *c, int f)
{
    if (!c->pairs[f].differs)
        return "none";
    return (c->pairs[f].ratio > 1) == figures[f].more_is_better ? "b" : "a";
}

static double percent(double ratio)
{
    return (ratio - 1) * 100;
}

/* "B is 12.0 % lower, which is better (99 % interval 9.1 to 15.2 %)" */
static void print_verdict(const struct compare *c, int f)
{
    const struct bench_pairs *p = &c->pairs[f];
    printf("%-18s ", figures[f].name);
    if (!p->differs) {
        printf("no difference beyond noise (%.0f %% interval %+.1f to %+.1f %%)\n", BENCH_PAIRS_CONFIDENCE * 100,
               percent(p->low), percent(p->high));
        return;
    }
    bool rises = p->ratio > 1;
    printf("B is %.1f %% %s, which is %s (%.0f %% interval %.1f to %.1f %%)\n", fabs(percent(p->ratio)),
           rises ? "higher" : "lower", rises == figures[f].more_is_better ? "better" : "worse",
           BENCH_PAIRS_CONFIDENCE * 100, fabs(percent(rises ? p->low : p->high)),
           fabs(percent(rises ? p->high : p->low)));
}

static int report_json(const struct compare *c)
{
    const struct compare_options *o = c->options;
    json_t *object = json_pack("{s:s, s:s, s:i, s:I}", "a", o->sides[0] ? o->sides[0] : "", "b",
                               o->sides[1] ? o->sides[1] : "", "rounds", (int)c->options->n_rounds, "num_prompts",
                               (json_int_t)c->in->n);
    for (int f = 0; f < N_FIGURES; f++) {
        if (!c->is_judged[f])
            continue;
        json_t *rounds = json_array();
        for (uint32_t i = 0; i < c->options->n_rounds; i++)
            json_array_append_new(rounds, json_pack("[f, f]", c->sides[0].values[f][i], c->sides[1].values[f][i]));
        json_object_set_new(object, figures[f].key,
                            json_pack("{s:f, s:f, s:f, s:f, s:f, s:s, s:o}", "a", median_of(c, c->sides[0].values[f]),
                                      "b", median_of(c, c->sides[1].values[f]), "ratio", c->pairs[f].ratio, "low",
                                      c->pairs[f].low, "high", c->pairs[f].high, "better", verdict_of(c, f), "rounds",
                                      rounds));
    }
    return command_print_json(object);
}

static int report(const struct compare *c)
{
    if (c->in->n_left_out > 0)
        fprintf(stderr, "quire: %zu requests of %s are longer than the context and were left out\n", c->in->n_left_out,
                c->options->input.path);
    if (c->options->json)
        return report_json(c);
    for (int i = 0; i < 2; i++)
        printf("%c: %s\n", "AB"[i], c -> options -> sides[i] ? c -> options -> sides[i] : "(as both)");
    printf("%zu requests, %u rounds; medians of rounds\n\n%-28s %12s %12s\n", c->in->n, c->options->n_rounds, "", "A",
           "B");
    for (int f = 0; f < N_FIGURES; f++) {
        char name[48];
        snprintf(name, sizeof name, "%s (%s):", figures[f].name, figures[f].unit);
        if (c->is_judged[f])
            printf("%-28s %12.2f %12.2f\n", name, median_of(c, c->sides[0].values[f]),
                   median_of(c, c->sides[1].values[f]));
    }
    putchar('\n');
    for (int f = 0; f < N_FIGURES; f++)
        if (c->is_judged[f])
            print_verdict(c, f);
    return 0;
}

static size_t own_flags(struct compare_options *o, struct cli_option *out)
{
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "The comparison:", .kind = CLI_GROUP},
        {.names = "a", .kind = CLI_STRING, .target = &o->sides[0], .value = "\"OPTIONS\"",
         .common = true, .help = "Engine options of configuration A, separated by spaces, in addition to the common options."},
        {.names = "b", .kind = CLI_STRING, .target = &o->sides[1], .value = "\"OPTIONS\"",
         .common = true, .help = "Engine options of configuration B, separated by spaces, in addition to the common options."},
        {.names = "rounds", .kind = CLI_U32, .target = &o->n_rounds, .min = BENCH_PAIRS_MIN, .max = BENCH_PAIRS_MAX,
         .value = "N",
         .common = true, .help = "Number of rounds; default 10. Each round runs A and B once. More rounds detect smaller "
                 "differences."},
        {.names = "json", .kind = CLI_FLAG, .target = &o->json, .common = true, .help = "Print JSON."},
        {.names = "Load:", .kind = CLI_GROUP},
        {.names = "request-rate", .kind = CLI_PARSED, .target = &o->rate, .parse = bench_inputs_parse_rate, .value = "R",
         .common = true, .help = "Requests per second, or inf: all at once. A trace has its own times. Default inf."},
        {.names = "burstiness", .kind = CLI_F64, .target = &o->burstiness, .min = 0.01, .max = 1e6, .value = "B",
         .help = "Shape of the gamma distribution of the gaps: 1 is Poisson, smaller values are more bursty, larger "
                 "values more even. Default 1."},
    };
    /* clang-format on */
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

int bench_compare(int argc, char **argv)
{
    struct engine_options engine;
    struct step_options step_options; /* engine.steps */
    struct engine_placement placement = {0}; /* engine.placement */
    struct compare_options options = {.engine = &engine, .rate = INFINITY, .burstiness = 1, .n_rounds = 10};
    struct compare c = {.options = &options};
    struct cli_option rows[ENGINE_FLAGS_MAX + BENCH_INPUT_FLAGS_MAX + 12];
    struct hub_model model;
    struct quire_error err;

    engine_options_default(&engine);
    step_options_default(&step_options);
    engine.steps = &step_options;
    engine.placement = &placement;
    bench_input_options_default(&options.input);
    size_t n = own_flags(&options, rows);
    n += bench_input_flags(&options.input, rows + n);
    n += engine_flags(&engine, rows + n);
    rows[n] = (struct cli_option){0};
    const struct cli_command command = {
        .name = "bench compare",
        .usage = "quire bench compare MODEL --a \"OPTIONS\" --b \"OPTIONS\" [options]",
        .about =
            "Runs two configurations of the engine in turns on the same requests, each time on a fresh engine in this\n"
            "process. An exact test over the pairs shows for each figure whether the difference is more than noise.\n"
            "Other options apply to both.",
        .examples =
            "examples:\n"
            "  quire bench compare ./model --a \"--scheduling-policy fcfs\" --b \"--scheduling-policy sjf\" \\\n"
            "      --request-rate 4 --num-prompts 60\n"
            "  quire bench compare ./model --b \"--max-num-batched-tokens 128\" --rounds 20 --json",
        .options = rows,
        .positionals = {&engine.model_dir},
    };
    int code;
    if (!command_begin(&command, argc, argv, &code))
        return code;
    if (!engine.model_dir || (!options.sides[0] && !options.sides[1]))
        return command_fail(
            2, "MODEL, --a or --b is missing; usage: quire bench compare MODEL --a \"OPTIONS\" --b \"OPTIONS\"");
    if (hub_model_find(engine.model_dir, false, &model, &err) != QUIRE_OK)
        return command_fail(1, err.text);
    engine.model_dir = model.dir;

    int status = run_all(&c, &err);
    code = status == QUIRE_OK ? report(&c) : command_fail(1, err.text);
    clean_up(&c);
    return code;
}
