#include "tools/cli/engine_flags.h"

#include "base/encoding/number.h"
#include "kernels/open.h"

#include "tools/bench/lib/cost_file.h"
#include "tools/hub/cache.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- values that are more than a number ---- */

/* A bare number is GiB, as in vLLM's --swap-space. */
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

static int parse_class_weights(const char *text, void *target, struct quire_error *err)
{
    double values[SCHED_MAX_CLASSES] = {0};
    uint32_t *weights = target;
    int status = parse_classes(text, 1, 1000, values, err);
    for (uint32_t i = 0; status == QUIRE_OK && i < SCHED_MAX_CLASSES; i++) {
        if (values[i] != floor(values[i]))
            return quire_fail(err, QUIRE_INVALID, "weights must be whole numbers from 1 to 1000");
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
            "\"%.60s\" is not a pair of prices, of a prompt token and a generated token, such as 1,2; both are whole "
            "numbers from 1 to 1000",
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

size_t schedule_flags(struct engine_options *o, struct cli_option out[SCHEDULE_FLAGS_MAX])
{
    struct sched_policy_options *p = &o->policy_options;
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "Scheduling:", .kind = CLI_GROUP},
        {.names = "max-num-seqs", .kind = CLI_U32, .target = &o->max_num_seqs, .max = 65536,
         .value = "N", .common = true, .help = "Maximum number of sequences that run at once."},
        {.names = "max-num-batched-tokens", .kind = CLI_U32, .target = &o->max_num_batched_tokens,
         .max = 1 << 20, .value = "N",
         .common = true, .help = "Token budget of one step. Longer prompts are computed in chunks."},
        {.names = "scheduling-policy", .kind = CLI_STRING, .target = &o->scheduling_policy,
         .value = "NAME", .common = true, .help = policy_help()},
        {.names = "long-prefill-token-threshold", .kind = CLI_U32, .target = &o->long_prefill_token_threshold,
         .value = "N", .help = "Maximum number of prompt tokens of one sequence in a step. Default: the whole step."},
        {.names = "max-num-partial-prefills", .kind = CLI_U32, .target = &o->max_partial_prefills, .value = "N",
         .help = "Maximum number of prompts computed at once. Default: no limit."},
        {.names = "cost-model", .kind = CLI_PARSED, .parse = parse_cost_model, .target = &o->cost, .value = "FILE",
         .help = "Step times of this machine, measured by `quire bench steps`."},
        {.names = "step-target-ms", .kind = CLI_F64, .target = &o->step_target_ms, .min = 0, .max = MAX_MS, .value = "MS",
         .help = "Limit the prompt tokens of a step so that it ends within this time. Needs --cost-model."},
        {.names = "adaptive-budget", .kind = CLI_FLAG, .target = &o->adaptive_budget,
         .help = "Correct the budget of --step-target-ms by recent step times, by a factor of 1/4 to 4."},
        {.names = "batching", .kind = CLI_STRING, .target = &o->batching, .value = "NAME",
         .help = "continuous, dynamic or static. continuous: each step admits every request that fits. dynamic and "
                 "static are for comparison: no request joins a running batch. A dynamic batch starts when it is "
                 "full or after --max-wait-ms, a static batch only when it is full. Default continuous."},
        {.names = "max-batch-size", .kind = CLI_U32, .target = &o->max_batch_size, .value = "N",
         .help = "Size of dynamic and static batches. Default: --max-num-seqs."},
        {.names = "max-wait-ms", .kind = CLI_F64, .target = &o->max_wait_ms, .min = 0, .max = MAX_MS, .value = "MS",
         .help = "Maximum time that a dynamic batch waits to become full. Default 0."},
        {.names = "preemption-mode", .kind = CLI_STRING, .target = &o->preemption_mode, .value = "NAME",
         .help = "How preempted sequences resume when KV blocks run out: swap restores blocks that the host tier "
                 "holds; recompute computes them again; auto uses the faster of the two; never admits a sequence "
                 "only if it fits to its end."},
        {.names = "sched-ageing-ms", .kind = CLI_PARSED, .parse = parse_ms, .target = &p->ageing_us, .value = "MS",
         .help = "Waiting time that counts as much as one unit of the policy's preference: a priority level, 1,000 "
                 "expected tokens or 1,000 cached tokens. Default: the policy's value."},
        {.names = "class-weights", .kind = CLI_PARSED, .parse = parse_class_weights, .target = p->class_weights,
         .value = "C=W,...", .help = "priority policy: shares of the service classes, such as 0=4,1=1."},
        {.names = "class-ttft-ms", .kind = CLI_PARSED, .parse = parse_class_ttft, .target = p->class_ttft_us,
         .value = "C=MS,...", .help = "edf policy: target for the first token of each class, such as 0=200,1=2000."},
        {.names = "fair-prices", .kind = CLI_PARSED, .parse = parse_prices, .target = p, .value = "P,G",
         .help = "fair policy: price of a computed prompt token and of a generated token. Default 1,2."},
        {.names = "fair-prefill-share", .kind = CLI_U32, .target = &p->prefill_share, .min = 1, .max = 100,
         .value = "PERCENT",
         .help = "fair policy: largest percentage of a step's prompt tokens for one tenant while other tenants need "
                 "some. Default 50."},
        {.names = "speculative-config", .kind = CLI_PARSED, .parse = speculative_flag_parse, .target = &o->speculative,
         .value = "JSON",
         .common = true, .help = "Draft tokens and verify several of them in one step, such as '{\"method\": \"ngram\"}'. The "
                 "answers have the same bits. Methods: ngram drafts from the request's own text, suffix also from "
                 "earlier answers, draft_model from the model in \"model\": \"DIR\". \"num_speculative_tokens\": "
                 "maximum number of drafts per row, default 16; the scheduler uses fewer if they do not pay off, "
                 "unless \"adaptive\": false. Default: only drafts that requests bring with them."},
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
         .common = true, .help = "auto, ref, cpu, cuda or cuda:N. auto selects the best device of this machine and logs why. With "
                 "several processes, each takes the next free GPU of its host, starting at N. quire plan also "
                 "accepts the name of an absent GPU, such as h200. Default auto."},
        {.names = "gpu-memory-utilization", .kind = CLI_F64, .target = &o->gpu_memory_utilization, .min = 0.05, .max = 1,
         .value = "SHARE",
         .common = true,
         .help = "Share of the GPU's memory to use; default 0.9. It includes the driver's part. The KV cache gets "
                 "what weights and scratch leave."},
        {.names = "enforce-eager", .kind = CLI_FLAG, .target = &o->enforce_eager,
         .help = "On a GPU, launch each operation separately, without recorded graphs. Slower steps, faster start, "
                 "same bits."},
        {.names = "threads", .kind = CLI_U32, .target = &o->n_threads, .max = K_MAX_THREADS, .value = "N",
         .common = true, .help = "Number of compute threads. Default: the physical cores of this process, within its container's CPU "
                 "quota. It never changes an answer."},
        {.names = "cpu-bind", .kind = CLI_STRING, .target = &o->cpu_bind, .value = "CPUS",
         .help = "auto, none, or the CPU of each compute thread, such as 0-3,8. auto binds threads only if there is "
                 "one thread per core and several NUMA nodes or SMT."},
        {.names = "dtype", .kind = CLI_STRING, .target = &o->dtype, .value = "NAME",
         .help = "auto or float32. auto: stored weights, f32 activations, f16 KV. float32: also f32 KV. The name of "
                 "another dtype than the stored one is an error, because weights are used in place."},
        {.names = "task", .kind = CLI_STRING, .target = &o->task, .value = "NAME",
         .help = "auto, generate or embed. auto: encoders (BERT and similar) compute vectors, all other models "
                 "generate. embed: a generating model returns the vector of its last token, as Qwen3-Embedding "
                 "requires."},
        {.names = "quantization,q", .kind = CLI_STRING, .target = &o->quantization, .value = "NAME",
         .common = true, .help = "Quantize the weights while loading: int8, int4-block or fp8. The plan counts the memory for them "
                 "(docs/guides/quantization.md). The format of a quantized checkpoint (gptq, awq, "
                 "compressed-tensors, fp8 or gguf) is detected; a different name is an error."},
        {.names = "ignore-unused-tensors", .kind = CLI_FLAG, .target = &o->ignore_unused_tensors,
         .help = "Continue although the files hold tensors under the model's names that the model does not use, such as more "
                 "layers than config.json says. Default: an error that names the first tensor."},
        {.names = "repack-cache", .kind = CLI_STRING, .target = &o->repack_cache, .value = "DIR",
         .help = "Store repacked and quantized rows as files in this directory, checked by hash. The next start maps "
                 "them. These files are trusted like the model's own files."},
        {.names = "gemm-form", .kind = CLI_STRING, .target = &o->gemm_form, .value = "NAME",
         .help = "Order of summation in matrix products: auto, lane (any weights), tile (bf16 and f16 weights; AMX "
                 "computes it) or mma (the same weights on tensor cores). auto: mma on a GPU, tile for bf16 weights "
                 "on AMX, otherwise lane. The form changes the bits of answers (docs/internals/numerics.md); the "
                 "start-up line names it."},
        {.names = "invariance", .kind = CLI_STRING, .target = &o->invariance, .value = "NAME",
         .help = "strict or off. strict: the bits of an answer depend on its request only. off: a GPU may use "
                 "cuBLASLt for GEMMs of more than 32 tokens. It may be faster, but bits then depend on other "
                 "requests, and a recording cannot be replayed. No effect on a CPU. Default strict."},
        {.names = "activation-dtype", .kind = CLI_STRING, .target = &o->activation_dtype, .value = "NAME",
         .help = "auto, float32, int8 or bfloat16. int8: activations are rounded to 8 bits, for quantized integer "
                 "weights. bfloat16: the tile form with rounded activations, for bf16 weights; half the work, "
                 "logprobs differ by about 0.1. auto: int8 for GGUF blocks and W8A8, otherwise float32."},
        {.names = "max-model-len", .kind = CLI_U32, .target = &o->max_model_len, .value = "N",
         .common = true, .help = "Maximum length of prompt plus answer, in tokens. Default: the model's limit."},
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
         .value = "N",
         .common = true, .help = "Number of processes that share the layers, the KV cache and each step: 1, 2, 4 or 8. Each has its "
                 "own --threads. It never changes an answer (docs/guides/parallel-cpu.md). Default 1."},
        {.names = "pipeline-parallel-size,pp,pp-size", .kind = CLI_U32, .target = &o->pipeline_parallel_size, .min = 1, .max = 8,
         .value = "N",
         .help = "Number of stages. Each stage holds some of the layers, with their weights and KV cache. The number "
                 "of processes is this times --tensor-parallel-size, at most 8. It never changes an answer. Default "
                 "1."},
        {.names = "rank-transport", .kind = CLI_STRING, .target = &o->rank_transport, .value = "NAME",
         .help = "auto, shm, tcp or mpi: how the processes communicate. shm: on this host, started by this process. "
                 "tcp, mpi: mpirun, srun, torchrun, a LeaderWorkerSet or --nnodes starts each of them with this "
                 "command line; several hosts need the same $QUIRE_GROUP_SECRET. auto: selected from the "
                 "environment. Default auto."},
        {.names = "nnodes", .kind = CLI_U32, .target = &o->nnodes, .min = 1, .max = 8, .value = "N",
         .help = "Number of hosts, if you start one process on each of them by hand."},
        {.names = "node-rank", .kind = CLI_U32, .target = &o->node_rank, .max = 7, .value = "R",
         .help = "Number of this host, from 0. Host 0 answers requests."},
        {.names = "master-addr", .kind = CLI_STRING, .target = &o->master_addr, .value = "HOST",
         .help = "Address of rank 0. Default: $MASTER_ADDR, or the launcher's value."},
        {.names = "master-port", .kind = CLI_U32, .target = &o->master_port, .min = 1, .max = 65535, .value = "N",
         .help = "Port of rank 0 for the other ranks. Default: $MASTER_PORT (under torchrun the next one), or 29501."},
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
         .value = "N", .help = "Tokens in a KV block: 8, 16, 32, 64 or 128. Default 16."},
        {.names = "num-kv-blocks,num-gpu-blocks-override", .kind = CLI_U32,
         .target = &o->num_kv_blocks, .value = "N",
         .help = "Exact number of KV blocks. Default: computed from --kv-cache-memory."},
        {.names = "kv-cache-memory,kv-cache-memory-bytes", .kind = CLI_BYTES,
         .target = &o->kv_cache_memory, .value = "SIZE",
         .common = true, .help = "Memory for KV blocks, such as 512M or 4GiB. Default: a share of the free memory, see quire plan."},
        {.names = "kv-cache-dtype", .kind = CLI_STRING, .target = &o->kv_cache_dtype,
         .value = "NAME",
         .help = "auto, float16, float32, int8, fp8 (e4m3) or fp8_e5m2. 8-bit types hold about twice as many tokens."},
        {.names = "enable-prefix-caching", .kind = CLI_FLAG, .target = &o->prefix_caching,
         .help = "Share the KV blocks of equal prefixes. On by default. It changes only the speed."},
        {.names = "prefix-cache-eviction", .kind = CLI_STRING, .target = &o->prefix_cache_eviction, .value = "NAME",
         .help = "Order of eviction: lru, least recently used first; reuse, also lru, but each of up to three hits "
                 "keeps a block longer. Default lru."},
        {.names = "swap-space", .kind = CLI_PARSED, .parse = parse_swap_space, .target = &o->swap_space, .value = "GiB",
         .help = "Host memory for cached blocks that the KV cache evicts and that a later hit restores: 4, 4GiB or "
                 "512M. Default: none."},
        {.names = "max-pinned-percent", .kind = CLI_U32, .target = &o->max_pinned_percent, .min = 1, .max = 100,
         .value = "N",
         .help = "Largest percentage of the KV blocks that pinned prefixes may hold. Default 50. If set, the "
                 "response cache may use the rest of this share to protect the blocks of cached responses."},
        {.names = "Requests:", .kind = CLI_GROUP},
        {.names = "max-num-queued-reqs", .kind = CLI_U32, .target = &o->max_queued_requests,
         .value = "N",
         .help = "Maximum number of waiting requests. Further requests get 429 with Retry-After. Default 1024."},
        {.names = "max-num-queued-tokens", .kind = CLI_U64, .target = &o->max_queued_tokens,
         .value = "N", .help = "Maximum number of waiting prompt tokens. Further requests get 429. Default: no limit."},
        {.names = "seed", .kind = CLI_U64, .target = &o->seed, .given = &o->has_seed, .value = "N",
         .help = "Makes the seeds of requests without a seed repeatable. Default: unpredictable seeds."},
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
