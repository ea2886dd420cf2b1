#include "app/flags/engine_flags.h"

#include "base/encoding/number.h"
#include "kernels/open.h"

#include <stdio.h>
#include <string.h>

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

#define MODEL_FLAGS_MAX 10

static size_t model_flags(struct engine_options *o, struct cli_option *out)
{
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "Model and device:", .kind = CLI_GROUP},
        {.names = "device", .kind = CLI_STRING, .target = &o->device, .value = "NAME",
         .common = true, .help = "auto, ref, cpu, cuda or cuda:N; with quire plan also the name of an absent GPU, such as h200, or list. "
                 "auto selects the best device of this machine and logs why. With several processes, each takes the "
                 "next free GPU of its host, starting at N. Default auto."},
        {.names = "gpu-memory-utilization", .kind = CLI_F64, .target = &o->gpu_memory_utilization, .min = 0.05, .max = 1,
         .value = "SHARE",
         .common = true,
         .help = "Share of the GPU's memory to use; default 0.9. It includes the driver's part. The KV cache gets "
                 "what weights and scratch leave."},
        {.names = "enforce-eager,disable-cuda-graph", .kind = CLI_FLAG, .target = &o->enforce_eager,
         .help = "On a GPU, launch each operation separately, without recorded graphs. Slower steps, faster start, "
                 "same bits."},
        {.names = "threads,t", .kind = CLI_U32, .target = &o->n_threads, .max = K_MAX_THREADS, .value = "N",
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
    };
    /* clang-format on */
    _Static_assert(sizeof rows / sizeof rows[0] <= MODEL_FLAGS_MAX, "raise MODEL_FLAGS_MAX");
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

#define WEIGHT_FLAGS_MAX 10

/* Formats and arithmetic of weights and activations, and the longest sequence. */
static size_t weight_flags(struct engine_options *o, struct cli_option *out)
{
    /* clang-format off */
    const struct cli_option rows[] = {
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
                 "on AMX, otherwise lane. The form changes the bits of answers (docs/internals/numerics.md); "
                 "quire serve --verbose names it."},
        {.names = "invariance", .kind = CLI_STRING, .target = &o->invariance, .value = "NAME",
         .help = "strict or off. strict: the bits of an answer depend on its request only. off: a GPU may use "
                 "cuBLASLt for GEMMs of more than 32 tokens. It may be faster, but bits then depend on other "
                 "requests, and a recording cannot be replayed. No effect on a CPU. Default strict."},
        {.names = "activation-dtype", .kind = CLI_STRING, .target = &o->activation_dtype, .value = "NAME",
         .help = "auto, float32, int8 or bfloat16. int8: activations are rounded to 8 bits, for quantized integer "
                 "weights. bfloat16: the tile form with rounded activations, for bf16 weights; half the work, "
                 "logprobs differ by about 0.1. auto: int8 for GGUF blocks and W8A8, otherwise float32."},
        {.names = "max-model-len,ctx-size,c,context-length,max-seq-len", .kind = CLI_U32, .target = &o->max_model_len, .value = "N",
         .common = true, .help = "Maximum length of prompt plus answer, in tokens. Default: the model's limit. With --attention-window "
                 "it may be longer than the model's limit."},
        {.names = "attention-window", .kind = CLI_U32, .target = &o->attention_window, .min = 1, .value = "N",
         .help = "Keep only the last N positions readable, and those of --attention-sinks, in layers with full attention. The "
                 "KV cache of a request is then bounded (docs/guides/long-contexts.md). Default: all positions."},
        {.names = "attention-sinks", .kind = CLI_U32, .target = &o->attention_sinks, .max = 512, .value = "N",
         .help = "First positions that stay readable behind --attention-window. 4 is usual. Default 0."},
    };
    /* clang-format on */
    _Static_assert(sizeof rows / sizeof rows[0] <= WEIGHT_FLAGS_MAX, "raise WEIGHT_FLAGS_MAX");
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

#define RANK_FLAGS_MAX 9

static size_t rank_flags(struct engine_options *o, struct cli_option *out)
{
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "Several processes:", .kind = CLI_GROUP},
        {.names = "tensor-parallel-size,tp,tp-size", .kind = CLI_U32, .target = &o->tensor_parallel_size, .min = 1, .max = 8,
         .value = "N",
         .common = true, .help = "Number of processes that share the layers, the KV cache and each step: 1, 2, 4 or 8. Each has its "
                 "own --threads. It never changes an answer (docs/guides/parallel-cpu.md). Default 1."},
        {.names = "enable-expert-parallel", .kind = CLI_FLAG, .target = &o->enable_expert_parallel,
         .help = "The processes of --tensor-parallel-size hold whole experts of a mixture of experts. Without it, each "
                 "holds a part of every expert. It never changes an answer, and has no effect on one process."},
        {.names = "pipeline-parallel-size,pp,pp-size", .kind = CLI_U32, .target = &o->pipeline_parallel_size, .min = 1, .max = 8,
         .value = "N",
         .help = "Number of stages. Each stage holds some of the layers, with their weights and KV cache. The number "
                 "of processes is this times --tensor-parallel-size, at most 8. It never changes an answer. Default "
                 "1."},
        {.names = "rank-transport", .kind = CLI_STRING, .target = &o->placement->rank_transport, .value = "NAME",
         .help = "auto, shm, tcp or mpi: how the processes communicate. shm: on this host, started by this process. "
                 "tcp, mpi: mpirun, srun, torchrun, a LeaderWorkerSet or --nnodes starts each of them with this "
                 "command line; several hosts need the same $QUIRE_GROUP_SECRET. auto: selected from the "
                 "environment. Default auto."},
        {.names = "nnodes", .kind = CLI_U32, .target = &o->placement->nnodes, .min = 1, .max = 8, .value = "N",
         .help = "Number of hosts, if you start one process on each of them by hand."},
        {.names = "node-rank", .kind = CLI_U32, .target = &o->placement->node_rank, .max = 7, .value = "R",
         .help = "Number of this host, from 0. Host 0 answers requests."},
        {.names = "master-addr", .kind = CLI_STRING, .target = &o->placement->master_addr, .value = "HOST",
         .help = "Address of rank 0. Default: $MASTER_ADDR, or the launcher's value."},
        {.names = "master-port", .kind = CLI_U32, .target = &o->placement->master_port, .min = 1, .max = 65535, .value = "N",
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
        {.names = "block-size,page-size", .kind = CLI_U32, .target = &o->block_size, .min = 1, .max = 1024,
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
        {.names = "max-pinned-percent", .kind = CLI_U32, .target = &o->steps->max_pinned_percent, .max = 100,
         .value = "N",
         .help = "Largest percentage of the KV blocks that pinned prefixes may hold. The blocks of sessions and of cached "
                 "responses may use the rest of this share until a request needs them. 0 keeps none of them. Default 50."},
        {.names = "Requests:", .kind = CLI_GROUP},
        {.names = "max-num-queued-reqs,max-queued-requests", .kind = CLI_U32, .target = &o->max_queued_requests,
         .value = "N",
         .help = "Maximum number of waiting requests. Further requests get 429 with Retry-After. Default 1024."},
        {.names = "max-num-queued-tokens", .kind = CLI_U64, .target = &o->max_queued_tokens,
         .value = "N", .help = "Maximum number of waiting prompt tokens. Further requests get 429. Default: no limit."},
        {.names = "seed,s,random-seed", .kind = CLI_U64, .target = &o->seed, .given = &o->has_seed, .value = "N",
         .help = "Makes the seeds of requests without a seed repeatable. Default: unpredictable seeds."},
    };
    /* clang-format on */
    _Static_assert(sizeof rows / sizeof rows[0] <= MEMORY_FLAGS_MAX, "raise MEMORY_FLAGS_MAX");
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

_Static_assert(MODEL_FLAGS_MAX + WEIGHT_FLAGS_MAX + RANK_FLAGS_MAX + MEMORY_FLAGS_MAX + SCHEDULE_FLAGS_MAX <=
                   ENGINE_FLAGS_MAX,
               "raise ENGINE_FLAGS_MAX");

size_t engine_flags(struct engine_options *o, struct cli_option out[ENGINE_FLAGS_MAX])
{
    size_t n = model_flags(o, out);
    n += weight_flags(o, out + n);
    n += rank_flags(o, out + n);
    n += memory_flags(o, out + n);
    return n + schedule_flags(o, out + n);
}
