#include "app/plan/planned.h"

#include "base/size.h"
#include "server/front/front.h"

#include <inttypes.h>
#include <stdio.h>

struct plan_row {
    const char *key;
    const char *label;
    uint64_t bytes;
};

/* The GPU's memory and its users. */
static void print_device(const struct engine_plan *plan)
{
    printf("  %-12s %15" PRIu64 " bytes  %11s   memory of the GPU\n", "GPU", plan->device_memory,
           quire_size(plan->device_memory).text);
    printf("  %-12s %15" PRIu64 " bytes  %11s   limit (--gpu-memory-utilization)\n", "budget", plan->device_budget,
           quire_size(plan->device_budget).text);
    printf("  %-12s %15" PRIu64
           " bytes  %11s   part for the driver: context, modules, recorded steps (assumed; measured at start)\n\n",
           "driver", plan->driver_bytes, quire_size(plan->driver_bytes).text);
}

/* second: NULL for a single model. */
static void print_fit(const struct engine_plan *plan, const struct engine_plan *second)
{
    uint64_t needed = engine_plan_needed_bytes(plan) + plan->driver_bytes +
                      (second ? engine_plan_needed_bytes(second) : 0);
    if (plan->device_memory && needed > plan->device_budget)
        printf("  This does not fit: it needs %s more than the budget, and the engine would not start.\n\n",
               quire_size(needed - plan->device_budget).text);
}

static uint64_t resident_of(const struct planned *p)
{
    return p->plan->bytes[PLAN_WEIGHTS] + p->plan->bytes[PLAN_DRAFT_WEIGHTS] + engine_plan_total_bytes(p->plan) +
           planned_tokenizer_bytes(p);
}

uint64_t planned_resident_bytes(const struct planned *first, const struct planned *second)
{
    if (first->plan->device_memory || first->plan->n_ranks > 1)
        return 0;
    return PLANNED_PROGRAM_BYTES + resident_of(first) + (second ? resident_of(second) : 0);
}

/* The process as the operating system sees it. */
static void print_process(const struct planned *first, const struct planned *second)
{
    const uint64_t tokenizers = planned_tokenizer_bytes(first) + (second ? planned_tokenizer_bytes(second) : 0);
    const struct plan_row rows[] = {
        {"program", "code and libraries, about", PLANNED_PROGRAM_BYTES},
        {"tokenizer", "of the vocabulary, about", tokenizers},
        {"resident", "the process with all of the above in use, weights included, about",
         planned_resident_bytes(first, second)},
    };
    if (planned_resident_bytes(first, second) == 0)
        return;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        printf("  %-12s %15" PRIu64 " bytes  %11s   %s\n", rows[i].key, rows[i].bytes, quire_size(rows[i].bytes).text,
               rows[i].label);
    printf("\n");
}

/* Memory that a front end may use, in addition to allocations at start. */
static void print_front(void)
{
    const struct plan_row rows[] = {
        {"text", "maximum, in host memory: prompts to tokenize, and replies of /tokenize", FRONT_TEXT_BYTES},
        {"bodies", "maximum, of all clients together, in host memory", FRONT_BODIES_BYTES},
        {"replies", "maximum, for large results (logprobs): quire serve, while it builds them",
         2 * FRONT_REPLIES_BYTES},
        {"responses", "maximum, of the stored responses of /v1/responses (--response-store-size)",
         FRONT_RESPONSES_BYTES},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        printf("  %-12s %15" PRIu64 " bytes  %11s   %s\n", rows[i].key, rows[i].bytes, quire_size(rows[i].bytes).text,
               rows[i].label);
    printf("\n");
}

static void print_memory(const struct planned *p)
{
    const struct engine_plan *plan = p->plan;
    const struct plan_row rows[] = {
        {"weights", plan->device_memory ? "copied to the GPU" : "mapped from the checkpoint, used in place",
         plan->bytes[PLAN_WEIGHTS]},
        {"parameters", "norms, biases, RoPE frequencies as f32", plan->bytes[PLAN_PARAMS]},
        {"activations", "buffers of one step", plan->bytes[PLAN_ACTIVATIONS]},
        {"logits", "logit rows of one step", plan->bytes[PLAN_LOGITS]},
        {"workspace", "scratch of the kernels", plan->bytes[PLAN_WORKSPACE]},
        {"KV cache", "all blocks", plan->bytes[PLAN_KV]},
        {"drafts", "draft tables, in host memory (--speculative-config)", plan->bytes[PLAN_DRAFTS]},
        {"masks", "masks of structured output, in host memory", plan->bytes[PLAN_MASKS]},
        {"its weights", plan->device_memory ? "draft model, copied to the GPU" : "draft model, mapped in place",
         plan->bytes[PLAN_DRAFT_WEIGHTS]},
        {"its buffers", "parameters, activations, logits, workspace, and blocks for draft tokens",
         plan->bytes[PLAN_DRAFT_MODEL]},
        {"regrouped", "rows that loading quantizes or repacks, and misaligned tensors that it copies",
         plan->bytes[PLAN_REPACKED_ROWS]},
        {"panels", "rows repacked for one-token kernels of the form int8, in addition to the file's",
         plan->bytes[PLAN_REPACKED]},
        {"messages", "shared memory between ranks, on the host", plan->bytes[PLAN_MESSAGES]},
        {"handover", "activations passed between stages, through host memory", plan->bytes[PLAN_STAGE_BUFFER]},
        {"host tier", "KV blocks evicted from the cache (--swap-space)", plan->bytes[PLAN_SWAP]},
    };
    if (plan->gpu)
        printf("%s: %s on one %s, weights %s, KV %s\n\n", p->name, p->architecture, plan->gpu->title,
               k_format_name(plan->weight_format), k_format_name(plan->kv_format));
    else
        printf("%s: %s on %s, %u thread%s, weights %s, KV %s\n\n", p->name, p->architecture, engine_plan_device(plan),
               plan->n_threads, plan->n_threads == 1 ? "" : "s", k_format_name(plan->weight_format),
               k_format_name(plan->kv_format));
    if (p->multimodal[0])
        printf("The text part of %s; images and audio are not supported.\n\n", p->multimodal);
    if (plan->n_ranks > 1)
        printf("Rank 0 of %u; the other ranks are listed below.\n\n", plan->n_ranks);
    const size_t n_rows = sizeof rows / sizeof rows[0], n_always = 7; /* the other rows appear only if they are not 0 */
    for (size_t i = 0; i < n_rows; i++)
        if (i < n_always || rows[i].bytes > 0)
            printf("  %-12s %15" PRIu64 " bytes  %11s   %s\n", rows[i].key, rows[i].bytes,
                   quire_size(rows[i].bytes).text, rows[i].label);
    printf("  %-12s %15" PRIu64 " bytes  %11s   everything except the weights\n\n", "planned",
           engine_plan_total_bytes(plan), quire_size(engine_plan_total_bytes(plan)).text);
}

static void print_limits(const struct planned *p)
{
    const struct engine_plan *plan = p->plan;
    for (uint32_t g = 0; g < engine_plan_n_groups(plan); g++) {
        char span[64];
        if (g >= plan->n_kv_groups)
            snprintf(span, sizeof span, "the draft model");
        else if (plan->groups[g].window)
            snprintf(span, sizeof span, plan->groups[g].n_sinks ? "window of %u and %u sinks" : "window of %u",
                     plan->groups[g].window, plan->groups[g].n_sinks);
        else
            snprintf(span, sizeof span, "full attention");
        printf("  KV group %u   %u layers, %s: %u blocks of %u tokens, %" PRIu64 " bytes a block, %" PRIu64
               " tokens in all\n",
               g, plan->groups[g].n_layers, span, plan->groups[g].n_blocks, plan->block_tokens,
               plan->groups[g].block_bytes, (uint64_t)plan->groups[g].n_blocks * plan->block_tokens);
        if (g < plan->n_kv_groups)
            printf("               %s for a request of %u tokens\n",
                   quire_size(engine_plan_request_bytes(plan, g, plan->max_model_len)).text, plan->max_model_len);
        if (plan->groups[g].n_host_blocks)
            printf("               %u host blocks, %" PRIu64 " tokens\n", plan->groups[g].n_host_blocks,
                   (uint64_t)plan->groups[g].n_host_blocks * plan->block_tokens);
    }
    uint64_t held = 0, read = 0;
    for (uint32_t g = 0; g < plan->n_kv_groups; g++) {
        held += engine_plan_request_bytes(plan, g, plan->max_model_len);
        read += engine_plan_read_bytes(plan, g, plan->max_model_len);
    }
    printf("\n  %" PRIu64 " parameters, of which a token uses %" PRIu64 "; its step reads %s of weights",
           p->cost.parameters, p->cost.active_parameters, quire_size(p->cost.weight_bytes).text);
    printf(", and %s of KV behind %u tokens\n", quire_size(read).text, plan->max_model_len);
    printf("  a request of %u tokens holds %s of KV", plan->max_model_len, quire_size(held).text);
    printf("\n  longest request %u tokens; %u sequences at once; %u tokens per step\n", plan->max_model_len,
           plan->max_num_seqs, plan->max_num_batched_tokens);
}

/* Each of several ranks. */
static void print_ranks(const struct planned *p)
{
    if (p->plan->n_ranks == 1)
        return;
    printf("\n  Ranks, all with the same number of KV blocks:\n\n  rank   layers   heads %18s %18s %18s\n", "weights",
           "KV cache", "planned");
    for (uint32_t r = 0; r < p->plan->n_ranks; r++) {
        const struct engine_plan_rank *row = &p->ranks[r];
        char layers[32];
        snprintf(layers, sizeof layers, "%u-%u", row->first_layer, row->end_layer - 1);
        printf("  %4u %8s %7u %18" PRIu64 " %18" PRIu64 " %18" PRIu64 "\n", r, layers, row->n_q_heads,
               row->weight_bytes, row->kv_bytes, row->total_bytes);
        if (row->device_bytes > p->plan->device_budget)
            printf("       does not fit: it needs %s more than its GPU's budget\n",
                   quire_size(row->device_bytes - p->plan->device_budget).text);
    }
}

void plan_print_table(const struct planned *first, const struct planned *second)
{
    print_memory(first);
    print_process(first, second);
    print_front();
    if (first->plan->device_memory)
        print_device(first->plan);
    if (!second)
        print_fit(first->plan, NULL);
    print_limits(first);
    print_ranks(first);
    if (!second)
        return;
    printf("\n");
    print_memory(second);
    print_limits(second);
    const uint64_t both = engine_plan_total_bytes(first->plan) + engine_plan_total_bytes(second->plan);
    printf("\n  %-12s %15" PRIu64 " bytes  %11s   planned for both models together\n\n", "both", both,
           quire_size(both).text);
    print_fit(first->plan, second->plan);
}
