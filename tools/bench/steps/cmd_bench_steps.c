/* quire bench steps: measured times of steps, and a cost model that predicts others. */
#include "base/clock.h"
#include "tools/bench/steps/copy.h"
#include "tools/bench/lib/metrics.h"
#include "app/command/progress.h"
#include "tools/bench/steps/recorded.h"
#include "tools/bench/steps/scenes.h"
#include "tools/bench/cmd/cmd_bench.h"
#include "app/command/command.h"
#include "app/flags/cost_file.h"
#include "app/flags/engine_flags.h"
#include "app/command/foreign_flags.h"
#include "app/models/cache.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIN_ROUNDS 3
#define MAX_ROUNDS 25
#define NOISY 0.1                          /* a larger difference between halves gives a warning */
#define FILL_SHARE 0.3                     /* of the time: prefixes */
#define PROMPT_SHARE 0.12                  /* of the time: prompts, in each round */
#define PROMPTS_OF_MOST 20                 /* a round's prompts have about this many times most_tokens */

/* The command line. */
struct steps_options {
    struct engine_options *engine;
    double seconds;
    bool has_seconds;
    const char *output, *recording;
    bool json;
};

struct steps {
    const struct steps_options *options;
    struct bench_steps *bench;
    struct bench_scene_bounds bounds;
    struct bench_scene *scenes;
    size_t n_scenes;
    uint32_t n_rounds;
    struct bench_step *measured;
    size_t n_measured;

    struct cost_sample *fitted, *held_out; /* [n_measured] each */
    size_t n_fitted, n_held_out;
    struct sched_cost cost;
    struct cost_error fit_errors[COST_N_KINDS + 1], errors[COST_N_KINDS + 1];
    /* of the two halves of a step's runs: mean of their difference, divided by the median */
    double apart[COST_N_KINDS + 1];
};

/* ---- bounds ---- */

/* Prompt tokens per second, for a prompt of a few hundred; the first one brings the weights into memory. */
static int measure_rate(struct steps *s, double *rate, struct quire_error *err)
{
    const struct engine_plan *plan = bench_steps_info(s->bench)->plan;
    uint32_t n = plan->max_model_len / 4 < 128 ? plan->max_model_len / 4 : 128;
    double seconds = 0;
    int status = bench_steps_fill(s->bench, UINT32_MAX, 1, &seconds, err);
    if (status == QUIRE_OK)
        status = bench_steps_fill(s->bench, UINT32_MAX, n, &seconds, err);
    *rate = n / (seconds > 1e-6 ? seconds : 1e-6);
    return status;
}

static uint32_t at_most(double value, uint32_t most)
{
    return value < most ? (uint32_t)value : most;
}

/* Chooses, within the time, the length of contexts and the maximum of prompt tokens in a step. */
static int choose_bounds(struct steps *s, struct quire_error *err)
{
    const struct engine_plan *plan = bench_steps_info(s->bench)->plan;
    struct bench_scene_bounds *b = &s->bounds;
    double rate, capacity = INFINITY, sum_of_shares = 0;
    int status = measure_rate(s, &rate, err);
    if (status != QUIRE_OK)
        return status;
    for (uint32_t g = 0; g < plan->n_kv_groups; g++)
        if (plan->groups[g].window == 0 && plan->groups[g].n_blocks * (double)plan->block_tokens < capacity)
            capacity = plan->groups[g].n_blocks * (double)plan->block_tokens;
    b->block_tokens = plan->block_tokens;
    b->max_seqs = plan->max_num_seqs < plan->max_num_batched_tokens ? plan->max_num_seqs : plan->max_num_batched_tokens;
    b->most_tokens = at_most(rate * s->options->seconds * PROMPT_SHARE / PROMPTS_OF_MOST + 16,
                             plan->max_num_batched_tokens);
    b->most_tokens = at_most(plan->max_model_len / 4, b->most_tokens);
    b->most_logits = at_most(plan->max_logit_rows, plan->max_num_batched_tokens);
    b->max_context = plan->max_model_len / 2;
    for (uint32_t i = 0; i < b->max_seqs; i++)
        sum_of_shares += 1.0 / (i + 1);
    b->n_cached = at_most(rate * s->options->seconds * FILL_SHARE / sum_of_shares, UINT32_MAX);
    b->n_cached = at_most(capacity / 2 / sum_of_shares, b->n_cached);
    return QUIRE_OK;
}

/* ---- measuring ---- */

static int fill(struct steps *s, struct quire_error *err)
{
    struct bench_progress progress;
    uint32_t n = bench_scene_n_prefixes(&s->bounds);
    int status = QUIRE_OK;
    bench_progress_begin(&progress, "contexts", n);
    for (uint32_t i = 0; i < n && status == QUIRE_OK; i++) {
        double seconds;
        status = bench_steps_fill(s->bench, i, bench_scene_context(&s->bounds, i), &seconds, err);
        bench_progress_set(&progress, i + 1);
    }
    bench_progress_end(&progress);
    return status;
}

/* Rounds over all scenes, so that a neighbour's busy minute affects all of them; as many as the time allows. */
static int run_rounds(struct steps *s, double until, struct quire_error *err)
{
    struct bench_progress progress;
    double round_s = 0;
    int status = QUIRE_OK;
    bench_progress_begin(&progress, "steps", MAX_ROUNDS * s->n_scenes);
    while (status == QUIRE_OK && s->n_rounds < MAX_ROUNDS &&
           (s->n_rounds < MIN_ROUNDS || quire_now_s() + round_s < until)) {
        double began = quire_now_s();
        for (size_t i = 0; i < s->n_scenes && status == QUIRE_OK; i++) {
            status = bench_steps_run(s->bench, (uint32_t)i, &s->scenes[i], err);
            bench_progress_set(&progress, s->n_rounds * s->n_scenes + i + 1);
        }
        s->n_rounds++;
        round_s = quire_now_s() - began;
        double rounds = s->n_rounds + (until - quire_now_s()) / round_s;
        if (rounds < MAX_ROUNDS)
            progress.total = (uint64_t)(rounds > MIN_ROUNDS ? rounds : MIN_ROUNDS) * s->n_scenes;
    }
    bench_progress_end(&progress);
    return status;
}

static int measure(struct steps *s, struct quire_error *err)
{
    double began = quire_now_s();
    const struct engine_options *options = s->options->engine;
    int status = bench_steps_open(options, options->has_seed ? options->seed : 0, &s->bench, err);
    if (status == QUIRE_OK)
        status = choose_bounds(s, err);
    if (status == QUIRE_OK)
        status = bench_scenes_make(&s->bounds, &s->scenes, &s->n_scenes, err);
    if (status == QUIRE_OK)
        status = fill(s, err);
    if (status == QUIRE_OK)
        status = run_rounds(s, began + s->options->seconds, err);
    if (status == QUIRE_OK)
        status = bench_steps_medians(s->bench, &s->measured, &s->n_measured, err);
    return status;
}

/* ---- fitting ---- */

static enum cost_kind kind_of(const struct bench_scene *scene)
{
    if (scene->n_drafts > 0)
        return COST_VERIFY;
    return scene->n_prompts == 0 ? COST_DECODE : scene->n_decode == 0 ? COST_PREFILL : COST_MIXED;
}

/* About every fifth scene of a kind: 2 of 11, which is independent of the order of contexts. */
static bool is_held_out(const struct steps *s, uint32_t scene)
{
    uint32_t n_before = 0;
    for (uint32_t i = 0; i < scene; i++)
        n_before += kind_of(&s->scenes[i]) == kind_of(&s->scenes[scene]);
    return n_before % 11 == 3 || n_before % 11 == 8;
}

static void split(struct steps *s)
{
    for (size_t i = 0; i < s->n_measured; i++) {
        if (is_held_out(s, s->measured[i].scene))
            s->held_out[s->n_held_out++] = s->measured[i].median;
        else
            s->fitted[s->n_fitted++] = s->measured[i].median;
    }
}

static void compare_halves(struct steps *s)
{
    size_t n[COST_N_KINDS + 1] = {0};
    for (size_t i = 0; i < s->n_measured; i++) {
        const struct bench_step *step = &s->measured[i];
        const int kinds[] = {(int)step->median.kind, COST_N_KINDS};
        for (int k = 0; k < 2; k++) {
            s->apart[kinds[k]] += fabs(step->halves_us[0] - step->halves_us[1]) / step->median.us;
            n[kinds[k]]++;
        }
    }
    for (int k = 0; k <= COST_N_KINDS; k++)
        s->apart[k] /= n[k] > 0 ? (double)n[k] : 1;
}

static int fit_costs(struct steps *s, struct quire_error *err)
{
    s->fitted = malloc((s->n_measured + 1) * sizeof *s->fitted);
    s->held_out = malloc((s->n_measured + 1) * sizeof *s->held_out);
    if (!s->fitted || !s->held_out)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    split(s);
    compare_halves(s);
    int status = cost_fit(s->fitted, s->n_fitted, &s->cost, err);
    if (status == QUIRE_OK)
        status = bench_copy(s->options->engine, bench_steps_info(s->bench), &s->cost.block_copy_us, err);
    if (status != QUIRE_OK)
        return status;
    cost_fit_errors(&s->cost, s->fitted, s->n_fitted, s->fit_errors);
    cost_fit_errors(&s->cost, s->held_out, s->n_held_out, s->errors);
    return QUIRE_OK;
}

/* ---- cost of drafts ---- */

/* A scene's step, measured and predicted: the mean of the medians. Returns false if none was kept. */
static bool step_of(const struct steps *s, size_t scene, double *us, double *predicted_us)
{
    size_t n = 0;
    *us = *predicted_us = 0;
    for (size_t i = 0; i < s->n_measured; i++) {
        if (s->measured[i].scene != scene)
            continue;
        *us += s->measured[i].median.us;
        *predicted_us += sched_cost_us(&s->cost, &s->measured[i].median.shape);
        n++;
    }
    *us /= n > 0 ? (double)n : 1;
    *predicted_us /= n > 0 ? (double)n : 1;
    return n > 0;
}

/* The scene with the same sequences and this many drafts each; n_scenes: none. */
static size_t with_drafts(const struct steps *s, const struct bench_scene *like, uint32_t n_drafts)
{
    size_t i = 0;
    while (i < s->n_scenes &&
           (s->scenes[i].n_prompts > 0 || s->scenes[i].n_decode != like->n_decode ||
            s->scenes[i].decode_context != like->decode_context || s->scenes[i].n_drafts != n_drafts))
        i++;
    return i;
}

static json_t *drafts_json(const struct steps *s)
{
    json_t *list = json_array();
    double us, predicted_us, plain_us, ignored;
    for (size_t i = 0; i < s->n_scenes; i++) {
        const struct bench_scene *scene = &s->scenes[i];
        if (scene->n_drafts == 0 || !step_of(s, i, &us, &predicted_us) ||
            !step_of(s, with_drafts(s, scene, 0), &plain_us, &ignored))
            continue;
        json_array_append_new(list, json_pack("{s:i, s:i, s:i, s:f, s:f, s:f}", "running", (int)scene->n_decode,
                                              "context", (int)scene->decode_context, "drafts", (int)scene->n_drafts,
                                              "us", us, "predicted_us", predicted_us, "times", us / plain_us));
    }
    return list;
}

/* A line for each batch and context; after each time, its ratio to a step without drafts. */
static void print_drafts(const struct steps *s)
{
    double us, plain_us, ignored;
    printf("\n%-34s %10s", "A step (us), by drafts per sequence:", "0");
    for (uint32_t k = 1; k <= BENCH_MAX_DRAFTS; k *= 2)
        printf(" %17u", k);
    for (size_t i = 0; i < s->n_scenes; i++) {
        const struct bench_scene *first = &s->scenes[i];
        if (first->n_drafts != 1 || !step_of(s, with_drafts(s, first, 0), &plain_us, &ignored))
            continue;
        printf("\n%5u running, context %-12u %10.0f", first->n_decode, first->decode_context, plain_us);
        for (uint32_t k = 1; k <= BENCH_MAX_DRAFTS && step_of(s, with_drafts(s, first, k), &us, &ignored); k *= 2)
            printf(" %8.0f (%4.2f x)", us, us / plain_us);
    }
    putchar('\n');
}

/* ---- out ---- */

static const char *kind_name(int kind)
{
    return kind == COST_N_KINDS ? "all" : cost_kind_name((enum cost_kind)kind);
}

static struct cost_shape shape_of(const struct steps *s)
{
    const struct engine_info *info = bench_steps_info(s->bench);
    return (struct cost_shape){.n_layers = info->desc->config->n_layers,
                               .hidden_size = info->desc->config->hidden_size,
                               .vocab_size = info->desc->config->vocab_size,
                               .micro_batch_tokens = info->plan->planner->micro_batch_tokens};
}

static int save(const struct steps *s, struct quire_error *err)
{
    const struct engine_info *info = bench_steps_info(s->bench);
    char about[256];
    snprintf(about, sizeof about, "%s on %s, %u threads: error of %.1f %% on %zu steps that it was not fitted on",
             info->desc->config->architecture, engine_plan_device(info->plan), info->plan->n_threads,
             s->errors[COST_N_KINDS].mean_absolute * 100, s->errors[COST_N_KINDS].n);
    const struct cost_shape shape = shape_of(s);
    return cost_file_write(s->options->output, &s->cost, about, &shape, err);
}

static json_t *errors_json(const struct steps *s)
{
    json_t *object = json_object();
    for (int k = 0; k <= COST_N_KINDS; k++)
        json_object_set_new(object, kind_name(k),
                            json_pack("{s:I, s:f, s:f, s:I, s:f, s:f}", "held_out_steps", (json_int_t)s->errors[k].n,
                                      "mean_absolute_error", s->errors[k].mean_absolute, "bias", s->errors[k].bias,
                                      "fitted_steps", (json_int_t)s->fit_errors[k].n, "fitted_mean_absolute_error",
                                      s->fit_errors[k].mean_absolute, "halves_apart", s->apart[k]));
    return object;
}

static json_t *steps_json(const struct steps *s)
{
    json_t *list = json_array();
    for (size_t i = 0; i < s->n_measured; i++) {
        const struct bench_step *step = &s->measured[i];
        const struct sched_shape *shape = &step->median.shape;
        json_array_append_new(list,
                              json_pack("{s:s, s:i, s:i, s:i, s:I, s:I, s:i, s:f, s:f, s:b}", "kind",
                                        cost_kind_name(step->median.kind), "rows", (int)shape->n_rows, "tokens",
                                        (int)shape->n_tokens, "logits", (int)shape->n_logits, "context",
                                        (json_int_t)shape->n_context, "pairs", (json_int_t)shape->n_pairs, "runs",
                                        (int)step->n_runs, "us", step->median.us, "predicted_us",
                                        sched_cost_us(&s->cost, shape), "held_out", (int)is_held_out(s, step->scene)));
    }
    return list;
}

static int report_json(const struct steps *s)
{
    const struct cost_shape shape = shape_of(s);
    return command_print_json(json_pack("{s:o, s:o, s:i, s:o, s:o}", "cost", cost_file_json(&s->cost, NULL, &shape),
                                        "errors", errors_json(s), "rounds", (int)s->n_rounds, "drafts", drafts_json(s),
                                        "steps", steps_json(s)));
}

static void print_model(const struct sched_cost *cost)
{
    printf("\n%-34s", "Tokens of a step:");
    for (uint32_t i = 0; i < cost->n_points; i++)
        printf(" %8u", cost->points[i].n_tokens);
    printf("\n%-34s", "take (us):");
    for (uint32_t i = 0; i < cost->n_points; i++)
        printf(" %8.0f", cost->points[i].us);
    printf("\n%-34s %.3f\n", "and each row (us):", cost->row_us);
    printf("%-34s %.3f\n", "logit row (us):", cost->logit_us);
    printf("%-34s %.6f\n", "position that a row reads (us):", cost->context_us);
    printf("%-34s %.6f\n", "and for each of its tokens (us):", cost->pair_us);
    printf("%-34s %.2f\n", "KV block to the host tier (us):", cost->block_copy_us);
}

static void print_output(const struct steps *s)
{
    if (s->options->output)
        printf("\nUse %s with --cost-model.\n", s->options->output);
    else
        puts("\nWrite the model to a file with --output FILE.\n");
}

static void report_table(const struct steps *s)
{
    const struct engine_info *info = bench_steps_info(s->bench);
    printf("%-34s %s, %u threads\n", "Device:", info->device_why, info->plan->n_threads);
    printf("%-34s %zu, of %zu scenes, each %u times\n", "Steps:", s->n_measured, s->n_scenes, s->n_rounds);
    printf("%-34s %u prompt tokens, %u decoding, context %u\n\n", "At most:", s->bounds.most_tokens, s->bounds.max_seqs,
           bench_scene_context(&s->bounds, 0));
    printf("%-10s %12s %10s %10s %14s %14s\n", "", "held out", "error", "bias", "fitted: error", "halves apart");
    for (int k = 0; k <= COST_N_KINDS; k++)
        printf("%-10s %12zu %8.1f %% %8.1f %% %12.1f %% %12.1f %%\n", kind_name(k), s->errors[k].n,
               s->errors[k].mean_absolute * 100, s->errors[k].bias * 100, s->fit_errors[k].mean_absolute * 100,
               s->apart[k] * 100);
    print_model(&s->cost);
    print_drafts(s);
    print_output(s);
}

/* ---- a recorded server's steps ---- */

static void print_errors(const struct steps *s)
{
    printf("%-10s %12s %10s %10s %14s\n", "", "held out", "error", "bias", "fitted: error");
    for (int k = 0; k <= COST_N_KINDS; k++)
        printf("%-10s %12zu %8.1f %% %8.1f %% %12.1f %%\n", kind_name(k), s->errors[k].n,
               s->errors[k].mean_absolute * 100, s->errors[k].bias * 100, s->fit_errors[k].mean_absolute * 100);
}

/* Fits the first two thirds of the time and tests the last third: a model must predict the future. */
static int fit_recording(struct steps *s, struct cost_sample *samples, size_t n, struct quire_error *err)
{
    char about[256];
    size_t n_first = n - n / 3;
    int status = cost_fit(samples, n_first, &s->cost, err);
    if (status != QUIRE_OK)
        return status;
    cost_fit_errors(&s->cost, samples, n_first, s->fit_errors);
    cost_fit_errors(&s->cost, samples + n_first, n - n_first, s->errors);
    snprintf(about, sizeof about,
             "a recorded server: error of %.1f %% on the last %zu of %zu steps, which it was not fitted on",
             s->errors[COST_N_KINDS].mean_absolute * 100, n - n_first, n);
    return s->options->output ? cost_file_write(s->options->output, &s->cost, about, NULL, err) : QUIRE_OK;
}

/* of_engine: an option of the engine that is set; NULL: none is. */
static int run_recording(const struct steps_options *options, const char *of_engine)
{
    struct steps all = {.options = options}, *s = &all;
    struct quire_error err;
    struct cost_sample *samples;
    size_t n;
    if (options->engine->model_dir)
        return command_fail(2, "--recording has its own steps: leave MODEL out");
    of_engine = options->has_seconds ? "seconds" : of_engine;
    if (of_engine) {
        quire_fail(&err, QUIRE_INVALID, "--%s has no effect on a recording; leave --%s out", of_engine, of_engine);
        return command_fail(2, err.text);
    }
    int status = bench_recorded_steps(s->options->recording, &samples, &n, &err);
    if (status == QUIRE_OK)
        status = fit_recording(s, samples, n, &err);
    free(samples);
    if (status != QUIRE_OK)
        return command_fail(1, err.text);
    if (s->options->json)
        return command_print_json(json_pack("{s:o, s:o, s:I}", "cost", cost_file_json(&s->cost, NULL, NULL), "errors",
                                            errors_json(s), "steps", (json_int_t)n));
    printf("%-34s %zu of %s\n\n", "Steps:", n, s->options->recording);
    print_errors(s);
    print_model(&s->cost);
    print_output(s);
    return 0;
}

static int run_all(struct steps *s)
{
    struct quire_error err;
    int status = measure(s, &err);
    if (status == QUIRE_OK)
        status = fit_costs(s, &err);
    if (status == QUIRE_OK && s->options->output)
        status = save(s, &err);
    if (status != QUIRE_OK)
        return command_fail(1, err.text);
    if (s->apart[COST_N_KINDS] > NOISY)
        fprintf(stderr,
                "quire: repeats of the same step differ by %.0f %%: other programs use this machine, and the model "
                "cannot be better than that\n",
                s->apart[COST_N_KINDS] * 100);
    if (s->options->json)
        return report_json(s);
    report_table(s);
    return 0;
}

static int run_model(const struct steps_options *options)
{
    struct steps s = {.options = options};
    struct hub_model model;
    struct quire_error err;
    if (!options->engine->model_dir)
        return command_fail(2, "MODEL is missing; usage: quire bench steps MODEL [options]");
    if (hub_model_find(options->engine->model_dir, false, &model, &err) != QUIRE_OK)
        return command_fail(1, err.text);
    options->engine->model_dir = model.dir;
    options->engine->prefix_caching = true; /* contexts are computed once */

    int code = run_all(&s);
    bench_steps_close(s.bench);
    free(s.scenes);
    free(s.measured);
    free(s.fitted);
    free(s.held_out);
    return code;
}

static size_t own_flags(struct steps_options *o, struct cli_option *out)
{
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "Measuring:", .kind = CLI_GROUP},
        {.names = "seconds", .kind = CLI_F64, .target = &o->seconds, .given = &o->has_seconds, .min = 0.1, .max = 86400, .value = "S",
         .common = true, .help = "Approximate duration of the measurement; default 60. More time gives longer contexts, larger steps "
                 "and more repeats."},
        {.names = "recording", .kind = CLI_STRING, .target = &o->recording, .value = "FILE",
         .common = true, .help = "Use the steps of a server recorded with quire serve --record FILE instead of measuring. MODEL is "
                 "then not allowed; block copies get no price."},
        {.names = "output", .kind = CLI_STRING, .target = &o->output, .value = "FILE",
         .common = true, .help = "Write the cost model to this file, for --cost-model."},
        {.names = "json", .kind = CLI_FLAG, .target = &o->json, .common = true, .help = "Print JSON with every step."},
    };
    /* clang-format on */
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

int bench_steps(int argc, char **argv)
{
    struct engine_options engine;
    struct step_options step_options; /* engine.steps */
    struct engine_placement placement = {0}; /* engine.placement */
    struct steps_options options = {.engine = &engine, .seconds = 60};
    struct cli_option rows[ENGINE_FLAGS_MAX + 7];
    bool given[ENGINE_FLAGS_MAX] = {false};

    engine_options_default(&engine);
    step_options_default(&step_options);
    engine.steps = &step_options;
    engine.placement = &placement;
    size_t n = own_flags(&options, rows);
    const size_t n_own = n;
    n += engine_flags(&engine, rows + n);
    rows[n] = (struct cli_option){0};
    cli_note_given(rows + n_own, n - n_own, given);
    const struct cli_command command = {
        .name = "bench steps",
        .usage = "quire bench steps MODEL [options]",
        .about =
            "Runs steps of many shapes on an engine in this process: prompts of all lengths, decode batches at several\n"
            "contexts, with and without drafts, and both together. Fits a cost model to four fifths of them and reports\n"
            "its error on the others. \"Halves apart\" is the difference between two halves of the same step's repeats;\n"
            "no model can be much better than half of it. The last table shows the time of a step with drafts. With\n"
            "--recording, the steps are those of a recorded server, and the last third of them is held out.",
        .examples = "examples:\n"
                    "  quire bench steps ./model --output cost.json\n"
                    "  quire bench steps ./model --max-num-seqs 16 --max-num-batched-tokens 256 --seconds 120 --json\n"
                    "  quire bench steps --recording monday.rec --output cost.json",
        .options = rows,
        .positionals = {&engine.model_dir},
        .first_names = FOREIGN_MODEL_NAMES,
        .foreign = foreign_flags,
    };
    int code;
    if (!command_begin(&command, argc, argv, &code))
        return code;
    if (options.recording)
        return run_recording(&options, cli_first_given(rows + n_own, n - n_own));
    return run_model(&options);
}
