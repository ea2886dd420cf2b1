#include "engine/model/weights.h"

#include "engine/run/layout.h"
#include "kernels/math.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 160

/* What binding needs at every turn. */
struct binder {
    struct k_backend *backend;
    const struct safetensors *checkpoint;
    const struct model_desc *desc;
    enum k_gemm_form form;
    const char *prefix; /* "model." or, in checkpoints of the bare decoder, "" */
    float *params;      /* host image of the arena */
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

/* Finds a tensor and checks its shape; cols = 0 asks for a vector. */
static int find(struct binder *b, const char *name, uint64_t rows, uint64_t cols, struct safetensors_tensor *out)
{
    int status = safetensors_find(b->checkpoint, name, out, b->err);
    if (status != QUIRE_OK)
        return status;
    uint64_t want[2] = {rows, cols};
    uint32_t n_dims = cols ? 2 : 1;
    if (out->n_dims == n_dims && out->shape[0] == rows && (!cols || out->shape[1] == cols))
        return QUIRE_OK;
    char expected[64], got[192];
    shape_text(want, n_dims, expected, sizeof expected);
    shape_text(out->shape, out->n_dims, got, sizeof got);
    return quire_fail(b->err, QUIRE_INVALID, "%.100s: %s: expected %s, as config.json says, got %s", out->file, name,
                      expected, got);
}

/* "model.layers.3.mlp.up_proj.weight" */
static void layer_name(const struct binder *b, uint32_t layer, const char *part, const char *kind, char out[NAME_BYTES])
{
    snprintf(out, NAME_BYTES, "%slayers.%u.%s.%s", b->prefix, layer, part, kind);
}

static int matrix_view(struct binder *b, const char *name, uint32_t rows, uint32_t cols, struct k_weight_view *out)
{
    struct safetensors_tensor t;
    int status = find(b, name, rows, cols, &t);
    if (status != QUIRE_OK)
        return status;
    if (!b->backend->ops->supports_form(b->backend, b->form, t.dtype))
        return quire_fail(b->err, QUIRE_INVALID, "%.100s: %s is %s: the GEMM form %s does not take such weights on %s",
                          t.file, name, k_dtype_name(t.dtype), k_form_name(b->form), b->backend->ops->name);
    *out = (struct k_weight_view){
        .data = t.data,
        .dtype = t.dtype,
        .n_rows = rows,
        .n_cols = cols,
        .row_stride_bytes = (uint64_t)cols * k_dtype_bytes(t.dtype),
    };
    return QUIRE_OK;
}

static int bind_matrix(struct binder *b, const char *name, uint32_t rows, uint32_t cols, struct k_weight **out)
{
    struct k_weight_view view;
    int status = matrix_view(b, name, rows, cols, &view);
    if (status == QUIRE_OK)
        status = b->backend->ops->weight_create(b->backend, &view, 1, out, b->err);
    return status;
}

struct part {
    const char *name;
    uint32_t rows;
};

/* Several projections of one input, stacked by rows into one weight. */
static int bind_stack(struct binder *b, uint32_t layer, const struct part *parts, uint32_t n_parts, uint32_t cols,
                      struct k_weight **out)
{
    struct k_weight_view views[K_WEIGHT_MAX_PARTS];
    for (uint32_t i = 0; i < n_parts; i++) {
        char name[NAME_BYTES];
        layer_name(b, layer, parts[i].name, "weight", name);
        int status = matrix_view(b, name, parts[i].rows, cols, &views[i]);
        if (status != QUIRE_OK)
            return status;
    }
    return b->backend->ops->weight_create(b->backend, views, n_parts, out, b->err);
}

/* Reads a vector, widened to f32 (exact), into the arena's image at `at` floats. */
static int read_vector(struct binder *b, const char *name, uint32_t n, uint64_t at)
{
    struct safetensors_tensor t;
    int status = find(b, name, n, 0, &t);
    if (status != QUIRE_OK)
        return status;
    float *out = b->params + at;
    if (t.dtype == K_F32) {
        memcpy(out, t.data, (size_t)n * sizeof(float));
        return QUIRE_OK;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint16_t half;
        memcpy(&half, (const char *)t.data + (size_t)i * sizeof half, sizeof half);
        out[i] = t.dtype == K_F16 ? k_f32_from_f16(half) : k_f32_from_bf16(half);
    }
    return QUIRE_OK;
}

static int read_layer_vector(struct binder *b, uint32_t layer, const char *part, const char *kind, uint32_t n,
                             uint64_t at)
{
    char name[NAME_BYTES];
    layer_name(b, layer, part, kind, name);
    return read_vector(b, name, n, at);
}

static int bind_layer_matrices(struct binder *b, uint32_t layer, struct layer_weights *out)
{
    const struct model_desc *d = b->desc;
    uint32_t q = d->n_q_heads * d->head_dim, kv = d->n_kv_heads * d->head_dim;
    const struct part qkv[] = {{"self_attn.q_proj", q}, {"self_attn.k_proj", kv}, {"self_attn.v_proj", kv}};
    const struct part gate_up[] = {{"mlp.gate_proj", d->intermediate_size}, {"mlp.up_proj", d->intermediate_size}};
    char name[NAME_BYTES];
    int status = bind_stack(b, layer, qkv, 3, d->hidden_size, &out->qkv);
    if (status == QUIRE_OK) {
        layer_name(b, layer, "self_attn.o_proj", "weight", name);
        status = bind_matrix(b, name, d->hidden_size, q, &out->o);
    }
    if (status == QUIRE_OK)
        status = bind_stack(b, layer, gate_up, 2, d->hidden_size, &out->gate_up);
    if (status == QUIRE_OK) {
        layer_name(b, layer, "mlp.down_proj", "weight", name);
        status = bind_matrix(b, name, d->hidden_size, d->intermediate_size, &out->down);
    }
    return status;
}

/* A vector of a layer and where it goes. */
struct vector {
    bool present;
    const char *part, *kind;
    uint32_t n;
    uint64_t at; /* floats from the layer's start */
};

static int read_layer_params(struct binder *b, uint32_t layer, const struct param_layout *layout)
{
    const struct model_desc *d = b->desc;
    uint32_t q = d->n_q_heads * d->head_dim, kv = d->n_kv_heads * d->head_dim;
    uint32_t hidden = d->hidden_size, inner = d->intermediate_size;
    /* Parts of a stacked bias that the model does not have stay zero. */
    const struct vector vectors[] = {
        {true, "input_layernorm", "weight", hidden, layout->input_norm},
        {true, "post_attention_layernorm", "weight", hidden, layout->post_norm},
        {d->qk_norm, "self_attn.q_norm", "weight", d->head_dim, layout->q_norm},
        {d->qk_norm, "self_attn.k_norm", "weight", d->head_dim, layout->k_norm},
        {d->q_bias, "self_attn.q_proj", "bias", q, layout->qkv_bias},
        {d->k_bias, "self_attn.k_proj", "bias", kv, layout->qkv_bias + q},
        {d->v_bias, "self_attn.v_proj", "bias", kv, layout->qkv_bias + q + kv},
        {d->o_bias, "self_attn.o_proj", "bias", hidden, layout->o_bias},
        {d->mlp_bias, "mlp.gate_proj", "bias", inner, layout->gate_up_bias},
        {d->mlp_bias, "mlp.up_proj", "bias", inner, layout->gate_up_bias + inner},
        {d->mlp_bias, "mlp.down_proj", "bias", hidden, layout->down_bias},
    };
    uint64_t base = layer * layout->layer_stride;
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        const struct vector *v = &vectors[i];
        if (!v->present)
            continue;
        int status = read_layer_vector(b, layer, v->part, v->kind, v->n, base + v->at);
        if (status != QUIRE_OK)
            return status;
    }
    return QUIRE_OK;
}

static void point_layer_params(const struct model_desc *d, const struct param_layout *layout, const float *base,
                               struct layer_weights *out)
{
    out->input_norm = base + layout->input_norm;
    out->post_norm = base + layout->post_norm;
    out->q_norm = d->qk_norm ? base + layout->q_norm : NULL;
    out->k_norm = d->qk_norm ? base + layout->k_norm : NULL;
    out->qkv_bias = d->q_bias || d->k_bias || d->v_bias ? base + layout->qkv_bias : NULL;
    out->o_bias = d->o_bias ? base + layout->o_bias : NULL;
    out->gate_up_bias = d->mlp_bias ? base + layout->gate_up_bias : NULL;
    out->down_bias = d->mlp_bias ? base + layout->down_bias : NULL;
}

/* Everything that is no matrix: read into an image, then moved to the backend at once. */
static int bind_params(struct binder *b, struct weights *w)
{
    const struct model_desc *d = b->desc;
    const struct k_backend_ops *ops = b->backend->ops;
    struct param_layout layout;
    param_layout_make(d, &layout);
    uint64_t bytes = layout.total * sizeof(float), ticket;
    b->params = calloc(1, bytes);
    if (!b->params)
        return quire_fail(b->err, QUIRE_NO_MEMORY, "norms and biases: out of memory");

    int status = QUIRE_OK;
    for (uint32_t i = 0; i < d->n_layers && status == QUIRE_OK; i++)
        status = read_layer_params(b, i, &layout);
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%snorm.weight", b->prefix);
    if (status == QUIRE_OK)
        status = read_vector(b, name, d->hidden_size, layout.final_norm);
    if (status == QUIRE_OK) {
        model_inv_freq(d, b->params + layout.inv_freq);
        status = ops->alloc(b->backend, bytes, &w->params_dev, b->err);
    }
    if (status == QUIRE_OK)
        status = ops->step_begin(b->backend, b->err);
    if (status == QUIRE_OK)
        status = ops->copy_in(b->backend, w->params_dev, b->params, bytes, b->err);
    if (status == QUIRE_OK)
        status = ops->fence(b->backend, &ticket, b->err);
    if (status == QUIRE_OK)
        status = ops->wait(b->backend, ticket, b->err);
    if (status == QUIRE_OK)
        status = ops->step_end(b->backend, b->err);
    free(b->params);
    if (status != QUIRE_OK)
        return status;

    const float *params = w->params_dev;
    for (uint32_t i = 0; i < d->n_layers; i++)
        point_layer_params(d, &layout, params + i * layout.layer_stride, &w->layers[i]);
    w->final_norm = params + layout.final_norm;
    w->inv_freq = params + layout.inv_freq;
    return QUIRE_OK;
}

/* A checkpoint saved from the bare decoder names its tensors without "model.". */
static const char *find_prefix(const struct safetensors *checkpoint)
{
    struct safetensors_tensor t;
    if (safetensors_find(checkpoint, "model.embed_tokens.weight", &t, NULL) == QUIRE_NOT_FOUND &&
        safetensors_find(checkpoint, "embed_tokens.weight", &t, NULL) == QUIRE_OK)
        return "";
    return "model.";
}

int weights_stored_dtype(const struct safetensors *checkpoint, struct model_desc *desc, struct quire_error *err)
{
    struct safetensors_tensor t;
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%sembed_tokens.weight", find_prefix(checkpoint));
    int status = safetensors_find(checkpoint, name, &t, err);
    if (status == QUIRE_OK)
        desc->dtype = t.dtype;
    return status;
}

static int bind_all(struct binder *b, struct weights *w)
{
    const struct model_desc *d = b->desc;
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%sembed_tokens.weight", b->prefix);
    int status = bind_matrix(b, name, d->vocab_size, d->hidden_size, &w->embed);
    if (status == QUIRE_OK && d->tied_embeddings)
        w->lm_head = w->embed;
    else if (status == QUIRE_OK)
        status = bind_matrix(b, "lm_head.weight", d->vocab_size, d->hidden_size, &w->lm_head);
    for (uint32_t i = 0; i < d->n_layers && status == QUIRE_OK; i++)
        status = bind_layer_matrices(b, i, &w->layers[i]);
    return status == QUIRE_OK ? bind_params(b, w) : status;
}

int weights_create(struct k_backend *backend, const struct safetensors *checkpoint, const struct model_desc *desc,
                   enum k_gemm_form form, struct weights **out, struct quire_error *err)
{
    struct weights *w = calloc(1, sizeof *w);
    struct layer_weights *layers = calloc(desc->n_layers, sizeof *layers);
    if (!w || !layers) {
        free(w);
        free(layers);
        return quire_fail(err, QUIRE_NO_MEMORY, "weights: out of memory");
    }
    w->backend = backend;
    w->layers = layers;
    w->n_layers = desc->n_layers;
    struct binder b = {.backend = backend,
                       .checkpoint = checkpoint,
                       .desc = desc,
                       .form = form,
                       .prefix = find_prefix(checkpoint),
                       .err = err};
    int status = bind_all(&b, w);
    if (status != QUIRE_OK) {
        weights_destroy(w);
        return status;
    }
    *out = w;
    return QUIRE_OK;
}

static void destroy_weight(struct weights *w, struct k_weight *weight)
{
    if (weight)
        w->backend->ops->weight_destroy(w->backend, weight);
}

void weights_destroy(struct weights *w)
{
    if (!w)
        return;
    for (uint32_t i = 0; i < w->n_layers; i++) {
        destroy_weight(w, w->layers[i].qkv);
        destroy_weight(w, w->layers[i].o);
        destroy_weight(w, w->layers[i].gate_up);
        destroy_weight(w, w->layers[i].down);
    }
    if (w->lm_head != w->embed)
        destroy_weight(w, w->lm_head);
    destroy_weight(w, w->embed);
    if (w->params_dev)
        w->backend->ops->free(w->backend, w->params_dev);
    free(w->layers);
    free(w);
}
