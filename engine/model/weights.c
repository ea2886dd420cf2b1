#include "engine/model/weights.h"

#include "engine/checkpoint/slice.h"
#include "engine/model/quantization/block_scales.h"
#include "engine/model/quantization/quantize.h"
#include "engine/model/quantization/quantized.h"
#include "engine/model/stored/stored.h"
#include "kernels/math/convert.h"
#include "kernels/quant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The state that every step of binding needs. */
struct binder {
    struct k_backend *backend; /* NULL: it only counts, and reads no row */
    const struct k_planner *planner; /* or NULL: of the backend that may repack what is counted */
    struct stored_model from;
    enum k_gemm_form form;
    float *params; /* host image of the arena */
    uint64_t at;   /* floats of it that have an owner */
    struct quantized_arena arena;
    struct weights_progress progress;
    struct quire_error *err;
};

/* The row of the model that the file has as its row r, of heads of q or k. */
static uint32_t model_row(uint32_t head_dim, uint32_t r)
{
    const uint32_t d = head_dim, in = r % d;
    return r - in + in % 2 * (d / 2) + in / 2;
}

/* Gives a matrix its rows in the model's order, in room. Views of single rows would spare it, but a weight has four parts at
 * most, and a GEMM in place reads rows that follow each other. */
static void put_in_order(struct binder *b, uint32_t layer, struct checkpoint_tensor *t)
{
    if (!t->interleaved)
        return;
    const size_t row = (size_t)k_format_bytes(t->format, t->shape[1]);
    const uint32_t head_dim = model_whole_size(b->from.desc, layer, SIZE_HEAD_DIM);
    char *copy = quantized_take(&b->arena, row * t->shape[0]);
    if (!copy) /* it only counts */
        return;
    for (uint32_t r = 0; r < t->shape[0] && quantized_fills(&b->arena); r++)
        memcpy(copy + row * model_row(head_dim, r), (const char *)t->data + row * r, row);
    t->data = copy;
}

/* Makes a matrix [cols, all rows] the rows of a part: in room, or where they are only read once in *scratch, which the
 * caller frees. */
static int transpose(struct binder *b, struct matrix_at at, struct checkpoint_tensor *t, void **scratch)
{
    const struct transpose_rows rows = stored_rows_in_turn(&b->from, at);
    if (!k_format_is_plain(t->format))
        return quire_fail(
            b->err, QUIRE_UNSUPPORTED,
            "%.100s: tensor '%.150s': is %s, but what has its rows in columns must be float32, float16 or "
            "bfloat16",
            t->file, t->name, k_format_name(t->format));
    const uint64_t bytes = rows.n * t->shape[0] * k_dtype_bytes(t->format.kind);
    const bool fills = quantized_fills(&b->arena);
    void *copy = scratch ? (fills ? malloc(bytes) : NULL) : quantized_take(&b->arena, bytes);
    if (scratch)
        *scratch = copy;
    if (scratch && fills && !copy)
        return quire_fail(b->err, QUIRE_NO_MEMORY, "weights: out of memory");
    if (fills)
        transpose_take(t, rows, b->backend ? b->backend->n_threads : 1, copy);
    t->data = copy;
    t->n_bytes = bytes;
    t->shape[1] = t->shape[0];
    t->shape[0] = rows.n;
    return QUIRE_OK;
}

static struct quantized_place place_of(const struct binder *b, struct matrix_at at)
{
    if (!stored_transposed(&b->from, at))
        return (struct quantized_place){.count = 0};
    const struct transpose_rows rows = stored_rows_in_turn(&b->from, at);
    return (struct quantized_place){.count = model_whole_size(b->from.desc, at.layer, at.row->count),
                                    .index = at.index,
                                    .first = rows.first,
                                    .step = rows.step};
}

static struct quantized_matrix quantized_of(const struct binder *b, struct matrix_at at)
{
    uint64_t all_rows;
    const uint32_t first_row = stored_rows_before(&b->from, at, &all_rows);
    struct quantized_matrix m = {.checkpoint = b->from.checkpoint,
                                 .how = &b->from.desc->facts->quantization,
                                 .n_rows = model_whole_size(b->from.desc, at.layer, at.row->rows),
                                 .n_cols = model_whole_size(b->from.desc, at.layer, at.row->cols),
                                 .all_rows = (uint32_t)all_rows,
                                 .first_row = first_row,
                                 .place = place_of(b, at),
                                 .n_threads = b->backend ? b->backend->n_threads : 1,
                                 .is_read = b->backend != NULL};
    char name[MODEL_NAME_BYTES];
    stored_name(&b->from, at, name);
    quantized_take_name(name, m.name);
    return m;
}

/* Explains a missing tensor whose matrix is quantized although config.json does not mention quantization. */
static int explain_missing(const struct binder *b, const struct quantized_matrix *m, int status)
{
    static const char *const suffixes[] = {".qweight", ".weight_packed", "_blocks"};
    for (size_t i = 0; status == QUIRE_NOT_FOUND && i < sizeof suffixes / sizeof *suffixes; i++) {
        char name[QUANTIZED_NAME_BYTES + 24];
        struct checkpoint_tensor t;
        snprintf(name, sizeof name, "%s%s", m->name, suffixes[i]);
        if (checkpoint_find_any(b->from.checkpoint, name, &t, NULL) == QUIRE_OK)
            return quire_fail(
                b->err, QUIRE_INVALID,
                "%.100s: tensor '%.150s': belongs to a quantized matrix, but config.json: quantization_config %s",
                t.file, t.name,
                b->from.desc->facts->quantization.layout == QUANTIZATION_NONE ? "is missing" : "has another method");
    }
    return status;
}

/* to.bits 0: it stays as it is. */
static struct quantize quantize_of(const struct binder *b, struct matrix_at at, const struct checkpoint_tensor *t,
                                   const struct quantized_matrix *m)
{
    const struct k_format as_it_is = {.bits = 0};
    return (struct quantize){.tensor = t,
                             .to = k_format_is_plain(t->format) ? model_made_format(b->from.desc, at.layer, at.row)
                                                                : as_it_is,
                             .n_rows = m->n_rows,
                             .n_cols = m->n_cols,
                             .n_threads = m->n_threads};
}

/* The one place where a tensor of the checkpoint becomes a view. */
static int view_matrix(struct binder *b, struct matrix_at at, struct k_weight_view *out)
{
    const struct quantized_matrix m = quantized_of(b, at);
    struct checkpoint_tensor t;
    int status = quantized_has(&m) && at.index == 0 && stored_apart(&b->from, at)
                     ? stored_refuse_both(&b->from, at, m.name, b->err)
                     : QUIRE_OK;
    if (status != QUIRE_OK || quantized_has(&m))
        return status == QUIRE_OK ? quantized_view(&m, &b->arena, out, b->err) : status;
    status = stored_find(&b->from, at, &t, b->err);
    if (status != QUIRE_OK)
        return explain_missing(b, &m, status);
    if (m.is_read && (status = block_scales_check(&t, m.n_threads, b->err)) != QUIRE_OK)
        return status;
    const struct quantize making = quantize_of(b, at, &t, &m);
    void *scratch = NULL;
    if (stored_transposed(&b->from, at))
        status = transpose(b, at, &t, making.to.bits ? &scratch : NULL);
    else
        put_in_order(b, at.layer, &t);
    if (status == QUIRE_OK && making.to.bits)
        status = quantize_view(&making, &b->arena, out, b->err);
    free(scratch);
    if (status != QUIRE_OK || making.to.bits)
        return status;
    *out = (struct k_weight_view){
        .data = t.data,
        .format = t.format,
        .n_rows = (uint32_t)t.shape[0],
        .n_cols = (uint32_t)t.shape[1],
        .row_stride_bytes = k_format_bytes(t.format, t.shape[1]),
    };
    return QUIRE_OK;
}

/* Embeddings that are not also the head, so that no GEMM reads them. */
static bool is_table(const struct model_desc *desc, const struct model_tensor *row)
{
    return row->place == SITE_EMBED && (model_head_site(desc) != SITE_EMBED || !model_is_last_stage(desc));
}

/* A rank's rows of the head. The whole matrix it has where it is the embeddings, too. */
static int bind_head(struct binder *b, const char *name, const struct k_weight_view *whole, bool is_tied,
                     struct weights *w)
{
    struct k_weight_view view = *whole;
    view.is_table = false;
    int status = model_share_cut_head(b->from.desc, name, &view, b->err);
    if (status != QUIRE_OK)
        return status;
    w->has_own_head = is_tied;
    return b->backend->ops->weight_create(b->backend, &view, 1, 1, &w->head.matrix, b->err);
}

static bool makes_logits(const struct binder *b, const struct model_stack *stack)
{
    return stack->parts->owner == OF_MODEL && b->from.desc->config->outputs.kind == OUTPUT_TOKENS &&
           stack->parts->place == model_head_site(b->from.desc) && model_is_last_stage(b->from.desc);
}

/* One matrix of a site: its view, cut for the rank. */
static int bind_part(struct binder *b, struct matrix_at at, struct site_weight *site, struct k_weight_view *view)
{
    const struct quantized_matrix m = quantized_of(b, at);
    int status = view_matrix(b, at, view);
    if (status != QUIRE_OK)
        return status;
    if (!b->backend->ops->supports(b->backend, K_OP_GEMM, b->form, view->format)) {
        char name[MODEL_NAME_BYTES];
        stored_name(&b->from, at, name);
        return quire_fail(b->err, QUIRE_INVALID, "%.150s is %s: the GEMM form %s does not take such weights on %s",
                          name, k_format_name(view->format), k_form_name(b->form), b->backend->ops->planner->name);
    }
    status = model_share_cut(b->from.desc, at.layer, at.row, m.name, view, &site->cut, b->err);
    view->is_table = is_table(b->from.desc, at.row);
    if (view->permutation) /* K is one segment then (numerics.md §19) */
        site->unit = 0;
    return status;
}

/* Several projections of one input are stacked by rows into one weight, and experts are such stacks next to each
 * other. */
static int bind_views(struct binder *b, const struct model_stack *stack, struct k_weight_view *views,
                      struct site_weight *site, struct weights *w)
{
    const bool is_shared = b->from.desc->shard.n_ranks > 1, is_head = makes_logits(b, stack);
    site->unit = model_unit_of(b->from.desc, stack->layer, stack->parts);
    for (uint32_t i = 0; i < stack->count * stack->n_parts; i++) {
        const struct matrix_at at = {&stack->parts[i % stack->n_parts], stack->layer,
                                     stack->first + i / stack->n_parts};
        int status = bind_part(b, at, site, &views[i]);
        if (status == QUIRE_OK && is_head && is_shared)
            status = bind_head(b, quantized_of(b, at).name, &views[i], stack->parts->place == SITE_EMBED, w);
        if (status != QUIRE_OK)
            return status;
        views[i].is_table |= is_head && is_shared;
    }
    if (is_head && is_shared && stack->parts->place != SITE_EMBED) {
        site->matrix = w->head.matrix;
        return QUIRE_OK;
    }
    int status = b->backend->ops->weight_create(b->backend, views, stack->count, stack->n_parts, &site->matrix, b->err);
    if (status == QUIRE_OK && is_head && !is_shared)
        w->head = *site;
    return status;
}

static int bind_matrix(struct binder *b, const struct model_stack *stack, struct site_weight *site, struct weights *w)
{
    struct k_weight_view *views = calloc((size_t)stack->count * stack->n_parts, sizeof *views);
    int status = views ? bind_views(b, stack, views, site, w)
                       : quire_fail(b->err, QUIRE_NO_MEMORY, "weights: out of memory");
    free(views);
    return status;
}

static int check_plain(const struct binder *b, const struct checkpoint_tensor *t)
{
    if (k_format_is_plain(t->format))
        return QUIRE_OK;
    return quire_fail(b->err, QUIRE_UNSUPPORTED, "%.100s: %s is %s, but a vector must be float32, float16 or bfloat16",
                      t->file, t->name, k_format_name(t->format));
}

/* Gemma's vectors of one column are norms'. */
static int read_vector(const struct binder *b, struct matrix_at at, float *out)
{
    const struct model_tensor *row = at.row;
    struct checkpoint_tensor t;
    const float more = b->from.desc->config->norms_add_one && row->kind == TENSOR_VECTOR && row->cols == SIZE_ONE ? 1
                                                                                                                  : 0;
    const uint32_t head_dim = model_whole_size(b->from.desc, at.layer, SIZE_HEAD_DIM);
    int status = stored_find(&b->from, at, &t, b->err);
    if (status == QUIRE_OK)
        status = check_plain(b, &t);
    if (status != QUIRE_OK)
        return status;
    const struct transpose_rows all = {0, 1, (uint32_t)(t.shape[0] * (t.n_dims > 1 ? t.shape[1] : 1))};
    const struct transpose_rows take = stored_transposed(&b->from, at) ? stored_rows_in_turn(&b->from, at) : all;
    for (uint32_t i = 0; i < take.n; i++)
        out[t.interleaved ? model_row(head_dim, i) : i] = checkpoint_element(&t, take.first + (size_t)i * take.step) +
                                                          more;
    return QUIRE_OK;
}

/* A rank's part of a vector. */
static int read_share(const struct binder *b, struct matrix_at at, float *out)
{
    const struct model_range range = model_share_of(b->from.desc, b->from.desc->shard.rank, at.layer, at.row->rows);
    float *whole = malloc(model_whole_size(b->from.desc, at.layer, at.row->rows) * sizeof *whole);
    if (!whole)
        return quire_fail(b->err, QUIRE_NO_MEMORY, "weights: out of memory");
    int status = read_vector(b, at, whole);
    if (status == QUIRE_OK)
        memcpy(out, whole + range.first, range.n * sizeof *out);
    free(whole);
    return status;
}

/* Reads the parts that the model has into the image; the others stay zero. Experts' biases stand one expert's after the
 * other. *out is where they will be. */
static int bind_vector(struct binder *b, const struct model_stack *stack, const float *params_dev, const float **out)
{
    float *part = b->params + b->at;
    for (uint32_t i = 0; i < stack->n_parts; i++) {
        const struct model_tensor *row = &stack->parts[i];
        part += i > 0 ? model_size_of(b->from.desc, stack->layer, row[-1].rows) : 0;
        if (!model_has_tensor(b->from.desc, stack->layer, row))
            continue;
        const bool is_cut = b->from.desc->shard.n_ranks > 1 && row->shard == SHARD_ROWS;
        for (uint32_t e = 0; e < stack->count; e++) {
            const struct matrix_at at = {row, stack->layer, stack->first + e};
            float *to = part + (size_t)e * stack->rows;
            int status = is_cut ? read_share(b, at, to) : read_vector(b, at, to);
            if (status != QUIRE_OK)
                return status;
        }
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
    case TENSOR_MATRIX: return bind_matrix(b, stack, &set->site[place], w);
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

/* GGUF may say beside the description what each frequency of the first RoPE is divided by: Llama 3's scaling comes so. */
static int scale_inv_freq(const struct binder *b, float *inv_freq)
{
    struct checkpoint_tensor t;
    const uint32_t n = b->from.desc->config->ropes[0].dim / 2;
    if (checkpoint_find(b->from.checkpoint, "rope_freqs.weight", &t, NULL) == QUIRE_NOT_FOUND)
        return QUIRE_OK;
    if (!t.data || t.n_dims != 1 || t.shape[0] != n || !k_format_is_plain(t.format))
        return quire_fail(b->err, QUIRE_INVALID, "tensor 'rope_freqs.weight': must have %u numbers", n);
    for (uint32_t i = 0; i < n; i++) {
        const float factor = checkpoint_element(&t, i);
        if (!(factor > 0 && factor < 1e30f))
            return quire_fail(b->err, QUIRE_INVALID, "%.100s: tensor 'rope_freqs.weight': [%u] is %g", t.file, i,
                              (double)factor);
        inv_freq[i] /= factor;
    }
    return QUIRE_OK;
}

static uint64_t matrix_bytes(const struct binder *b, const struct model_stack *stack)
{
    return stack->parts->kind == TENSOR_MATRIX
               ? stack->count * stack->rows * k_format_bytes(model_weight_format(b->from.desc), stack->cols)
               : 0;
}

static void tell(const struct binder *b, uint64_t done, uint64_t total)
{
    if (b->progress.fn)
        b->progress.fn(b->progress.context, done, total);
}

/* Makes the frequencies of every rope. Returns those of the first in the image. */
static float *bind_ropes(struct binder *b, struct weights *w)
{
    float *first = b->params + b->at;
    for (uint32_t i = 0; i < b->from.desc->config->n_ropes; i++) {
        const struct model_rope *rope = &b->from.desc->config->ropes[i];
        model_inv_freq(rope, b->params + b->at);
        w->inv_freq[i] = (const float *)w->params_dev + b->at;
        b->at += model_rope_floats(rope);
    }
    return first;
}

static int bind_all(struct binder *b, struct weights *w)
{
    const uint64_t bytes = model_param_floats(b->from.desc) * sizeof(float);
    struct model_stack stack = {0};
    uint64_t done = 0, total = 0;
    while (model_next_stack(b->from.desc, &stack))
        total += matrix_bytes(b, &stack);
    stack = (struct model_stack){0};
    tell(b, 0, total);
    int status = b->backend->ops->alloc(b->backend, bytes, &w->params_dev, b->err);
    while (status == QUIRE_OK && model_next_stack(b->from.desc, &stack)) {
        status = bind_stack(b, &stack, w);
        done += matrix_bytes(b, &stack);
        if (status == QUIRE_OK && stack.parts->kind == TENSOR_MATRIX)
            tell(b, done, total);
    }
    if (status != QUIRE_OK)
        return status;
    status = scale_inv_freq(b, bind_ropes(b, w));
    return status == QUIRE_OK ? copy_params(b, w, bytes) : status;
}

/* The first tensor of a site that every model has. */
static const struct model_tensor *matrix_of(const struct model_desc *desc, uint32_t layer, enum model_site site)
{
    const struct model_tensor *row = model_tensors;
    while (row->kind != TENSOR_MATRIX || row->place != site || !model_has_tensor(desc, layer, row))
        row++;
    return row;
}

static const struct model_tensor *embedding(const struct model_desc *desc)
{
    return matrix_of(desc, desc->config->n_layers, SITE_EMBED);
}

bool weights_are_bare(const struct checkpoint *checkpoint, const struct model_desc *desc)
{
    struct checkpoint_tensor t;
    char whole[MODEL_NAME_BYTES], bare[MODEL_NAME_BYTES];
    model_tensor_name(desc, embedding(desc), 0, 0, false, whole);
    model_tensor_name(desc, embedding(desc), 0, 0, true, bare);
    return checkpoint_find(checkpoint, whole, &t, NULL) == QUIRE_NOT_FOUND &&
           checkpoint_find(checkpoint, bare, &t, NULL) == QUIRE_OK;
}

/* ---- contents of the checkpoint ---------------------------------------------------------------- */

static void count_format(struct weights_contents *c, const struct k_weight_view *v, enum model_owner owner)
{
    const struct k_format format = v->format;
    const uint64_t n = (uint64_t)v->n_rows * v->n_cols, bytes = v->n_rows * k_format_bytes(format, v->n_cols);
    uint32_t i = 0;
    while (i < c->n && memcmp(&c->of[i].format, &format, sizeof format) != 0)
        i++;
    if (i == WEIGHTS_MAX_FORMATS)
        return;
    c->n += i == c->n;
    c->of[i].format = format;
    c->of[i].bytes += bytes;
    c->of[i].layer_bytes += owner == OF_MODEL ? 0 : bytes;
    c->of[i].n_weights[owner] += n;
}

/* The first of a layer's experts stand for those of a token: all have one shape. */
static bool is_active(const struct model_desc *desc, struct matrix_at at)
{
    return at.row->count != SIZE_EXPERTS || at.index < model_whole_size(desc, at.layer, SIZE_USED);
}

static void count_active(const struct binder *b, struct matrix_at at, const struct k_weight_view *v,
                         struct weights_contents *f)
{
    if (!is_active(b->from.desc, at))
        return;
    f->n_active += (uint64_t)v->n_rows * v->n_cols;
    f->active_bytes += (is_table(b->from.desc, at.row) ? 1 : v->n_rows) * k_format_bytes(v->format, v->n_cols);
}

/* Missing tensors are refused when they are bound, parts of a quantized matrix here; and missing experts, since a
 * config.json may ask for more of them than there is memory for. */
static int count_matrix(struct binder *b, struct matrix_at at, struct k_format *format, struct weights_contents *f)
{
    const struct quantized_matrix m = quantized_of(b, at);
    struct k_weight_view v;
    enum model_cut cut;
    int status = view_matrix(b, at, &v);
    if (status != QUIRE_OK)
        return status == QUIRE_NOT_FOUND && at.row->count == SIZE_ONE && !quantized_has(&m) ? QUIRE_OK : status;
    f->has_quantized |= quantized_has(&m) || (b->from.desc->facts->quantization.made && !k_format_is_plain(v.format));
    v.data = NULL; /* only counted */
    status = model_share_cut(b->from.desc, at.layer, at.row, m.name, &v, &cut, b->err);
    if (status != QUIRE_OK)
        return status;
    if (format)
        *format = v.format;
    count_format(f, &v, at.row->owner);
    count_active(b, at, &v, f);
    if (is_table(b->from.desc, at.row))
        return QUIRE_OK;
    if ((!k_format_is_plain(v.format) || v.format.kind == K_F32) && !f->needs_lanes) {
        f->needs_lanes = true;
        f->lanes_format = v.format;
        char name[MODEL_NAME_BYTES];
        stored_name(&b->from, at, name);
        snprintf(f->lanes_matrix, sizeof f->lanes_matrix, "%.95s", name);
    }
    f->repacked_bytes += b->planner && b->planner->on_host ? b->planner->weight_bytes(v.format, 1, v.n_rows, v.n_cols)
                                                           : 0;
    return QUIRE_OK;
}

/* A router must have a row for each expert, before memory is taken for them. */
static int count_vector(struct binder *b, const struct model_stack *stack, const struct model_tensor *row,
                        struct weights_contents *f)
{
    struct checkpoint_tensor t;
    const int status = stored_find(&b->from, (struct matrix_at){row, stack->layer, 0}, &t, b->err);
    const uint64_t n = (uint64_t)stack->cols * model_size_of(b->from.desc, stack->layer, row->rows);
    f->n_vector_weights += stack->count * n;
    for (uint32_t i = 0; i < stack->count; i++)
        if (is_active(b->from.desc, (struct matrix_at){row, stack->layer, stack->first + i})) {
            f->n_active += n;
            f->active_bytes += n * sizeof(float);
        }
    return status == QUIRE_NOT_FOUND && row->owner != OF_EXPERTS ? QUIRE_OK : status;
}

/* All matrices of a part of a stack. formats: of the stack's parts; the first expert stands for all. */
static int count_part(struct binder *b, const struct model_stack *stack, uint32_t part,
                      struct k_format formats[MODEL_MAX_PARTS], struct weights_contents *f)
{
    int status = QUIRE_OK;
    for (uint32_t i = 0; status == QUIRE_OK && i < stack->count; i++)
        status = count_matrix(b, (struct matrix_at){&stack->parts[part], stack->layer, stack->first + i},
                              i == 0 ? &formats[part] : NULL, f);
    return status;
}

static int count_matrices(struct binder *b, struct weights_contents *f)
{
    struct model_stack stack = {0};
    int status = QUIRE_OK;
    while (status == QUIRE_OK && model_next_stack(b->from.desc, &stack)) {
        struct k_format formats[MODEL_MAX_PARTS] = {{.bits = 0}};
        for (uint32_t i = 0; status == QUIRE_OK && i < stack.n_parts; i++) {
            if (!model_has_tensor(b->from.desc, stack.layer, &stack.parts[i]))
                continue;
            if (stack.parts->kind == TENSOR_MATRIX)
                status = count_part(b, &stack, i, formats, f);
            else
                status = count_vector(b, &stack, &stack.parts[i], f);
        }
        if (stack.parts->kind == TENSOR_MATRIX && b->planner && !b->planner->on_host)
            f->device_bytes += model_copy_bytes(b->from.desc, &stack, formats, b->planner);
    }
    if (status != QUIRE_OK || f->has_quantized || b->from.desc->facts->quantization.layout == QUANTIZATION_NONE ||
        b->from.desc->shard.n_stages) /* a stage's layers may be those that are not */
        return status;
    if (b->from.desc->facts->quantization.layout == QUANTIZATION_MADE)
        return quire_fail(
            b->err, QUIRE_UNSUPPORTED,
            "--quantization %s: no matrix of this model has rows of whole blocks of 32 columns: leave it out",
            quantization_name(&b->from.desc->facts->quantization));
    return quire_fail(b->err, QUIRE_INVALID,
                      "config.json: quantization_config: is %s, but no matrix of the checkpoint has that format",
                      quantization_name(&b->from.desc->facts->quantization));
}

/* Its file is not the model's: it may have another dtype. */
static int look_at_dense(const struct binder *b, struct checkpoint_facts *facts)
{
    const uint32_t outside = b->from.desc->config->n_layers;
    struct checkpoint_tensor t;
    if (!b->from.desc->config->outputs.dense.size)
        return QUIRE_OK;
    int status = stored_find(&b->from, (struct matrix_at){matrix_of(b->from.desc, outside, SITE_DENSE), outside, 0}, &t,
                             b->err);
    if (status == QUIRE_OK)
        facts->dense_dtype = t.format.kind;
    return status;
}

/* facts->quantization is set; sets the rest. */
static int look(const struct checkpoint *checkpoint, const struct model_config *config, struct checkpoint_facts *facts,
                struct quire_error *err)
{
    const struct model_desc desc = {.config = config, .facts = facts};
    struct checkpoint_tensor t;
    struct weights_contents formats = {.n = 0};
    struct binder b = {.from = {checkpoint, &desc, weights_are_bare(checkpoint, &desc)}, .err = err};
    char name[MODEL_NAME_BYTES];
    model_tensor_name(&desc, embedding(&desc), 0, 0, b.from.bare, name);
    int status = checkpoint_find(checkpoint, name, &t, err);
    if (status == QUIRE_OK)
        status = look_at_dense(&b, facts);
    if (status == QUIRE_OK)
        status = count_matrices(&b, &formats);
    if (status != QUIRE_OK)
        return status;
    facts->dtype = k_format_is_plain(t.format) ? t.format.kind : K_F16;
    facts->weight_format = t.format;
    for (uint32_t i = 0, best = 0; i < formats.n; i++)
        if (formats.of[i].layer_bytes >= formats.of[best].layer_bytes && formats.of[i].layer_bytes > 0)
            facts->weight_format = formats.of[best = i].format;
    facts->int8_activations = facts->quantization.inputs != INPUTS_FLOAT;
    facts->copied_bytes = checkpoint_misaligned_bytes(checkpoint);
    facts->needs_lanes = formats.needs_lanes;
    memcpy(facts->lanes_matrix, formats.lanes_matrix, sizeof facts->lanes_matrix);
    facts->lanes_format = formats.lanes_format;
    return QUIRE_OK;
}

int weights_open(const char *model, const struct model_config *config, struct checkpoint **out, struct quire_error *err)
{
    int status = checkpoint_open(model, out, err);
    if (status == QUIRE_OK && config->multimodal[0])
        status = checkpoint_take_text_names(*out, err);
    if (status == QUIRE_OK && config->outputs.dense.size)
        status = checkpoint_add_folder(*out, model, config->outputs.dense.folder, MODEL_DENSE_PREFIX, err);
    if (status != QUIRE_OK) {
        checkpoint_close(*out);
        *out = NULL;
    }
    return status;
}

int weights_stored_dtype(const struct checkpoint *checkpoint, const char *quantization,
                         const struct model_config *config, struct checkpoint_facts *out, struct quire_error *err)
{
    *out = (struct checkpoint_facts){.dtype = config->dtype, .quantization = *config->quantization};
    int status = look(checkpoint, config, out, err);
    if (status != QUIRE_OK || !quantization)
        return status;
    /* A GGUF file of 16 bits is one, and may be quantized when it is loaded as well. */
    const bool is_gguf = k_blocks_of(out->weight_format.packing) != NULL ||
                         (checkpoint_is_gguf(checkpoint) && strcmp(quantization, "gguf") == 0);
    status = quantization_choose(quantization, is_gguf ? "gguf" : quantization_name(&out->quantization),
                                 &out->quantization, err);
    return status == QUIRE_OK && out->quantization.made ? look(checkpoint, config, out, err) : status;
}

int weights_look_share(const struct checkpoint *checkpoint, const struct k_planner *planner, struct model_desc *desc,
                       uint64_t *bytes, struct quire_error *err)
{
    struct weights_contents contents = {.n = 0};
    struct binder b = {.planner = planner, .from = {checkpoint, desc, weights_are_bare(checkpoint, desc)}, .err = err};
    int status = count_matrices(&b, &contents);
    if (status != QUIRE_OK)
        return status;
    desc->shard.repacked_bytes = contents.repacked_bytes;
    desc->shard.device_bytes = contents.device_bytes;
    desc->shard.repacked_rows_bytes = b.arena.used;
    *bytes = 0;
    for (uint32_t i = 0; i < contents.n; i++)
        *bytes += contents.of[i].bytes;
    return QUIRE_OK;
}

int weights_look(const struct checkpoint *checkpoint, const struct model_desc *desc, struct weights_contents *out,
                 struct quire_error *err)
{
    struct binder b = {.from = {checkpoint, desc, weights_are_bare(checkpoint, desc)}, .err = err};
    memset(out, 0, sizeof *out);
    return count_matrices(&b, out);
}

uint64_t weights_n_parameters(const struct weights_contents *contents)
{
    uint64_t n = contents->n_vector_weights;
    for (uint32_t i = 0; i < contents->n; i++)
        for (uint32_t owner = 0; owner < WEIGHTS_OWNERS; owner++)
            n += contents->of[i].n_weights[owner];
    return n;
}

static int make_space(struct binder *b, const struct repack_source *keep, struct weights *w)
{
    if (!b->from.desc->shard.repacked_rows_bytes)
        return QUIRE_OK;
    int status = keep ? repack_find(keep, b->from.desc->shard.repacked_rows_bytes, &w->kept, b->err) : QUIRE_OK;
    if (status != QUIRE_OK)
        return status;
    if (w->kept) {
        w->kept_bytes = b->from.desc->shard.repacked_rows_bytes;
        b->arena = (struct quantized_arena){.base = (uint8_t *)(uintptr_t)w->kept, .is_filled = true};
        return QUIRE_OK;
    }
    w->repacked_rows = aligned_alloc(64, b->from.desc->shard.repacked_rows_bytes);
    b->arena.base = w->repacked_rows;
    return w->repacked_rows
               ? QUIRE_OK
               : quire_fail(b->err, QUIRE_NO_MEMORY, "weights: %llu bytes for repacked rows cannot be allocated",
                            (unsigned long long)b->from.desc->shard.repacked_rows_bytes);
}

int weights_create(struct k_backend *backend, struct checkpoint *checkpoint, const struct model_desc *desc,
                   enum k_gemm_form form, const struct repack_source *keep, struct weights_progress progress,
                   struct weights **out, struct quire_error *err)
{
    struct weights *w = calloc(1, sizeof *w);
    struct weight_set *layers = calloc(desc->config->n_layers + 1, sizeof *layers);
    struct binder b = {.backend = backend,
                       .from = {checkpoint, desc, weights_are_bare(checkpoint, desc)},
                       .form = form,
                       .params = calloc(model_param_floats(desc), sizeof(float)),
                       .progress = progress,
                       .err = err};
    if (!w || !layers || !b.params) {
        free(w);
        free(layers);
        free(b.params);
        return quire_fail(err, QUIRE_NO_MEMORY, "weights: out of memory");
    }
    w->backend = backend;
    w->n_layers = desc->config->n_layers;
    w->layers = layers;
    w->beside = &layers[desc->config->n_layers];
    int status = checkpoint_align(checkpoint, err);
    if (status == QUIRE_OK)
        status = make_space(&b, keep, w);
    if (status == QUIRE_OK)
        status = bind_all(&b, w);
    if (status == QUIRE_OK && keep && w->repacked_rows && b.arena.used == desc->shard.repacked_rows_bytes)
        repack_keep(keep, w->repacked_rows, desc->shard.repacked_rows_bytes);
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
    if (w->has_own_head && w->head.matrix)
        w->backend->ops->weight_destroy(w->backend, w->head.matrix);
    if (w->params_dev)
        w->backend->ops->free(w->backend, w->params_dev);
    free(w->repacked_rows);
    repack_unmap(w->kept, w->kept_bytes);
    free(w->layers);
    free(w);
}
