#include "tools/quantize/loads.h"

#include "engine/model/describe.h"
#include "engine/model/opened.h"
#include "engine/model/share.h"
#include "engine/model/weights.h"
#include "engine/options.h"
#include "engine/plan.h"
#include "files/model_files.h"
#include "kernels/backend.h"
#include "kernels/open.h"
#include "request/spec.h"
#include "tools/quantize/job.h"

#define MAX_MODULES_BYTES ((size_t)1 << 20)

/* How a model is opened. */
struct manner {
    bool as_vectors; /* --task embed */
    bool ignores_unused; /* --ignore-unused-tensors */
};

static int open_files(const char *model, struct manner manner, struct opened_model *m, struct quire_error *err)
{
    struct sampling_defaults sampling;
    struct weights_unused unused;
    *m = (struct opened_model){.config = NULL};
    int status = model_describe(model, &m->config, &sampling, err);
    if (status == QUIRE_OK && manner.as_vectors && m->config->outputs.kind == OUTPUT_TOKENS)
        status = model_describe_vector(model, m->config, err);
    if (status == QUIRE_OK)
        status = weights_open(model, m->config, &m->checkpoint, err);
    if (status == QUIRE_OK)
        status = weights_stored_dtype(m->checkpoint, NULL, m->config, &m->facts, err);
    if (status != QUIRE_OK)
        return status;
    const struct model_desc desc = opened_model_desc(m);
    return weights_unused(m->checkpoint, &desc, manner.ignores_unused, &unused, err);
}

static bool opens(const char *model, struct manner manner)
{
    struct opened_model m;
    const bool is_open = open_files(model, manner, &m, NULL) == QUIRE_OK;
    opened_model_close(&m);
    return is_open;
}

/* Models of sentence-transformers have modules.json, and may have no output head. */
static bool has_modules(const char *model)
{
    struct buffer text = {0};
    const int status = model_file_read(model, "modules.json", MAX_MODULES_BYTES, &text, NULL);
    buffer_free(&text);
    return status == QUIRE_OK;
}

static struct manner manner_of(const char *model)
{
    struct manner manner = {.as_vectors = has_modules(model), .ignores_unused = true};
    manner.as_vectors = manner.as_vectors && opens(model, manner);
    manner.ignores_unused = false;
    manner.ignores_unused = !opens(model, manner);
    return manner;
}

/* A layer is a stage of its own. The first has the embeddings too, the last the head. */
static int load_layer(struct k_backend *backend, const struct opened_model *m, uint32_t layer, enum k_gemm_form form,
                      struct quire_error *err)
{
    const struct weights_progress nobody = {.fn = NULL};
    struct model_desc desc = opened_model_desc(m);
    struct weights *weights = NULL;
    uint64_t n_bytes;
    model_stage_describe(&desc, layer, m->config->n_layers, false);
    int status = weights_look_share(m->checkpoint, backend->ops->planner, &desc, &n_bytes, err);
    if (status == QUIRE_OK)
        status = weights_create(backend, m->checkpoint, &desc, form, NULL, nobody, &weights, err);
    weights_destroy(weights);
    checkpoint_drop_pages(m->checkpoint);
    return status;
}

static int load_weights(const struct opened_model *m, const char *model, const struct quantizer_job *job,
                        struct quire_error *err)
{
    const struct model_desc desc = opened_model_desc(m);
    struct k_backend_options options = {
        .device = "cpu", .n_threads = job->n_threads, .weight_format = model_weight_format(&desc), .cpu_bind = "none"};
    struct engine_options engine;
    struct k_backend *backend;
    const char *why;
    engine_options_default(&engine);
    engine.model_dir = model;
    engine.device = options.device;
    int status = engine_plan_form(&engine, &desc, &options.form, err);
    if (status == QUIRE_OK)
        status = k_backend_open(&options, &backend, &why, err);
    if (status != QUIRE_OK)
        return status;
    for (uint32_t i = 0; status == QUIRE_OK && i < m->config->n_layers; i++) {
        job->progress(job->context, "layers loaded", i, m->config->n_layers);
        status = load_layer(backend, m, i, backend->form, err);
    }
    backend->ops->close(backend);
    return status;
}

int quantizer_loads(const struct quantizer_job *job, const char *written, struct quire_error *err)
{
    struct opened_model m;
    int status = open_files(written, manner_of(job->model), &m, err);
    if (status == QUIRE_OK)
        status = load_weights(&m, written, job, err);
    opened_model_close(&m);
    return status;
}
