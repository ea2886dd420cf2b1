#include "tools/quantize/source.h"

#include "base/encoding/little_endian.h"
#include "kernels/math/convert.h"
#include "kernels/quant.h"

#include <math.h>
#include <string.h>

static bool ends_with(const char *name, const char *suffix)
{
    const size_t n = strlen(name), m = strlen(suffix);
    return n >= m && strcmp(name + n - m, suffix) == 0;
}

bool source_is_linear(const struct checkpoint_tensor *t)
{
    static const char *const endings[] = {"_proj.weight", ".w1.weight", ".w2.weight", ".w3.weight"};
    static const char *const others[] = {"vision", "visual", "audio"};
    if (t->n_dims != 2 || !strstr(t->name, "layers."))
        return false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strstr(t->name, others[i]))
            return false;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (ends_with(t->name, endings[i]))
            return true;
    return false;
}

bool source_is_experts(const struct checkpoint_tensor *t)
{
    return t->n_dims == 3 && strstr(t->name, "layers.") &&
           (strstr(t->name, "experts.") || strstr(t->name, "block_sparse_moe."));
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
