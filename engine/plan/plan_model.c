#include "engine/plan_model.h"

#include "engine/checkpoint/checkpoint.h"
#include "engine/model/describe.h"
#include "engine/model/draft.h"
#include "engine/model/weights.h"

/* The files of a model and of its draft model. */
struct files {
    struct checkpoint *weights, *draft_weights; /* draft_weights: NULL if no draft model is used */
};

static int open_draft(struct files *f, const struct engine_options *o, const struct model_desc *desc,
                      struct model_desc *draft_desc, struct quire_error *err)
{
    int status = model_open_draft(engine_step_options(o)->speculative.model, o->model_dir, desc,
                                  o->ignore_unused_tensors, draft_desc, &f->draft_weights, err);
    if (status != QUIRE_OK)
        quire_error_prefix(err, "--speculative-config: model");
    return status;
}

static int open_files(struct files *f, const struct engine_options *o, struct model_desc *desc,
                      struct model_desc *draft_desc, struct quire_error *err)
{
    struct sampling_defaults sampling;
    struct weights_unused unused;
    int status = model_describe(o->model_dir, desc, &sampling, err);
    if (status == QUIRE_OK)
        status = engine_plan_task(o, desc, err);
    if (status == QUIRE_OK)
        status = weights_open(o->model_dir, desc, &f->weights, err);
    if (status == QUIRE_OK)
        status = weights_stored_dtype(f->weights, o->quantization, desc, err);
    if (status == QUIRE_OK)
        status = weights_unused(f->weights, desc, o->ignore_unused_tensors, &unused, err);
    if (status == QUIRE_OK && engine_step_options(o)->speculative.method == DRAFT_MODEL)
        status = open_draft(f, o, desc, draft_desc, err);
    return status;
}

/* Memory of a rank, after rank 0 has set the common number of blocks. */
static int plan_rank(const struct engine_options *options, const struct checkpoint *weights,
                     const struct model_desc *desc, const struct engine_plan *first, uint32_t rank,
                     struct engine_plan_rank *out, struct quire_error *err)
{
    struct engine_options o = *options;
    struct model_desc share;
    struct engine_plan plan;
    uint64_t weight_bytes;
    engine_plan_for_others(first, &o);
    int status = engine_plan_share(&o, weights, desc, rank, &share, &weight_bytes, err);
    if (status == QUIRE_OK)
        status = engine_plan_make_on(&o, &share, weight_bytes, NULL, NULL, &plan, err);
    if (status != QUIRE_OK)
        return status;
    *out = (struct engine_plan_rank){
        .first_layer = model_first_layer(&share),
        .end_layer = model_end_layer(&share),
        .n_q_heads = share.n_q_heads,
        .weight_bytes = plan.weight_bytes,
        .kv_bytes = plan.kv_bytes,
        .swap_bytes = plan.swap_bytes,
        .total_bytes = plan.total_bytes - (rank > 0 ? plan.draft_bytes + plan.mask_bytes : 0), /* only rank 0 draws */
        .device_bytes = plan.device_memory ? engine_plan_needed_bytes(&plan) + plan.driver_bytes : 0};
    return QUIRE_OK;
}

int engine_plan_model(const struct engine_options *options, struct model_desc *desc, struct engine_plan *plan,
                      struct engine_plan_rank ranks[ENGINE_MAX_RANKS], struct quire_error *err)
{
    struct engine_options o = *options;
    struct files f = {.weights = NULL};
    struct model_desc share, draft_desc;
    uint64_t weight_bytes = 0;
    int status = engine_plan_place(&o, err);
    if (status == QUIRE_OK)
        status = open_files(&f, &o, desc, &draft_desc, err);
    struct engine_draft draft = {.desc = &draft_desc,
                                 .n_tokens = engine_step_options(&o)->speculative.num_speculative_tokens};
    if (status == QUIRE_OK && f.draft_weights)
        draft.weight_bytes = checkpoint_total_bytes(f.draft_weights);
    const struct engine_draft *used = f.draft_weights ? &draft : NULL;
    if (status == QUIRE_OK)
        status = engine_plan_share(&o, f.weights, desc, 0, &share, &weight_bytes, err);
    if (status == QUIRE_OK)
        status = engine_plan_make_on(&o, &share, weight_bytes, used, NULL, plan, err);
    if (status == QUIRE_OK)
        status = engine_plan_fit_all(&o, f.weights, desc, used, NULL, plan, err);
    for (uint32_t r = 0; status == QUIRE_OK && plan->n_ranks > 1 && r < plan->n_ranks; r++)
        status = plan_rank(&o, f.weights, desc, plan, r, &ranks[r], err);
    checkpoint_close(f.weights);
    checkpoint_close(f.draft_weights);
    return status;
}
