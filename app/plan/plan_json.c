#include "app/command/command.h"
#include "app/plan/planned.h"

#include "base/encoding/json.h"
#include "server/front/front.h"

#include <stdio.h>

static json_t *ranks_json(const struct planned *p)
{
    json_t *ranks = json_array();
    for (uint32_t r = 0; r < p->plan->n_ranks && p->plan->n_ranks > 1; r++) {
        const struct engine_plan_rank *row = &p->ranks[r];
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
            groups,
            json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "window", (json_int_t)plan->groups[g].window, "sinks",
                      (json_int_t)plan->groups[g].n_sinks, "n_layers", (json_int_t)plan->groups[g].n_layers, "n_blocks",
                      (json_int_t)plan->groups[g].n_blocks, "n_host_blocks", (json_int_t)plan->groups[g].n_host_blocks,
                      "block_bytes", (json_int_t)plan->groups[g].block_bytes, "request_bytes",
                      (json_int_t)engine_plan_request_bytes(plan, g, plan->max_model_len), "read_bytes",
                      (json_int_t)engine_plan_read_bytes(plan, g, plan->max_model_len)));
    return groups;
}

static json_t *plan_json(const struct planned *p)
{
    const struct engine_plan *plan = p->plan;
    uint64_t token_kv_bytes = 0;
    for (uint32_t g = 0; g < plan->n_kv_groups; g++)
        token_kv_bytes += engine_plan_read_bytes(plan, g, plan->max_model_len);
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {
        {"parameters", p->cost.parameters},
        {"active_parameters", p->cost.active_parameters},
        {"token_weight_bytes", p->cost.weight_bytes},
        {"token_kv_bytes", token_kv_bytes},
        {"weight_bytes", plan->bytes[PLAN_WEIGHTS]},
        {"param_bytes", plan->bytes[PLAN_PARAMS]},
        {"activation_bytes", plan->bytes[PLAN_ACTIVATIONS]},
        {"workspace_bytes", plan->bytes[PLAN_WORKSPACE]},
        {"logits_bytes", plan->bytes[PLAN_LOGITS]},
        {"kv_bytes", plan->bytes[PLAN_KV]},
        {"swap_bytes", plan->bytes[PLAN_SWAP]},
        {"draft_bytes", plan->bytes[PLAN_DRAFTS]},
        {"mask_bytes", plan->bytes[PLAN_MASKS]},
        {"draft_weight_bytes", plan->bytes[PLAN_DRAFT_WEIGHTS]},
        {"draft_model_bytes", plan->bytes[PLAN_DRAFT_MODEL]},
        {"regrouped_bytes", plan->bytes[PLAN_REPACKED_ROWS]},
        {"panel_bytes", plan->bytes[PLAN_REPACKED]},
        {"message_bytes", plan->bytes[PLAN_MESSAGES]},
        {"handover_bytes", plan->bytes[PLAN_STAGE_BUFFER]},
        {"total_bytes", engine_plan_total_bytes(plan)},
        {"tokenizer_bytes", planned_tokenizer_bytes(p)},
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
        {"responses_bytes", FRONT_RESPONSES_BYTES},
        {"tensor_parallel_size", plan->n_ranks / plan->n_stages},
        {"pipeline_parallel_size", plan->n_stages},
    };
    json_t *out = json_pack("{s:o, s:s, s:s?, s:s, s:s?, s:s, s:s}", "model", command_json_text(p->name),
                            "architecture", p->architecture, "multimodal", p->multimodal[0] ? p->multimodal : NULL,
                            "device", engine_plan_device(plan), "gpu", plan->gpu ? plan->gpu->title : NULL,
                            "weight_dtype", k_format_name(plan->weight_format), "kv_dtype",
                            k_format_name(plan->kv_format));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        json_object_set_new(out, numbers[i].name, json_integer((json_int_t)numbers[i].value));
    json_object_set_new(out, "kv_groups", groups_json(plan));
    json_object_set_new(out, "ranks", ranks_json(p));
    return out;
}

int plan_print_json(const struct planned *first, const struct planned *second)
{
    json_t *root = plan_json(first);
    if (root) {
        json_object_set_new(root, "program_bytes", json_integer((json_int_t)PLANNED_PROGRAM_BYTES));
        json_object_set_new(root, "resident_bytes", json_integer((json_int_t)planned_resident_bytes(first, second)));
    }
    if (root && second)
        json_object_set_new(root, "embedding_model", plan_json(second));
    if (!root)
        return command_fail(1, "out of memory");
    const bool is_written = json_dumpf(root, stdout, JSON_INDENT(2)) == 0 && putchar('\n') != EOF &&
                            fflush(stdout) == 0;
    json_decref(root);
    return is_written ? 0 : command_fail(1, "the results cannot be written");
}
