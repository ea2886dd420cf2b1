/* quire sim: the server's scheduler on a virtual clock. */
#include "engine/model/share.h"
#include "engine/run/schedule.h"
#include "app/command/progress.h"
#include "app/command/command.h"
#include "app/command/commands.h"
#include "app/flags/cost_file.h"
#include "tools/bench/lib/cost_links.h"
#include "app/flags/engine_flags.h"
#include "tools/sim/metrics.h"
#include "tools/sim/recording.h"
#include "tools/sim/report.h"
#include "tools/sim/sweep.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OWN_FLAGS_MAX 54

struct settings { /* the command line */
    struct engine_options engine;
    struct step_options steps; /* engine.steps */
    struct sim_workload_options workload;
    struct cli_list goodput, sweep;
    struct bench_metrics_options bounds;
    struct sched_config sched;
    const char *time_unit, *html, *save;
    const char *acceptance_text;
    struct sim_acceptance acceptance;
    struct sched_cost draft_cost;
    struct cost_shape shape; /* of the model of the cost model */
    struct cost_link own_link;
    const struct cost_link *link; /* between ranks; NULL: not set */
    uint32_t n_ranks, n_stages; /* ranks per stage, and stages */
    struct sim_stages stages;
    double service_time;
    uint32_t num_host_blocks, overlap_depth, max_tokens;
    bool has_service_time, oracle_lengths, predict, json;
    const char *given[OWN_FLAGS_MAX + SCHEDULE_FLAGS_MAX]; /* the options on the command line, by name */
    size_t n_given;
};

/* ---- the command line ---- */

static int parse_draft_cost(const char *text, void *target, struct quire_error *err)
{
    return cost_file_read(text, target, NULL, err);
}

static int parse_cost(const char *text, void *settings, struct quire_error *err)
{
    struct settings *s = settings;
    return cost_file_read(text, &s->steps.cost, &s->shape, err);
}

static int parse_link(const char *text, void *settings, struct quire_error *err)
{
    struct settings *s = settings;
    s->link = cost_link_find(text, &s->own_link);
    return s->link
               ? QUIRE_OK
               : quire_fail(err, QUIRE_INVALID,
                            "must be shared-memory, nvlink, pcie, or CALL_US,GB_PER_S such as 5,300, with 0 to %.0f "
                            "microseconds per call and %g to %.0f GB/s; got \"%.40s\"",
                            COST_LINK_MOST, COST_LINK_LEAST_GB_S, COST_LINK_MOST, text);
}

static void set_defaults(struct settings *s)
{
    *s = (struct settings){.workload = {.format = "mooncake", .rate_scale = 1, .burstiness = 1, .request_rate = 1},
                           .time_unit = "s"};
    engine_options_default(&s->engine);
    step_options_default(&s->steps);
    s->engine.steps = &s->steps;
    s->steps.scheduling_policy = NULL; /* fcfs, or the recording's own */
    s->steps.cost = *cost_default();
    s->shape = cost_default_shape();
    s->n_ranks = s->n_stages = 1;
    s->engine.max_num_seqs = 256;
    s->engine.max_num_batched_tokens = 2048;
    s->engine.block_size = 16;
}

static size_t trace_flags(struct settings *s, struct cli_option *out)
{
    struct sim_workload_options *t = &s->workload;
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
    _Static_assert(sizeof rows / sizeof rows[0] <= OWN_FLAGS_MAX / 2, "raise OWN_FLAGS_MAX");
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

static size_t engine_like_flags(struct settings *s, struct cli_option *out)
{
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "The simulated engine:", .kind = CLI_GROUP},
        {.names = "block-size", .kind = CLI_U32, .target = &s->engine.block_size, .min = 1, .max = 65536, .value = "B",
         .help = "Number of tokens in a KV block. Default 16."},
        {.names = "num-kv-blocks", .kind = CLI_U32, .target = &s->engine.num_kv_blocks, .value = "N",
         .common = true, .help = "Number of KV blocks; 0: enough to avoid evictions. Default 0."},
        {.names = "num-host-blocks", .kind = CLI_U32, .target = &s->num_host_blocks, .value = "N",
         .help = "Number of KV blocks of the host tier. Default 0: no host tier."},
        {.names = "enable-prefix-caching", .kind = CLI_FLAG, .target = &s->engine.prefix_caching,
         .help = "Share the KV blocks of equal prefixes. On by default."},
        {.names = "prefix-cache-eviction", .kind = CLI_STRING, .target = &s->steps.prefix_cache_eviction, .value = "NAME",
         .help = "Order of eviction: lru or reuse. Default lru."},
        {.names = "max-num-queued-reqs", .kind = CLI_U32, .target = &s->engine.max_queued_requests, .value = "N",
         .help = "Maximum number of waiting requests; further ones are rejected, as by a server. Default: no limit "
                 "(1024 in a server)."},
        {.names = "max-num-queued-tokens", .kind = CLI_U64, .target = &s->engine.max_queued_tokens, .value = "N",
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
        {.names = "draft-cost-model", .kind = CLI_PARSED, .parse = parse_draft_cost, .target = &s->draft_cost, .value = "FILE",
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
    _Static_assert(sizeof rows / sizeof rows[0] <= OWN_FLAGS_MAX / 3, "raise OWN_FLAGS_MAX");
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

static size_t result_flags(struct settings *s, struct cli_option *out)
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
    "gives the time of each step: --cost-model, measured by quire bench steps; by default an 8B model on one large GPU.\n"
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

static bool is_one_of(const char *name, const char *const *names)
{
    while (*names && strcmp(*names, name) != 0)
        names++;
    return *names != NULL;
}

/* Options without effect are rejected. With a recording, most options come from it, */
static int check_of_recording(const struct settings *s, const char *name, struct quire_error *err)
{
    static const char *const of_both[] = {"trace", "trace-format", "goodput", "class-ttft-ms", "predict", "json",
                                          "save",  "html",         NULL};
    static const char *const of_prediction[] = {"scheduling-policy",
                                                "cost-model",
                                                "oracle-lengths",
                                                "speculative-config",
                                                "speculative-acceptance",
                                                "draft-cost-model",
                                                "tensor-parallel-size,tp",
                                                "pipeline-parallel-size,pp",
                                                "link",
                                                NULL};
    if (is_one_of(name, of_both) || (s->predict && is_one_of(name, of_prediction)))
        return QUIRE_OK;
    if (is_one_of(name, of_prediction))
        return quire_fail(err, QUIRE_INVALID,
                          "--%s: a recording has fixed decisions; add --predict to predict the effect", name);
    return quire_fail(err, QUIRE_INVALID, "--%s: a recording has its own requests and options; leave --%s out", name,
                      name);
}

/* and with a trace, some belong to other formats. */
static int check_of_trace(const struct settings *s, const char *name, struct quire_error *err)
{
    static const char *const of_synthetic[] = {"request-rate", "burstiness", "duration", "ramp",
                                               "input-len",    "output-len", "lengths",  NULL};
    static const char *const of_lengths[] = {"input-len", "output-len", NULL};
    const struct sim_workload_options *t = &s->workload;
    bool is_synthetic = strcmp(t->format, "synthetic") == 0, is_timed = strcmp(t->format, "timed") == 0;
    bool has_hashes = is_timed || strcmp(t->format, "mooncake") == 0;
    if (!is_synthetic && is_one_of(name, of_synthetic))
        return quire_fail(err, QUIRE_INVALID,
                          "--%s needs --trace-format synthetic, because a file has its own times and lengths; leave "
                          "it out (--rate-scale changes the rate)",
                          name);
    if (t->lengths_path && is_one_of(name, of_lengths))
        return quire_fail(err, QUIRE_INVALID, "--%s: --lengths sets both lengths; leave one of the two options out",
                          name);
    if (!is_timed && strcmp(name, "timestamp-unit") == 0)
        return quire_fail(err, QUIRE_INVALID, "--timestamp-unit needs --trace-format timed; leave it out");
    if (!has_hashes && strcmp(name, "hash-block-size") == 0)
        return quire_fail(err, QUIRE_INVALID, "--hash-block-size needs --trace-format mooncake or timed; leave it out");
    return QUIRE_OK;
}

static int check_given(const struct settings *s, struct quire_error *err)
{
    bool is_recording = strcmp(s->workload.format, "recording") == 0;
    int status = QUIRE_OK;
    for (size_t i = 0; i < s->n_given && status == QUIRE_OK; i++)
        status = (is_recording ? check_of_recording : check_of_trace)(s, s->given[i], err);
    return status;
}

/* Maximum per row; 0: no drafts. */
static uint32_t drafts_asked(const struct settings *s)
{
    return s->steps.speculative.method != DRAFT_NONE ? s->steps.speculative.num_speculative_tokens : 0;
}

/* The share of accepted drafts in a recording. */
static int read_acceptance(const char *path, struct sim_acceptance *out, struct quire_error *err)
{
    struct recording *file;
    struct recording_run run;
    int status = recording_open(path, &file, err);
    if (status != QUIRE_OK)
        return status;
    status = recording_drive(file, NULL, NULL, &run, err);
    if (status == QUIRE_OK) {
        *out = sim_acceptance_of(&run.drafts);
        if (out->n == 0)
            status = quire_fail(err, QUIRE_INVALID, "%.200s: no drafts were verified in this recording", path);
        recording_run_free(&run);
    }
    recording_close(file);
    return status;
}

/* A prediction of a recording uses the recording's own rates. */
static int check_speculation(struct settings *s, struct quire_error *err)
{
    const char *rates = s->acceptance_text;
    bool config = drafts_asked(s) > 0;
    int status = QUIRE_OK;
    if (config && !rates && !s->predict)
        return quire_fail(err, QUIRE_INVALID,
                          "--speculative-config: a simulation computes no drafts: set the share of accepted drafts, "
                          "such as --speculative-acceptance 0.7");
    if (rates && !config)
        return quire_fail(err, QUIRE_INVALID,
                          "--speculative-acceptance: needs the number of drafts, such as --speculative-config "
                          "'{\"method\": \"ngram\", \"num_speculative_tokens\": 4}'");
    bool has_model = s->steps.speculative.method == DRAFT_MODEL;
    if (has_model && s->draft_cost.n_points == 0 && !s->predict)
        return quire_fail(err, QUIRE_INVALID,
                          "--speculative-config: a draft model needs time: fit a cost model for it with quire bench "
                          "steps and set --draft-cost-model");
    if (!has_model && s->draft_cost.n_points > 0)
        return quire_fail(err, QUIRE_INVALID,
                          "--draft-cost-model needs method draft_model in --speculative-config; leave it out");
    if (config && s->has_service_time)
        return quire_fail(err, QUIRE_INVALID, "--service-time 0 computes prompts only: leave --speculative-config out");
    if (rates) {
        bool is_list = rates[strspn(rates, "0123456789.,")] == '\0';
        status = (is_list ? sim_acceptance_parse : read_acceptance)(rates, &s->acceptance, err);
        if (status != QUIRE_OK)
            quire_error_prefix(err, "--speculative-acceptance");
    }
    return status;
}

static int check_ranks(const struct settings *s, struct quire_error *err)
{
    const char *option = s->n_ranks > 1 ? "tensor-parallel-size" : "pipeline-parallel-size";
    if (s->has_service_time)
        return quire_fail(err, QUIRE_INVALID,
                          "--service-time 0 has no compute time that ranks could share: leave --%s out", option);
    if (s->n_ranks & (s->n_ranks - 1))
        return quire_fail(err, QUIRE_INVALID, "--tensor-parallel-size: must be 1, 2, 4 or 8, got %u", s->n_ranks);
    if (s->n_ranks * s->n_stages > SIM_MAX_STAGES)
        return quire_fail(
            err, QUIRE_INVALID,
            "--pipeline-parallel-size %u with --tensor-parallel-size %u: %u ranks are more than the maximum of %d",
            s->n_stages, s->n_ranks, s->n_ranks * s->n_stages, SIM_MAX_STAGES);
    if (s->shape.n_layers == 0)
        return quire_fail(err, QUIRE_INVALID,
                          "--%s: the cost model does not name the shape of its model: add \"model\": {\"n_layers\": "
                          "..., \"hidden_size\": ..., \"vocab_size\": ...}",
                          option);
    if (s->n_stages > s->shape.n_layers)
        return quire_fail(err, QUIRE_INVALID, "--pipeline-parallel-size %u: the model has only %u layers", s->n_stages,
                          s->shape.n_layers);
    return s->overlap_depth > 0
               ? quire_fail(err, QUIRE_INVALID,
                            "--overlap-depth 1: an engine with several ranks does not plan ahead: leave it out")
               : QUIRE_OK;
}

static void make_stages(struct settings *s, const struct cost_link *link)
{
    const uint32_t least = s->shape.micro_batch_tokens; /* without a value, a GPU's, as for the default model */
    s->stages = (struct sim_stages){.n = s->n_stages,
                                    .micro_batch_tokens = least ? least : k_planner_find("cuda")->micro_batch_tokens,
                                    .call_us = link->call_us,
                                    .token_us = 4.0 * s->shape.hidden_size / link->bytes_us,
                                    .logit_us = 4.0 * s->shape.vocab_size / link->bytes_us};
    for (uint32_t i = 0; i < s->n_stages; i++)
        s->stages.share[i] = (double)model_stage_layers(s->shape.n_layers, i, s->n_stages, true).n / s->shape.n_layers;
}

/* Turns the cost of one process into that of several. */
static int share_cost(struct settings *s, struct quire_error *err)
{
    if (s->n_ranks == 1 && s->n_stages == 1)
        return s->link
                   ? quire_fail(err, QUIRE_INVALID, "--link needs --tensor-parallel-size or --pipeline-parallel-size")
                   : QUIRE_OK;
    const struct cost_link *link = s->link ? s->link : cost_link_find("nvlink", &s->own_link);
    int status = check_ranks(s, err);
    if (status == QUIRE_OK && s->n_ranks > 1)
        status = cost_share(&s->steps.cost, &s->shape, s->n_ranks, link, err);
    if (status == QUIRE_OK && s->n_stages > 1)
        make_stages(s, link);
    return status;
}

/* Checks values against each other. */
static int check_values(struct settings *s, struct quire_error *err)
{
    int status = bench_metrics_options_parse("ttft", "50", s->goodput.items, s->goodput.n, &s->bounds, err);
    if (status != QUIRE_OK)
        return status;
    if (strcmp(s->time_unit, "s") != 0 && strcmp(s->time_unit, "ms") != 0)
        return quire_fail(err, QUIRE_INVALID, "--timestamp-unit: \"%.40s\": must be s or ms", s->time_unit);
    if (s->has_service_time && s->service_time != 0)
        return quire_fail(err, QUIRE_INVALID,
                          "--service-time: must be 0; the cost model sets the time of a step (--cost-model)");
    if (s->has_service_time && !s->engine.prefix_caching)
        return quire_fail(err, QUIRE_INVALID,
                          "--service-time 0 counts hits of the prefix cache, which is off: leave out "
                          "--no-enable-prefix-caching");
    if (s->predict && strcmp(s->workload.format, "recording") != 0)
        return quire_fail(err, QUIRE_INVALID, "--predict needs a recording: set --trace-format recording");
    if (s->predict && s->steps.cost.n_points == cost_default()->n_points &&
        memcmp(&s->steps.cost, cost_default(), sizeof s->steps.cost) == 0)
        return quire_fail(err, QUIRE_INVALID,
                          "--predict needs the cost model of the recorded machine: fit one with quire bench steps "
                          "and set --cost-model");
    if (s->num_host_blocks > 0 && !s->engine.prefix_caching)
        return quire_fail(err, QUIRE_INVALID,
                          "--num-host-blocks is a second level of the prefix cache, which is off: leave out "
                          "--no-enable-prefix-caching");
    if (s->num_host_blocks > 0 && s->engine.num_kv_blocks == 0 && s->sweep.n == 0)
        return quire_fail(err, QUIRE_INVALID,
                          "--num-host-blocks holds blocks evicted from the KV cache, which never evicts without "
                          "--num-kv-blocks: set it");
    if (s->engine.max_num_seqs == 0 || s->engine.max_num_batched_tokens == 0)
        return quire_fail(err, QUIRE_INVALID, "--max-num-seqs and --max-num-batched-tokens must be at least 1");
    if (s->sweep.n > 0 && s->html)
        return quire_fail(err, QUIRE_INVALID, "--html draws one simulation: leave --sweep out, or use --json");
    if (s->num_host_blocks == 0 && s->steps.preemption_mode && strcmp(s->steps.preemption_mode, "swap") == 0)
        return quire_fail(err, QUIRE_INVALID, "--preemption-mode swap needs --num-host-blocks, or use another mode");
    s->workload.milliseconds = strcmp(s->time_unit, "ms") == 0;
    s->workload.full_blocks = s->has_service_time;
    return share_cost(s, err);
}

static int make_sched_config(struct settings *s, struct quire_error *err)
{
    s->engine.swap_space = s->num_host_blocks; /* only tested for being above 0 */
    int status = schedule_config(&s->engine, &s->sched, err);
    s->sched.kv.block_tokens = s->engine.block_size;
    s->sched.kv.groups[0].n_blocks = s->engine.num_kv_blocks;
    s->sched.kv.groups[0].n_host_blocks = s->num_host_blocks;
    s->sched.max_num_seqs = s->engine.max_num_seqs;
    s->sched.max_num_batched_tokens = s->engine.max_num_batched_tokens;
    s->sched.max_queued_requests = s->engine.max_queued_requests;
    s->sched.max_queued_tokens = s->engine.max_queued_tokens;
    s->sched.overlap_depth = s->overlap_depth;
    return status;
}

static int parse(int argc, char **argv, struct settings *s, bool *help, struct quire_error *err)
{
    struct cli_option rows[OWN_FLAGS_MAX + SCHEDULE_FLAGS_MAX + 1];
    bool given[OWN_FLAGS_MAX + SCHEDULE_FLAGS_MAX] = {false};
    set_defaults(s);
    size_t n = trace_flags(s, rows);
    n += engine_like_flags(s, rows + n);
    const size_t n_before = n;
    n += schedule_flags(&s->engine, rows + n);
    for (size_t i = n_before; i < n; i++)
        if (rows[i].names && strcmp(rows[i].names, "cost-model") == 0) { /* also read the model's shape */
            rows[i].parse = parse_cost;
            rows[i].target = s;
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
    int status = cli_parse(&command, argc, argv, &asked, err);
    *help = asked != CLI_HELP_NONE;
    if (status == QUIRE_OK && *help)
        cli_print_help(&command, asked);
    for (size_t i = 0; i < n; i++)
        if (*rows[i].given)
            s->given[s->n_given++] = rows[i].names;
    return status;
}

static int check(struct settings *s, struct quire_error *err)
{
    int status = check_given(s, err);
    if (status == QUIRE_OK)
        status = check_values(s, err);
    if (status == QUIRE_OK)
        status = check_speculation(s, err);
    return status == QUIRE_OK ? make_sched_config(s, err) : status;
}

/* ---- one simulation ---- */

struct simulation {
    struct sim_workload workload;
    struct day {
        struct sim_result result;
        struct sim_metrics metrics;
    } day, without; /* without: without speculation, if there is some */
};

static struct sim_bounds bounds_of(const struct settings *s)
{
    struct sim_bounds bounds;
    memcpy(bounds.ms, s->bounds.goodput_ms, sizeof bounds.ms);
    for (uint32_t c = 0; c < SCHED_MAX_CLASSES; c++)
        bounds.class_ttft_ms[c] = (double)s->steps.policy_options.class_ttft_us[c] * 1e-3;
    return bounds;
}

static void show_progress(void *context, uint64_t n_over)
{
    bench_progress_set(context, n_over);
}

/* The day and, if there are drafts, the same day without them for comparison. */
static int simulate_days(struct sim_setup *setup, const struct sim_workload *workload, const struct sim_bounds *bounds,
                         struct day *day, struct day *without, struct quire_error *err)
{
    struct day *const days[] = {day, without};
    int status = QUIRE_OK, n = setup->max_drafts > 0 ? 2 : 1;
    for (int i = 0; i < n && status == QUIRE_OK; i++) {
        setup->max_drafts = i == 0 ? setup->max_drafts : 0;
        status = sim_run(setup, workload, &days[i]->result, err);
        if (status == QUIRE_OK)
            status = sim_metrics_compute(workload, &days[i]->result, bounds, &days[i]->metrics, err);
    }
    if (n > 1)
        day->metrics.without = &without->metrics;
    return status;
}

static void free_day(struct day *day)
{
    sim_metrics_free(&day->metrics);
    sim_result_free(&day->result);
}

/* progress: NULL if another one draws the bar. */
static int simulate(const struct settings *s, bool with_progress, struct simulation *out, struct quire_error *err)
{
    struct bench_progress progress;
    struct sim_setup setup = {.sched = s->sched,
                              .cost = s->steps.cost,
                              .stages = s->stages,
                              .one_by_one = s->has_service_time,
                              .oracle_lengths = s->oracle_lengths,
                              .max_tokens = s->max_tokens,
                              .max_drafts = drafts_asked(s),
                              .adaptive = s->steps.speculative.adaptive,
                              .draft_cost = s->draft_cost,
                              .acceptance = s->acceptance,
                              .seed = s->workload.seed};
    const struct sim_bounds bounds = bounds_of(s);
    memset(out, 0, sizeof *out);
    int status = sim_workload_open(&s->workload, &out->workload, err);
    if (status != QUIRE_OK)
        return status;
    bench_progress_begin(&progress, "requests", out->workload.n);
    if (with_progress) {
        setup.progress = show_progress;
        setup.progress_context = &progress;
    }
    status = simulate_days(&setup, &out->workload, &bounds, &out->day, &out->without, err);
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
static int report(const struct settings *s, const struct sim_metrics *m, const char *policy, json_t *json)
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

static int run_one(const struct settings *s)
{
    struct simulation sim;
    struct quire_error err;
    int code, status = simulate(s, true, &sim, &err);
    const char *policy = s->sched.policy->name;
    if (status == QUIRE_OK) {
        if (sim.workload.n_left_out > 0 && !s->json)
            fprintf(stderr, "quire: %zu requests are longer than %u tokens and were left out\n",
                    sim.workload.n_left_out, s->workload.max_model_len);
        code = report(s, &sim.day.metrics, policy, sim_metrics_json(&sim.day.metrics, policy));
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
                        json_pack("{s:o, s:o, s:o, s:o}", "ttft_ms", off_json(&p->ttft, &r->ttft), "tpot_ms",
                                  off_json(&p->tpot, &r->tpot), "e2el_ms", off_json(&p->e2el, &r->e2el), "queue_ms",
                                  off_json(&p->queue, &r->queue)));
    return json;
}

static void print_off(const char *name, const struct sim_stat *p, const struct sim_stat *r)
{
    printf("%-24s %10.2f %10.2f %+8.2f %% %10.2f %10.2f %+8.2f %%\n", name, r->mean, p->mean, off_by(p->mean, r->mean),
           r->p95, p->p95, off_by(p->p95, r->p95));
}

/* Under another policy, the difference is the result, not an error. */
static void print_prediction(const struct sim_metrics *predicted, const struct sim_metrics *recorded, const char *other)
{
    const struct sim_group *p = &predicted->all, *r = &recorded->all;
    const char *name = other ? other : "predicted", *difference = other ? "change" : "off by";
    printf("\n%-24s %10s %10s %10s %10s %10s %10s\n", "Milliseconds", "mean", name, difference, "p95", name,
           difference);
    print_off("Time to first token", &p->ttft, &r->ttft);
    print_off("Time per output token", &p->tpot, &r->tpot);
    print_off("End to end", &p->e2el, &r->e2el);
    print_off("In the queue", &p->queue, &r->queue);
}

/* Uses the recorded drafts, or those of the options. */
static void predict_drafts(const struct settings *s, struct sim_recording *r, struct sim_setup *setup)
{
    uint32_t asked = drafts_asked(s);
    setup->max_drafts = asked > 0 ? asked : r->guesses ? SCHED_MAX_DRAFT : 0;
    setup->adaptive = asked > 0 && s->steps.speculative.adaptive;
    setup->draft_cost = s->draft_cost;
    setup->acceptance = s->acceptance_text ? s->acceptance : sim_acceptance_of(&r->live.drafts);
    for (size_t i = 0; asked > 0 && i < r->workload.n; i++)
        r->workload.requests[i].guesses = NULL;
}

static int predict(const struct settings *s, struct sim_recording *r, const struct sim_metrics *recorded,
                   const struct sim_bounds *bounds, struct quire_error *err)
{
    struct sim_setup setup = {
        .sched = r->config, .cost = s->steps.cost, .stages = s->stages, .oracle_lengths = s->oracle_lengths};
    struct day day = {.metrics = {.tenants = NULL}}, without = {.metrics = {.tenants = NULL}};
    const char *asked = s->steps.scheduling_policy;
    if (asked)
        setup.sched.policy = sched_policy_find(asked); /* check() has validated it */
    if (s->n_ranks * s->n_stages > 1)
        setup.sched.overlap_depth = 0;
    const char *policy = setup.sched.policy->name;
    predict_drafts(s, r, &setup);
    if (drafts_asked(s) > 0 && setup.acceptance.n == 0)
        return command_fail(2, "--speculative-config: no drafts were verified in the recording: set the share of "
                               "accepted drafts, such as --speculative-acceptance 0.7");
    int code = 1, status = simulate_days(&setup, &r->workload, bounds, &day, &without, err);
    if (status == QUIRE_OK) {
        code = report(s, &day.metrics, policy, prediction_json(&day.metrics, policy, recorded, r->config.policy->name));
        if (!s->json)
            print_prediction(&day.metrics, recorded, setup.sched.policy != r->config.policy ? policy : NULL);
    } else {
        command_fail(code, err->text);
    }
    free_day(&day);
    free_day(&without);
    return code;
}

/* Drives the scheduler with the recorded times and compares its decisions with the live ones. */
static int force(const struct settings *s, const struct sim_recording *r, const struct sim_metrics *m)
{
    const struct recording_run *run = &r->run;
    char recorded[65], text[160];
    json_t *json = sim_metrics_json(m, r->config.policy->name);
    quire_key256_hex(&run->recorded_decisions, recorded);
    json_object_set_new(json, "decisions_agree", json_boolean(run->agrees));
    json_object_set_new(json, "recorded_decision_log_sha256", json_string(recorded));
    json_object_set_new(json, "closed", json_boolean(run->closed));
    int code = report(s, m, r->config.policy->name, json);
    if (!s->json)
        printf("Recorded:  %s (%s)\n", recorded, run->agrees ? "the same" : "different");
    if (run->agrees)
        return code;
    snprintf(text, sizeof text, "the decisions differ from the recorded ones at byte %llu",
             (unsigned long long)run->wrong_offset);
    return command_fail(1, text);
}

static int run_recording(const struct settings *s)
{
    struct sim_recording r;
    struct sim_metrics recorded = {.tenants = NULL};
    struct quire_error err;
    struct sim_bounds bounds = bounds_of(s);
    int code;
    if (!s->workload.path)
        return command_fail(2, "--trace-format recording needs --trace FILE");
    int status = sim_recording_open(s->workload.path, &r, &err);
    if (status == QUIRE_OK && recording_left_out(r.file) > 0)
        fprintf(stderr, "quire: the recording ends within a record: its last %llu bytes were ignored\n",
                (unsigned long long)recording_left_out(r.file));
    if (status == QUIRE_OK)
        status = sim_metrics_compute(&r.workload, &r.live, &bounds, &recorded, &err);
    if (status != QUIRE_OK)
        code = command_fail(status == QUIRE_INVALID ? 2 : 1, err.text);
    else if (s->predict)
        code = predict(s, &r, &recorded, &bounds, &err);
    else
        code = force(s, &r, &recorded);
    sim_metrics_free(&recorded);
    sim_recording_close(&r);
    return code;
}

/* ---- many ---- */

struct sweep_context {
    struct sim_sweep sweep;
    struct settings *settings; /* [sweep.n] */
};

static json_t *run_of_sweep(void *context, struct sim_sweep_run *run)
{
    struct sweep_context *c = context;
    const struct settings *s = &c->settings[run - c->sweep.runs];
    struct simulation sim;
    json_t *json = NULL;
    if (simulate(s, false, &sim, &run->err) == QUIRE_OK) {
        json = sim_metrics_json(&sim.day.metrics, s->sched.policy->name);
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
        status = parse(argc + (int)n, all, &c->settings[i], &help, err);
        if (status == QUIRE_OK)
            status = check(&c->settings[i], err);
        if (status != QUIRE_OK)
            quire_error_prefix(err, "--sweep %s", c->sweep.runs[i].label);
    }
    free(all);
    return status;
}

static int report_sweep(const struct settings *s, const struct sim_sweep *sweep)
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

static int run_sweep(int argc, char **argv, const struct settings *s)
{
    struct sweep_context c = {.settings = NULL};
    struct quire_error err;
    int status = sim_sweep_create(&s->sweep, &c.sweep, &err);
    if (status == QUIRE_OK)
        status = parse_sweep(argc, argv, &c, &err);
    if (status == QUIRE_OK)
        status = sim_sweep_execute(&c.sweep, run_of_sweep, &c, &err);
    int code = status == QUIRE_OK ? report_sweep(s, &c.sweep) : command_fail(status == QUIRE_INVALID ? 2 : 1, err.text);
    sim_sweep_free(&c.sweep);
    free(c.settings);
    return code;
}

int command_sim(int argc, char **argv)
{
    struct settings s;
    struct quire_error err;
    bool help;
    if (parse(argc, argv, &s, &help, &err) != QUIRE_OK)
        return command_fail(2, err.text);
    if (help)
        return 0;
    if (s.sweep.n > 0) /* checks each combination, not only the common options */
        return run_sweep(argc, argv, &s);
    if (check(&s, &err) != QUIRE_OK)
        return command_fail(2, err.text);
    return strcmp(s.workload.format, "recording") == 0 ? run_recording(&s) : run_one(&s);
}
