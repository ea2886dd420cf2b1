/* quire plan: the memory of a model to the byte, from its configuration and weight headers only. */
#include "base/encoding/json.h"
#include "base/size.h"
#include "engine/plan.h"
#include "engine/model/draft.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/model/weights.h"
#include "parallel/collective.h"
#include "server/front/front.h"
#include "tools/beside/beside.h"
#include "tools/cli/command.h"
#include "tools/cli/commands.h"
#include "tools/cli/engine_flags.h"
#include "tools/cli/foreign_flags.h"
#include "tools/hub/cache.h"
#include "engine/model/describe.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct plan_row {
    const char *key;
    const char *label;
    uint64_t bytes;
};

/* A model and its memory. With several ranks, `plan` is rank 0's. */
struct planned {
    const char *name; /* as typed */
    struct hub_model model;
    struct model_desc desc;
    struct engine_plan plan;
    struct rank_row {
        uint32_t first_layer, end_layer, n_q_heads;
        uint64_t weight_bytes, kv_bytes, swap_bytes, total_bytes;
        uint64_t device_bytes; /* total on its GPU, including the driver's part; 0: it uses host memory */
    } ranks[COLLECTIVE_MAX_RANKS]; /* [plan.n_ranks] if there are several */
};

static json_t *ranks_json(const struct planned *p)
{
    json_t *ranks = json_array();
    for (uint32_t r = 0; r < p->plan.n_ranks && p->plan.n_ranks > 1; r++) {
        const struct rank_row *row = &p->ranks[r];
        json_array_append_new(
            ranks, json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "rank", (json_int_t)r, "first_layer",
                             (json_int_t)row->first_layer, "end_layer", (json_int_t)row->end_layer, "n_q_heads",
                             (json_int_t)row->n_q_heads, "weight_bytes", (json_int_t)row->weight_bytes, "kv_bytes",
                             (json_int_t)row->kv_bytes, "swap_bytes", (json_int_t)row->swap_bytes, "total_bytes",
                             (json_int_t)row->total_bytes, "device_bytes", (json_int_t)row->device_bytes));
    }
    return ranks;
}

static json_t *groups_json(const struct engine_plan *plan)
{
    json_t *groups = json_array();
    for (uint32_t g = 0; g < engine_plan_n_groups(plan); g++)
        json_array_append_new(
            groups, json_pack("{s:I, s:I, s:I, s:I, s:I}", "window", (json_int_t)plan->groups[g].window, "n_layers",
                              (json_int_t)plan->groups[g].n_layers, "n_blocks", (json_int_t)plan->groups[g].n_blocks,
                              "n_host_blocks", (json_int_t)plan->groups[g].n_host_blocks, "block_bytes",
                              (json_int_t)plan->groups[g].block_bytes));
    return groups;
}

static json_t *plan_json(const struct planned *p)
{
    const struct engine_plan *plan = &p->plan;
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {
        {"weight_bytes", plan->weight_bytes},
        {"param_bytes", plan->param_bytes},
        {"activation_bytes", plan->activation_bytes},
        {"workspace_bytes", plan->workspace_bytes},
        {"logits_bytes", plan->logits_bytes},
        {"kv_bytes", plan->kv_bytes},
        {"swap_bytes", plan->swap_bytes},
        {"draft_bytes", plan->draft_bytes},
        {"draft_weight_bytes", plan->draft_weight_bytes},
        {"draft_model_bytes", plan->draft_model_bytes},
        {"regrouped_bytes", plan->regrouped_bytes},
        {"panel_bytes", plan->panel_bytes},
        {"message_bytes", plan->message_bytes},
        {"handover_bytes", plan->handover_bytes},
        {"total_bytes", plan->total_bytes},
        {"device_memory", plan->device_memory},
        {"device_budget", plan->device_budget},
        {"driver_bytes", plan->driver_bytes},
        {"block_tokens", plan->block_tokens},
        {"max_model_len", plan->max_model_len},
        {"max_num_seqs", plan->max_num_seqs},
        {"max_num_batched_tokens", plan->max_num_batched_tokens},
        {"text_bytes", FRONT_TEXT_BYTES},
        {"bodies_bytes", FRONT_BODIES_BYTES},
        {"replies_bytes", 2 * FRONT_REPLIES_BYTES},
        {"tensor_parallel_size", plan->n_ranks / plan->n_stages},
        {"pipeline_parallel_size", plan->n_stages},
    };
    json_t *out = json_pack("{s:s, s:s, s:s, s:s?, s:s, s:s}", "model", p->name, "architecture", p->desc.architecture,
                            "device", plan->device, "gpu", plan->gpu ? plan->gpu->title : NULL, "weight_dtype",
                            k_format_name(plan->weight_format), "kv_dtype", k_format_name(plan->kv_format));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        json_object_set_new(out, numbers[i].name, json_integer((json_int_t)numbers[i].value));
    json_object_set_new(out, "kv_groups", groups_json(plan));
    json_object_set_new(out, "ranks", ranks_json(p));
    return out;
}

static void print_json(const struct planned *first, const struct planned *second)
{
    json_t *root = plan_json(first);
    if (root && second)
        json_object_set_new(root, "embedding_model", plan_json(second));
    if (root) {
        json_dumpf(root, stdout, JSON_INDENT(2));
        putchar('\n');
    }
    json_decref(root);
}

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

/* On the device, including the weights. */
static uint64_t needed_bytes(const struct engine_plan *plan)
{
    return engine_plan_device_bytes(plan) + plan->weight_bytes + plan->draft_weight_bytes;
}

/* second: NULL for a single model. */
static void print_fit(const struct engine_plan *plan, const struct engine_plan *second)
{
    uint64_t needed = needed_bytes(plan) + plan->driver_bytes + (second ? needed_bytes(second) : 0);
    if (plan->device_memory && needed > plan->device_budget)
        printf("  This does not fit: it needs %s more than the budget, and the engine would not start.\n\n",
               quire_size(needed - plan->device_budget).text);
}

/* Memory that a front end may use, in addition to allocations at start. */
static void print_front(void)
{
    const struct plan_row rows[] = {
        {"text", "maximum, in host memory: prompts to tokenize, and replies of /tokenize", FRONT_TEXT_BYTES},
        {"bodies", "maximum, of all clients together, in host memory", FRONT_BODIES_BYTES},
        {"replies", "maximum, for large results (logprobs): quire serve, while it builds them",
         2 * FRONT_REPLIES_BYTES},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        printf("  %-12s %15" PRIu64 " bytes  %11s   %s\n", rows[i].key, rows[i].bytes, quire_size(rows[i].bytes).text,
               rows[i].label);
    printf("\n");
}

static void print_memory(const struct planned *p)
{
    const struct engine_plan *plan = &p->plan;
    const struct plan_row rows[] = {
        {"weights", plan->device_memory ? "copied to the GPU" : "mapped from the checkpoint, used in place",
         plan->weight_bytes},
        {"parameters", "norms, biases, RoPE frequencies as f32", plan->param_bytes},
        {"activations", "buffers of one step", plan->activation_bytes},
        {"logits", "logit rows of one step", plan->logits_bytes},
        {"workspace", "scratch of the kernels", plan->workspace_bytes},
        {"KV cache", "all blocks", plan->kv_bytes},
        {"drafts", "draft tables, in host memory (--speculative-config)", plan->draft_bytes},
        {"its weights", plan->device_memory ? "draft model, copied to the GPU" : "draft model, mapped in place",
         plan->draft_weight_bytes},
        {"its buffers", "parameters, activations, logits, workspace, and blocks for draft tokens",
         plan->draft_model_bytes},
        {"regrouped", "rows that loading quantizes, or repacks into the order that kernels read",
         plan->regrouped_bytes},
        {"panels", "rows repacked for one-token kernels of the form int8, in addition to the file's",
         plan->panel_bytes},
        {"messages", "shared memory between ranks, on the host", plan->message_bytes},
        {"handover", "activations passed between stages, through host memory", plan->handover_bytes},
        {"host tier", "KV blocks evicted from the cache (--swap-space)", plan->swap_bytes},
    };
    if (plan->gpu)
        printf("%s: %s on one %s, weights %s, KV %s\n\n", p->name, p->desc.architecture, plan->gpu->title,
               k_format_name(plan->weight_format), k_format_name(plan->kv_format));
    else
        printf("%s: %s on %s, %u thread%s, weights %s, KV %s\n\n", p->name, p->desc.architecture, plan->device,
               plan->n_threads, plan->n_threads == 1 ? "" : "s", k_format_name(plan->weight_format),
               k_format_name(plan->kv_format));
    if (plan->n_ranks > 1)
        printf("Rank 0 of %u; the other ranks are listed below.\n\n", plan->n_ranks);
    const size_t n_rows = sizeof rows / sizeof rows[0], n_always = 7; /* the other rows appear only if they are not 0 */
    for (size_t i = 0; i < n_rows; i++)
        if (i < n_always || rows[i].bytes > 0)
            printf("  %-12s %15" PRIu64 " bytes  %11s   %s\n", rows[i].key, rows[i].bytes,
                   quire_size(rows[i].bytes).text, rows[i].label);
    printf("  %-12s %15" PRIu64 " bytes  %11s   everything except the weights\n\n", "planned", plan->total_bytes,
           quire_size(plan->total_bytes).text);
}

static void print_limits(const struct engine_plan *plan)
{
    for (uint32_t g = 0; g < engine_plan_n_groups(plan); g++) {
        char span[48];
        if (g >= plan->n_kv_groups)
            snprintf(span, sizeof span, "the draft model");
        else if (plan->groups[g].window)
            snprintf(span, sizeof span, "window of %u", plan->groups[g].window);
        else
            snprintf(span, sizeof span, "full attention");
        printf("  KV group %u   %u layers, %s: %u blocks of %u tokens, %" PRIu64 " bytes a block, %" PRIu64
               " tokens in all\n",
               g, plan->groups[g].n_layers, span, plan->groups[g].n_blocks, plan->block_tokens,
               plan->groups[g].block_bytes, (uint64_t)plan->groups[g].n_blocks * plan->block_tokens);
        if (plan->groups[g].n_host_blocks)
            printf("               %u host blocks, %" PRIu64 " tokens\n", plan->groups[g].n_host_blocks,
                   (uint64_t)plan->groups[g].n_host_blocks * plan->block_tokens);
    }
    printf("\n  longest request %u tokens; %u sequences at once; %u tokens per step\n", plan->max_model_len,
           plan->max_num_seqs, plan->max_num_batched_tokens);
}

/* Each of several ranks. */
static void print_ranks(const struct planned *p)
{
    if (p->plan.n_ranks == 1)
        return;
    printf("\n  Ranks, all with the same number of KV blocks:\n\n  rank   layers   heads %18s %18s %18s\n", "weights",
           "KV cache", "planned");
    for (uint32_t r = 0; r < p->plan.n_ranks; r++) {
        const struct rank_row *row = &p->ranks[r];
        char layers[32];
        snprintf(layers, sizeof layers, "%u-%u", row->first_layer, row->end_layer - 1);
        printf("  %4u %8s %7u %18" PRIu64 " %18" PRIu64 " %18" PRIu64 "\n", r, layers, row->n_q_heads,
               row->weight_bytes, row->kv_bytes, row->total_bytes);
        if (row->device_bytes > p->plan.device_budget)
            printf("       does not fit: it needs %s more than its GPU's budget\n",
                   quire_size(row->device_bytes - p->plan.device_budget).text);
    }
}

static void print_table(const struct planned *first, const struct planned *second)
{
    print_memory(first);
    print_front();
    if (first->plan.device_memory)
        print_device(&first->plan);
    if (!second)
        print_fit(&first->plan, NULL);
    print_limits(&first->plan);
    print_ranks(first);
    if (!second)
        return;
    printf("\n");
    print_memory(second);
    print_limits(&second->plan);
    const uint64_t both = first->plan.total_bytes + second->plan.total_bytes;
    printf("\n  %-12s %15" PRIu64 " bytes  %11s   planned for both models together\n\n", "both", both,
           quire_size(both).text);
    print_fit(&first->plan, &second->plan);
}

/* Memory of a rank, after rank 0 has set the common number of blocks. */
static int plan_rank(const struct engine_options *options, const struct checkpoint *weights, uint32_t rank,
                     struct planned *p, struct quire_error *err)
{
    struct engine_options o = *options;
    struct model_desc share;
    struct engine_plan plan;
    uint64_t weight_bytes;
    if (p->plan.n_ranks == 1)
        return QUIRE_OK;
    engine_plan_for_others(&p->plan, &o);
    int status = engine_plan_share(&o, weights, &p->desc, rank, &share, &weight_bytes, err);
    if (status == QUIRE_OK)
        status = engine_plan_make_on(&o, &share, weight_bytes, NULL, NULL, &plan, err);
    if (status != QUIRE_OK)
        return status;
    p->ranks[rank] = (struct rank_row){.first_layer = model_first_layer(&share),
                                       .end_layer = model_end_layer(&share),
                                       .n_q_heads = share.n_q_heads,
                                       .weight_bytes = plan.weight_bytes,
                                       .kv_bytes = plan.kv_bytes,
                                       .swap_bytes = plan.swap_bytes,
                                       /* only rank 0 drafts */
                                       .total_bytes = plan.total_bytes - (rank > 0 ? plan.draft_bytes : 0),
                                       .device_bytes = plan.device_memory ? needed_bytes(&plan) + plan.driver_bytes
                                                                          : 0};
    return QUIRE_OK;
}

/* Includes a draft model if one is used. */
static int make_plan(const struct engine_options *options, struct planned *p, struct quire_error *err)
{
    struct engine_options own = *options, *o = &own;
    struct model_desc draft_desc, share, *desc = &p->desc;
    uint64_t weight_bytes = 0;
    struct sampling_defaults sampling;
    struct weights_unused unused;
    struct checkpoint *weights = NULL, *draft_weights = NULL;
    struct engine_draft draft = {.desc = &draft_desc, .n_tokens = o->speculative.num_speculative_tokens};
    int status = engine_plan_place(o, err);
    if (status == QUIRE_OK)
        status = model_describe(o->model_dir, desc, &sampling, err);
    if (status == QUIRE_OK)
        status = engine_plan_task(o, desc, err);
    if (status == QUIRE_OK)
        status = weights_open(o->model_dir, desc, &weights, err);
    if (status == QUIRE_OK)
        status = weights_stored_dtype(weights, o->quantization, desc, err);
    if (status == QUIRE_OK)
        status = weights_unused(weights, desc, o->ignore_unused_tensors, &unused, err);
    if (status == QUIRE_OK && o->speculative.method == DRAFT_MODEL) {
        status = model_open_draft(o->speculative.model, o->model_dir, desc, o->ignore_unused_tensors, &draft_desc,
                                  &draft_weights, err);
        if (status != QUIRE_OK)
            quire_error_prefix(err, "--speculative-config: model");
        else
            draft.weight_bytes = checkpoint_total_bytes(draft_weights);
    }
    if (status == QUIRE_OK)
        status = engine_plan_share(o, weights, desc, 0, &share, &weight_bytes, err);
    if (status == QUIRE_OK)
        status = engine_plan_make_on(o, &share, weight_bytes, draft_weights ? &draft : NULL, NULL, &p->plan, err);
    if (status == QUIRE_OK)
        status = engine_plan_fit_all(o, weights, desc, draft_weights ? &draft : NULL, NULL, &p->plan, err);
    for (uint32_t r = 0; status == QUIRE_OK && r < p->plan.n_ranks; r++)
        status = plan_rank(o, weights, r, p, err);
    checkpoint_close(weights);
    checkpoint_close(draft_weights);
    return status;
}

static int plan_first(struct engine_options *o, struct planned *p, struct quire_error *err)
{
    int status = hub_model_find(p->name, false, &p->model, err);
    o->model_dir = p->model.dir;
    return status == QUIRE_OK ? make_plan(o, p, err) : status;
}

static int plan_second(const struct beside_flags *flags, const struct engine_options *first_options,
                       const struct planned *first, struct planned *p, struct quire_error *err)
{
    if (first->desc.pooling != POOLING_NONE)
        return quire_fail(err, QUIRE_INVALID, "--embedding-model: %s is an embedding model, too: serve one of the two",
                          first->model.name);
    *p = (struct planned){.name = flags->model};
    int status = hub_model_find(p->name, false, &p->model, err);
    if (status == QUIRE_OK) {
        const struct engine_options o = beside_options(flags, p->model.dir, first_options);
        status = make_plan(&o, p, err);
    }
    if (status != QUIRE_OK)
        quire_error_prefix(err, "--embedding-model");
    return status;
}

int command_plan(int argc, char **argv)
{
    struct planned first = {0}, second;
    bool json = false;
    struct engine_options options;
    struct beside_flags beside = {0};
    struct cli_option rows[ENGINE_FLAGS_MAX + BESIDE_FLAGS_MAX + 3];
    struct quire_error err;

    engine_options_default(&options);
    size_t n = engine_flags(&options, rows);
    n += beside_flags(&beside, rows + n);
    rows[n++] = (struct cli_option){.names = "Output:", .kind = CLI_GROUP};
    rows[n++] = (struct cli_option){
        .names = "json", .kind = CLI_FLAG, .target = &json, .common = true, .help = "Print JSON."};
    rows[n] = (struct cli_option){0};
    const struct cli_command command = {
        .name = "plan",
        .usage = "quire plan MODEL [options]",
        .about =
            "Prints the memory that `quire serve MODEL` with the same options uses, to the byte, and the number of\n"
            "KV blocks. Reads only config.json and the headers of the weights. Plans for the CPU unless --device\n"
            "names a GPU, even if this machine has one.",
        .examples = "examples:\n"
                    "  quire plan Qwen/Qwen2.5-1.5B-Instruct\n"
                    "  quire plan ./Qwen2.5-1.5B-Instruct --max-num-seqs 16 --kv-cache-memory 2GiB --json\n"
                    "  quire plan Qwen/Qwen3-8B --device h200      a GPU that this machine does not have",
        .options = rows,
        .positionals = {&first.name},
        .first_names = FOREIGN_MODEL_NAMES,
        .foreign = foreign_flags,
    };
    int code;
    if (!command_begin(&command, argc, argv, &code))
        return code;
    if (!first.name)
        return command_fail(2, "MODEL is missing; usage: quire plan MODEL [options]");
    if (beside_check(&beside, &err) != QUIRE_OK)
        return command_fail(2, err.text);
    if (plan_first(&options, &first, &err) != QUIRE_OK)
        return command_fail(1, err.text);
    if (beside.model && plan_second(&beside, &options, &first, &second, &err) != QUIRE_OK)
        return command_fail(1, err.text);
    (json ? print_json : print_table)(&first, beside.model ? &second : NULL);
    return 0;
}
