#include "tools/sim/settings.h"

#include "app/flags/cost_models.h"
#include "app/flags/engine_flags.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int parse_draft_cost(const char *text, void *target, struct quire_error *err)
{
    return cost_file_read(text, target, NULL, err);
}

static int parse_cost(const char *text, void *settings, struct quire_error *err)
{
    struct sim_settings *s = settings;
    const struct cost_model *named;
    int status = cost_model_read(text, &s->steps->cost, &s->shape, &named, err);
    if (status == QUIRE_OK)
        snprintf(s->machine, sizeof s->machine, "%.80s%s%s%s", text, s->shape.about[0] ? ": " : "", s->shape.about,
                 !named               ? ""
                 : named->is_measured ? " (measured)"
                                      : " (predicted, not measured)");
    return status;
}

static int parse_link(const char *text, void *settings, struct quire_error *err)
{
    struct sim_settings *s = settings;
    s->link = cost_link_find(text, &s->own_link);
    return s->link
               ? QUIRE_OK
               : quire_fail(err, QUIRE_INVALID,
                            "must be shared-memory, nvlink, pcie, or CALL_US,GB_PER_S such as 5,300, with 0 to %.0f "
                            "microseconds per call and %g to %.0f GB/s; got \"%.40s\"",
                            COST_LINK_MOST, COST_LINK_LEAST_GB_S, COST_LINK_MOST, text);
}

static int set_defaults(struct sim_settings *s, struct quire_error *err)
{
    *s = (struct sim_settings){.time_unit = "s",
                               .engine = calloc(1, sizeof *s->engine),
                               .workload = calloc(1, sizeof *s->workload),
                               .steps = calloc(1, sizeof *s->steps),
                               .sched = calloc(1, sizeof *s->sched),
                               .setup = calloc(1, sizeof *s->setup)};
    if (!s->engine || !s->steps || !s->workload || !s->sched || !s->setup)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    *s->workload = (struct sim_workload_options){
        .format = "mooncake", .rate_scale = 1, .burstiness = 1, .request_rate = 1};
    engine_options_default(s->engine);
    step_options_default(s->steps);
    s->engine->steps = s->steps;
    s->steps->scheduling_policy = NULL; /* fcfs, or the recording's own */
    s->n_ranks = s->n_stages = 1;
    s->engine->max_num_seqs = 256;
    s->engine->max_num_batched_tokens = 2048;
    s->engine->block_size = 16;
    size_t n;
    return parse_cost(cost_models(&n)->name, s, err);
}

static size_t trace_flags(struct sim_settings *s, struct cli_option *out)
{
    struct sim_workload_options *t = s->workload;
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "Requests:", .kind = CLI_GROUP},
        {.names = "trace", .kind = CLI_STRING, .target = &t->path, .value = "FILE",
         .common = true, .help = "Read the requests from this trace file."},
        {.names = "trace-format", .kind = CLI_STRING, .target = &t->format, .value = "NAME",
         .common = true, .help = "mooncake, timed (the format of vllm bench's timed_trace), azure, synthetic (no file) or recording "
                 "(of quire serve --record); default mooncake."},
        {.names = "num-requests", .kind = CLI_U32, .target = &t->num_requests, .max = 1 << 24, .value = "N",
         .common = true, .help = "Number of requests: the first N of a file, or N synthetic ones. Default: all of a file; 1000 "
                 "synthetic ones without --duration."},
        {.names = "rate-scale", .kind = CLI_F64, .target = &t->rate_scale, .min = 1e-6, .max = 1e6, .value = "X",
         .common = true, .help = "Speed up arrivals by this factor. Default 1."},
        {.names = "max-model-len", .kind = CLI_U32, .target = &t->max_model_len, .value = "N",
         .help = "Leave out requests with more tokens, prompt plus answer. Default: no limit."},
        {.names = "tenants", .kind = CLI_STRING, .target = &t->tenants, .value = "LIST",
         .common = true, .help = "NAME:KEY=VALUE:...,NAME:... with the keys weight, rate, input, output, prefix, class, priority, "
                 "deadline (docs/guides/simulator.md). Requests of a file without tenants are assigned to them in "
                 "proportion to their rates."},
        {.names = "timestamp-unit", .kind = CLI_STRING, .target = &s->time_unit, .value = "UNIT",
         .help = "timed format: s or ms. Default s, as in vllm bench."},
        {.names = "hash-block-size", .kind = CLI_U32, .target = &t->hash_tokens, .max = 1 << 20, .value = "N",
         .help = "Number of tokens per entry of hash_ids. Default 512 for mooncake, 16 for timed."},
        {.names = "seed", .kind = CLI_U64, .target = &t->seed, .value = "N",
         .help = "Seed of random values and of prompts. Default 0."},
        {.names = "Synthetic requests:", .kind = CLI_GROUP},
        {.names = "request-rate", .kind = CLI_F64, .target = &t->request_rate, .max = 1e9, .value = "R",
         .common = true, .help = "Requests per second, for tenants without a rate; 0: all at once. Default 1."},
        {.names = "burstiness", .kind = CLI_F64, .target = &t->burstiness, .min = 0.01, .max = 1e6, .value = "B",
         .help = "Shape of the gamma distribution of the gaps: 1 is Poisson, smaller values are more bursty, larger "
                 "values more even. Default 1."},
        {.names = "duration", .kind = CLI_F64, .target = &t->duration_s, .max = 1e9, .value = "S",
         .common = true, .help = "Seconds in which requests arrive. Default: until --num-requests have arrived."},
        {.names = "ramp", .kind = CLI_STRING, .target = &t->ramp, .value = "FROM:TO",
         .help = "Change the rates linearly from FROM times to TO times their value."},
        {.names = "input-len", .kind = CLI_STRING, .target = &t->input_len, .value = "N",
         .common = true, .help = "Prompt tokens: 512, 100..900 (uniform), or 512~0.8 (lognormal with median and sigma). Default 512."},
        {.names = "output-len", .kind = CLI_STRING, .target = &t->output_len, .value = "N",
         .common = true, .help = "Answer tokens, in the same form. Default 128."},
        {.names = "lengths", .kind = CLI_STRING, .target = &t->lengths_path, .value = "FILE",
         .help = "Draw pairs of prompt and answer length from the rows of this CSV file instead."},
    };
    /* clang-format on */
    _Static_assert(sizeof rows / sizeof rows[0] <= SIM_OWN_FLAGS_MAX / 2, "raise SIM_OWN_FLAGS_MAX");
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

static size_t engine_like_flags(struct sim_settings *s, struct cli_option *out)
{
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "The simulated engine:", .kind = CLI_GROUP},
        {.names = "block-size", .kind = CLI_U32, .target = &s->engine->block_size, .min = 1, .max = 65536, .value = "B",
         .help = "Number of tokens in a KV block. Default 16."},
        {.names = "num-kv-blocks", .kind = CLI_U32, .target = &s->engine->num_kv_blocks, .value = "N",
         .common = true, .help = "Number of KV blocks; 0: enough to avoid evictions. Default 0."},
        {.names = "num-host-blocks", .kind = CLI_U32, .target = &s->num_host_blocks, .value = "N",
         .help = "Number of KV blocks of the host tier. Default 0: no host tier."},
        {.names = "enable-prefix-caching", .kind = CLI_FLAG, .target = &s->engine->prefix_caching,
         .help = "Share the KV blocks of equal prefixes. On by default."},
        {.names = "prefix-cache-eviction", .kind = CLI_STRING, .target = &s->engine->prefix_cache_eviction, .value = "NAME",
         .help = "Order of eviction: lru or reuse. Default lru."},
        {.names = "max-num-queued-reqs", .kind = CLI_U32, .target = &s->engine->max_queued_requests, .value = "N",
         .help = "Maximum number of waiting requests; further ones are rejected, as by a server. Default: no limit "
                 "(1024 in a server)."},
        {.names = "max-num-queued-tokens", .kind = CLI_U64, .target = &s->engine->max_queued_tokens, .value = "N",
         .help = "Maximum number of waiting prompt tokens; further requests are rejected. Default: no limit."},
        {.names = "overlap-depth", .kind = CLI_U32, .target = &s->overlap_depth, .max = 1, .value = "N",
         .help = "1: plan a step while the previous one runs. Default 0."},
        {.names = "max-tokens", .kind = CLI_U32, .target = &s->max_tokens, .max = BENCH_MAX_LENGTH, .value = "N",
         .help = "Value of max_tokens in requests, which still stop at their own length; longer requests use that "
                 "length. Default: each request's own length."},
        {.names = "oracle-lengths", .kind = CLI_FLAG, .target = &s->oracle_lengths,
         .help = "Give the policy the length of each answer in advance."},
        {.names = "speculative-acceptance", .kind = CLI_STRING, .target = &s->acceptance_text, .value = "RATES",
         .help = "With --speculative-config, the share of accepted drafts: 0.7 of those after an accepted one; "
                 "0.8,0.6,0.4 of all first, second and third drafts, as vLLM prints them; or a recording, to use the "
                 "drafts accepted there."},
        {.names = "draft-cost-model", .kind = CLI_PARSED, .parse = parse_draft_cost, .target = &s->setup->draft_cost, .value = "FILE",
         .help = "Step times of the draft model, measured by quire bench steps DRAFT_MODEL."},
        {.names = "tensor-parallel-size,tp", .kind = CLI_U32, .target = &s->n_ranks, .min = 1, .max = 8, .value = "N",
         .common = true, .help = "Simulate N ranks that share the model. The compute time of the cost model is divided, and "
                 "communication is added (docs/guides/simulator.md). Default 1."},
        {.names = "pipeline-parallel-size,pp", .kind = CLI_U32, .target = &s->n_stages, .min = 1, .max = 8, .value = "N",
         .help = "Simulate N stages that share the layers, each with as many ranks. Steps pass through them in "
                 "micro-batches, as in the engine. Default 1."},
        {.names = "link", .kind = CLI_PARSED, .parse = parse_link, .target = s, .value = "NAME",
         .help = "Link between the ranks: shared-memory (measured), nvlink or pcie (published figures), or "
                 "CALL_US,GB_PER_S. Default nvlink."},
        {.names = "service-time", .kind = CLI_F64, .target = &s->service_time, .given = &s->has_service_time, .value = "0",
         .help = "Run each request alone, in arrival order, in no time, with its prompt only; blocks of a trace "
                 "count as full. For hit rates comparable with other tools."},
    };
    /* clang-format on */
    _Static_assert(sizeof rows / sizeof rows[0] <= SIM_OWN_FLAGS_MAX / 3, "raise SIM_OWN_FLAGS_MAX");
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

static size_t result_flags(struct sim_settings *s, struct cli_option *out)
{
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "Results:", .kind = CLI_GROUP},
        {.names = "goodput", .kind = CLI_LIST, .target = &s->goodput, .value = "ttft:MS",
         .common = true, .help = "Count the requests per second that meet all of these limits, ttft:MS tpot:MS e2el:MS, and their "
                 "own deadlines."},
        {.names = "sweep", .kind = CLI_LIST, .target = &s->sweep, .value = "KEY=V,V",
         .common = true, .help = "Simulate every combination on all cores: policy=fcfs,sjf budget=512,2048 or the name of any "
                 "option."},
        {.names = "predict", .kind = CLI_FLAG, .target = &s->predict,
         .help = "recording format: use only its arrivals and report the error of the cost model; with "
                 "--scheduling-policy, predict the effect of another policy."},
        {.names = "json", .kind = CLI_FLAG, .target = &s->json, .common = true, .help = "Print JSON instead of tables."},
        {.names = "save", .kind = CLI_STRING, .target = &s->save, .value = "FILE", .help = "Write the JSON to a file."},
        {.names = "html", .kind = CLI_STRING, .target = &s->html, .value = "FILE",
         .common = true, .help = "Write a page with plots to a file."},
    };
    /* clang-format on */
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

static const char about[] =
    "Runs a trace of requests through the real scheduler, memory manager and policies on a virtual clock. A cost model\n"
    "gives the time of each step: --cost-model, a file of quire bench steps or a name; by default a prediction of an 8B\n"
    "model on one H100.\n"
    "The same command gives the same numbers on every machine.";

static const char examples[] =
    "examples:\n"
    "  quire sim --trace conversation_trace.jsonl --num-kv-blocks 20000 --html report.html\n"
    "  quire sim --trace conversation_trace.jsonl --block-size 512 --service-time 0       hit rates only\n"
    "  quire sim --trace-format synthetic --request-rate 20 --input-len 512~0.8 --output-len 50..400\n"
    "  quire sim --trace-format synthetic --duration 60 --scheduling-policy fair \\\n"
    "      --tenants light:rate=4:input=300,heavy:rate=0.5:input=100000\n"
    "  quire sim --trace conversation_trace.jsonl --num-kv-blocks 20000 --goodput ttft:2000 tpot:50 \\\n"
    "      --sweep policy=fcfs,sjf,lpm budget=512,2048,8192\n"
    "  quire sim --trace day.quirerec --trace-format recording                            compare the decisions\n"
    "  quire sim --trace day.quirerec --trace-format recording --predict --cost-model cost.json";

int sim_settings_parse(int argc, char **argv, struct sim_settings *s, bool *help, struct quire_error *err)
{
    struct cli_option rows[SIM_OWN_FLAGS_MAX + SCHEDULE_FLAGS_MAX + 1];
    bool given[SIM_OWN_FLAGS_MAX + SCHEDULE_FLAGS_MAX] = {false};
    int status = set_defaults(s, err);
    if (status != QUIRE_OK)
        return status;
    size_t n = trace_flags(s, rows);
    n += engine_like_flags(s, rows + n);
    const size_t n_before = n;
    n += schedule_flags(s->engine, rows + n);
    for (size_t i = n_before; i < n; i++)
        if (rows[i].names && strcmp(rows[i].names, "cost-model") == 0) { /* also read the model's shape */
            rows[i].parse = parse_cost;
            rows[i].target = s;
            rows[i].help = "Step times of a machine: a file of `quire bench steps`, or a name: 8b-h100-predicted (the "
                           "default) or demo-cpu (docs/guides/simulator.md). The output names the machine.";
        }
    n += result_flags(s, rows + n);
    rows[n] = (struct cli_option){0};
    cli_note_given(rows, n, given);
    const struct cli_command command = {.name = "sim",
                                        .usage = "quire sim [--trace FILE] [options]",
                                        .about = about,
                                        .examples = examples,
                                        .options = rows,
                                        .positionals = {NULL}};
    enum cli_help asked;
    status = cli_parse(&command, argc, argv, &asked, err);
    *help = asked != CLI_HELP_NONE;
    if (status == QUIRE_OK && *help)
        cli_print_help(&command, asked);
    for (size_t i = 0; i < n; i++)
        if (*rows[i].given)
            s->given[s->n_given++] = rows[i].names;
    return status;
}

void sim_settings_free(struct sim_settings *s)
{
    free(s->engine);
    free(s->steps);
    free(s->workload);
    free(s->sched);
    free(s->setup);
    *s = (struct sim_settings){0};
}
