#include "engine/model/quantization/quantized.h"

#include "base/encoding/little_endian.h"
#include "engine/checkpoint/slice.h"
#include "engine/model/quantization/mxfp4.h"
#include "engine/model/quantization/repack_rows.h"
#include "kernels/math/bits.h"
#include "kernels/math/convert.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_ALIGN 64u

void *quantized_take(struct quantized_arena *arena, uint64_t bytes)
{
    void *at = arena->base ? arena->base + arena->used : NULL;
    const uint64_t rest = (ARENA_ALIGN - bytes % ARENA_ALIGN) % ARENA_ALIGN;
    if (quantized_fills(arena)) /* it may be written to a file */
        memset((uint8_t *)at + bytes, 0, rest);
    arena->used += bytes + rest;
    return at;
}

static uint32_t ceil_div(uint32_t n, uint32_t by)
{
    return n / by + (n % by != 0);
}

static uint32_t n_groups(const struct quantized_matrix *m)
{
    return m->how->group ? ceil_div(m->n_cols, m->how->group) : 1;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static int find(const struct quantized_matrix *m, const char *suffix, struct checkpoint_tensor *out,
                struct quire_error *err)
{
    char name[QUANTIZED_NAME_BYTES + 24];
    snprintf(name, sizeof name, "%s.%s", m->name, suffix);
    return checkpoint_find_any(m->checkpoint, name, out, err);
}

static bool is_of(const struct checkpoint_tensor *t, const char *dtypes)
{
    const char *at = strstr(dtypes, t->dtype);
    const size_t n = strlen(t->dtype);
    return at && (at == dtypes || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0');
}

static int check_dtype(const struct checkpoint_tensor *t, const char *dtypes, struct quire_error *err)
{
    if (is_of(t, dtypes))
        return QUIRE_OK;
    return quire_fail(err, QUIRE_INVALID,
                      "%.100s: tensor '%.150s': dtype: %s, but config.json's quantization_config needs %s", t->file,
                      t->name, t->dtype, dtypes);
}

#define FLOATS "F16 BF16 F32"

/* A tensor of two dimensions. */
static int find_matrix(const struct quantized_matrix *m, const char *suffix, const char *dtypes, uint64_t n_rows,
                       uint64_t n_cols, struct checkpoint_tensor *out, struct quire_error *err)
{
    int status = find(m, suffix, out, err);
    if (status == QUIRE_OK)
        status = check_dtype(out, dtypes, err);
    if (status != QUIRE_OK || (out->n_dims == 2 && out->shape[0] == n_rows && out->shape[1] == n_cols))
        return status;
    return quire_fail(err, QUIRE_INVALID,
                      "%.100s: tensor '%.150s': shape: must be [%llu, %llu], as config.json says (bits %u, group_size "
                      "%u), got %u dimensions, [%llu, %llu ...]",
                      out->file, out->name, (unsigned long long)n_rows, (unsigned long long)n_cols, m->how->bits,
                      m->how->group, out->n_dims, out->n_dims > 0 ? (unsigned long long)out->shape[0] : 0ULL,
                      out->n_dims > 1 ? (unsigned long long)out->shape[1] : 0ULL);
}

static uint64_t n_elements(const struct checkpoint_tensor *t)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < t->n_dims; i++)
        n *= t->shape[i];
    return n;
}

/* A weight whose scale is zero or not finite is rejected, because no valid checkpoint has one. */
static int check_scales(const struct checkpoint_tensor *t, struct quire_error *err)
{
    for (uint64_t i = 0, n = n_elements(t); i < n; i++) {
        const float s = checkpoint_element(t, i);
        if (isfinite(s) && s != 0)
            continue;
        return quire_fail(err, QUIRE_INVALID, "%.100s: tensor '%.150s': element %llu is %g, which cannot be a scale",
                          t->file, t->name, (unsigned long long)i, (double)s);
    }
    return QUIRE_OK;
}

/* ---- columns in the order of their groups ------------------------------------------------------------------------ */

/* Gives NULL where they lie in it already. */
static int sort_columns(const struct quantized_matrix *m, const struct checkpoint_tensor *g_idx, uint32_t *order,
                        const uint32_t **out, struct quire_error *err)
{
    const uint32_t groups = n_groups(m), size = m->how->group ? m->how->group : m->n_cols;
    uint32_t *at = calloc(groups, sizeof *at); /* columns of a group so far */
    bool is_sorted = true;
    int status = at ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "weights: out of memory");
    for (uint32_t k = 0; status == QUIRE_OK && k < m->n_cols; k++) {
        const uint32_t g = le_load_u32((const uint8_t *)g_idx->data + (size_t)k * 4);
        is_sorted &= g == k / size;
        if (g >= groups)
            status = quire_fail(err, QUIRE_INVALID, "%.100s: tensor '%.150s': element %u is group %lld of %u",
                                g_idx->file, g_idx->name, k, (long long)(int32_t)g, groups);
        else if (at[g] >= size || (uint64_t)g * size + at[g] >= m->n_cols)
            status = quire_fail(err, QUIRE_INVALID, "%.100s: tensor '%.150s': group %u has more than %u columns",
                                g_idx->file, g_idx->name, g, size);
        else
            order[g * size + at[g]++] = k;
    }
    free(at);
    *out = is_sorted ? NULL : order;
    if (status == QUIRE_OK && !is_sorted && !m->how->in_order)
        status = quire_fail(
            err, QUIRE_INVALID,
            "%.100s: tensor '%.150s': orders columns, but config.json: quantization_config does not set "
            "desc_act or actorder",
            g_idx->file, g_idx->name);
    return status;
}

static bool is_rising(const uint32_t *order, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && order[i] == i)
        i++;
    return i == n;
}

/* suffix: of the tensor, which may be missing. */
static int view_order(const struct quantized_matrix *m, const char *suffix, struct quantized_arena *arena,
                      struct k_weight_view *out, struct quire_error *err)
{
    struct checkpoint_tensor t;
    if (!m->how->in_order && find(m, suffix, &t, NULL) == QUIRE_NOT_FOUND)
        return QUIRE_OK;
    int status = find(m, suffix, &t, err);
    if (status == QUIRE_OK)
        status = check_dtype(&t, "I32", err);
    if (status == QUIRE_OK && (t.n_dims != 1 || t.shape[0] != m->n_cols))
        status = quire_fail(err, QUIRE_INVALID, "%.100s: tensor '%.150s': shape: must be [%u]", t.file, t.name,
                            m->n_cols);
    uint32_t *order = quantized_take(arena, (uint64_t)m->n_cols * sizeof *order);
    if (status != QUIRE_OK || !order)
        return status;
    if (quantized_fills(arena))
        return sort_columns(m, &t, order, &out->permutation, err);
    out->permutation = is_rising(order, m->n_cols) ? NULL : order;
    return QUIRE_OK;
}

/* ---- GPTQ and AWQ ------------------------------------------------------------------------------------------------ */

/* Scales [groups, all N] as [N, groups]. */
static int transpose_scales(const struct quantized_matrix *m, const struct checkpoint_tensor *t, uint8_t *to,
                            struct quire_error *err)
{
    const uint32_t groups = n_groups(m), size = (uint32_t)k_dtype_bytes(t->format.kind);
    for (uint32_t n = 0; n < m->n_rows; n++)
        for (uint32_t g = 0; g < groups; g++)
            memcpy(to + ((uint64_t)n * groups + g) * size,
                   (const uint8_t *)t->data + ((uint64_t)g * m->all_rows + m->first_row + n) * size, size);
    return check_scales(t, err);
}

/* qzeros [groups, all N / p] as [N, groups]; to NULL: all must be the middle. */
static int read_zeros(const struct quantized_matrix *m, const struct checkpoint_tensor *t, int8_t *to,
                      struct quire_error *err)
{
    const uint32_t groups = n_groups(m), bits = m->how->bits, mask = (1u << bits) - 1, middle = 1u << (bits - 1);
    /* Rows and columns change places: a row of qzeros is a row of words along the matrix' rows. */
    const bool is_awq = m->how->layout == QUANTIZATION_AWQ;
    const struct repack_rows words = {.source = is_awq ? REPACK_ROWS_ALONG_N : REPACK_ROWS_BY_ROW,
                                      .bits = bits,
                                      .all_rows = is_awq ? m->all_rows : groups,
                                      .n_cols = is_awq ? groups : m->all_rows,
                                      .words = t->data};
    for (uint32_t n = 0; n < m->n_rows; n++)
        for (uint32_t g = 0; g < groups; g++) {
            const uint32_t row = m->first_row + n;
            uint32_t z = is_awq ? repack_rows_element(&words, g, row) : repack_rows_element(&words, row, g);
            z = (z + (m->how->zero_is_less ? 1 : 0)) & mask;
            if (to)
                to[(uint64_t)n * groups + g] = (int8_t)(bits == 8 ? (int)z - 128 : (int)z);
            else if (z != middle)
                return quire_fail(err, QUIRE_INVALID,
                                  "%.100s: tensor '%.150s': row %u has the zero point %u, but config.json: "
                                  "quantization_config: sym requires %u for all",
                                  t->file, t->name, n, z, middle);
        }
    return QUIRE_OK;
}

static int check_sizes(const struct quantized_matrix *m, uint32_t rows_by, uint32_t cols_by, struct quire_error *err)
{
    if (m->all_rows % rows_by == 0 && m->n_cols % cols_by == 0)
        return QUIRE_OK;
    return quire_fail(err, QUIRE_UNSUPPORTED, "%.150s: %u rows of %u columns do not fill words of %u elements", m->name,
                      m->all_rows, m->n_cols, 32 / m->how->bits);
}

static struct k_weight_view new_view(const struct quantized_matrix *m, enum k_dtype kind, enum k_dtype scale)
{
    const struct k_format format = k_format_of_planes(kind, m->how->bits, m->how->group, scale);
    return (struct k_weight_view){.format = format,
                                  .n_rows = m->n_rows,
                                  .n_cols = m->n_cols,
                                  .row_stride_bytes = k_format_bytes(format, m->n_cols)};
}

/* Of a tensor whose rows lie as the view's do. */
static const void *own_rows(const struct quantized_matrix *m, const struct checkpoint_tensor *t,
                            const struct k_weight_view *v)
{
    return (const uint8_t *)t->data + m->first_row * v->row_stride_bytes;
}

static void repack_rows(const struct quantized_matrix *m, const struct checkpoint_tensor *words,
                        enum repack_rows_source source, const struct k_weight_view *v)
{
    const struct repack_rows r = {.source = source,
                                  .bits = m->how->bits,
                                  .n_rows = m->n_rows,
                                  .n_cols = m->n_cols,
                                  .all_rows = m->all_rows,
                                  .first_row = m->first_row,
                                  .words = words->data,
                                  .permutation = v->permutation,
                                  .plane = (uint8_t *)(uintptr_t)v->data};
    repack_rows_run(&r, m->n_threads);
}

static int view_by_columns(const struct quantized_matrix *m, struct quantized_arena *arena, struct k_weight_view *out,
                           struct quire_error *err)
{
    const bool is_gptq = m->how->layout == QUANTIZATION_GPTQ;
    const uint32_t per_word = 32 / m->how->bits, groups = n_groups(m);
    struct checkpoint_tensor words, scales, zeros;
    int status = check_sizes(m, per_word, is_gptq ? per_word : 2, err);
    if (status == QUIRE_OK)
        status = find_matrix(m, "qweight", "I32", is_gptq ? m->n_cols / per_word : m->n_cols,
                             is_gptq ? m->all_rows : m->all_rows / per_word, &words, err);
    if (status == QUIRE_OK)
        status = find_matrix(m, "scales", FLOATS, groups, m->all_rows, &scales, err);
    if (status == QUIRE_OK)
        status = find_matrix(m, "qzeros", "I32", groups, m->all_rows / per_word, &zeros, err);
    if (status != QUIRE_OK)
        return status;
    *out = new_view(m, K_INT, scales.format.kind);
    status = is_gptq ? view_order(m, "g_idx", arena, out, err) : QUIRE_OK;
    out->data = quantized_take(arena, m->n_rows * out->row_stride_bytes);
    uint8_t *turned = quantized_take(arena, (uint64_t)m->n_rows * groups * k_dtype_bytes(scales.format.kind));
    out->scales = turned;
    int8_t *z = m->how->symmetric ? NULL : quantized_take(arena, (uint64_t)m->n_rows * groups);
    out->zero_points = z;
    if (status != QUIRE_OK || !quantized_fills(arena))
        return status;
    status = transpose_scales(m, &scales, turned, err);
    if (status == QUIRE_OK)
        status = read_zeros(m, &zeros, z, err);
    if (status == QUIRE_OK)
        repack_rows(m, &words, is_gptq ? REPACK_ROWS_ALONG_K : REPACK_ROWS_ALONG_N, out);
    return status;
}

/* ---- compressed-tensors and FP8 ---------------------------------------------------------------------------------- */

/* weight_zero_point, packed along rows or as int8, as [N, groups] of what planes hold: of 4 bits 8 more. */
static int view_zeros(const struct quantized_matrix *m, struct quantized_arena *arena, struct k_weight_view *out,
                      struct quire_error *err)
{
    const uint32_t groups = n_groups(m), bits = m->how->bits, per_word = 32 / bits;
    const uint64_t n = (uint64_t)m->n_rows * groups;
    struct checkpoint_tensor t;
    int status = find(m, "weight_zero_point", &t, err);
    if (status != QUIRE_OK)
        return status;
    const bool is_packed = strcmp(t.dtype, "I32") == 0;
    status = find_matrix(m, "weight_zero_point", "I32 I8", is_packed ? ceil_div(m->all_rows, per_word) : m->all_rows,
                         groups, &t, err);
    int8_t *z = quantized_take(arena, n);
    out->zero_points = z;
    for (uint64_t i = 0; status == QUIRE_OK && quantized_fills(arena) && i < n; i++) {
        const uint64_t row = m->first_row + i / groups, word = row / per_word * groups + i % groups;
        const uint8_t *p = t.data;
        const int element = is_packed ? (int)(le_load_u32(p + word * 4) >> row % per_word * bits & ((1u << bits) - 1))
                                      : (int8_t)p[row * groups + i % groups] + (1 << (bits - 1));
        z[i] = (int8_t)(bits == 8 ? element - 128 : element);
    }
    return status;
}

/* weight_scale_inv or weight_scale, in place: of blocks, of groups, of rows or of the tensor. */
static int view_scales(const struct quantized_matrix *m, struct k_weight_view *out, struct quire_error *err)
{
    const uint32_t groups = n_groups(m), block = m->how->block_rows;
    struct checkpoint_tensor t;
    const char *suffix = find(m, "weight_scale_inv", &t, NULL) == QUIRE_OK ? "weight_scale_inv" : "weight_scale";
    int status = find(m, suffix, &t, err);
    if (status == QUIRE_OK)
        status = check_dtype(&t, FLOATS, err);
    if (status != QUIRE_OK)
        return status;
    if (m->how->group || block)
        status = find_matrix(m, suffix, FLOATS, block ? ceil_div(m->all_rows, block) : m->all_rows, groups, &t, err);
    else if (t.n_dims > 2 || (n_elements(&t) != 1 && (n_elements(&t) != m->all_rows || t.shape[0] != m->all_rows)))
        status = quire_fail(err, QUIRE_INVALID, "%.100s: tensor '%.150s': shape: must be [1], or [%u, 1]", t.file,
                            t.name, m->all_rows);
    if (status == QUIRE_OK && block && m->first_row % block != 0)
        status = quire_fail(err, QUIRE_UNSUPPORTED,
                            "%.100s: tensor '%.150s': a matrix begins at row %u of its tensor, inside a block of %u "
                            "rows",
                            t.file, t.name, m->first_row, block);
    const bool is_one = !m->how->group && !block && n_elements(&t) == 1;
    out->format.scale = t.format.kind;
    out->scale_rows = block ? block : is_one ? m->n_rows : 1;
    out->scales = (const uint8_t *)t.data +
                  (is_one ? 0 : (uint64_t)m->first_row / out->scale_rows * groups * k_dtype_bytes(t.format.kind));
    return status == QUIRE_OK && m->is_read ? check_scales(&t, err) : status;
}

static int view_input(const struct quantized_matrix *m, struct k_weight_view *out, struct quire_error *err)
{
    struct checkpoint_tensor t;
    int status = find(m, "input_scale", &t, err);
    if (status == QUIRE_OK)
        status = check_dtype(&t, FLOATS, err);
    if (status != QUIRE_OK)
        return status;
    if (n_elements(&t) != 1 || !(checkpoint_element(&t, 0) > 0) || !isnormal(checkpoint_element(&t, 0)) ||
        !isfinite(1 / checkpoint_element(&t, 0)))
        return quire_fail(err, QUIRE_INVALID, "%.100s: tensor '%.150s': must be one positive number", t.file, t.name);
    out->x_scale = checkpoint_element(&t, 0);
    return QUIRE_OK;
}

/* weight_shape, which older files lack: the sizes before packing. */
static int check_shape(const struct quantized_matrix *m, struct quire_error *err)
{
    struct checkpoint_tensor t;
    if (find(m, "weight_shape", &t, NULL) == QUIRE_NOT_FOUND)
        return QUIRE_OK;
    int status = find(m, "weight_shape", &t, err);
    if (status == QUIRE_OK)
        status = check_dtype(&t, "I64 I32", err);
    if (status != QUIRE_OK)
        return status;
    const bool is_wide = strcmp(t.dtype, "I64") == 0;
    if (n_elements(&t) != 2 || t.n_bytes != (is_wide ? 16 : 8))
        return quire_fail(err, QUIRE_INVALID, "%.100s: tensor '%.150s': shape: must be [2]", t.file, t.name);
    if (!m->is_read)
        return QUIRE_OK;
    const uint8_t *p = t.data;
    const int64_t rows = is_wide ? (int64_t)le_load_u64(p) : (int32_t)le_load_u32(p);
    const int64_t cols = is_wide ? (int64_t)le_load_u64(p + 8) : (int32_t)le_load_u32(p + 4);
    if (rows == m->all_rows && cols == m->n_cols)
        return QUIRE_OK;
    return quire_fail(err, QUIRE_INVALID,
                      "%.100s: tensor '%.150s': says [%lld, %lld], but config.json makes it [%u, %u]", t.file, t.name,
                      (long long)rows, (long long)cols, m->all_rows, m->n_cols);
}

/* weight_packed and weight_scale of e2m1 with e8m0, in place. */
static int view_mxfp4(const struct quantized_matrix *m, struct k_weight_view *out, struct quire_error *err)
{
    struct checkpoint_tensor codes, scales;
    if (m->n_cols % m->how->group != 0)
        return quire_fail(err, QUIRE_UNSUPPORTED,
                          "%.150s: rows of %u columns are not whole groups of %u, which MXFP4 needs", m->name,
                          m->n_cols, m->how->group);
    int status = find_matrix(m, "weight_packed", "U8", m->all_rows, m->n_cols / 2, &codes, err);
    if (status == QUIRE_OK)
        status = find_matrix(m, "weight_scale", "U8", m->all_rows, n_groups(m), &scales, err);
    if (status != QUIRE_OK)
        return status;
    *out = new_view(m, K_E2M1, K_E8M0);
    out->data = own_rows(m, &codes, out);
    out->scales = (const uint8_t *)scales.data + (uint64_t)m->first_row * n_groups(m);
    const uint8_t *bad = m->is_read ? memchr(scales.data, 255, scales.n_bytes) : NULL;
    if (!bad)
        return QUIRE_OK;
    return quire_fail(err, QUIRE_INVALID, "%.100s: tensor '%.150s': element %llu is 255, which is no number",
                      scales.file, scales.name, (unsigned long long)(bad - (const uint8_t *)scales.data));
}

static int view_packed(const struct quantized_matrix *m, struct quantized_arena *arena, struct k_weight_view *out,
                       struct quire_error *err)
{
    const uint32_t per_word = 32 / m->how->bits;
    struct checkpoint_tensor words;
    if (m->how->is_float)
        return view_mxfp4(m, out, err);
    int status = check_sizes(m, 1, per_word, err);
    if (status == QUIRE_OK)
        status = check_shape(m, err);
    if (status == QUIRE_OK)
        status = find_matrix(m, "weight_packed", "I32", m->all_rows, m->n_cols / per_word, &words, err);
    if (status != QUIRE_OK)
        return status;
    *out = new_view(m, K_INT, K_F32);
    out->data = own_rows(m, &words, out);
    status = view_scales(m, out, err);
    if (status == QUIRE_OK && !m->how->symmetric)
        status = view_zeros(m, arena, out, err);
    if (status == QUIRE_OK)
        status = view_order(m, "weight_g_idx", arena, out, err);
    if (status != QUIRE_OK || (m->how->bits == 4 && !m->how->in_order))
        return status;
    out->data = quantized_take(arena, m->n_rows * out->row_stride_bytes);
    if (quantized_fills(arena))
        repack_rows(m, &words, REPACK_ROWS_BY_ROW, out);
    return status;
}

static int view_elements(const struct quantized_matrix *m, struct quantized_arena *arena, struct k_weight_view *out,
                         struct quire_error *err)
{
    struct checkpoint_tensor t;
    const char *floats = m->how->floats ? m->how->floats : "F8_E4M3 F8_E5M2";
    int status = find_matrix(m, "weight", m->how->is_float ? floats : "I8", m->all_rows, m->n_cols, &t, err);
    if (status != QUIRE_OK)
        return status;
    *out = new_view(m, !m->how->is_float ? K_INT : strcmp(t.dtype, "F8_E4M3") == 0 ? K_E4M3 : K_E5M2, K_F32);
    out->data = own_rows(m, &t, out);
    status = view_scales(m, out, err);
    if (status == QUIRE_OK && !m->how->symmetric)
        status = view_zeros(m, arena, out, err);
    return status == QUIRE_OK && m->how->inputs == INPUTS_STATIC ? view_input(m, out, err) : status;
}

/* ---- public functions -------------------------------------------------------------------------------------------- */

void quantized_take_name(const char *tensor, char out[QUANTIZED_NAME_BYTES])
{
    const size_t n = strlen(tensor), n_suffix = strlen(".weight");
    const bool has_suffix = n > n_suffix && strcmp(tensor + n - n_suffix, ".weight") == 0;
    snprintf(out, QUANTIZED_NAME_BYTES, "%.*s", (int)(has_suffix ? n - n_suffix : n), tensor);
}

bool quantized_has(const struct quantized_matrix *m)
{
    struct checkpoint_tensor t;
    switch (m->how->layout) {
    case QUANTIZATION_NONE:
    case QUANTIZATION_MADE: return false;
    case QUANTIZATION_GPTQ:
    case QUANTIZATION_AWQ: return find(m, "qweight", &t, NULL) == QUIRE_OK;
    case QUANTIZATION_PACKED: return find(m, "weight_packed", &t, NULL) == QUIRE_OK;
    case QUANTIZATION_MXFP4: return mxfp4_has(m);
    case QUANTIZATION_ELEMENTS: return find(m, "weight", &t, NULL) == QUIRE_OK && is_of(&t, "I8 F8_E4M3 F8_E5M2");
    }
    return false;
}

/* Rejects a matrix that the checkpoint holds both packed and plain, because the choice would be ambiguous. */
static int check_alone(const struct quantized_matrix *m, struct quire_error *err)
{
    struct checkpoint_tensor t;
    if (m->how->layout == QUANTIZATION_ELEMENTS || find(m, "weight", &t, NULL) != QUIRE_OK)
        return QUIRE_OK;
    return quire_fail(err, QUIRE_INVALID, "%.100s: tensor '%.150s': exists in addition to the layer's packed weights",
                      t.file, t.name);
}

int quantized_view(const struct quantized_matrix *m, struct quantized_arena *arena, struct k_weight_view *out,
                   struct quire_error *err)
{
    int status = check_alone(m, err);
    if (status != QUIRE_OK)
        return status;
    switch (m->how->layout) {
    case QUANTIZATION_NONE:
    case QUANTIZATION_MADE: break;
    case QUANTIZATION_GPTQ:
    case QUANTIZATION_AWQ: return view_by_columns(m, arena, out, err);
    case QUANTIZATION_PACKED: return view_packed(m, arena, out, err);
    case QUANTIZATION_MXFP4: return mxfp4_view(m, out, err);
    case QUANTIZATION_ELEMENTS: return view_elements(m, arena, out, err);
    }
    return quire_fail(err, QUIRE_INTERNAL, "%.150s: is not quantized", m->name);
}
