/* quire bench throughput: many requests at once to an engine in this process. */
#include "tools/bench/cmd/engine.h"
#include "tools/bench/cmd/cmd_bench.h"
#include "app/command/command.h"
#include "app/flags/engine_flags.h"
#include "app/command/foreign_flags.h"
#include "app/command/log_format.h"
#include "app/models/cache.h"

#include <stdio.h>

/* The command line. */
struct throughput_options {
    struct engine_options *engine;
    struct bench_input_options input;
    bool json;
};

struct throughput {
    const struct throughput_options *options;
    struct quire_text *text; /* NULL: not needed */
    struct bench_engine *engine;
    struct bench_inputs *in;
    struct bench_run run;
};

static int run_all(struct throughput *t, struct quire_error *err)
{
    struct bench_progress progress;
    const struct engine_options *options = t->options->engine;
    int status = bench_engine_open(options, &t->engine, err);
    if (status == QUIRE_OK)
        status = bench_engine_open_inputs(t->engine, options->model_dir, &t->options->input,
                                          options->has_seed ? options->seed : 0, &t->text, &t->in, err);
    if (status == QUIRE_OK)
        status = bench_engine_warm_up(t->engine, err);
    if (status != QUIRE_OK)
        return status;
    uint64_t n_output = 0;
    for (size_t i = 0; i < t->in->n; i++)
        n_output += t->in->items[i].n_output;
    bench_progress_begin(&progress, "tokens", n_output);
    status = bench_engine_run(t->engine, t->in, NULL, &progress, &t->run, err);
    bench_progress_end(&progress);
    return status;
}

static int report(const struct throughput *t)
{
    const struct bench_run *r = &t->run;
    double total = (double)(r->n_prompt + r->n_output), s = r->elapsed_s;
    if (t->in->n_left_out > 0)
        fprintf(stderr, "quire: %zu requests of %s are longer than the context and were left out\n", t->in->n_left_out,
                t->options->input.path);
    if (t->options->json)
        return command_print_json(json_pack(
            "{s:f, s:I, s:I, s:I, s:I, s:f, s:f, s:f}", "elapsed_time", s, "num_requests", (json_int_t)r->n,
            "total_num_tokens", (json_int_t)(r->n_prompt + r->n_output), "total_prompt_tokens", (json_int_t)r->n_prompt,
            "total_output_tokens", (json_int_t)r->n_output, "requests_per_second", (double)r->n / s,
            "tokens_per_second", total / s, "output_tokens_per_second", (double)r->n_output / s));
    const struct engine_info *info = bench_engine_info(t->engine);
    printf("%-34s %s, %u threads\n", "Device:", info->device_why, info->plan->n_threads);
    printf("%-34s %zu\n", "Requests:", r->n);
    printf("%-34s %.2f\n", "Elapsed time (s):", s);
    printf("%-34s %llu\n", "Total prompt tokens:", (unsigned long long)r->n_prompt);
    printf("%-34s %llu\n", "Total output tokens:", (unsigned long long)r->n_output);
    printf("%-34s %.2f\n", "Request throughput (req/s):", (double)r->n / s);
    printf("%-34s %.2f\n", "Output token throughput (tok/s):", (double)r->n_output / s);
    printf("%-34s %.2f\n", "Total token throughput (tok/s):", total / s);
    return 0;
}

int bench_throughput(int argc, char **argv)
{
    struct engine_options engine;
    struct step_options step_options; /* engine.steps */
    struct engine_placement placement = {0}; /* engine.placement */
    struct throughput_options options = {.engine = &engine};
    struct throughput t = {.options = &options};
    struct cli_option rows[BENCH_INPUT_FLAGS_MAX + ENGINE_FLAGS_MAX + 4];
    struct hub_model model;
    struct quire_error err;

    engine_options_default(&engine);
    step_options_default(&step_options);
    engine.steps = &step_options;
    engine.placement = &placement;
    bench_input_options_default(&options.input);
    size_t n = bench_input_flags(&options.input, rows);
    rows[n++] = (struct cli_option){.names = "Results:", .kind = CLI_GROUP};
    rows[n++] = (struct cli_option){
        .names = "json", .kind = CLI_FLAG, .target = &options.json, .common = true, .help = "Print JSON."};
    n += engine_flags(&engine, rows + n);
    rows[n] = (struct cli_option){0};
    const struct cli_command command = {
        .name = "bench throughput",
        .usage = "quire bench throughput MODEL [options]",
        .about =
            "Submits all requests at once to an engine in this process and reports tokens per second. Answers are greedy\n"
            "and have exactly the requested length. MODEL needs config.json and weights, which may be random; prompts are\n"
            "token ids. --seed draws other prompts.",
        .examples =
            "examples:\n"
            "  quire bench throughput ./model --num-prompts 16 --input-len 128 --output-len 64\n"
            "  quire bench throughput ./model --dataset prefix-repetition --num-prefixes 2 --prefix-len 512\n"
            "  quire bench throughput ./model --dataset trace --dataset-path trace.jsonl --num-prompts 100 --json",
        .options = rows,
        .positionals = {&engine.model_dir},
        .first_names = FOREIGN_MODEL_NAMES,
        .foreign = foreign_flags,
    };
    int code;
    if (!command_begin(&command, argc, argv, &code))
        return code;
    if (!engine.model_dir)
        return command_fail(2, "MODEL is missing; usage: quire bench throughput MODEL [options]");
    if (hub_model_find(engine.model_dir, false, &model, &err) != QUIRE_OK)
        return command_fail(1, err.text);
    engine.model_dir = model.dir;
    if (engine.max_queued_requests < options.input.num_prompts) /* all requests wait at once */
        engine.max_queued_requests = options.input.num_prompts;

    int status = run_all(&t, &err);
    code = status == QUIRE_OK ? report(&t) : command_fail(1, err.text);
    bench_run_free(&t.run);
    bench_engine_close(t.engine);
    bench_inputs_close(t.in);
    quire_text_close(t.text);
    return code;
}
