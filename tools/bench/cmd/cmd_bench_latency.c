/* quire bench latency: one repeated batch on an engine in this process. */
#include "tools/bench/cmd/engine.h"
#include "tools/bench/cmd/cmd_bench.h"
#include "app/command/command.h"
#include "app/flags/engine_flags.h"
#include "app/command/foreign_flags.h"
#include "app/models/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The command line. */
struct latency_options {
    struct engine_options *engine;
    uint32_t batch_size, input_len, output_len, n_iters, n_warmup;
    bool json;
};

struct latency {
    const struct latency_options *options;
    struct bench_engine *engine;
    struct bench_inputs *in;

    double *seconds; /* [n_iters] */
    double ttft_s, tpot_s;             /* sums over iterations of the batch's mean */
    double prefill_s, decode_s;        /* sums over iterations */
    uint64_t n_prompt, n_decoded;
};

static const double percents[] = {10, 25, 50, 75, 90, 99}; /* as in vllm bench latency */
#define N_PERCENTS (sizeof percents / sizeof percents[0])

static int open_all(struct latency *l, struct quire_error *err)
{
    struct bench_input_options input;
    bench_input_options_default(&input);
    const struct latency_options *o = l->options;
    input.num_prompts = o->batch_size;
    input.input_len = o->input_len;
    input.output_len = o->output_len;
    l->seconds = calloc(o->n_iters, sizeof *l->seconds);
    int status = l->seconds ? bench_engine_open(o->engine, &l->engine, err)
                            : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (status != QUIRE_OK)
        return status;
    const struct engine_info *info = bench_engine_info(l->engine);
    if (o->batch_size > info->plan->max_num_seqs)
        return quire_fail(err, QUIRE_INVALID, "--batch-size %u: only %u requests run at once; raise --max-num-seqs",
                          o->batch_size, info->plan->max_num_seqs);
    const struct bench_input_bounds bounds = {.vocab_size = info->desc->config->vocab_size,
                                              .max_model_len = info->plan->max_model_len,
                                              .seed = o->engine->has_seed ? o->engine->seed : 0};
    return bench_inputs_open(&input, &bounds, &l->in, err);
}

static void add(struct latency *l, uint32_t iteration, const struct bench_run *run)
{
    double ttft = 0, tpot = 0;
    for (size_t i = 0; i < run->n; i++) {
        const struct bench_result *r = &run->results[i];
        ttft += r->ttft_s;
        if (r->n_output > 1)
            tpot += (r->e2el_s - r->ttft_s) / (r->n_output - 1);
    }
    l->seconds[iteration] = run->elapsed_s;
    l->ttft_s += ttft / (double)run->n;
    l->tpot_s += tpot / (double)run->n;
    l->prefill_s += run->prefill_s;
    l->decode_s += run->elapsed_s - run->prefill_s;
    l->n_prompt += run->n_prompt;
    l->n_decoded += run->n_output - run->n_output_prefill;
}

static int run_all(struct latency *l, struct quire_error *err)
{
    struct bench_progress progress;
    int status = open_all(l, err);
    if (status != QUIRE_OK)
        return status;
    const uint32_t n_warmup = l->options->n_warmup, n_iters = l->options->n_iters;
    bench_progress_begin(&progress, "iterations", (uint64_t)n_warmup + n_iters);
    for (uint32_t i = 0; i < n_warmup + n_iters && status == QUIRE_OK; i++) {
        struct bench_run run;
        status = bench_engine_run(l->engine, l->in, NULL, NULL, &run, err);
        if (status == QUIRE_OK && i >= n_warmup)
            add(l, i - n_warmup, &run);
        if (status == QUIRE_OK)
            bench_run_free(&run);
        bench_progress_set(&progress, i + 1);
    }
    bench_progress_end(&progress);
    return status;
}

/* measured latencies, and percentiles {"10": s, ...}. */
static json_t *result_json(const struct latency *l, double prefill, double decode, const double *sorted)
{
    json_t *latencies = json_array(), *percentiles = json_object();
    for (uint32_t i = 0; latencies && i < l->options->n_iters; i++)
        json_array_append_new(latencies, json_real(l->seconds[i]));
    for (size_t i = 0; percentiles && i < N_PERCENTS; i++) {
        char key[8];
        snprintf(key, sizeof key, "%.0f", percents[i]);
        json_object_set_new(percentiles, key, json_real(bench_percentile(sorted, l->options->n_iters, percents[i])));
    }
    return json_pack("{s:f, s:f, s:o, s:o, s:f, s:f, s:f, s:f, s:i, s:i, s:i}", "avg_latency",
                     bench_mean(sorted, l->options->n_iters), "std_latency", bench_std(sorted, l->options->n_iters),
                     "latencies", latencies, "percentiles", percentiles, "avg_ttft", l->ttft_s / l->options->n_iters,
                     "avg_tpot", l->tpot_s / l->options->n_iters, "prefill_tokens_per_second", prefill,
                     "decode_tokens_per_second", decode, "batch_size", (int)l->options->batch_size, "input_len",
                     (int)l->options->input_len, "output_len", (int)l->options->output_len);
}

static int report(const struct latency *l)
{
    double prefill = (double)l->n_prompt / l->prefill_s;
    double decode = l->n_decoded ? (double)l->n_decoded / l->decode_s : 0;
    double *sorted = malloc(l->options->n_iters * sizeof *sorted);
    if (!sorted)
        return command_fail(1, "out of memory");
    for (uint32_t i = 0; i < l->options->n_iters; i++)
        sorted[i] = l->seconds[i];
    bench_sort(sorted, l->options->n_iters);
    if (l->options->json) {
        json_t *object = result_json(l, prefill, decode, sorted);
        free(sorted);
        return command_print_json(object);
    }
    const struct engine_info *info = bench_engine_info(l->engine);
    printf("%-34s %s, %u threads\n", "Device:", info->device_why, info->plan->n_threads);
    printf("%-34s %u x %u tokens in, %u out\n", "Batch:", l->options->batch_size, l->options->input_len,
           l->options->output_len);
    printf("%-34s %.4f\n", "Avg latency (s):", bench_mean(sorted, l->options->n_iters));
    printf("%-34s %.4f\n", "Std latency (s):", bench_std(sorted, l->options->n_iters));
    for (size_t i = 0; i < N_PERCENTS; i++) {
        char name[32];
        snprintf(name, sizeof name, "P%.0f latency (s):", percents[i]);
        printf("%-34s %.4f\n", name, bench_percentile(sorted, l->options->n_iters, percents[i]));
    }
    printf("%-34s %.2f\n", "Mean TTFT (ms):", l->ttft_s / l->options->n_iters * 1e3);
    printf("%-34s %.2f\n", "Mean TPOT (ms):", l->tpot_s / l->options->n_iters * 1e3);
    printf("%-34s %.2f\n", "Prefill (tok/s):", prefill);
    printf("%-34s %.2f\n", "Decode (tok/s):", decode);
    free(sorted);
    return 0;
}

static size_t own_flags(struct latency_options *o, struct cli_option *out)
{
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "The batch:", .kind = CLI_GROUP},
        {.names = "batch-size", .kind = CLI_U32, .target = &o->batch_size, .min = 1, .max = 65536, .value = "N",
         .common = true, .help = "Number of requests sent together; default 8."},
        {.names = "input-len", .kind = CLI_U32, .target = &o->input_len, .min = 1, .max = BENCH_MAX_LENGTH, .value = "N",
         .common = true, .help = "Tokens of each prompt; default 32."},
        {.names = "output-len", .kind = CLI_U32, .target = &o->output_len, .min = 1, .max = BENCH_MAX_LENGTH,
         .value = "N", .common = true, .help = "Tokens of each answer; default 128."},
        {.names = "num-iters", .kind = CLI_U32, .target = &o->n_iters, .min = 1, .max = 1 << 20, .value = "N",
         .common = true, .help = "Number of timed batches; default 30."},
        {.names = "num-iters-warmup", .kind = CLI_U32, .target = &o->n_warmup, .max = 1 << 20, .value = "N",
         .common = true, .help = "Number of batches before them that are not timed; default 10."},
        {.names = "json", .kind = CLI_FLAG, .target = &o->json, .common = true, .help = "Print JSON."},
    };
    /* clang-format on */
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

int bench_latency(int argc, char **argv)
{
    struct engine_options engine;
    struct step_options step_options; /* engine.steps */
    struct engine_placement placement = {0}; /* engine.placement */
    struct latency_options options = {
        .engine = &engine, .batch_size = 8, .input_len = 32, .output_len = 128, .n_iters = 30, .n_warmup = 10};
    struct latency l = {.options = &options};
    struct cli_option rows[ENGINE_FLAGS_MAX + 10];
    struct hub_model model;
    struct quire_error err;

    engine_options_default(&engine);
    step_options_default(&step_options);
    engine.steps = &step_options;
    engine.placement = &placement;
    engine.prefix_caching = false; /* every iteration sends the same prompts */
    size_t n = own_flags(&options, rows);
    n += engine_flags(&engine, rows + n);
    rows[n] = (struct cli_option){0};
    const struct cli_command command = {
        .name = "bench latency",
        .usage = "quire bench latency MODEL [options]",
        .about =
            "Sends one batch of random prompts to an engine in this process, waits for all answers, and repeats. Prefill\n"
            "is the time until every request has its first token; decode is the time after that. Prefix caching is off\n"
            "unless you set --enable-prefix-caching, because the prompts repeat.",
        .examples = "examples:\n"
                    "  quire bench latency ./model --batch-size 1 --input-len 512 --output-len 128\n"
                    "  quire bench latency ./model --batch-size 16 --num-iters 5 --num-iters-warmup 1 --json",
        .options = rows,
        .positionals = {&engine.model_dir},
        .first_names = FOREIGN_MODEL_NAMES,
        .foreign = foreign_flags,
    };
    int code;
    if (!command_begin(&command, argc, argv, &code))
        return code;
    if (!engine.model_dir)
        return command_fail(2, "MODEL is missing; usage: quire bench latency MODEL [options]");
    if (hub_model_find(engine.model_dir, false, &model, &err) != QUIRE_OK)
        return command_fail(1, err.text);
    engine.model_dir = model.dir;
    if (engine.max_queued_requests < options.batch_size)
        engine.max_queued_requests = options.batch_size;

    int status = run_all(&l, &err);
    code = status == QUIRE_OK ? report(&l) : command_fail(1, err.text);
    bench_engine_close(l.engine);
    bench_inputs_close(l.in);
    free(l.seconds);
    return code;
}
