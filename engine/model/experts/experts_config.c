#include "engine/model/experts/experts_config.h"

#include "base/encoding/json.h"
#include "kernels/args/moe.h"

#define CONFIG "config.json"
#define MAX_INNER (1u << 24)
/* More numbers than any memory holds: sums of their bytes over all layers stay below 2^63. */
#define MAX_NUMBERS (UINT64_C(1) << 56)

/* The number that the kernels compute, to which all files have it. */
#define SWIGLU_ALPHA 1.702

/* num_experts, which some versions of transformers call num_local_experts. */
static int read_count(const json_t *config, bool deepseek, uint32_t *out, struct quire_error *err)
{
    uint32_t local = 0;
    if (deepseek)
        return quire_json_u32(config, CONFIG, "n_routed_experts", 1, K_MOE_MAX_EXPERTS, out, err);
    int status = quire_json_u32(config, CONFIG, "num_local_experts", 1, K_MOE_MAX_EXPERTS, &local, err);
    *out = local ? local : *out;
    if (status == QUIRE_OK)
        status = quire_json_u32(config, CONFIG, "num_experts", 1, K_MOE_MAX_EXPERTS, out, err);
    if (status == QUIRE_OK && local && *out != local)
        return quire_fail(err, QUIRE_INVALID, CONFIG ": num_experts: is %u, but num_local_experts is %u", *out, local);
    return status;
}

/* The groups must leave as many experts as a token uses, and the two that a group is scored by. */
static int check_groups(const struct model_experts *e, struct quire_error *err)
{
    const uint32_t n = e->n_groups;
    if (n <= 1)
        return QUIRE_OK;
    if (e->n_experts % n != 0 || e->n_experts / n < 2)
        return quire_fail(err, QUIRE_INVALID, CONFIG ": n_group: %u experts cannot be %u groups of at least two",
                          e->n_experts, n);
    if (e->n_groups_used > n || e->n_used > e->n_experts / n * e->n_groups_used)
        return quire_fail(err, QUIRE_INVALID,
                          CONFIG ": topk_group: %u of %u groups of %u experts do not hold the %u that a token uses",
                          e->n_groups_used, n, e->n_experts / n, e->n_used);
    return QUIRE_OK;
}

/* What DeepSeek's config class and its heirs call differently, or have alone. */
static int read_deepseek(const json_t *config, struct model_experts *e, struct quire_error *err)
{
    uint32_t n_shared = 1;
    double scale = 1.0;
    e->n_groups = e->n_groups_used = 1;
    int status = quire_json_u32(config, CONFIG, "n_shared_experts", 0, 1024, &n_shared, err);
    if (status == QUIRE_OK)
        status = quire_json_u32(config, CONFIG, "n_group", 1, K_MOE_MAX_EXPERTS, &e->n_groups, err);
    if (status == QUIRE_OK)
        status = quire_json_u32(config, CONFIG, "topk_group", 1, K_MOE_MAX_EXPERTS, &e->n_groups_used, err);
    if (status == QUIRE_OK)
        status = quire_json_f64(config, CONFIG, "routed_scaling_factor", 1e-6, 1e6, &scale, err);
    if (status == QUIRE_OK && (uint64_t)n_shared * e->inner_size > MAX_INNER)
        return quire_fail(err, QUIRE_INVALID, CONFIG ": n_shared_experts: %u of moe_intermediate_size %u are too many",
                          n_shared, e->inner_size);
    e->shared_size = n_shared * e->inner_size;
    e->scale = (float)scale;
    return status == QUIRE_OK ? check_groups(e, err) : status;
}

static int read_gate(const json_t *config, double limit, struct model_experts *e, struct quire_error *err)
{
    double alpha = SWIGLU_ALPHA;
    int status = quire_json_f64(config, CONFIG, "swiglu_limit", 1e-3, 1e6, &limit, err);
    if (status == QUIRE_OK)
        status = quire_json_f64(config, CONFIG, "swiglu_alpha", -1e6, 1e6, &alpha, err);
    e->limit = (float)limit;
    if (status == QUIRE_OK && alpha != SWIGLU_ALPHA)
        return quire_fail(err, QUIRE_UNSUPPORTED, CONFIG ": swiglu_alpha: %g is not supported; supported: %g", alpha,
                          SWIGLU_ALPHA);
    return status;
}

static int check_sizes(const struct model_experts *e, const struct model_config *model, struct quire_error *err)
{
    if (e->n_used > e->n_experts)
        return quire_fail(err, QUIRE_INVALID, CONFIG ": num_experts_per_tok: is %u, but there are %u experts",
                          e->n_used, e->n_experts);
    const uint64_t of_one = (uint64_t)e->inner_size * model->hidden_size * 3;
    if (of_one > MAX_NUMBERS / e->n_experts / model->n_layers)
        return quire_fail(err, QUIRE_INVALID,
                          CONFIG ": num_experts: %u experts of %u by %u in %u layers are more than any memory holds",
                          e->n_experts, e->inner_size, model->hidden_size, model->n_layers);
    return QUIRE_OK;
}

static int read_sizes(const json_t *config, const struct model_expert_rules *rules, const struct model_config *model,
                      struct model_experts *e, struct quire_error *err)
{
    *e = (struct model_experts){.n_experts = rules->default_experts,
                                .n_used = rules->default_used,
                                .inner_size = rules->default_inner ? rules->default_inner
                                                                   : model->layers[0].blocks[1].mlp.inner_size,
                                .shared_size = rules->default_shared,
                                .router = rules->router,
                                .names = rules->names,
                                .shared_gate = rules->shared_gate,
                                .normalize = rules->normalizes || rules->deepseek,
                                .scale = 1};
    int status = read_count(config, rules->deepseek, &e->n_experts, err);
    if (status == QUIRE_OK)
        status = quire_json_u32(config, CONFIG, "num_experts_per_tok", 1, K_MOE_MAX_USED, &e->n_used, err);
    if (status == QUIRE_OK && rules->default_inner)
        status = quire_json_u32(config, CONFIG, "moe_intermediate_size", 1, MAX_INNER, &e->inner_size, err);
    if (status == QUIRE_OK && rules->shared_key)
        status = quire_json_u32(config, CONFIG, rules->shared_key, rules->shared_gate ? 1 : 0, MAX_INNER,
                                &e->shared_size, err);
    if (status == QUIRE_OK && rules->deepseek)
        status = read_deepseek(config, e, err);
    if (status == QUIRE_OK && rules->default_limit > 0)
        status = read_gate(config, rules->default_limit, e, err);
    if (status == QUIRE_OK && !rules->normalizes && rules->router != ROUTER_TOP_SOFTMAX)
        status = quire_json_bool(config, CONFIG, "norm_topk_prob", &e->normalize, err);
    return status == QUIRE_OK ? check_sizes(e, model, err) : status;
}

/* Whether mlp_only_layers names the layer. */
static bool is_named(const json_t *layers, uint32_t layer)
{
    for (size_t i = 0; i < json_array_size(layers); i++)
        if (json_integer_value(json_array_get(layers, i)) == (json_int_t)layer)
            return true;
    return false;
}

static int read_skipped(const json_t *config, const struct model_config *model, uint32_t *step, json_t **dense,
                        struct quire_error *err)
{
    int status = quire_json_u32(config, CONFIG, "decoder_sparse_step", 1, INT32_MAX, step, err);
    if (status == QUIRE_OK)
        status = quire_json_array(config, CONFIG, "mlp_only_layers", dense, err);
    for (size_t i = 0; status == QUIRE_OK && *dense && i < json_array_size(*dense); i++) {
        const json_t *layer = json_array_get(*dense, i);
        if (!json_is_integer(layer) || json_integer_value(layer) < 0 || json_integer_value(layer) >= model->n_layers)
            return quire_fail(err, QUIRE_INVALID, CONFIG ": mlp_only_layers: must hold numbers of the %u layers",
                              model->n_layers);
    }
    return status;
}

int model_experts_config(const json_t *config, const struct model_expert_rules *rules, struct model_config *model,
                         struct quire_error *err)
{
    struct model_experts experts;
    json_t *dense = NULL;
    uint32_t step = 1, first = rules->deepseek ? 1 : 0;
    int status = read_sizes(config, rules, model, &experts, err);
    if (status == QUIRE_OK && rules->deepseek)
        status = quire_json_u32(config, CONFIG, "first_k_dense_replace", 0, model->n_layers, &first, err);
    if (status == QUIRE_OK && rules->may_skip_layers)
        status = read_skipped(config, model, &step, &dense, err);
    for (uint32_t l = 0; status == QUIRE_OK && l < model->n_layers; l++) {
        struct model_block *block = &model->layers[l].blocks[1];
        if (l < first || (l + 1) % step != 0 || is_named(dense, l))
            continue;
        *block = (struct model_block){
            .kind = BLOCK_EXPERTS, .norm = block->norm, .place = block->place, .experts = experts};
    }
    return status;
}
