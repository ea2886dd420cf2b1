#include "tools/cli/engine_flags.h"

#include "base/number.h"
#include "kernels/kernels.h"

#include "tools/bench/lib/cost_file.h"
#include "tools/hub/cache.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- values that are more than a number ---- */

/* vLLM's --swap-space: a bare number is GiB. */
static int parse_swap_space(const char *text, void *target, struct quire_error *err)
{
    uint64_t *bytes = target;
    char in_gib[64];
    size_t n = strlen(text);
    bool is_bare = n > 0 && n + 2 < sizeof in_gib && text[strspn(text, "0123456789.")] == '\0';
    snprintf(in_gib, sizeof in_gib, "%.60sG", text);
    if (cli_parse_bytes(is_bare ? in_gib : text, bytes) != QUIRE_OK)
        return quire_fail(err, QUIRE_INVALID, "\"%.60s\" is not a size; write 4 (GiB), 4GiB or 512M", text);
    return QUIRE_OK;
}

static int parse_cost_model(const char *text, void *target, struct quire_error *err)
{
    return cost_file_read(text, target, NULL, err);
}

/* Who computes nothing, as a simulation, takes a draft model that is nowhere, too: opening it says that it is missing. */
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

static int parse_ms(const char *text, void *target, struct quire_error *err)
{
    double ms;
    const char *at = text;
    if (!quire_take_number(&at, MAX_MS, &ms) || *at)
        return quire_fail(err, QUIRE_INVALID, "\"%.60s\" is not a number of milliseconds up to %.0f", text, MAX_MS);
    *(uint64_t *)target = (uint64_t)(ms * 1000);
    return QUIRE_OK;
}

/* "0=4,1=1": a value for each class named; the others keep theirs. */
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
            return quire_fail(err, QUIRE_INVALID,
                              "\"%.60s\" is not a list like 0=4,1=1 of classes below %u and values from %g to %.0f",
                              text, SCHED_MAX_CLASSES, least, max);
        out[index] = value;
    } while (*at++);
    return QUIRE_OK;
}

static int parse_class_weights(const char *text, void *target, struct quire_error *err)
{
    double values[SCHED_MAX_CLASSES] = {0};
    uint32_t *weights = target;
    int status = parse_classes(text, 1, 1000, values, err);
    for (uint32_t i = 0; status == QUIRE_OK && i < SCHED_MAX_CLASSES; i++) {
        if (values[i] != floor(values[i]))
            return quire_fail(err, QUIRE_INVALID, "weights are whole numbers from 1 to 1000");
        weights[i] = (uint32_t)values[i];
    }
    return status;
}

static int parse_class_ttft(const char *text, void *target, struct quire_error *err)
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
            "\"%.60s\" is not the price of a prompt token and of a generated one, whole numbers from 1 to "
            "1000, as in 1,2",
            text);
    o->prompt_price = (uint32_t)prompt;
    o->output_price = (uint32_t)output;
    return QUIRE_OK;
}

/* ---- the rows ---- */

/* Every policy with its line. Static: the rows' text must outlive the call. */
static const char *policy_help(void)
{
    static char text[2048];
    size_t n = 0;
    const struct sched_policy *policy;
    for (uint32_t i = 0; (policy = sched_policy_at(i)) && n < sizeof text; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s: %s", i ? "; " : "", policy->name, policy->about);
    return text;
}

size_t schedule_flags(struct engine_options *o, struct cli_option out[SCHEDULE_FLAGS_MAX])
{
    struct sched_policy_options *p = &o->policy_options;
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "Scheduling:", .kind = CLI_GROUP},
        {.names = "max-num-seqs", .kind = CLI_U32, .target = &o->max_num_seqs, .max = 65536,
         .value = "N", .help = "Sequences that run at once."},
        {.names = "max-num-batched-tokens", .kind = CLI_U32, .target = &o->max_num_batched_tokens,
         .max = 1 << 20, .value = "N",
         .help = "Token budget of a step; longer prompts are computed in chunks."},
        {.names = "scheduling-policy", .kind = CLI_STRING, .target = &o->scheduling_policy,
         .value = "NAME", .help = policy_help()},
        {.names = "long-prefill-token-threshold", .kind = CLI_U32, .target = &o->long_prefill_token_threshold,
         .value = "N", .help = "Most prompt tokens of one sequence in a step. Default: the whole step."},
        {.names = "max-num-partial-prefills", .kind = CLI_U32, .target = &o->max_partial_prefills, .value = "N",
         .help = "Prompts that are computed at once. Default: no bound."},
        {.names = "cost-model", .kind = CLI_PARSED, .parse = parse_cost_model, .target = &o->cost, .value = "FILE",
         .help = "What a step takes on this machine, as `quire bench steps` has measured it."},
        {.names = "step-target-ms", .kind = CLI_F64, .target = &o->step_target_ms, .min = 0, .max = MAX_MS, .value = "MS",
         .help = "Give a step only as many prompt tokens as let it end in this time. Needs --cost-model."},
        {.names = "adaptive-budget", .kind = CLI_FLAG, .target = &o->adaptive_budget,
         .help = "Correct that by what steps took of late: at most to a quarter or to four times."},
        {.names = "batching", .kind = CLI_STRING, .target = &o->batching, .value = "NAME",
         .help = "continuous: every step admits what fits. To compare with: dynamic, batches that nobody joins, begun when "
                 "full or after --max-wait-ms; static, begun when full only."},
        {.names = "max-batch-size", .kind = CLI_U32, .target = &o->max_batch_size, .value = "N",
         .help = "Of dynamic and static batches. Default: --max-num-seqs."},
        {.names = "max-wait-ms", .kind = CLI_F64, .target = &o->max_wait_ms, .min = 0, .max = MAX_MS, .value = "MS",
         .help = "Longest that a dynamic batch waits to be full. Default 0."},
        {.names = "preemption-mode", .kind = CLI_STRING, .target = &o->preemption_mode, .value = "NAME",
         .help = "When blocks run out: swap brings back what the host tier has, recompute computes it again, auto takes what "
                 "is sooner, never admits only what will fit to its end."},
        {.names = "sched-ageing-ms", .kind = CLI_PARSED, .parse = parse_ms, .target = &p->ageing_us, .value = "MS",
         .help = "What a unit of a policy's preference is worth in waiting: a priority level, 1,000 expected tokens, 1,000 "
                 "cached tokens. Default: the policy's."},
        {.names = "class-weights", .kind = CLI_PARSED, .parse = parse_class_weights, .target = p->class_weights,
         .value = "C=W,...", .help = "priority: shares of the service classes, as in 0=4,1=1."},
        {.names = "class-ttft-ms", .kind = CLI_PARSED, .parse = parse_class_ttft, .target = p->class_ttft_us,
         .value = "C=MS,...", .help = "edf: when the first token of a class should be there, as in 0=200,1=2000."},
        {.names = "fair-prices", .kind = CLI_PARSED, .parse = parse_prices, .target = p, .value = "P,G",
         .help = "fair: what a computed prompt token and a generated one cost. Default 1,2."},
        {.names = "fair-prefill-share", .kind = CLI_U32, .target = &p->prefill_share, .min = 1, .max = 100,
         .value = "PERCENT", .help = "fair: of a step's prompt tokens, what one tenant may take while others want some. "
                                     "Default 50."},
        {.names = "speculative-config", .kind = CLI_PARSED, .parse = speculative_flag_parse, .target = &o->speculative,
         .value = "JSON", .help = "Guess what comes next and settle several tokens in one step, the same bits sooner: "
                 "'{\"method\": \"ngram\"}' from the request's own text, suffix also from earlier answers, draft_model by "
                 "\"model\": \"DIR\". \"num_speculative_tokens\": at most so many a row, default 16; how many there are "
                 "follows from what they are worth, unless \"adaptive\": false. Default: only what requests predict."},
    };
    /* clang-format on */
    _Static_assert(sizeof rows / sizeof rows[0] <= SCHEDULE_FLAGS_MAX, "raise SCHEDULE_FLAGS_MAX");
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

#define MODEL_FLAGS_MAX 18

static size_t model_flags(struct engine_options *o, struct cli_option *out)
{
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "Model and device:", .kind = CLI_GROUP},
        {.names = "device", .kind = CLI_STRING, .target = &o->device, .value = "NAME",
         .help = "auto, ref, cpu, cuda or cuda:N. auto takes the best this machine has and says why at start. Of several processes "
                 "each takes a GPU of its host, from N on, that none before it has. quire plan also takes the name of a GPU that "
                 "is not here, such as h200."},
        {.names = "gpu-memory-utilization", .kind = CLI_F64, .target = &o->gpu_memory_utilization, .min = 0.05, .max = 1,
         .value = "SHARE", .help = "Share of a GPU's memory that may be taken, the driver's part included; the KV cache gets "
                                   "what the rest leaves. Default 0.9."},
        {.names = "enforce-eager", .kind = CLI_FLAG, .target = &o->enforce_eager,
         .help = "On a GPU, launch every operation by itself: no recorded graphs. Slower, starts sooner, same bits."},
        {.names = "threads", .kind = CLI_U32, .target = &o->n_threads, .max = K_MAX_THREADS, .value = "N",
         .help = "Compute threads. Default: the physical cores this process may use, within its container's CPU "
                 "quota. Never changes a bit of any answer."},
        {.names = "cpu-bind", .kind = CLI_STRING, .target = &o->cpu_bind, .value = "CPUS",
         .help = "auto, none, or the CPU of each compute thread, as in 0-3,8. auto binds only where the kernel could "
                 "choose badly: several NUMA nodes or SMT, and a thread for every core."},
        {.names = "dtype", .kind = CLI_STRING, .target = &o->dtype, .value = "NAME",
         .help = "auto: weights as stored, f32 activations, f16 KV. float32: also f32 KV. "
                 "Naming another dtype than the stored one is refused: weights are used in place."},
        {.names = "task", .kind = CLI_STRING, .target = &o->task, .value = "NAME",
         .help = "auto, generate or embed. auto: encoders (BERT and its kin) give vectors, everything else generates. embed: "
                 "a model that generates gives its last token's vector instead, as Qwen3-Embedding is meant to be used."},
        {.names = "quantization,q", .kind = CLI_STRING, .target = &o->quantization, .value = "NAME",
         .help = "int8, int4-block or fp8: weights that are not quantized are when they are loaded, in memory that the plan "
                 "counts (docs/quantization.md). What a checkpoint is quantized by, gptq, awq, compressed-tensors, fp8 or "
                 "gguf, is found without; another name than that is an error."},
        {.names = "ignore-unused-tensors", .kind = CLI_FLAG, .target = &o->ignore_unused_tensors,
         .help = "Go on where the files hold weights under the model's names that it does not compute with, such as more layers "
                 "than config.json says. Without it they are an error that names the first."},
        {.names = "repack-cache", .kind = CLI_STRING, .target = &o->repack_cache, .value = "DIR",
         .help = "Keeps rows that loading quantizes or regroups in files of this directory, checked by their hashes: the next "
                 "start maps them. They are trusted as the model's own files are."},
        {.names = "gemm-form", .kind = CLI_STRING, .target = &o->gemm_form, .value = "NAME",
         .help = "How products are summed: lane (any weights), tile (bf16 and f16 weights, what AMX computes) or mma (the "
                 "same weights on a GPU's tensor cores). auto: mma on a GPU, tile for bf16 weights on AMX, else lane. "
                 "Answers' bits depend on it, see docs/numerics.md; the start-up line says which it is."},
        {.names = "invariance", .kind = CLI_STRING, .target = &o->invariance, .value = "NAME",
         .help = "strict: an answer's bits depend on its request alone. off: a GPU takes NVIDIA's cuBLASLt for GEMMs of more "
                 "than 32 tokens, which may be faster, and bits may then depend on what else is served; a recording made so "
                 "cannot be replayed. On a CPU it changes nothing. Default strict."},
        {.names = "activation-dtype", .kind = CLI_STRING, .target = &o->activation_dtype, .value = "NAME",
         .help = "auto, float32, int8 or bfloat16. int8: activations are rounded to 8 bits, for quantized weights of integers; "
                 "auto is that for GGUF's blocks and W8A8, else float32. bfloat16: the tile form with rounded "
                 "activations, for bf16 weights; half the work, and logprobs are off by about 0.1."},
        {.names = "max-model-len", .kind = CLI_U32, .target = &o->max_model_len, .value = "N",
         .help = "Longest prompt plus answer, in tokens. Default: what the model says."},
    };
    /* clang-format on */
    _Static_assert(sizeof rows / sizeof rows[0] <= MODEL_FLAGS_MAX, "raise MODEL_FLAGS_MAX");
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

#define RANK_FLAGS_MAX 8

static size_t rank_flags(struct engine_options *o, struct cli_option *out)
{
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "Several processes:", .kind = CLI_GROUP},
        {.names = "tensor-parallel-size,tp,tp-size", .kind = CLI_U32, .target = &o->tensor_parallel_size, .min = 1, .max = 8,
         .value = "N", .help = "Processes that share the model, its KV cache and each step: 1, 2, 4 or 8, each with --threads of its "
                               "own. Never changes a bit of any answer (docs/parallel.md). Default 1."},
        {.names = "pipeline-parallel-size,pp,pp-size", .kind = CLI_U32, .target = &o->pipeline_parallel_size, .min = 1, .max = 8,
         .value = "N", .help = "Stages that have some of the layers each, with their weights and KV cache: as many processes, times "
                               "--tensor-parallel-size, at most 8 in all. Never changes a bit of any answer. Default 1."},
        {.names = "rank-transport", .kind = CLI_STRING, .target = &o->rank_transport, .value = "NAME",
         .help = "How these processes reach each other. shm: on this host, where they are started here. tcp, mpi: each is started "
                 "by mpirun, srun, torchrun, a LeaderWorkerSet or --nnodes, with this same command line; hosts other than this one "
                 "need $QUIRE_GROUP_SECRET, the same everywhere. auto: what fits the environment. Default auto."},
        {.names = "nnodes", .kind = CLI_U32, .target = &o->nnodes, .min = 1, .max = 8, .value = "N",
         .help = "Started by hand, one process on each of so many hosts."},
        {.names = "node-rank", .kind = CLI_U32, .target = &o->node_rank, .max = 7, .value = "R", .help = "Which of them this is; 0 answers."},
        {.names = "master-addr", .kind = CLI_STRING, .target = &o->master_addr, .value = "HOST",
         .help = "Where rank 0 is. Default: $MASTER_ADDR, or what the launcher says."},
        {.names = "master-port", .kind = CLI_U32, .target = &o->master_port, .min = 1, .max = 65535, .value = "N",
         .help = "Its port for other ranks. Default: $MASTER_PORT (under torchrun the one after it), or 29501."},
    };
    /* clang-format on */
    _Static_assert(sizeof rows / sizeof rows[0] <= RANK_FLAGS_MAX, "raise RANK_FLAGS_MAX");
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

#define MEMORY_FLAGS_MAX 16

static size_t memory_flags(struct engine_options *o, struct cli_option *out)
{
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "KV cache:", .kind = CLI_GROUP},
        {.names = "block-size", .kind = CLI_U32, .target = &o->block_size, .min = 1, .max = 1024,
         .value = "N", .help = "Tokens a KV block holds: 8, 16, 32, 64 or 128. Default 16."},
        {.names = "num-kv-blocks,num-gpu-blocks-override", .kind = CLI_U32,
         .target = &o->num_kv_blocks, .value = "N",
         .help = "KV blocks, exactly. Default: from --kv-cache-memory."},
        {.names = "kv-cache-memory,kv-cache-memory-bytes", .kind = CLI_BYTES,
         .target = &o->kv_cache_memory, .value = "SIZE",
         .help = "Memory for KV blocks: 512M, 4GiB. Default: a share of what is free, see quire plan."},
        {.names = "kv-cache-dtype", .kind = CLI_STRING, .target = &o->kv_cache_dtype,
         .value = "NAME", .help = "auto, float16, float32, int8, fp8 (e4m3) or fp8_e5m2. 8 bits hold about twice the tokens."},
        {.names = "enable-prefix-caching", .kind = CLI_FLAG, .target = &o->prefix_caching,
         .help = "Share the KV blocks of equal prefixes (on). It changes speed only."},
        {.names = "prefix-cache-eviction", .kind = CLI_STRING, .target = &o->prefix_cache_eviction, .value = "NAME",
         .help = "Which cached block goes first: lru, the least recently used; reuse, that too, but each of its hits, up to "
                 "three, lets a block stay longer. Default lru."},
        {.names = "swap-space", .kind = CLI_PARSED, .parse = parse_swap_space, .target = &o->swap_space, .value = "GiB",
         .help = "Host memory for cached blocks that the KV cache gives up, and that come back at a hit: 4, 4GiB, 512M. "
                 "Default: none."},
        {.names = "max-pinned-percent", .kind = CLI_U32, .target = &o->max_pinned_percent, .min = 1, .max = 100,
         .value = "N", .help = "Share of the KV blocks that pinned prefixes may hold. Default 50. Given, what they leave of it is for "
                          "answers of a response cache, by worth."},
        {.names = "Requests:", .kind = CLI_GROUP},
        {.names = "max-num-queued-reqs", .kind = CLI_U32, .target = &o->max_queued_requests,
         .value = "N", .help = "Requests that may wait; past it: 429 with Retry-After. Default 1024."},
        {.names = "max-num-queued-tokens", .kind = CLI_U64, .target = &o->max_queued_tokens,
         .value = "N", .help = "Prompt tokens that may wait, likewise. Default: no bound."},
        {.names = "seed", .kind = CLI_U64, .target = &o->seed, .given = &o->has_seed, .value = "N",
         .help = "Makes the seeds of requests that bring none repeatable. Default: unpredictable."},
    };
    /* clang-format on */
    _Static_assert(sizeof rows / sizeof rows[0] <= MEMORY_FLAGS_MAX, "raise MEMORY_FLAGS_MAX");
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

_Static_assert(MODEL_FLAGS_MAX + RANK_FLAGS_MAX + MEMORY_FLAGS_MAX + SCHEDULE_FLAGS_MAX <= ENGINE_FLAGS_MAX,
               "raise ENGINE_FLAGS_MAX");

size_t engine_flags(struct engine_options *o, struct cli_option out[ENGINE_FLAGS_MAX])
{
    size_t n = model_flags(o, out);
    n += rank_flags(o, out + n);
    n += memory_flags(o, out + n);
    return n + schedule_flags(o, out + n);
}
