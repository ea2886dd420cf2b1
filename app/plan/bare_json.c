#include "app/command/command.h"
#include "app/plan/bare.h"

static json_t *times_json(const struct bare_times *t)
{
    if (t->token_s <= 0)
        return json_null();
    return json_pack("{s:f, s:f, s:f}", "first_token_s", t->first_token_s, "token_s", t->token_s, "tokens_per_s",
                     t->tokens_per_s);
}

static json_t *fit_json(const struct bare_fit *f)
{
    if (!f->n_gpus)
        return json_null();
    return json_pack("{s:I, s:s?, s:s?, s:I, s:I, s:I, s:o}", "tensor_parallel_size", (json_int_t)f->n_gpus,
                     "quantization", f->made ? f->made->made_by : NULL, "kv_cache_dtype", f->kv_dtype, "used_bytes",
                     (json_int_t)f->used_bytes, "budget_bytes", (json_int_t)f->budget_bytes, "kv_tokens",
                     (json_int_t)f->kv_tokens, "predicted", times_json(&f->times));
}

static json_t *case_json(const struct bare_report *r, const struct bare_case *c)
{
    const uint64_t all = engine_plan_total_bytes(c->plan), kv = bare_kv_bytes(c->plan, c->context, c->batch);
    json_t *gpus = json_array();
    for (uint32_t i = 0; i < r->n_gpus; i++)
        json_array_append_new(gpus, json_pack("{s:s, s:o, s:o}", "gpu", c->fits[i].gpu->name, "as_planned",
                                              fit_json(&c->fits[i].planned), "fewest", fit_json(&c->fits[i].fewest)));
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "context", (json_int_t)c->context,
                     "batch", (json_int_t)c->batch, "weight_bytes", (json_int_t)c->plan->bytes[PLAN_WEIGHTS],
                     "panel_bytes", (json_int_t)c->plan->bytes[PLAN_REPACKED], "kv_bytes", (json_int_t)kv,
                     "param_bytes", (json_int_t)c->plan->bytes[PLAN_PARAMS], "activation_bytes",
                     (json_int_t)c->plan->bytes[PLAN_ACTIVATIONS], "logits_bytes",
                     (json_int_t)c->plan->bytes[PLAN_LOGITS], "workspace_bytes",
                     (json_int_t)c->plan->bytes[PLAN_WORKSPACE], "total_bytes",
                     (json_int_t)(all - c->plan->bytes[PLAN_KV] + kv + c->plan->bytes[PLAN_WEIGHTS]), "predicted",
                     times_json(&c->times), "gpus", gpus);
}

static json_t *groups_json(const struct engine_plan *plan)
{
    json_t *groups = json_array();
    for (uint32_t g = 0; g < plan->n_kv_groups; g++)
        json_array_append_new(groups, json_pack("{s:I, s:I, s:I, s:I}", "window", (json_int_t)plan->groups[g].window,
                                                "sinks", (json_int_t)plan->groups[g].n_sinks, "n_layers",
                                                (json_int_t)plan->groups[g].n_layers, "token_bytes",
                                                (json_int_t)(plan->groups[g].block_bytes / plan->block_tokens)));
    return groups;
}

int bare_print_json(const struct bare_report *r)
{
    const struct engine_plan *plan = r->cases[0].plan;
    json_t *cases = json_array();
    for (uint32_t i = 0; i < r->n_cases; i++)
        json_array_append_new(cases, case_json(r, &r->cases[i]));
    return command_print_json(
        json_pack("{s:o, s:s, s:s?, s:b, s:s, s:s, s:s, s:s, s:f, s:I, s:I, s:I, s:I, s:s, s:o, s:o}", "model",
                  command_json_text(r->name), "architecture", r->model.config->architecture, "multimodal",
                  r->model.config->multimodal[0] ? r->model.config->multimodal : NULL, "servable", 1, "attention",
                  bare_attention_name(r->model.config), "device", engine_plan_device(plan), "weights",
                  r->model.format.name, "weights_hold", r->model.format.says, "bytes_per_weight",
                  (double)r->weights.bytes / (double)r->weights.parameters, "parameters",
                  (json_int_t)r->weights.parameters, "active_parameters", (json_int_t)r->weights.active_parameters,
                  "weight_bytes", (json_int_t)r->weights.bytes, "max_position", (json_int_t)r->max_position, "kv_dtype",
                  k_format_name(plan->kv_format), "kv_groups", groups_json(plan), "cases", cases));
}
