#include "engine/model/weights.h"

#include "kernels/math.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What binding needs at every turn. */
struct binder {
    struct k_backend *backend;
    const struct safetensors *checkpoint;
    const struct model_desc *desc;
    enum k_gemm_form form;
    bool bare;     /* a checkpoint of a model without its head: names without "model." or "bert." */
    float *params; /* host image of the arena */
    uint64_t at;   /* floats of it that have an owner */
    struct quire_error *err;
};

static void shape_text(const uint64_t *shape, uint32_t n_dims, char *out, size_t n)
{
    size_t at = (size_t)snprintf(out, n, "[");
    for (uint32_t i = 0; i < n_dims && at < n; i++)
        at += (size_t)snprintf(out + at, n - at, "%s%llu", i ? ", " : "", (unsigned long long)shape[i]);
    if (at < n)
        snprintf(out + at, n - at, "]");
}

/* Finds a row's tensor in the checkpoint and checks its shape. */
static int find(const struct binder *b, const struct model_tensor *row, uint32_t layer, struct safetensors_tensor *out)
{
    char name[MODEL_NAME_BYTES], expected[64], got[192];
    model_tensor_name(row, layer, b->bare, name);
    int status = safetensors_find(b->checkpoint, name, out, b->err);
    if (status != QUIRE_OK)
        return status;
    const uint64_t want[2] = {model_size_of(b->desc, row->rows), model_size_of(b->desc, row->cols)};
    const uint32_t n_dims = row->kind == TENSOR_MATRIX ? 2 : 1;
    if (out->n_dims == n_dims && memcmp(out->shape, want, n_dims * sizeof *want) == 0)
        return QUIRE_OK;
    shape_text(want, n_dims, expected, sizeof expected);
    shape_text(out->shape, out->n_dims, got, sizeof got);
    return quire_fail(b->err, QUIRE_INVALID, "%.100s: %s: expected %s, as config.json says, got %s", out->file, name,
                      expected, got);
}

/* The one place where a tensor of the checkpoint becomes a view. */
static int view_matrix(const struct binder *b, const struct model_tensor *row, uint32_t layer,
                       struct k_weight_view *out)
{
    struct safetensors_tensor t;
    int status = find(b, row, layer, &t);
    if (status != QUIRE_OK)
        return status;
    if (!b->backend->ops->supports(b->backend, K_OP_GEMM, b->form, t.format))
        return quire_fail(b->err, QUIRE_INVALID, "%.100s: %s is %s: the GEMM form %s does not take such weights on %s",
                          t.file, t.name, k_format_name(t.format), k_form_name(b->form),
                          b->backend->ops->planner->name);
    *out = (struct k_weight_view){
        .data = t.data,
        .format = t.format,
        .n_rows = (uint32_t)t.shape[0],
        .n_cols = (uint32_t)t.shape[1],
        .row_stride_bytes = k_format_bytes(t.format, t.shape[1]),
    };
    return QUIRE_OK;
}

/* Several projections of one input are stacked by rows into one weight. */
static int bind_matrix(const struct binder *b, const struct model_stack *stack, struct k_weight **out)
{
    struct k_weight_view views[K_WEIGHT_MAX_PARTS];
    for (uint32_t i = 0; i < stack->n_parts; i++) {
        int status = view_matrix(b, &stack->parts[i], stack->layer, &views[i]);
        if (status != QUIRE_OK)
            return status;
    }
    return b->backend->ops->weight_create(b->backend, views, stack->n_parts, out, b->err);
}

/* Reads a vector, widened to f32 (exact). */
static int read_vector(const struct binder *b, const struct model_tensor *row, uint32_t layer, float *out)
{
    struct safetensors_tensor t;
    int status = find(b, row, layer, &t);
    if (status != QUIRE_OK)
        return status;
    const size_t n = (size_t)t.shape[0];
    if (t.format.kind == K_F32) {
        memcpy(out, t.data, n * sizeof(float));
        return QUIRE_OK;
    }
    for (size_t i = 0; i < n; i++) {
        uint16_t half;
        memcpy(&half, (const char *)t.data + i * sizeof half, sizeof half);
        out[i] = t.format.kind == K_F16 ? k_f32_from_f16(half) : k_f32_from_bf16(half);
    }
    return QUIRE_OK;
}

/* Reads the parts that the model has into the image; the others stay zero. *out is where they will be. */
static int bind_vector(struct binder *b, const struct model_stack *stack, const float *params_dev, const float **out)
{
    float *part = b->params + b->at;
    for (uint32_t i = 0; i < stack->n_parts; part += model_size_of(b->desc, stack->parts[i].rows), i++) {
        if (!model_has_tensor(b->desc, stack->layer, &stack->parts[i]))
            continue;
        int status = read_vector(b, &stack->parts[i], stack->layer, part);
        if (status != QUIRE_OK)
            return status;
    }
    *out = params_dev + b->at;
    b->at += model_stack_floats(stack);
    return QUIRE_OK;
}

static int bind_stack(struct binder *b, const struct model_stack *stack, struct weights *w)
{
    struct weight_set *set = &w->layers[stack->layer];
    const uint32_t place = stack->parts->place;
    switch (stack->parts->kind) {
    case TENSOR_MATRIX:
        set->site[place].unit = model_unit_of(b->desc, stack->parts);
        return bind_matrix(b, stack, &set->site[place].matrix);
    case TENSOR_BIAS: return bind_vector(b, stack, w->params_dev, &set->site[place].bias);
    case TENSOR_VECTOR: break;
    }
    return bind_vector(b, stack, w->params_dev, &set->vector[place]);
}

/* Moves the image of the arena to the backend, at once. */
static int copy_params(const struct binder *b, const struct weights *w, uint64_t bytes)
{
    const struct k_backend_ops *ops = b->backend->ops;
    uint64_t ticket;
    int status = ops->step_begin(b->backend, b->err);
    if (status == QUIRE_OK)
        status = ops->copy_in(b->backend, w->params_dev, b->params, bytes, b->err);
    if (status == QUIRE_OK)
        status = ops->fence(b->backend, &ticket, b->err);
    if (status == QUIRE_OK)
        status = ops->wait(b->backend, ticket, b->err);
    return status == QUIRE_OK ? ops->step_end(b->backend, b->err) : status;
}

static int bind_all(struct binder *b, struct weights *w)
{
    const uint64_t bytes = model_param_floats(b->desc) * sizeof(float);
    struct model_stack stack = {0};
    int status = b->backend->ops->alloc(b->backend, bytes, &w->params_dev, b->err);
    while (status == QUIRE_OK && model_next_stack(b->desc, &stack))
        status = bind_stack(b, &stack, w);
    if (status != QUIRE_OK)
        return status;
    model_inv_freq(b->desc, b->params + b->at);
    w->inv_freq = (const float *)w->params_dev + b->at;
    return copy_params(b, w, bytes);
}

/* The row of the embedding, which every model has. */
static const struct model_tensor *embedding(const struct model_desc *desc)
{
    const struct model_tensor *row = model_tensors;
    while (row->kind != TENSOR_MATRIX || row->place != SITE_EMBED || !model_has_tensor(desc, desc->n_layers, row))
        row++;
    return row;
}

/* A checkpoint saved from the model without its head names its tensors without "model.", or "bert.". */
static bool is_bare(const struct safetensors *checkpoint, const struct model_desc *desc)
{
    struct safetensors_tensor t;
    char whole[MODEL_NAME_BYTES], bare[MODEL_NAME_BYTES];
    model_tensor_name(embedding(desc), 0, false, whole);
    model_tensor_name(embedding(desc), 0, true, bare);
    return safetensors_find(checkpoint, whole, &t, NULL) == QUIRE_NOT_FOUND &&
           safetensors_find(checkpoint, bare, &t, NULL) == QUIRE_OK;
}

int weights_stored_dtype(const struct safetensors *checkpoint, struct model_desc *desc, struct quire_error *err)
{
    struct safetensors_tensor t;
    char name[MODEL_NAME_BYTES];
    model_tensor_name(embedding(desc), 0, is_bare(checkpoint, desc), name);
    int status = safetensors_find(checkpoint, name, &t, err);
    if (status == QUIRE_OK)
        desc->dtype = t.format.kind;
    return status;
}

int weights_create(struct k_backend *backend, const struct safetensors *checkpoint, const struct model_desc *desc,
                   enum k_gemm_form form, struct weights **out, struct quire_error *err)
{
    struct weights *w = calloc(1, sizeof *w);
    struct weight_set *layers = calloc(desc->n_layers + 1, sizeof *layers);
    struct binder b = {.backend = backend,
                       .checkpoint = checkpoint,
                       .desc = desc,
                       .form = form,
                       .bare = is_bare(checkpoint, desc),
                       .params = calloc(model_param_floats(desc), sizeof(float)),
                       .err = err};
    if (!w || !layers || !b.params) {
        free(w);
        free(layers);
        free(b.params);
        return quire_fail(err, QUIRE_NO_MEMORY, "weights: out of memory");
    }
    w->backend = backend;
    w->n_layers = desc->n_layers;
    w->layers = layers;
    w->beside = &layers[desc->n_layers];
    int status = bind_all(&b, w);
    free(b.params);
    if (status != QUIRE_OK) {
        weights_destroy(w);
        return status;
    }
    *out = w;
    return QUIRE_OK;
}

void weights_destroy(struct weights *w)
{
    if (!w)
        return;
    for (uint32_t l = 0; l <= w->n_layers; l++)
        for (uint32_t i = 0; i < MODEL_N_SITES; i++)
            if (w->layers[l].site[i].matrix)
                w->backend->ops->weight_destroy(w->backend, w->layers[l].site[i].matrix);
    if (w->params_dev)
        w->backend->ops->free(w->backend, w->params_dev);
    free(w->layers);
    free(w);
}
