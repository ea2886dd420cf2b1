#include "tools/quantize/source.h"

#include "base/encoding/little_endian.h"
#include "engine/checkpoint/slice.h"
#include "engine/model/experts/transpose.h"
#include "kernels/math/convert.h"
#include "kernels/quant.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool ends_with(const char *name, const char *suffix)
{
    const size_t n = strlen(name), m = strlen(suffix);
    return n >= m && strcmp(name + n - m, suffix) == 0;
}

bool source_is_of_text(const char *name)
{
    static const char *const others[] = {"vision", "visual", "audio"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strstr(name, others[i]))
            return false;
    return true;
}

bool source_is_linear(const struct checkpoint_tensor *t)
{
    static const char *const endings[] = {"_proj.weight",
                                          ".w1.weight",
                                          ".w2.weight",
                                          ".w3.weight",
                                          ".shared_mlp.input_linear.weight",
                                          ".shared_mlp.output_linear.weight"};
    if (t->n_dims != 2 || !strstr(t->name, "layers.") || !source_is_of_text(t->name))
        return false;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (ends_with(t->name, endings[i]))
            return true;
    return false;
}

const struct experts_apart *source_experts(const struct checkpoint_tensor *t)
{
    const struct experts_apart *apart = strstr(t->name, "layers.") ? experts_apart_of(t->name) : NULL;
    const bool fits = apart && t->n_dims == (apart->is_bias ? 2 : 3) && t->shape[0] > 0;
    return fits && t->shape[apart->in_turn || apart->is_bias ? t->n_dims - 1 : 1] % apart->n_parts == 0 ? apart : NULL;
}

static void widen(enum k_dtype kind, const uint8_t *p, uint64_t n, float *out)
{
    if (kind == K_F32)
        memcpy(out, p, n * sizeof *out);
    else if (kind == K_F16)
        for (uint64_t i = 0; i < n; i++)
            out[i] = k_f32_from_f16(le_load_u16(p + i * 2));
    else
        for (uint64_t i = 0; i < n; i++)
            out[i] = k_f32_from_bf16(le_load_u16(p + i * 2));
}

/* Rows of MXFP4's blocks. */
static void widen_blocks(const struct checkpoint_tensor *t, uint64_t first, uint64_t n, float *out)
{
    const uint32_t n_cols = (uint32_t)t->shape[t->n_dims - 1];
    const uint64_t stride = k_format_bytes(t->format, n_cols);
    for (uint64_t r = 0; r < n; r++, out += n_cols) {
        const struct k_weight_view row = {.data = (const uint8_t *)t->data + (first + r) * stride,
                                          .format = t->format,
                                          .n_rows = 1,
                                          .n_cols = n_cols,
                                          .row_stride_bytes = stride};
        for (uint32_t k = 0, end; k < n_cols; k = end) {
            float scale, least;
            end = k_group_end(t->format, n_cols, k);
            k_quant_scale(&row, 0, k, &scale, &least);
            k_quant_read(&row, 0, k, end, out + k);
            for (uint32_t i = k; i < end; i++)
                out[i] *= scale;
        }
    }
}

int source_load(const struct checkpoint_tensor *t, uint64_t first, uint64_t n, float *out, struct quire_error *err)
{
    const uint64_t n_cols = t->shape[t->n_dims - 1], at = first * n_cols, count = n * n_cols;
    const bool is_mxfp4 = t->format.packing == K_PACKING_MXFP4;
    if (!k_format_is_plain(t->format) && !is_mxfp4)
        return quire_fail(err, QUIRE_UNSUPPORTED, "%.100s: tensor '%.150s': dtype %s cannot be quantized", t->file,
                          t->name, t->dtype);
    if (is_mxfp4)
        widen_blocks(t, first, n, out);
    else
        widen(t->format.kind, (const uint8_t *)t->data + at * k_dtype_bytes(t->format.kind), count, out);
    for (uint64_t i = 0; i < count; i++)
        if (!isfinite(out[i]))
            return quire_fail(err, QUIRE_INVALID, "%.100s: tensor '%.150s': row %llu, column %llu: %g is not finite",
                              t->file, t->name, (unsigned long long)((at + i) / n_cols),
                              (unsigned long long)((at + i) % n_cols), (double)out[i]);
    return QUIRE_OK;
}

/* ---- experts that a tensor has together --------------------------------------------------------------------------- */

uint64_t source_part_rows(const struct source_part *p)
{
    const struct checkpoint_tensor *t = &p->tensor;
    return t->shape[p->apart->in_turn || p->apart->is_bias ? t->n_dims - 1 : 1] / p->apart->n_parts;
}

uint64_t source_part_cols(const struct source_part *p)
{
    return p->tensor.shape[p->apart->in_turn ? 1 : 2];
}

bool source_part_name(const struct source_part *p, char *out, size_t n_bytes)
{
    const char *part = p->apart->parts[p->part], *mark = strchr(part, '*');
    const int n_before = (int)(strlen(p->tensor.name) - strlen(p->apart->all));
    const int n = snprintf(out, n_bytes, "%.*s%.*s%u%s", n_before, p->tensor.name, (int)(mark - part), part, p->expert,
                           mark + 1);
    return n > 0 && (size_t)n < n_bytes;
}

/* The rows of a part in its expert's own tensor. */
static struct transpose_rows rows_of(const struct source_part *p)
{
    const uint32_t n = (uint32_t)source_part_rows(p);
    return p->apart->in_turn ? (struct transpose_rows){p->part, p->apart->n_parts, n}
                             : (struct transpose_rows){p->part * n, 1, n};
}

int source_part_load(const struct source_part *p, uint32_t n_threads, float *out, struct quire_error *err)
{
    struct checkpoint_tensor t = p->tensor;
    const struct transpose_rows rows = rows_of(p);
    checkpoint_take(&t, p->expert);
    if (!p->apart->in_turn)
        return source_load(&t, rows.first, rows.n, out, err);
    if (!k_format_is_plain(t.format))
        return quire_fail(err, QUIRE_UNSUPPORTED, "%.100s: tensor '%.150s': dtype %s cannot be quantized", t.file,
                          t.name, t.dtype);
    void *turned = malloc(rows.n * t.shape[0] * k_dtype_bytes(t.format.kind) + 1);
    if (!turned)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    transpose_take(&t, rows, n_threads, turned);
    t.data = turned;
    t.shape[1] = t.shape[0];
    t.shape[0] = rows.n;
    int status = source_load(&t, 0, rows.n, out, err);
    free(turned);
    return status;
}

void source_part_bias(const struct source_part *p, uint8_t *out)
{
    const size_t size = k_dtype_bytes(p->tensor.format.kind);
    const struct transpose_rows rows = rows_of(p);
    const uint8_t *from = (const uint8_t *)p->tensor.data + p->expert * p->tensor.shape[1] * size;
    for (uint32_t r = 0; r < rows.n; r++)
        memcpy(out + r * size, from + (rows.first + (size_t)r * rows.step) * size, size);
}
