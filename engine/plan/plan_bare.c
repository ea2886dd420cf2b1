#include "engine/plan_bare.h"

#include "base/encoding/json.h"
#include "engine/model/describe.h"
#include "engine/model/quantization/quantization.h"
#include "engine/model/share.h"
#include "engine/model/tensors.h"
#include "kernels/quant.h"

#include <stdio.h>
#include <string.h>

/* What config.json says of stored weights. */
static struct bare_format stated_format(const struct quantization *q, enum k_dtype dtype)
{
    const struct k_format plain = k_format_of(dtype);
    struct bare_format f = {.name = k_dtype_name(dtype), .says = "as config.json says", .layers = plain};
    f.head = plain;
    if (q->layout == QUANTIZATION_NONE)
        return f;
    f.name = quantization_name(q);
    if (q->layout == QUANTIZATION_MXFP4 || (q->layout == QUANTIZATION_PACKED && q->is_float))
        f.layers = k_format_of_planes(K_E2M1, 4, 32, K_E8M0);
    else
        f.layers = k_format_of_planes(q->is_float ? K_E4M3 : K_INT, q->bits ? q->bits : 8, q->group,
                                      q->layout == QUANTIZATION_ELEMENTS ? K_F32 : K_F16);
    f.zeros = !q->symmetric || q->layout == QUANTIZATION_GPTQ;
    f.scale_rows = q->block_rows;
    return f;
}

int bare_format_stated(const char *config, size_t n_config, struct bare_format *out, struct quire_error *err)
{
    json_t *root = NULL;
    struct quantization q;
    int status = quire_json_parse_python(config, n_config, "config.json", &root, err);
    if (status == QUIRE_OK)
        status = quantization_read(root, &q, err);
    json_decref(root);
    if (status == QUIRE_OK)
        *out = stated_format(&q, K_BF16);
    return status;
}

/* Of tables that are not quantized: as quantized files have them, where config.json says float32. */
static enum k_dtype table_dtype(const struct bare_model *m)
{
    if (k_format_is_plain(m->format.layers))
        return m->format.layers.kind;
    return m->config->dtype == K_F32 ? K_F16 : m->config->dtype;
}

static struct checkpoint_facts facts_of(const struct bare_model *m)
{
    const bool is_plain = k_format_is_plain(m->format.layers);
    return (struct checkpoint_facts){.dtype = table_dtype(m),
                                     .weight_format = m->format.layers,
                                     .needs_lanes = !is_plain || m->format.layers.kind == K_F32,
                                     .lanes_format = m->format.layers};
}

static int unknown_format(const char *name, struct quire_error *err)
{
    char names[256] = "";
    for (size_t i = 0; bare_format_at(i); i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "", bare_format_at(i)->name);
    return quire_fail(err, QUIRE_INVALID, "--weights: must be one of %s, got '%.40s'", names, name);
}

static bool has_experts(const struct model_config *config)
{
    for (uint32_t l = 0; l < config->n_layers; l++)
        if (model_layer_block(&config->layers[l], BLOCK_EXPERTS))
            return true;
    return false;
}

int bare_open(const char *config, size_t n_config, const char *weights, struct bare_model *out, struct quire_error *err)
{
    const struct bare_format *format = weights ? bare_format_find(weights) : NULL;
    struct sampling_defaults sampling;
    memset(out, 0, sizeof *out);
    if (weights && !format)
        return unknown_format(weights, err);
    int status = model_describe_json(config, n_config, NULL, 0, &out->config, &sampling, err);
    if (status != QUIRE_OK)
        return status;
    out->format = format ? *format : stated_format(out->config->quantization, out->config->dtype);
    if (format && format->layers.kind == K_E2M1 && !has_experts(out->config)) {
        bare_close(out);
        return quire_fail(err, QUIRE_INVALID, "--weights %s: only experts are stored so, and this model has none",
                          format->name);
    }
    return QUIRE_OK;
}

struct bare_model bare_with(const struct bare_model *m, const struct bare_format *format)
{
    return (struct bare_model){.config = m->config, .format = *format};
}

void bare_close(struct bare_model *m)
{
    model_config_free(m->config);
    m->config = NULL;
}

/* ---- bytes of weights ------------------------------------------------------------------------------------ */

/* llama.cpp's rule for the layers whose V and down projections have more bits in the mixtures called M. */
static bool has_more_bits(uint32_t layer, uint32_t n_layers)
{
    return layer < n_layers / 8 || layer >= 7 * n_layers / 8 || (layer - n_layers / 8) % 3 == 2;
}

/* Blocks of 256 columns fit whole rows only; llama.cpp then takes a format with blocks of 32. */
static struct k_format with_whole_blocks(struct k_format format, uint32_t n_cols, struct k_format plain)
{
    const struct k_blocks *blocks = k_blocks_of(format.packing);
    if (!blocks || n_cols % blocks->columns == 0)
        return format;
    const enum k_packing smaller = format.packing == K_PACKING_Q4_K   ? K_PACKING_Q5_0
                                   : format.packing == K_PACKING_Q5_K ? K_PACKING_Q5_1
                                                                      : K_PACKING_Q8_0;
    return n_cols % 32 == 0 ? k_format_of_blocks(smaller) : plain;
}

/* A mixture of GGUF keeps its embeddings in the layers' format, and all others keep the table plain. */
static struct k_format part_format(const struct bare_model *m, const struct model_desc *desc, uint32_t layer,
                                   const struct model_tensor *row)
{
    const struct bare_format *f = &m->format;
    const struct k_format plain = k_format_of(table_dtype(m));
    struct k_format to = f->layers;
    const bool is_gguf = k_blocks_of(f->layers.packing) && !f->made_by;
    if (row->owner == OF_MODEL) {
        const bool makes_logits = desc->config->outputs.kind == OUTPUT_TOKENS && row->place == model_head_site(desc);
        to = makes_logits && f->head.bits ? f->head : row->place == SITE_EMBED && is_gguf ? f->layers : plain;
    } else if (f->layers.kind == K_E2M1 && row->count != SIZE_EXPERTS && !f->made_by) {
        to = plain; /* gpt-oss quantizes its experts alone */
    } else if (f->more.bits && has_more_bits(layer, desc->config->n_layers) &&
               (row->place == SITE_DOWN || row->rows == SIZE_V)) {
        to = f->more;
    }
    return with_whole_blocks(to, model_whole_size(desc, layer, row->cols), plain);
}

/* Of `count` matrices. A block of rows that share a scale ends with its matrix. */
static uint64_t matrix_bytes(const struct bare_format *f, struct k_format format, uint64_t count, uint64_t n_rows,
                             uint32_t n_cols)
{
    uint64_t bytes = count * n_rows * k_format_bytes(format, n_cols);
    if (format.packing != K_PACKING_PLANES)
        return bytes;
    const uint64_t n_groups = format.group ? (n_cols + format.group - 1) / format.group : 1;
    const uint64_t n_scaled = f->scale_rows ? (n_rows + f->scale_rows - 1) / f->scale_rows : n_rows;
    bytes += count * n_scaled * n_groups * k_dtype_bytes(format.scale);
    return bytes + (f->zeros ? count * n_rows * n_groups * format.bits / 8 : 0);
}

uint64_t bare_matrix_bytes(const struct bare_format *format, uint64_t count, uint64_t n_rows, uint32_t n_cols)
{
    const struct k_format stored = with_whole_blocks(format->layers, n_cols, k_format_of(K_BF16));
    return matrix_bytes(format, stored, count, n_rows, n_cols);
}

/* Of `count` matrices or vectors, those that a token computes with. */
static uint32_t active_of(const struct model_desc *desc, const struct model_stack *stack,
                          const struct model_tensor *row)
{
    const uint32_t n_used = row->count == SIZE_EXPERTS ? model_whole_size(desc, stack->layer, SIZE_USED) : 1;
    return n_used < stack->count ? n_used : stack->count;
}

/* Norms and biases: as stored in a mapped file, though the plan counts their f32 as parameters, too; a device has only
 * those. GGUF stores f32. */
static void add_vector(const struct bare_model *m, const struct model_desc *desc, const struct model_stack *stack,
                       const struct model_tensor *row, const struct k_planner *planner, struct bare_weights *out)
{
    const uint64_t n = (uint64_t)model_size_of(desc, stack->layer, row->rows) * stack->cols;
    const bool is_gguf = k_blocks_of(m->format.layers.packing) && !m->format.made_by;
    out->parameters += stack->count * n;
    out->active_parameters += active_of(desc, stack, row) * n;
    out->step_bytes += active_of(desc, stack, row) * n * sizeof(float);
    if (planner && planner->on_host)
        out->bytes += stack->count * n * (is_gguf ? sizeof(float) : k_dtype_bytes(table_dtype(m)));
}

/* Of the embeddings, a step reads one row, unless they make the logits, too. */
static bool is_table(const struct model_desc *desc, const struct model_tensor *row)
{
    const bool makes_logits = desc->config->tied_embeddings && desc->config->outputs.kind == OUTPUT_TOKENS;
    return row->owner == OF_MODEL && row->place == SITE_EMBED && !makes_logits;
}

static void add_matrix(const struct bare_model *m, const struct model_desc *desc, const struct model_stack *stack,
                       const struct model_tensor *row, const struct k_planner *planner, struct bare_weights *out)
{
    const uint32_t n_rows = model_size_of(desc, stack->layer, row->rows);
    const struct k_format format = part_format(m, desc, stack->layer, row);
    const uint32_t n_active = active_of(desc, stack, row);
    const bool is_looked_up = is_table(desc, row);
    out->parameters += (uint64_t)stack->count * n_rows * stack->cols;
    out->active_parameters += (uint64_t)n_active * n_rows * stack->cols;
    if (planner && !planner->on_host)
        return;
    out->bytes += matrix_bytes(&m->format, format, stack->count, n_rows, stack->cols);
    out->step_bytes += matrix_bytes(&m->format, format, is_looked_up ? 1 : n_active, is_looked_up ? 1 : n_rows,
                                    stack->cols);
    /* A table that is quantized for the head is kept as it is for lookups. */
    if (m->format.made_by && row->owner == OF_MODEL && row->place == SITE_EMBED && !k_format_is_plain(format))
        out->bytes += matrix_bytes(&m->format, k_format_of(table_dtype(m)), 1, n_rows, stack->cols);
    if (planner && !is_looked_up)
        out->repacked_bytes += stack->count * planner->weight_bytes(format, 1, n_rows, stack->cols);
}

/* A device's copies: plain parts lie together, quantized ones each with a scale for each of its rows. */
static void add_copies(const struct bare_model *m, const struct model_desc *desc, const struct model_stack *stack,
                       const struct k_planner *planner, struct bare_weights *out)
{
    const bool is_plain = k_format_is_plain(part_format(m, desc, stack->layer, stack->parts));
    for (uint32_t i = 0; i < (is_plain ? 1 : stack->n_parts); i++) {
        const struct model_tensor *row = &stack->parts[i];
        const struct k_format format = part_format(m, desc, stack->layer, row);
        const uint32_t n_rows = is_plain ? stack->rows : model_size_of(desc, stack->layer, row->rows);
        out->bytes += planner->weight_bytes(format, stack->count, n_rows, stack->cols);
        out->step_bytes += is_table(desc, row)
                               ? k_format_bytes(format, stack->cols)
                               : planner->weight_bytes(format, active_of(desc, stack, row), n_rows, stack->cols);
    }
}

static void add_stack(const struct bare_model *m, const struct model_desc *desc, const struct model_stack *stack,
                      const struct k_planner *planner, struct bare_weights *out)
{
    const bool is_matrix = stack->parts->kind == TENSOR_MATRIX;
    for (uint32_t i = 0; i < stack->n_parts; i++)
        if (model_has_tensor(desc, stack->layer, &stack->parts[i]))
            (is_matrix ? add_matrix : add_vector)(m, desc, stack, &stack->parts[i], planner, out);
    if (is_matrix && planner && !planner->on_host)
        add_copies(m, desc, stack, planner, out);
}

void bare_weights(const struct bare_model *m, uint32_t n_ranks, const struct k_planner *planner,
                  struct bare_weights *out)
{
    const struct checkpoint_facts facts = facts_of(m);
    const struct model_desc whole = {.config = m->config, .facts = &facts};
    const struct model_desc desc = model_share_describe(&whole, 0, n_ranks);
    struct model_stack stack = {0};
    memset(out, 0, sizeof *out);
    while (model_next_stack(&desc, &stack))
        add_stack(m, &desc, &stack, planner, out);
}

/* ---- the plan -------------------------------------------------------------------------------------------- */

static int check_options(const struct engine_options *o, uint32_t context, uint32_t batch, struct quire_error *err)
{
    if (engine_step_options(o)->speculative.method == DRAFT_MODEL)
        return quire_fail(
            err, QUIRE_UNSUPPORTED,
            "--speculative-config: model: a plan from config.json alone has no draft model: leave it out");
    if (o->pipeline_parallel_size > 1)
        return quire_fail(err, QUIRE_UNSUPPORTED,
                          "--pipeline-parallel-size: a plan from config.json alone divides layers only: give "
                          "--tensor-parallel-size, or the model's files");
    const uint32_t block = o->block_size ? o->block_size : 16;
    if ((uint64_t)batch * ((context + block - 1) / block) > UINT32_MAX)
        return quire_fail(err, QUIRE_INVALID, "--batches: %u sequences of %u tokens are more KV blocks than exist",
                          batch, context);
    return QUIRE_OK;
}

int bare_plan(const struct bare_model *m, const struct engine_options *options, uint32_t n_ranks, uint32_t context,
              uint32_t batch, struct engine_plan *out, struct quire_error *err)
{
    struct engine_options o = *options;
    struct model_config config = *m->config; /* borrows its arrays */
    const struct checkpoint_facts facts = facts_of(m);
    const struct model_desc whole = {.config = &config, .facts = &facts};
    struct bare_weights weights;
    int status = check_options(&o, context, batch, err);
    if (status == QUIRE_OK)
        status = model_share_check(&whole, n_ranks, err);
    if (status != QUIRE_OK)
        return status;
    const uint32_t block = o.block_size ? o.block_size : 16;
    config.max_position = context > config.max_position ? context : config.max_position;
    o.max_model_len = context;
    o.max_num_seqs = batch;
    o.kv_cache_memory = 0;
    o.num_kv_blocks = batch * ((context + block - 1) / block);
    bare_weights(m, n_ranks, engine_plan_planner(&o), &weights);
    struct model_desc desc = model_share_describe(&whole, 0, n_ranks);
    desc.shard.repacked_bytes = weights.repacked_bytes;
    desc.shard.device_bytes = weights.bytes;
    return engine_plan_make(&o, &desc, weights.bytes, out, err);
}
