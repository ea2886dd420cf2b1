#include "tools/engine_flags.h"

#include <string.h>

size_t engine_flags(struct engine_options *o, struct cli_option out[ENGINE_FLAGS_MAX])
{
    const struct cli_option rows[] = {
        {.names = "Model and device:", .kind = CLI_GROUP},
        {.names = "device", .kind = CLI_STRING, .target = &o->device, .value = "NAME",
         .help = "auto, ref, cpu or cuda. auto takes the best this machine has and says why at start."},
        {.names = "threads", .kind = CLI_U32, .target = &o->n_threads, .max = K_MAX_THREADS, .value = "N",
         .help = "Compute threads. Default: the physical cores this process may use, within its container's CPU "
                 "quota. Never changes a bit of any answer."},
        {.names = "cpu-bind", .kind = CLI_STRING, .target = &o->cpu_bind, .value = "CPUS",
         .help = "auto, none, or the CPU of each compute thread, as in 0-3,8. auto binds only where the kernel could "
                 "choose badly: several NUMA nodes or SMT, and a thread for every core."},
        {.names = "dtype", .kind = CLI_STRING, .target = &o->dtype, .value = "NAME",
         .help = "auto: weights as stored, f32 activations, f16 KV. float32: also f32 KV. "
                 "Naming another dtype than the stored one is refused: weights are used in place."},
        {.names = "gemm-form", .kind = CLI_STRING, .target = &o->gemm_form, .value = "NAME",
         .help = "How products are summed: lane (any weights) or tile (bf16 and f16 weights, what AMX computes). auto: tile "
                 "for bf16 weights on AMX, else lane. Answers' bits depend on it, see docs/numerics.md; the start-up line "
                 "says which it is."},
        {.names = "activation-dtype", .kind = CLI_STRING, .target = &o->activation_dtype, .value = "NAME",
         .help = "float32, or bfloat16: the tile form with rounded activations, for bf16 weights. Half the work; logprobs "
                 "are off by about 0.1."},
        {.names = "max-model-len", .kind = CLI_U32, .target = &o->max_model_len, .value = "N",
         .help = "Longest prompt plus answer, in tokens. Default: what the model says."},
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
         .value = "NAME", .help = "auto, float16 or float32."},
        {.names = "enable-prefix-caching", .kind = CLI_FLAG, .target = &o->prefix_caching,
         .help = "Share the KV blocks of equal prefixes (on). It changes speed only."},
        {.names = "Scheduling:", .kind = CLI_GROUP},
        {.names = "max-num-seqs", .kind = CLI_U32, .target = &o->max_num_seqs, .max = 65536,
         .value = "N", .help = "Sequences that run at once."},
        {.names = "max-num-batched-tokens", .kind = CLI_U32, .target = &o->max_num_batched_tokens,
         .max = 1 << 20, .value = "N",
         .help = "Token budget of a step; longer prompts are computed in chunks."},
        {.names = "scheduling-policy", .kind = CLI_STRING, .target = &o->scheduling_policy,
         .value = "NAME", .help = "fcfs, or priority (lower \"priority\" in the request goes first)."},
        {.names = "max-num-queued-reqs", .kind = CLI_U32, .target = &o->max_queued_requests,
         .value = "N", .help = "Requests that may wait; past it: 429 with Retry-After. Default 1024."},
        {.names = "max-num-queued-tokens", .kind = CLI_U64, .target = &o->max_queued_tokens,
         .value = "N", .help = "Prompt tokens that may wait, likewise. Default: no bound."},
        {.names = "seed", .kind = CLI_U64, .target = &o->seed, .given = &o->has_seed, .value = "N",
         .help = "Makes the seeds of requests that bring none repeatable. Default: unpredictable."},
    };
    _Static_assert(sizeof rows / sizeof rows[0] <= ENGINE_FLAGS_MAX, "raise ENGINE_FLAGS_MAX");
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}
