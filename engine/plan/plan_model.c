#include "engine/plan_model.h"

#include "engine/checkpoint/checkpoint.h"
#include "engine/model/describe.h"
#include "engine/model/draft.h"
#include "engine/model/weights.h"

/* The files of a model and of its draft model. */
struct files {
    struct opened_model *model, *draft; /* draft: closed if no draft model is used */
};

static int open_draft(struct files *f, const struct engine_options *o, struct quire_error *err)
{
    int status = model_open_draft(engine_step_options(o)->speculative.model, o->model_dir, f->model->config,
                                  o->ignore_unused_tensors, f->draft, err);
    if (status != QUIRE_OK)
        quire_error_prefix(err, "--speculative-config: model");
    return status;
}

static int open_files(struct files *f, const struct engine_options *o, struct quire_error *err)
{
    struct opened_model *m = f->model;
    struct sampling_defaults sampling;
    struct weights_unused unused;
    int status = model_describe(o->model_dir, &m->config, &sampling, err);
    if (status == QUIRE_OK)
        status = engine_plan_task(o, m->config, err);
    if (status == QUIRE_OK)
        status = weights_open(o->model_dir, m->config, &m->checkpoint, err);
    if (status == QUIRE_OK)
        status = weights_stored_dtype(m->checkpoint, o->quantization, m->config, &m->facts, err);
    const struct model_desc desc = opened_model_desc(m);
    if (status == QUIRE_OK)
        status = weights_unused(m->checkpoint, &desc, o->ignore_unused_tensors, &unused, err);
    if (status == QUIRE_OK && engine_step_options(o)->speculative.method == DRAFT_MODEL)
        status = open_draft(f, o, err);
    return status;
}

/* One rank's part, with what the device named in the options repacks. */
static int make_share(struct engine_options *o, const struct files *f, uint32_t rank, struct model_desc *out,
                      uint64_t *weight_bytes, struct quire_error *err)
{
    const struct model_desc desc = opened_model_desc(f->model);
    uint64_t mapped_bytes;
    int status = engine_plan_share(o, f->model->checkpoint, &desc, rank, out, weight_bytes, err);
    return status == QUIRE_OK
               ? weights_look_share(f->model->checkpoint, engine_plan_planner(o), out, &mapped_bytes, err)
               : status;
}

/* Memory of a rank, after rank 0 has set the common number of blocks. */
static int plan_rank(const struct engine_options *options, const struct files *f, const struct engine_plan *first,
                     uint32_t rank, struct engine_plan_rank *out, struct quire_error *err)
{
    struct engine_options o = *options;
    struct model_desc share;
    struct engine_plan plan;
    uint64_t weight_bytes;
    engine_plan_for_others(first, &o);
    int status = make_share(&o, f, rank, &share, &weight_bytes, err);
    if (status == QUIRE_OK)
        status = engine_plan_make_on(&o, &share, weight_bytes, NULL, NULL, &plan, err);
    if (status != QUIRE_OK)
        return status;
    *out = (struct engine_plan_rank){
        .first_layer = model_first_layer(&share),
        .end_layer = model_end_layer(&share),
        .n_q_heads = model_heads_of(&share, model_first_layer(&share)).n_q,
        .weight_bytes = plan.bytes[PLAN_WEIGHTS],
        .kv_bytes = plan.bytes[PLAN_KV],
        .swap_bytes = plan.bytes[PLAN_SWAP],
        .total_bytes = engine_plan_total_bytes(&plan) -
                       (rank > 0 ? plan.bytes[PLAN_DRAFTS] + plan.bytes[PLAN_MASKS] : 0), /* only rank 0 draws */
        .device_bytes = plan.device_memory ? engine_plan_needed_bytes(&plan) + plan.driver_bytes : 0};
    return QUIRE_OK;
}

static int count_costs(const struct files *f, struct engine_token_cost *cost, struct quire_error *err)
{
    const struct model_desc desc = opened_model_desc(f->model);
    struct weights_contents contents;
    const int status = weights_look(f->model->checkpoint, &desc, &contents, err);
    *cost = (struct engine_token_cost){.active_parameters = contents.n_active, .weight_bytes = contents.active_bytes};
    cost->parameters = weights_n_parameters(&contents);
    return status;
}

int engine_plan_parameters(const char *model_dir, const struct model_config *config, uint64_t *out,
                           struct quire_error *err)
{
    struct checkpoint *checkpoint;
    struct checkpoint_facts facts;
    struct weights_contents contents;
    int status = weights_open(model_dir, config, &checkpoint, err);
    if (status == QUIRE_OK)
        status = weights_stored_dtype(checkpoint, NULL, config, &facts, err);
    const struct model_desc desc = {.config = config, .facts = &facts};
    if (status == QUIRE_OK)
        status = weights_look(checkpoint, &desc, &contents, err);
    *out = status == QUIRE_OK ? weights_n_parameters(&contents) : 0;
    checkpoint_close(checkpoint);
    return status;
}

int engine_plan_model(const struct engine_options *options, struct model_config **config,
                      struct engine_token_cost *cost, struct engine_plan *plan,
                      struct engine_plan_rank ranks[ENGINE_MAX_RANKS], struct quire_error *err)
{
    struct engine_options o = *options;
    struct opened_model model = {.config = NULL}, draft_model = {.config = NULL};
    struct files f = {&model, &draft_model};
    struct model_desc share, draft_desc;
    uint64_t weight_bytes = 0, mapped_bytes;
    int status = engine_plan_place(&o, err);
    if (status == QUIRE_OK)
        status = open_files(&f, &o, err);
    if (status == QUIRE_OK)
        status = count_costs(&f, cost, err);
    const struct model_desc desc = opened_model_desc(&model);
    draft_desc = opened_model_desc(&draft_model);
    struct engine_draft draft = {.desc = &draft_desc,
                                 .n_tokens = engine_step_options(&o)->speculative.num_speculative_tokens};
    const struct engine_draft *used = status == QUIRE_OK && draft_model.checkpoint ? &draft : NULL;
    if (used) {
        draft.weight_bytes = checkpoint_total_bytes(draft_model.checkpoint);
        status = weights_look_share(draft_model.checkpoint, engine_plan_planner(&o), &draft_desc, &mapped_bytes, err);
    }
    if (status == QUIRE_OK)
        status = make_share(&o, &f, 0, &share, &weight_bytes, err);
    if (status == QUIRE_OK)
        status = engine_plan_make_on(&o, &share, weight_bytes, used, NULL, plan, err);
    if (status == QUIRE_OK)
        status = engine_plan_fit_all(&o, model.checkpoint, &desc, used, NULL, plan, err);
    for (uint32_t r = 0; status == QUIRE_OK && plan->n_ranks > 1 && r < plan->n_ranks; r++)
        status = plan_rank(&o, &f, plan, r, &ranks[r], err);
    *config = NULL;
    if (status == QUIRE_OK) {
        *config = model.config;
        model.config = NULL;
    }
    opened_model_close(&model);
    opened_model_close(&draft_model);
    return status;
}
