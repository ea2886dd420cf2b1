#include "base/encoding/little_endian.h"
#include "engine/model/quantization/row_threads.h"
#include "files/gguf.h"
#include "tools/quantize/gguf/gguf_source.h"
#include "tools/quantize/gguf/imatrix.h"
#include "tools/quantize/job.h"
#include "tools/quantize/methods/blocks.h"
#include "tools/quantize/source.h"
#include "tools/quantize/writer/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES ((uint64_t)32 << 20) /* of f32 at once: what a matrix costs in memory */
#define QUANTIZATION_VERSION 2u /* of GGML's blocks */

struct run {
    const struct quantizer_job *job;
    struct quantizer_report *report;
    struct gguf_source source;
    struct k_format *formats; /* [source.n_tensors]: the output's */
    struct imatrix *imatrix; /* NULL: all columns count the same */
    struct tensor_list list;
    struct buffer head;
    struct quantizer_output *output;
    uint64_t done_weights, n_weights;
};

/* ---- formats ------------------------------------------------------------------------------------------------------ */

static uint32_t type_of(struct k_format format)
{
    switch (format.packing) {
    case K_PACKING_Q4_0: return 2;
    case K_PACKING_Q4_1: return 3;
    case K_PACKING_Q5_0: return 6;
    case K_PACKING_Q5_1: return 7;
    case K_PACKING_Q8_0: return 8;
    case K_PACKING_Q4_K: return 12;
    case K_PACKING_Q5_K: return 13;
    case K_PACKING_Q6_K: return 14;
    case K_PACKING_MXFP4: return 39;
    default: return format.kind == K_F32 ? 0 : format.kind == K_F16 ? 1 : 30;
    }
}

static bool ends_with(const char *name, const char *suffix)
{
    const size_t n = strlen(name), m = strlen(suffix);
    return n >= m && strcmp(name + n - m, suffix) == 0;
}

/* Matrices; routers, which choose experts, and norms stay. */
static bool is_quantized(const struct gguf_source_tensor *t)
{
    return t->data.n_dims >= 2 && ends_with(t->name, ".weight") && !strstr(t->name, "_norm") &&
           !strstr(t->name, "ffn_gate_inp") && !strstr(t->name, "rope_");
}

/* Layers whose attn_v and ffn_down have more bits in the M mixes: the first and last eighth, and every third between. */
static bool has_more_bits(uint32_t layer, uint32_t n_layers)
{
    return layer < n_layers / 8 || layer >= 7 * n_layers / 8 || (layer - n_layers / 8) % 3 == 2;
}

/* Blocks of 256 columns, or of 32 where rows are not whole blocks. */
static enum k_packing fitting(enum k_packing packing, uint64_t n_cols)
{
    if (n_cols % 256 == 0)
        return packing;
    switch (packing) {
    case K_PACKING_Q4_K: return K_PACKING_Q5_0;
    case K_PACKING_Q5_K: return K_PACKING_Q5_1;
    case K_PACKING_Q6_K: return K_PACKING_Q8_0;
    default: return packing;
    }
}

/* Returns whether a mix of experts has its 4 bits here. */
static bool is_of_mix(const struct gguf_source_tensor *t, bool has_experts)
{
    return has_experts ? t->data.n_dims > 2 && t->data.shape[0] > 1 : strncmp(t->name, "blk.", 4) == 0;
}

/* What the choice of formats depends on, of all tensors. */
struct overview {
    bool has_head, has_experts;
};

static struct k_format format_of(const struct run *r, const struct gguf_source_tensor *t, const struct overview *all)
{
    const struct quantizer_gguf_mix *mix = r->job->method->gguf;
    const uint64_t n_cols = t->data.shape[t->data.n_dims - 1];
    enum k_packing packing = mix->plain;
    unsigned layer = 0;
    if (!is_quantized(t))
        return t->data.n_dims < 2 || t->n_heads ? (struct k_format)K_FORMAT_F32 : t->data.format;
    if (n_cols % 32 != 0)
        return t->data.format;
    if (mix->is_of_experts)
        packing = is_of_mix(t, all->has_experts) ? mix->plain : mix->better;
    else if (strcmp(t->name, all->has_head ? "output.weight" : "token_embd.weight") == 0)
        packing = mix->better;
    else if (mix->is_mixed && sscanf(t->name, "blk.%u.", &layer) == 1 &&
             (strstr(t->name, ".attn_v.") || strstr(t->name, ".ffn_down")) && has_more_bits(layer, r->source.n_layers))
        packing = mix->better;
    return k_format_of_blocks(fitting(packing, n_cols));
}

static int list_tensors(struct run *r, struct quire_error *err)
{
    struct overview all = {false, false};
    r->formats = calloc(r->source.n_tensors + 1u, sizeof *r->formats);
    if (!r->formats)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    r->list.alignment = r->source.alignment;
    for (uint32_t i = 0; i < r->source.n_tensors; i++) {
        all.has_head |= strcmp(r->source.tensors[i].name, "output.weight") == 0;
        all.has_experts |= r->source.tensors[i].data.n_dims > 2;
    }
    for (uint32_t i = 0; i < r->source.n_tensors; i++) {
        const struct gguf_source_tensor *t = &r->source.tensors[i];
        const struct k_format format = format_of(r, t, &all);
        const uint64_t n_cols = t->data.shape[t->data.n_dims - 1];
        uint64_t n_rows = 1;
        for (uint32_t d = 0; d + 1 < t->data.n_dims; d++)
            n_rows *= t->data.shape[d];
        r->formats[i] = format;
        r->n_weights += n_rows * n_cols;
        r->report->source_bytes += t->data.n_bytes;
        *(k_format_is_plain(format) ? &r->report->n_copied : &r->report->n_quantized) += 1;
        tensor_list_add(&r->list, t->name, "", gguf_type_name(type_of(format)), n_rows * k_format_bytes(format, n_cols),
                        t->data.n_dims, t->data.shape);
    }
    r->list.n_bytes = (r->list.n_bytes + r->list.alignment - 1) / r->list.alignment * r->list.alignment;
    r->report->bytes = r->list.n_bytes;
    return r->list.failed ? quire_fail(err, QUIRE_NO_MEMORY, "out of memory") : QUIRE_OK;
}

/* ---- the head ----------------------------------------------------------------------------------------------------- */

static int make_head(struct run *r, struct quire_error *err)
{
    struct gguf_pairs *pairs = &r->source.pairs;
    uint32_t *types = malloc((r->list.n + 1u) * sizeof *types);
    if (!types)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < r->list.n; i++)
        types[i] = type_of(r->formats[i]);
    gguf_pairs_u32(pairs, "general.quantization_version", QUANTIZATION_VERSION);
    gguf_pairs_u32(pairs, "general.file_type", r->job->method->gguf->file_type);
    const int status = gguf_pairs_head(pairs, &r->list, types, r->source.alignment, &r->head, err);
    free(types);
    return status;
}

/* ---- tensors ------------------------------------------------------------------------------------------------------ */

/* Rows of a tensor on their way into the output. */
struct chunk {
    const float *w; /* [rows, n_cols] */
    uint8_t *out;
    struct k_format format;
    uint32_t n_cols;
    uint64_t stride; /* bytes of a row */
    const float *importance; /* NULL, or [matrices, n_cols] */
    uint64_t first, n_rows_each; /* the first row, and the rows of a matrix of `importance` */
};

static const float *importance_of(const struct chunk *c, uint32_t row)
{
    return c->importance ? c->importance + (c->first + row) / c->n_rows_each * c->n_cols : NULL;
}

static void make_rows(void *context, uint32_t share, uint32_t first, uint32_t last)
{
    const struct chunk *c = context;
    (void)share;
    for (uint32_t row = first; row < last; row++) {
        const float *w = c->w + (uint64_t)row * c->n_cols;
        if (k_format_is_plain(c->format))
            memcpy(c->out + row * c->stride, w, c->stride);
        else
            quantizer_blocks(c->format.packing, w, importance_of(c, row), c->n_cols, c->out + row * c->stride);
    }
}

/* The data's row that is row `row` of the output. */
static uint64_t source_row(const struct gguf_source_tensor *t, uint64_t n_rows, uint64_t row)
{
    if (!t->n_heads)
        return row;
    const uint64_t size = n_rows / t->n_heads, in = row % size;
    return row - in + in % 2 * (size / 2) + in / 2;
}

static int load_rows(const struct gguf_source_tensor *t, const struct checkpoint_tensor *flat, uint64_t first,
                     uint64_t n, float *w, struct quire_error *err)
{
    int status = QUIRE_OK;
    if (!t->n_heads)
        return source_load(flat, first, n, w, err);
    for (uint64_t i = 0; status == QUIRE_OK && i < n; i++)
        status = source_load(flat, source_row(t, flat->shape[0], first + i), 1, w + i * flat->shape[1], err);
    return status;
}

static int find_importance(const struct run *r, uint32_t i, struct chunk *c, struct quire_error *err)
{
    const struct checkpoint_tensor *t = &r->source.tensors[i].data;
    uint64_t n_matrices = 1;
    if (!r->imatrix || k_format_is_plain(c->format))
        return QUIRE_OK;
    for (uint32_t d = 0; d + 2 < t->n_dims; d++)
        n_matrices *= t->shape[d];
    c->n_rows_each = t->shape[t->n_dims - 2];
    return imatrix_find(r->imatrix, r->source.tensors[i].name, n_matrices, c->n_cols, &c->importance, err);
}

static int write_chunks(struct run *r, uint32_t i, const struct checkpoint_tensor *flat, uint64_t n_rows_at_once,
                        float *w, uint8_t *out, struct quire_error *err)
{
    const struct tensor_list_item *item = &r->list.items[i];
    struct chunk c = {
        w, out, r->formats[i], (uint32_t)flat->shape[1], k_format_bytes(r->formats[i], flat->shape[1]), NULL, 0, 1};
    int status = find_importance(r, i, &c, err);
    for (uint64_t row = 0; status == QUIRE_OK && row < flat->shape[0]; row += n_rows_at_once) {
        const uint64_t left = flat->shape[0] - row, n = left < n_rows_at_once ? left : n_rows_at_once;
        status = load_rows(&r->source.tensors[i], flat, row, n, w, err);
        if (status != QUIRE_OK)
            break;
        c.first = row;
        row_threads_run((uint32_t)n, 1, n * c.n_cols * 64, r->job->n_threads, make_rows, &c);
        status = quantizer_output_write(r->output, r->head.n + item->begin + row * c.stride, out, n * c.stride, err);
        r->job->progress(r->job->context, "weights", r->done_weights += n * c.n_cols, r->n_weights);
    }
    return status;
}

/* Writes a tensor of another format than the source's, as a matrix of all its rows. */
static int convert(struct run *r, uint32_t i, struct quire_error *err)
{
    struct checkpoint_tensor flat = r->source.tensors[i].data;
    const uint64_t n_cols = flat.shape[flat.n_dims - 1], n = CHUNK_BYTES / (n_cols * sizeof(float)) + 1;
    uint64_t n_rows = 1;
    for (uint32_t d = 0; d + 1 < flat.n_dims; d++)
        n_rows *= flat.shape[d];
    flat.n_dims = 2;
    flat.shape[0] = n_rows;
    flat.shape[1] = n_cols;
    const uint64_t n_at_once = n < n_rows ? n : n_rows;
    float *w = malloc(n_at_once * n_cols * sizeof *w + 1);
    uint8_t *out = malloc(n_at_once * k_format_bytes(r->formats[i], n_cols) + 1);
    int status = w && out ? write_chunks(r, i, &flat, n_at_once, w, out, err)
                          : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    free(w);
    free(out);
    return status;
}

static int write_tensor(struct run *r, uint32_t i, struct quire_error *err)
{
    const struct gguf_source_tensor *t = &r->source.tensors[i];
    const struct tensor_list_item *item = &r->list.items[i];
    if (quantizer_output_has(r->output, i))
        return QUIRE_OK;
    int status = memcmp(&r->formats[i], &t->data.format, sizeof r->formats[i]) == 0 && !t->n_heads
                     ? quantizer_output_write(r->output, r->head.n + item->begin, t->data.data, item->n_bytes, err)
                     : convert(r, i, err);
    checkpoint_drop_pages(r->source.checkpoint);
    gguf_drop_pages(r->source.gguf);
    return status == QUIRE_OK ? quantizer_output_done(r->output, i, err) : status;
}

static int write_all(struct run *r, struct quire_error *err)
{
    const struct key256 source = checkpoint_digest(r->source.checkpoint, false);
    struct quantizer_inputs inputs = {.head = r->head.data, .n_head = r->head.n};
    if (r->imatrix)
        inputs.importance = imatrix_hash(r->imatrix);
    const struct quantizer_output_plan plan = {.path = r->job->out,
                                               .identity = quantizer_job_identity(r->job, &source, &inputs),
                                               .n_bytes = r->head.n + r->list.n_bytes,
                                               .n_units = r->list.n};
    int status = quantizer_output_open(&plan, &r->output, err);
    if (status == QUIRE_OK)
        status = quantizer_output_write(r->output, 0, r->head.data, r->head.n, err);
    for (uint32_t i = 0; status == QUIRE_OK && i < r->list.n; i++)
        status = write_tensor(r, i, err);
    return status == QUIRE_OK ? quantizer_job_finish(r->job, r->output, err) : status;
}

int quantizer_run_gguf(const struct quantizer_job *job, struct quantizer_report *report, struct quire_error *err)
{
    struct run r = {.job = job, .report = report};
    *report = (struct quantizer_report){0};
    int status = gguf_source_open(job->model, &r.source, err);
    if (status == QUIRE_OK && job->choices->imatrix)
        status = imatrix_open(job->choices->imatrix, &r.imatrix, err);
    if (status == QUIRE_OK)
        status = list_tensors(&r, err);
    if (status == QUIRE_OK)
        status = make_head(&r, err);
    if (status == QUIRE_OK)
        status = write_all(&r, err);
    quantizer_output_close(r.output, false);
    tensor_list_free(&r.list);
    buffer_free(&r.head);
    gguf_source_close(&r.source);
    imatrix_close(r.imatrix);
    free(r.formats);
    return status;
}
