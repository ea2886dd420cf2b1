#include "tools/quantize/calibrate/layers.h"

#include "engine/forward/forward.h"
#include "engine/model/describe.h"
#include "engine/model/opened.h"
#include "engine/model/share.h"
#include "engine/model/sizes.h"
#include "engine/options.h"
#include "engine/plan.h"
#include "kernels/args/gemm.h"
#include "kernels/args/moe.h"
#include "kernels/backend.h"
#include "kernels/math/convert.h"
#include "kernels/open.h"
#include "kernels/weight.h"
#include "request/spec.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_TOKENS 16u

/* A backend whose matrix products show their inputs. Its operations are the real ones otherwise. */
struct tap {
    struct k_backend_ops ops; /* first: the backend's `ops` points here */
    const struct k_backend_ops *real;
    const struct weight_set *set; /* of the layer */
    uint32_t n_cols[CALIBRATION_N_SITES]; /* of the sites' matrices */
    calibration_observer observer; /* NULL without one */
    void *context;
    bool drops_output; /* the layer's output is not read, so an MLP's last product is not computed */
};

struct calibration_layers {
    struct calibration_input input;
    struct opened_model *files; /* owned, and so are the next three */
    struct model_desc *desc; /* the layer's, as a stage of one layer */
    struct engine_options *options;
    struct engine_plan *plan; /* the layer's */
    struct k_backend *backend;
    struct tap *tap;
    uint32_t n_layers; /* the model's; the description has one more, so that no layer is the last */
    float *stream; /* [n_samples, length, hidden_size] */
    uint64_t sample_floats;

    uint32_t layer;
    struct weights *weights;
    struct forward *forward;
    struct k_weight *originals[CALIBRATION_N_SITES]; /* NULL: not replaced */
    uint16_t *rounded[CALIBRATION_N_SITES]; /* owned: what replaces them in BF16, or NULL */

    const float *from; /* the sample's stream on its way in and out */
    float *to; /* NULL: the output is dropped */
};

static const enum model_site sites[CALIBRATION_N_SITES] = {
    SITE_QKV, SITE_O, SITE_GATE_UP, SITE_DOWN, SITE_SHARED_GATE_UP, SITE_SHARED_DOWN};

static const enum model_size inputs[CALIBRATION_N_SITES] = {SIZE_HIDDEN, SIZE_HEADS,  SIZE_HIDDEN,
                                                            SIZE_INNER,  SIZE_HIDDEN, SIZE_SHARED_INNER};

/* ---- the tap ------------------------------------------------------------------------------------------------------ */

/* rows: without site and columns. */
static void show(const struct tap *tap, const struct k_weight *weight, struct calibration_rows rows)
{
    for (uint32_t s = 0; tap->observer && s < CALIBRATION_N_SITES; s++) {
        if (tap->set->site[sites[s]].matrix != weight)
            continue;
        rows.site = (enum calibration_site)s;
        rows.n_cols = tap->n_cols[s];
        tap->observer(tap->context, &rows);
    }
}

static struct calibration_rows choices_of(const struct k_moe_gemm_args *a)
{
    return (struct calibration_rows){.x = a->x_dev,
                                     .n_tokens = a->n_tokens,
                                     .experts = a->experts_dev,
                                     .n_used = a->n_used,
                                     .per_choice = a->per_choice};
}

static int tapped_gemm(struct k_backend *b, const struct k_gemm_args *a, struct quire_error *err)
{
    const struct tap *tap = (const struct tap *)(const void *)b->ops;
    show(tap, a->weight, (struct calibration_rows){.x = a->x_dev, .n_tokens = a->n_tokens});
    if (tap->drops_output && a->weight == tap->set->site[SITE_DOWN].matrix)
        return QUIRE_OK;
    return tap->real->gemm(b, a, err);
}

static int tapped_gemm_gated(struct k_backend *b, const struct k_gemm_gated_args *a, struct quire_error *err)
{
    const struct tap *tap = (const struct tap *)(const void *)b->ops;
    show(tap, a->gemm.weight, (struct calibration_rows){.x = a->gemm.x_dev, .n_tokens = a->gemm.n_tokens});
    return tap->real->gemm_gated(b, a, err);
}

static int tapped_moe_gemm(struct k_backend *b, const struct k_moe_gemm_args *a, struct quire_error *err)
{
    const struct tap *tap = (const struct tap *)(const void *)b->ops;
    show(tap, a->weight, choices_of(a));
    return tap->real->moe_gemm(b, a, err);
}

static int tapped_moe_gemm_gated(struct k_backend *b, const struct k_moe_gemm_gated_args *a, struct quire_error *err)
{
    const struct tap *tap = (const struct tap *)(const void *)b->ops;
    show(tap, a->gemm.weight, choices_of(&a->gemm));
    return tap->real->moe_gemm_gated(b, a, err);
}

static int tap_backend(struct calibration_layers *l, struct quire_error *err)
{
    struct tap *tap = l->tap = calloc(1, sizeof *tap);
    if (!tap)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    tap->real = l->backend->ops;
    tap->ops = *tap->real;
    tap->ops.gemm = tapped_gemm;
    tap->ops.gemm_gated = tapped_gemm_gated;
    tap->ops.moe_gemm = tapped_moe_gemm;
    tap->ops.moe_gemm_gated = tapped_moe_gemm_gated;
    l->backend->ops = &tap->ops;
    return QUIRE_OK;
}

/* ---- the model ---------------------------------------------------------------------------------------------------- */

static int check(const struct model_config *c, struct quire_error *err)
{
    if (c->encoder || c->outputs.kind != OUTPUT_TOKENS)
        return quire_fail(err, QUIRE_UNSUPPORTED, "config.json: architectures: %s: calibration needs a decoder",
                          c->architecture);
    for (uint32_t i = 0; i < c->n_layers; i++) {
        const bool has_experts = model_layer_block(&c->layers[i], BLOCK_EXPERTS);
        if (!model_layer_block(&c->layers[i], BLOCK_ATTENTION) ||
            (!has_experts && !model_layer_block(&c->layers[i], BLOCK_MLP)))
            return quire_fail(err, QUIRE_UNSUPPORTED,
                              "config.json: layer %u has no attention, or no MLP: it cannot be "
                              "calibrated",
                              i);
    }
    return QUIRE_OK;
}

/* One more layer, which never runs: the head is not needed, and every layer is computed for all tokens. */
static int add_layer(struct model_config *c, struct quire_error *err)
{
    struct model_layer *layers = realloc(c->layers, (c->n_layers + 1u) * sizeof *layers);
    if (!layers)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    c->layers = layers;
    layers[c->n_layers] = layers[c->n_layers - 1];
    c->n_layers++;
    return QUIRE_OK;
}

static int open_model(struct calibration_layers *l, struct quire_error *err)
{
    struct sampling_defaults sampling;
    int status = model_describe(l->input.model, &l->files->config, &sampling, err);
    if (status == QUIRE_OK)
        status = check(l->files->config, err);
    if (status == QUIRE_OK && l->input.length > l->files->config->max_position)
        status = quire_fail(err, QUIRE_INVALID, "--calibration-length: %u tokens, but the model has %u positions",
                            l->input.length, l->files->config->max_position);
    if (status == QUIRE_OK)
        status = weights_open(l->input.model, l->files->config, &l->files->checkpoint, err);
    if (status == QUIRE_OK)
        status = weights_stored_dtype(l->files->checkpoint, NULL, l->files->config, &l->files->facts, err);
    if (status != QUIRE_OK)
        return status;
    for (uint32_t i = 0; i < l->files->config->n_ropes; i++)
        model_rope_choose(&l->files->config->ropes[i], l->input.length);
    l->n_layers = l->files->config->n_layers;
    l->sample_floats = (uint64_t)l->input.length * l->files->config->hidden_size;
    return add_layer(l->files->config, err);
}

int calibration_form(enum k_gemm_form *out, struct quire_error *err)
{
    const char *why;
    const struct k_backend_options options = {
        .device = "cpu", .n_threads = 1, .form = K_FORM_AUTO, .weight_format = k_format_of(K_BF16), .cpu_bind = "none"};
    struct k_backend *backend;
    int status = k_backend_open(&options, &backend, &why, err);
    if (status == QUIRE_OK) {
        *out = backend->form;
        backend->ops->close(backend);
    }
    return status;
}

static int open_backend(struct calibration_layers *l, struct quire_error *err)
{
    const char *why;
    *l->desc = opened_model_desc(l->files);
    const struct k_backend_options options = {.device = "cpu",
                                              .n_threads = l->input.n_threads,
                                              .form = l->files->facts.needs_lanes ? K_FORM_LANE : K_FORM_AUTO,
                                              .weight_format = model_weight_format(l->desc),
                                              .cpu_bind = "none"};
    int status = k_backend_open(&options, &l->backend, &why, err);
    return status == QUIRE_OK ? tap_backend(l, err) : status;
}

static void set_options(struct calibration_layers *l)
{
    engine_options_default(l->options);
    l->options->model_dir = l->input.model;
    l->options->device = "cpu";
    l->options->kv_cache_dtype = "float32";
    l->options->gemm_form = k_form_name(l->backend->form);
    l->options->prefix_caching = false;
    l->options->max_model_len = l->options->max_num_batched_tokens = l->input.length;
    l->options->max_num_seqs = 1;
    l->options->block_size = BLOCK_TOKENS;
    l->options->num_kv_blocks = l->input.length / BLOCK_TOKENS + 2;
    l->options->n_threads = l->backend->n_threads;
}

int calibration_layers_open(const struct calibration_input *input, struct calibration_layers **out,
                            struct quire_error *err)
{
    struct calibration_layers *l = *out = calloc(1, sizeof *l);
    if (!l)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    l->input = *input;
    l->files = calloc(1, sizeof *l->files);
    l->desc = calloc(1, sizeof *l->desc);
    l->options = calloc(1, sizeof *l->options);
    l->plan = calloc(1, sizeof *l->plan);
    int status = l->files && l->desc && l->options && l->plan ? open_model(l, err)
                                                              : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (status == QUIRE_OK)
        status = open_backend(l, err);
    if (status == QUIRE_OK) {
        set_options(l);
        l->stream = malloc(input->n_samples * l->sample_floats * sizeof *l->stream);
        if (!l->stream)
            status = quire_fail(err, QUIRE_NO_MEMORY, "out of memory for the activations of %u samples of %u tokens",
                                input->n_samples, input->length);
    }
    if (status != QUIRE_OK) {
        calibration_layers_close(l);
        *out = NULL;
    }
    return status;
}

void calibration_layers_close(struct calibration_layers *l)
{
    if (!l)
        return;
    calibration_layer_end(l);
    if (l->backend) {
        l->backend->ops = l->tap ? l->tap->real : l->backend->ops;
        l->backend->ops->close(l->backend);
    }
    free(l->tap);
    if (l->files)
        opened_model_close(l->files);
    free(l->files);
    free(l->desc);
    free(l->options);
    free(l->plan);
    free(l->stream);
    free(l);
}

uint32_t calibration_n_layers(const struct calibration_layers *l)
{
    return l->n_layers;
}

uint32_t calibration_n_experts(const struct calibration_layers *l, uint32_t layer)
{
    const struct model_block *block = model_layer_block(&l->files->config->layers[layer], BLOCK_EXPERTS);
    return block ? block->experts.n_experts : 0;
}

bool calibration_is_linear_in_up(const struct calibration_layers *l, uint32_t layer)
{
    const struct model_block *block = model_layer_block(&l->files->config->layers[layer], BLOCK_EXPERTS);
    return !block || block->experts.limit == 0;
}

float calibration_norm_offset(const struct calibration_layers *l)
{
    return l->files->config->norms_add_one ? 1 : 0;
}

bool calibration_has_two_norms(const struct calibration_layers *l, uint32_t layer)
{
    return l->files->config->layers[layer].blocks[0].place == NORM_BOTH;
}

/* ---- a layer ------------------------------------------------------------------------------------------------------ */

static int stage_receive(void *context, void *x, size_t n_bytes, struct quire_error *err)
{
    struct calibration_layers *l = context;
    (void)err;
    memcpy(x, l->from, n_bytes);
    l->from += n_bytes / sizeof *l->from;
    return QUIRE_OK;
}

static int stage_send(void *context, const void *x, size_t n_bytes, struct quire_error *err)
{
    struct calibration_layers *l = context;
    (void)err;
    if (!l->to)
        return QUIRE_OK;
    memcpy(l->to, x, n_bytes);
    l->to += n_bytes / sizeof *l->to;
    return QUIRE_OK;
}

int calibration_layer_begin(struct calibration_layers *l, uint32_t layer, struct quire_error *err)
{
    const struct engine_device device = {.planner = l->backend->ops->planner};
    const struct weights_progress nobody = {.fn = NULL};
    const struct forward_group group = {.context = l, .receive = stage_receive, .send = stage_send};
    uint64_t mapped_bytes = 0;
    calibration_layer_end(l);
    l->layer = layer;
    *l->desc = opened_model_desc(l->files);
    model_stage_describe(l->desc, layer, l->n_layers + 1, false);
    int status = weights_look_share(l->files->checkpoint, l->backend->ops->planner, l->desc, &mapped_bytes, err);
    if (status == QUIRE_OK)
        status = engine_plan_make_on(l->options, l->desc, mapped_bytes, NULL, &device, l->plan, err);
    if (status == QUIRE_OK) {
        l->plan->gemm_form = l->backend->form;
        status = weights_create(l->backend, l->files->checkpoint, l->desc, l->backend->form, NULL, nobody, &l->weights,
                                err);
    }
    if (status == QUIRE_OK)
        status = forward_create(l->backend, l->desc, l->plan, l->weights, &group, &l->forward, err);
    if (status == QUIRE_OK) {
        l->tap->set = &l->weights->layers[layer];
        for (uint32_t s = 0; s < CALIBRATION_N_SITES; s++)
            l->tap->n_cols[s] = model_whole_size(l->desc, layer, inputs[s]);
        status = forward_ready(l->forward, false, err);
    }
    return status;
}

/* One sample in one step. */
static int run_sample(struct calibration_layers *l, uint32_t sample, struct quire_error *err)
{
    struct forward_batch batch;
    const uint32_t n = l->input.length, n_blocks = (n + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    forward_begin(l->forward, n, 1, 0, n_blocks, &batch);
    memcpy(batch.ids, l->input.ids + (uint64_t)sample * n, n * sizeof *batch.ids);
    for (uint32_t i = 0; i < n; i++)
        batch.positions[i] = i;
    for (uint32_t g = 0; g < l->plan->n_kv_groups; g++) {
        for (uint32_t i = 0; i < n; i++)
            batch.slots[g][i] = i;
        for (uint32_t i = 0; i < n_blocks; i++)
            batch.tables[g][i] = i;
    }
    batch.rows[0] = (struct k_attn_row){.n_tokens = n};
    return forward_follow(l->forward, &batch, err);
}

int calibration_layer_run(struct calibration_layers *l, calibration_observer observer, void *context, bool advance,
                          struct quire_error *err)
{
    int status = QUIRE_OK;
    l->tap->observer = observer;
    l->tap->context = context;
    l->tap->drops_output = !advance;
    for (uint32_t i = 0; status == QUIRE_OK && i < l->input.n_samples; i++) {
        l->from = l->stream + i * l->sample_floats;
        l->to = advance ? l->stream + i * l->sample_floats : NULL;
        status = run_sample(l, i, err);
    }
    l->tap->observer = NULL;
    return status;
}

/* The tile form has no f32 weights: views of BF16 copies. */
static int round_matrices(struct calibration_layers *l, enum calibration_site site,
                          const struct calibration_matrices *m, struct k_weight_view *views, struct quire_error *err)
{
    const uint32_t n = m->n_experts * m->n_parts;
    uint64_t n_rows = 0;
    for (uint32_t i = 0; i < n; i++)
        n_rows += m->n_rows[i];
    uint16_t *to = realloc(l->rounded[site], (n_rows * m->n_cols + 1) * sizeof *to);
    if (!to)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    l->rounded[site] = to;
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t n_weights = (uint64_t)m->n_rows[i] * m->n_cols;
        for (uint64_t k = 0; k < n_weights; k++)
            to[k] = k_bf16_from_f32(m->w[i][k]);
        views[i] = k_plain_view(to, K_BF16, m->n_rows[i], m->n_cols, (uint64_t)m->n_cols * sizeof *to);
        to += n_weights;
    }
    return QUIRE_OK;
}

int calibration_layer_replace(struct calibration_layers *l, enum calibration_site site,
                              const struct calibration_matrices *m, struct quire_error *err)
{
    int status = QUIRE_OK;
    struct site_weight *to = &l->weights->layers[l->layer].site[sites[site]];
    const uint32_t n = m->n_experts * m->n_parts;
    struct k_weight_view *views = malloc((n + 1u) * sizeof *views);
    struct k_weight *made;
    if (!views)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (l->backend->form == K_FORM_LANE)
        for (uint32_t i = 0; i < n; i++)
            views[i] = k_plain_view(m->w[i], K_F32, m->n_rows[i], m->n_cols, (uint64_t)m->n_cols * sizeof(float));
    else
        status = round_matrices(l, site, m, views, err);
    if (status == QUIRE_OK)
        status = l->backend->ops->weight_create(l->backend, views, m->n_experts, m->n_parts, &made, err);
    free(views);
    if (status != QUIRE_OK)
        return status;
    if (l->originals[site])
        l->backend->ops->weight_destroy(l->backend, to->matrix);
    else
        l->originals[site] = to->matrix;
    to->matrix = made;
    return QUIRE_OK;
}

void calibration_layer_end(struct calibration_layers *l)
{
    for (uint32_t s = 0; l->weights && s < CALIBRATION_N_SITES; s++) {
        struct site_weight *site = &l->weights->layers[l->layer].site[sites[s]];
        if (!l->originals[s])
            continue;
        l->backend->ops->weight_destroy(l->backend, site->matrix);
        site->matrix = l->originals[s];
        l->originals[s] = NULL;
    }
    for (uint32_t s = 0; s < CALIBRATION_N_SITES; s++) {
        free(l->rounded[s]);
        l->rounded[s] = NULL;
    }
    forward_destroy(l->forward);
    weights_destroy(l->weights);
    l->forward = NULL;
    l->weights = NULL;
    if (l->files && l->files->checkpoint)
        checkpoint_drop_pages(l->files->checkpoint);
}
