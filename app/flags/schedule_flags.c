#include "app/flags/schedule_flags.h"

#include "app/flags/cost_file.h"
#include "app/models/cache.h"
#include "base/encoding/number.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- values that are more than a number ---- */

static int parse_cost_model(const char *text, void *target, struct quire_error *err)
{
    return cost_file_read(text, target, NULL, err);
}

/* Accepts a draft model that does not exist, because simulations do not load it. Opening the model reports the error. */
int speculative_flag_parse(const char *text, void *target, struct quire_error *err)
{
    struct speculative_config *config = target;
    struct hub_model model;
    struct quire_error ignored;
    int status = speculative_config_parse(text, strlen(text), config, err);
    if (status == QUIRE_OK && config->method == DRAFT_MODEL &&
        hub_model_find(config->model, false, &model, &ignored) == QUIRE_OK && strlen(model.dir) < sizeof config->model)
        memcpy(config->model, model.dir, strlen(model.dir) + 1);
    return status;
}

#define MAX_MS 3600000.0 /* an hour */
#define MAX_SEQS 65536

static int parse_ms(const char *text, void *target, struct quire_error *err)
{
    double ms;
    const char *at = text;
    if (!quire_take_number(&at, MAX_MS, &ms) || *at)
        return quire_fail(err, QUIRE_INVALID, "\"%.60s\" is not a number of milliseconds up to %.0f", text, MAX_MS);
    *(uint64_t *)target = (uint64_t)(ms * 1000);
    return QUIRE_OK;
}

/* "0=4,1=1": sets the value of each named class and keeps the others. */
static int parse_classes(const char *text, double least, double max, double out[SCHED_MAX_CLASSES],
                         struct quire_error *err)
{
    const char *at = text;
    do {
        double value;
        const uint32_t index = (uint32_t)(at[0] - '0'); /* one digit: there are 8 */
        bool is_well = index < SCHED_MAX_CLASSES && at[1] == '=';
        if (is_well) {
            at += 2;
            is_well = quire_take_number(&at, max, &value) && value >= least && (!*at || *at == ',');
        }
        if (!is_well)
            return quire_fail(
                err, QUIRE_INVALID,
                "\"%.60s\" is not a list of CLASS=VALUE such as 0=4,1=1, with classes below %u and values from %g to %.0f",
                text, SCHED_MAX_CLASSES, least, max);
        out[index] = value;
    } while (*at++);
    return QUIRE_OK;
}

static int parse_class_numbers(const char *text, const char *what, uint32_t max, uint32_t out[SCHED_MAX_CLASSES],
                               struct quire_error *err)
{
    double values[SCHED_MAX_CLASSES] = {0};
    int status = parse_classes(text, 1, max, values, err);
    for (uint32_t i = 0; status == QUIRE_OK && i < SCHED_MAX_CLASSES; i++) {
        if (values[i] != floor(values[i]))
            return quire_fail(err, QUIRE_INVALID, "%s must be whole numbers from 1 to %u", what, max);
        out[i] = (uint32_t)values[i];
    }
    return status;
}

static int parse_class_weights(const char *text, void *target, struct quire_error *err)
{
    return parse_class_numbers(text, "weights", 1000, target, err);
}

static int parse_class_sizes(const char *text, void *target, struct quire_error *err)
{
    return parse_class_numbers(text, "sizes", MAX_SEQS, target, err);
}

static int parse_class_ms(const char *text, void *target, struct quire_error *err)
{
    double values[SCHED_MAX_CLASSES] = {0};
    uint64_t *us = target;
    int status = parse_classes(text, 0.001, MAX_MS, values, err);
    for (uint32_t i = 0; status == QUIRE_OK && i < SCHED_MAX_CLASSES; i++)
        us[i] = (uint64_t)(values[i] * 1000);
    return status;
}

static int parse_prices(const char *text, void *target, struct quire_error *err)
{
    struct sched_policy_options *o = target;
    const char *at = text;
    double prompt, output;
    if (!quire_take_number(&at, 1000, &prompt) || *at++ != ',' || !quire_take_number(&at, 1000, &output) || *at ||
        prompt < 1 || output < 1 || prompt != floor(prompt) || output != floor(output))
        return quire_fail(
            err, QUIRE_INVALID,
            "\"%.60s\" is not a pair of prices, of prompts and of generation, such as 1,2; both are whole numbers from "
            "1 to 1000",
            text);
    o->prompt_price = (uint32_t)prompt;
    o->output_price = (uint32_t)output;
    return QUIRE_OK;
}

/* ---- the rows ---- */

/* A line for every policy. Static, because the rows' text must outlive the call. */
static const char *policy_help(void)
{
    static char text[2048];
    size_t n = (size_t)snprintf(text, sizeof text, "Order of waiting requests, by name; default fcfs. ");
    const struct sched_policy *policy;
    for (uint32_t i = 0; (policy = sched_policy_at(i)) && n < sizeof text; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s: %s", i ? "; " : "", policy->name, policy->about);
    return text;
}

#define STEP_FLAGS_MAX 20

/* The order of requests and the size of a step. */
static size_t step_flags(struct engine_options *o, struct cli_option *out)
{
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "Scheduling:", .kind = CLI_GROUP},
        {.names = "max-num-seqs,max-running-requests,parallel,np", .kind = CLI_U32, .target = &o->max_num_seqs, .max = MAX_SEQS,
         .value = "N", .common = true, .help = "Maximum number of sequences that run at once."},
        {.names = "max-num-batched-tokens", .kind = CLI_U32, .target = &o->max_num_batched_tokens,
         .max = 1 << 20, .value = "N",
         .common = true, .help = "Token budget of one step. Longer prompts are computed in chunks."},
        {.names = "scheduling-policy", .kind = CLI_STRING, .target = &o->steps->scheduling_policy,
         .value = "NAME", .common = true, .help = policy_help()},
        {.names = "long-prefill-token-threshold", .kind = CLI_U32, .target = &o->steps->long_prefill_token_threshold,
         .value = "N", .help = "Maximum number of prompt tokens of one sequence in a step. Default: the whole step."},
        {.names = "max-num-partial-prefills", .kind = CLI_U32, .target = &o->steps->max_partial_prefills, .value = "N",
         .help = "Maximum number of prompts computed at once. Default: no limit."},
        {.names = "cost-model", .kind = CLI_PARSED, .parse = parse_cost_model, .target = &o->steps->cost, .value = "FILE",
         .help = "Step times of this machine, measured by `quire bench steps`. Default: the engine fits a model to its own "
                 "steps."},
        {.names = "step-target-ms", .kind = CLI_F64, .target = &o->steps->step_target_ms, .min = 0, .max = MAX_MS, .value = "MS",
         .help = "Limit the prompt tokens of a step so that it ends within this time. Without --cost-model, applies once the "
                 "engine knows its step times."},
        {.names = "adaptive-budget", .kind = CLI_FLAG, .target = &o->steps->adaptive_budget,
         .help = "Correct the budget of --step-target-ms by recent step times, by a factor of 1/4 to 4."},
        {.names = "batching", .kind = CLI_STRING, .target = &o->steps->batching, .value = "NAME",
         .help = "continuous, dynamic or static. continuous: each step admits every request that fits. dynamic and "
                 "static are for comparison: no request joins a running batch. A dynamic batch starts when it is "
                 "full or after --max-wait-ms, a static batch only when it is full. Default continuous."},
        {.names = "max-batch-size", .kind = CLI_U32, .target = &o->steps->max_batch_size, .value = "N",
         .help = "Size of dynamic and static batches. Default: --max-num-seqs."},
        {.names = "max-wait-ms", .kind = CLI_F64, .target = &o->steps->max_wait_ms, .min = 0, .max = MAX_MS, .value = "MS",
         .help = "Maximum time that a dynamic batch waits to become full. Default 0."},
        {.names = "class-batch-size", .kind = CLI_PARSED, .parse = parse_class_sizes, .target = o->steps->class_batch_size,
         .value = "C=N,...", .help = "Size of dynamic and static batches with a request of a service class, such as 0=4,2=64."},
        {.names = "class-max-wait-ms", .kind = CLI_PARSED, .parse = parse_class_ms, .target = o->steps->class_wait_us,
         .value = "C=MS,...", .help = "Maximum time that a request of a service class waits for a dynamic batch, such as 0=5,2=200."},
        {.names = "adaptive-batching", .kind = CLI_FLAG, .target = &o->steps->adaptive_batches,
         .help = "Correct the limits of dynamic batches: shorter waits, down to 1/16, while the queue is longer than a "
                 "batch; more requests, up to 4 times the size, while the engine is idle."},
        {.names = "preemption-mode", .kind = CLI_STRING, .target = &o->steps->preemption_mode, .value = "NAME",
         .help = "How preempted sequences resume when KV blocks run out: swap restores blocks that the host tier "
                 "holds; recompute computes them again; auto uses the faster of the two; never admits a sequence "
                 "only if it fits to its end."},
    };
    /* clang-format on */
    _Static_assert(sizeof rows / sizeof rows[0] <= STEP_FLAGS_MAX, "raise STEP_FLAGS_MAX");
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

#define POLICY_FLAGS_MAX 8

/* The parameters of single policies, and drafts. */
static size_t policy_flags(struct engine_options *o, struct cli_option *out)
{
    struct sched_policy_options *p = &o->steps->policy_options;
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "sched-ageing-ms", .kind = CLI_PARSED, .parse = parse_ms, .target = &p->ageing_us, .value = "MS",
         .help = "Waiting time that counts as much as one unit of the policy's preference: a priority level, 1,000 "
                 "expected tokens or 1,000 cached tokens. Default: the policy's value."},
        {.names = "class-weights", .kind = CLI_PARSED, .parse = parse_class_weights, .target = p->class_weights,
         .value = "C=W,...", .help = "priority policy: shares of the service classes, such as 0=4,1=1."},
        {.names = "class-ttft-ms", .kind = CLI_PARSED, .parse = parse_class_ms, .target = p->class_ttft_us,
         .value = "C=MS,...", .help = "edf policy: target for the first token of each class, such as 0=200,1=2000."},
        {.names = "fair-prices", .kind = CLI_PARSED, .parse = parse_prices, .target = p, .value = "P,G",
         .help = "fair policy: prices of service. Of the time that computes prompts and of the time that generates; "
                 "default 1,1. While step times are not known yet, of a computed prompt token and of a generated token; "
                 "default 1,2."},
        {.names = "fair-prefill-share", .kind = CLI_U32, .target = &p->prefill_share, .min = 1, .max = 100,
         .value = "PERCENT",
         .help = "fair policy: percentage of --step-target-ms that prompts keep although decodes alone take longer. "
                 "Default 25."},
        {.names = "speculative-config", .kind = CLI_PARSED, .parse = speculative_flag_parse, .target = &o->steps->speculative,
         .value = "JSON",
         .common = true, .help = "Draft tokens and verify several of them in one step, such as '{\"method\": \"ngram\"}'. The "
                 "answers have the same bits. Methods: ngram drafts from the request's own text, suffix also from "
                 "earlier answers, draft_model from the model in \"model\": \"DIR\". \"num_speculative_tokens\": "
                 "maximum number of drafts per row, default 16; the scheduler uses fewer if they do not pay off, "
                 "unless \"adaptive\": false. Default: only drafts that requests bring with them."},
    };
    /* clang-format on */
    _Static_assert(sizeof rows / sizeof rows[0] <= POLICY_FLAGS_MAX, "raise POLICY_FLAGS_MAX");
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

_Static_assert(STEP_FLAGS_MAX + POLICY_FLAGS_MAX <= SCHEDULE_FLAGS_MAX, "raise SCHEDULE_FLAGS_MAX");

size_t schedule_flags(struct engine_options *o, struct cli_option out[SCHEDULE_FLAGS_MAX])
{
    size_t n = step_flags(o, out);
    return n + policy_flags(o, out + n);
}
