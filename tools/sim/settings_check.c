/* Checks of the command line of quire sim, and what follows from it. */
#include "tools/sim/settings.h"

#include "engine/model/share.h"
#include "engine/record/drive.h"
#include "engine/run/schedule.h"
#include "kernels/planner.h"

#include <string.h>

static bool is_one_of(const char *name, const char *const *names)
{
    while (*names && strcmp(*names, name) != 0)
        names++;
    return *names != NULL;
}

/* Options without effect are rejected. With a recording, most options come from it, */
static int check_of_recording(const struct sim_settings *s, const char *name, struct quire_error *err)
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
static int check_of_trace(const struct sim_settings *s, const char *name, struct quire_error *err)
{
    static const char *const of_synthetic[] = {"request-rate", "burstiness", "duration", "ramp",
                                               "input-len",    "output-len", "lengths",  NULL};
    static const char *const of_lengths[] = {"input-len", "output-len", NULL};
    const struct sim_workload_options *t = s->workload;
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

static bool was_given(const struct sim_settings *s, const char *name)
{
    size_t i = 0;
    while (i < s->n_given && strcmp(s->given[i], name) != 0)
        i++;
    return i < s->n_given;
}

static int check_given(const struct sim_settings *s, struct quire_error *err)
{
    bool is_recording = strcmp(s->workload->format, "recording") == 0;
    int status = QUIRE_OK;
    for (size_t i = 0; i < s->n_given && status == QUIRE_OK; i++)
        status = (is_recording ? check_of_recording : check_of_trace)(s, s->given[i], err);
    return status;
}

/* Maximum per row; 0: no drafts. */
uint32_t sim_drafts_asked(const struct sim_settings *s)
{
    return s->steps->speculative.method != DRAFT_NONE ? s->steps->speculative.num_speculative_tokens : 0;
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
static int check_speculation(struct sim_settings *s, struct quire_error *err)
{
    const char *rates = s->acceptance_text;
    bool config = sim_drafts_asked(s) > 0;
    int status = QUIRE_OK;
    if (config && !rates && !s->predict)
        return quire_fail(err, QUIRE_INVALID,
                          "--speculative-config: a simulation computes no drafts: set the share of accepted drafts, "
                          "such as --speculative-acceptance 0.7");
    if (rates && !config)
        return quire_fail(err, QUIRE_INVALID,
                          "--speculative-acceptance: needs the number of drafts, such as --speculative-config "
                          "'{\"method\": \"ngram\", \"num_speculative_tokens\": 4}'");
    bool has_model = s->steps->speculative.method == DRAFT_MODEL;
    if (has_model && s->setup->draft_cost.n_points == 0 && !s->predict)
        return quire_fail(err, QUIRE_INVALID,
                          "--speculative-config: a draft model needs time: fit a cost model for it with quire bench "
                          "steps and set --draft-cost-model");
    if (!has_model && s->setup->draft_cost.n_points > 0)
        return quire_fail(err, QUIRE_INVALID,
                          "--draft-cost-model needs method draft_model in --speculative-config; leave it out");
    if (config && s->has_service_time)
        return quire_fail(err, QUIRE_INVALID, "--service-time 0 computes prompts only: leave --speculative-config out");
    if (rates) {
        bool is_list = rates[strspn(rates, "0123456789.,")] == '\0';
        status = (is_list ? sim_acceptance_parse : read_acceptance)(rates, &s->setup->acceptance, err);
        if (status != QUIRE_OK)
            quire_error_prefix(err, "--speculative-acceptance");
    }
    return status;
}

static int check_ranks(const struct sim_settings *s, struct quire_error *err)
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

static void make_stages(struct sim_settings *s, const struct cost_link *link)
{
    const uint32_t least = s->shape.micro_batch_tokens; /* without a value, a GPU's, as for the default model */
    s->setup->stages = (struct sim_stages){.n = s->n_stages,
                                           .micro_batch_tokens = least ? least
                                                                       : k_planner_find("cuda")->micro_batch_tokens,
                                           .call_us = link->call_us,
                                           .token_us = 4.0 * s->shape.hidden_size / link->bytes_us,
                                           .logit_us = 4.0 * s->shape.vocab_size / link->bytes_us};
    for (uint32_t i = 0; i < s->n_stages; i++)
        s->setup->stages.share[i] = (double)model_stage_layers(s->shape.n_layers, i, s->n_stages, true).n /
                                    s->shape.n_layers;
}

/* Turns the cost of one process into that of several. */
static int share_cost(struct sim_settings *s, struct quire_error *err)
{
    if (s->n_ranks == 1 && s->n_stages == 1)
        return s->link
                   ? quire_fail(err, QUIRE_INVALID, "--link needs --tensor-parallel-size or --pipeline-parallel-size")
                   : QUIRE_OK;
    const struct cost_link *link = s->link ? s->link : cost_link_find("nvlink", &s->own_link);
    int status = check_ranks(s, err);
    if (status == QUIRE_OK && s->n_ranks > 1)
        status = cost_share(&s->steps->cost, &s->shape, s->n_ranks, link, err);
    if (status == QUIRE_OK && s->n_stages > 1)
        make_stages(s, link);
    return status;
}

static int read_bounds(struct sim_settings *s, struct quire_error *err)
{
    struct bench_metrics_options options;
    int status = bench_metrics_options_parse("ttft", "50", s->goodput.items, s->goodput.n, &options, err);
    if (status != QUIRE_OK)
        return status;
    memcpy(s->bounds.ms, options.goodput_ms, sizeof s->bounds.ms);
    for (uint32_t c = 0; c < SCHED_MAX_CLASSES; c++)
        s->bounds.class_ttft_ms[c] = (double)s->steps->policy_options.class_ttft_us[c] * 1e-3;
    return QUIRE_OK;
}

/* Checks values against each other. */
static int check_values(struct sim_settings *s, struct quire_error *err)
{
    int status = read_bounds(s, err);
    if (status != QUIRE_OK)
        return status;
    if (strcmp(s->time_unit, "s") != 0 && strcmp(s->time_unit, "ms") != 0)
        return quire_fail(err, QUIRE_INVALID, "--timestamp-unit: \"%.40s\": must be s or ms", s->time_unit);
    if (s->has_service_time && s->service_time != 0)
        return quire_fail(err, QUIRE_INVALID,
                          "--service-time: must be 0; the cost model sets the time of a step (--cost-model)");
    if (s->has_service_time && !s->engine->prefix_caching)
        return quire_fail(err, QUIRE_INVALID,
                          "--service-time 0 counts hits of the prefix cache, which is off: leave out "
                          "--no-enable-prefix-caching");
    if (s->predict && strcmp(s->workload->format, "recording") != 0)
        return quire_fail(err, QUIRE_INVALID, "--predict needs a recording: set --trace-format recording");
    if (s->predict && !was_given(s, "cost-model"))
        return quire_fail(err, QUIRE_INVALID,
                          "--predict needs the cost model of the recorded machine: fit one with quire bench steps "
                          "and set --cost-model");
    if (s->num_host_blocks > 0 && !s->engine->prefix_caching)
        return quire_fail(err, QUIRE_INVALID,
                          "--num-host-blocks is a second level of the prefix cache, which is off: leave out "
                          "--no-enable-prefix-caching");
    if (s->num_host_blocks > 0 && s->engine->num_kv_blocks == 0 && s->sweep.n == 0)
        return quire_fail(err, QUIRE_INVALID,
                          "--num-host-blocks holds blocks evicted from the KV cache, which never evicts without "
                          "--num-kv-blocks: set it");
    if (s->engine->max_num_seqs == 0 || s->engine->max_num_batched_tokens == 0)
        return quire_fail(err, QUIRE_INVALID, "--max-num-seqs and --max-num-batched-tokens must be at least 1");
    if (s->sweep.n > 0 && s->html)
        return quire_fail(err, QUIRE_INVALID, "--html draws one simulation: leave --sweep out, or use --json");
    if (s->num_host_blocks == 0 && s->steps->preemption_mode && strcmp(s->steps->preemption_mode, "swap") == 0)
        return quire_fail(err, QUIRE_INVALID, "--preemption-mode swap needs --num-host-blocks, or use another mode");
    s->workload->milliseconds = strcmp(s->time_unit, "ms") == 0;
    s->workload->full_blocks = s->has_service_time;
    return share_cost(s, err);
}

static int make_sched_config(struct sim_settings *s, struct quire_error *err)
{
    s->engine->swap_space = s->num_host_blocks; /* only tested for being above 0 */
    int status = schedule_config(s->engine, s->sched, err);
    s->sched->kv.block_tokens = s->engine->block_size;
    s->sched->kv.groups[0].n_blocks = s->engine->num_kv_blocks;
    s->sched->kv.groups[0].n_host_blocks = s->num_host_blocks;
    s->sched->max_num_seqs = s->engine->max_num_seqs;
    s->sched->max_num_batched_tokens = s->engine->max_num_batched_tokens;
    s->sched->max_queued_requests = s->engine->max_queued_requests;
    s->sched->max_queued_tokens = s->engine->max_queued_tokens;
    s->sched->overlap_depth = s->overlap_depth;
    return status;
}

static void make_setup(struct sim_settings *s)
{
    struct sim_setup *setup = s->setup;
    setup->sched = s->sched;
    setup->cost = s->steps->cost;
    setup->one_by_one = s->has_service_time;
    setup->oracle_lengths = s->oracle_lengths;
    setup->max_tokens = s->max_tokens;
    setup->max_drafts = sim_drafts_asked(s);
    setup->adaptive = s->steps->speculative.adaptive;
    setup->seed = s->workload->seed;
}

int sim_settings_check(struct sim_settings *s, struct quire_error *err)
{
    int status = check_given(s, err);
    if (status == QUIRE_OK)
        status = check_values(s, err);
    if (status == QUIRE_OK)
        status = check_speculation(s, err);
    if (status == QUIRE_OK)
        status = make_sched_config(s, err);
    if (status == QUIRE_OK)
        make_setup(s);
    return status;
}
