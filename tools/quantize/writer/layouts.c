#include "tools/quantize/writer/layouts.h"

#include "base/encoding/little_endian.h"
#include "kernels/math/convert.h"

#include <math.h>
#include <string.h>

static const uint8_t awq_order[8] = {0, 2, 4, 6, 1, 3, 5, 7};

static const char *float_name(enum k_dtype dtype)
{
    return dtype == K_F32 ? "F32" : dtype == K_F16 ? "F16" : "BF16";
}

static uint64_t ceil_div(uint64_t n, uint64_t by)
{
    return (n + by - 1) / by;
}

static void add(struct tensor_list *list, const char *name, const char *suffix, const char *dtype, uint32_t size,
                uint64_t rows, uint64_t cols)
{
    const uint64_t shape[2] = {rows, cols};
    tensor_list_add(list, name, suffix, dtype, rows * cols * size, 2, shape);
}

/* Tensors of wide elements come first, because each tensor begins where the one before ends. */
static void add_compressed(const struct quantizer_matrix_shape *m, const char *name, struct tensor_list *list)
{
    const uint32_t groups = quantizer_n_groups(m->how, m->n_cols), per_word = 32 / m->how->bits;
    const uint32_t scale_bytes = (uint32_t)k_dtype_bytes(m->how->scale);
    const uint64_t two = 2;
    if (m->layout == LAYOUT_PACKED) {
        tensor_list_add(list, name, ".weight_shape", "I64", 16, 1, &two);
        add(list, name, ".weight_packed", "I32", 4, m->n_rows, ceil_div(m->n_cols, per_word));
        if (!m->how->symmetric)
            add(list, name, ".weight_zero_point", "I32", 4, ceil_div(m->n_rows, per_word), groups);
        add(list, name, ".weight_scale", float_name(m->how->scale), scale_bytes, m->n_rows, groups);
        return;
    }
    add(list, name, ".weight_scale", float_name(m->how->scale), scale_bytes, m->n_rows, groups);
    add(list, name, ".weight", "I8", 1, m->n_rows, m->n_cols);
    if (!m->how->symmetric)
        add(list, name, ".weight_zero_point", "I8", 1, m->n_rows, groups);
}

void quantizer_layout_add(const struct quantizer_matrix_shape *m, const char *name, struct tensor_list *list)
{
    const uint32_t groups = quantizer_n_groups(m->how, m->n_cols), per_word = 32 / m->how->bits;
    const uint64_t one = 1, columns = m->n_cols;
    switch (m->layout) {
    case LAYOUT_PACKED:
    case LAYOUT_INTS: add_compressed(m, name, list); break;
    case LAYOUT_FP8:
        tensor_list_add(list, name, ".weight_scale", "F32", 4, 1, &one);
        add(list, name, ".weight", m->fp8 == K_E4M3 ? "F8_E4M3" : "F8_E5M2", 1, m->n_rows, m->n_cols);
        break;
    case LAYOUT_MXFP4:
        add(list, name, ".weight_packed", "U8", 1, m->n_rows, m->n_cols / 2);
        add(list, name, ".weight_scale", "U8", 1, m->n_rows, groups);
        break;
    case LAYOUT_GPTQ:
        add(list, name, ".qweight", "I32", 4, m->n_cols / per_word, m->n_rows);
        add(list, name, ".qzeros", "I32", 4, groups, m->n_rows / per_word);
        tensor_list_add(list, name, ".g_idx", "I32", columns * 4, 1, &columns);
        add(list, name, ".scales", "F16", 2, groups, m->n_rows);
        break;
    case LAYOUT_AWQ:
        add(list, name, ".qweight", "I32", 4, m->n_cols, m->n_rows / 8);
        add(list, name, ".qzeros", "I32", 4, groups, m->n_rows / 8);
        add(list, name, ".scales", "F16", 2, groups, m->n_rows);
        break;
    case LAYOUT_GGUF: break;
    }
}

void quantizer_layout_add_experts(const struct quantizer_matrix_shape *m, uint32_t n_experts, const char *name,
                                  struct tensor_list *list)
{
    const uint64_t shape[4] = {n_experts, m->n_rows, quantizer_n_groups(m->how, m->n_cols), m->how->group / 2};
    const uint64_t n_groups = shape[0] * shape[1] * shape[2];
    tensor_list_add(list, name, "_blocks", "U8", n_groups * shape[3], 4, shape);
    tensor_list_add(list, name, "_scales", "U8", n_groups, 3, shape);
}

const char *quantizer_layout_refuses(const struct quantizer_matrix_shape *m)
{
    const uint32_t per_word = 32 / m->how->bits;
    if (m->layout == LAYOUT_FP8 || m->layout == LAYOUT_GGUF)
        return NULL;
    if (m->layout != LAYOUT_MXFP4 && m->how->group && m->n_cols % m->how->group != 0)
        return "its columns are not a multiple of --group-size: choose a smaller one";
    if (m->layout == LAYOUT_MXFP4 && m->n_cols % m->how->group != 0)
        return "its columns are not whole groups of 32";
    if (m->layout == LAYOUT_PACKED && m->n_cols % per_word != 0)
        return "its columns do not fill words of 32 bits";
    if (m->layout == LAYOUT_GPTQ && (m->n_cols % per_word != 0 || m->n_rows % per_word != 0))
        return "its rows and columns do not fill words of 32 bits";
    if (m->layout == LAYOUT_AWQ && m->n_rows % 8 != 0)
        return "its rows do not fill words of 32 bits";
    return NULL;
}

/* ---- bytes -------------------------------------------------------------------------------------------------------- */

static void put_float(float x, enum k_dtype dtype, uint8_t *out)
{
    if (dtype == K_F32)
        memcpy(out, &x, sizeof x);
    else
        le_store_u16(out, dtype == K_F16 ? k_f16_from_f32(x) : k_bf16_from_f32(x));
}

static void put_scales(const struct quantizer_matrix_shape *m, const struct quantizer_codes *c, uint8_t *out)
{
    const uint32_t size = (uint32_t)k_dtype_bytes(m->how->scale);
    for (uint64_t i = 0; i < (uint64_t)c->n_rows * c->n_groups; i++)
        put_float(c->scales[i], m->how->scale, out + i * size);
}

/* Powers of two as e8m0. */
static void put_exponents(const struct quantizer_codes *c, uint8_t *out)
{
    for (uint64_t i = 0; i < (uint64_t)c->n_rows * c->n_groups; i++)
        out[i] = (uint8_t)(ilogbf(c->scales[i]) + 127);
}

static void put_transposed_scales(const struct quantizer_codes *c, uint8_t *out)
{
    for (uint32_t g = 0; g < c->n_groups; g++)
        for (uint32_t r = 0; r < c->n_rows; r++)
            put_float(c->scales[(uint64_t)r * c->n_groups + g], K_F16, out + ((uint64_t)g * c->n_rows + r) * 2);
}

/* Adds `bits` of a value to element i of a row of words. */
static void put_bits(uint8_t *words, uint64_t element, uint32_t bits, uint32_t value)
{
    const uint64_t at = element * bits;
    words[at / 8] |= (uint8_t)(value << at % 8);
}

static void pack_rows(const struct quantizer_codes *c, uint32_t bits, uint64_t n_bytes, uint8_t *out)
{
    const uint64_t stride = n_bytes / c->n_rows;
    for (uint32_t r = 0; r < c->n_rows; r++)
        for (uint32_t k = 0; k < c->n_cols; k++)
            put_bits(out + r * stride, k, bits, c->codes[(uint64_t)r * c->n_cols + k]);
}

/* Words along rows: element r % p of word [r / p, group] is row r's. */
static void pack_zeros(const struct quantizer_codes *c, uint32_t bits, uint8_t *out)
{
    const uint32_t per_word = 32 / bits;
    for (uint32_t r = 0; r < c->n_rows; r++)
        for (uint32_t g = 0; g < c->n_groups; g++)
            put_bits(out + ((uint64_t)(r / per_word) * c->n_groups + g) * 4, r % per_word, bits,
                     c->zeros[(uint64_t)r * c->n_groups + g]);
}

static void pack_gptq(const struct quantizer_codes *c, uint32_t bits, uint8_t *out)
{
    const uint32_t per_word = 32 / bits;
    for (uint32_t r = 0; r < c->n_rows; r++)
        for (uint32_t k = 0; k < c->n_cols; k++)
            put_bits(out + ((uint64_t)(k / per_word) * c->n_rows + r) * 4, k % per_word, bits,
                     c->codes[(uint64_t)r * c->n_cols + k]);
}

/* gptq stores zero points minus 1, modulo 2^bits; gptq_v2 stores them as they are. */
static uint32_t gptq_zero_is_less(const struct quantizer_matrix_shape *m)
{
    return quantizer_gptq_is_v2(m->how) ? 0 : 1;
}

static void pack_gptq_zeros(const struct quantizer_matrix_shape *m, const struct quantizer_codes *c, uint8_t *out)
{
    const uint32_t bits = m->how->bits, less = gptq_zero_is_less(m);
    for (uint32_t r = 0; r < c->n_rows; r++)
        for (uint32_t g = 0; g < c->n_groups; g++)
            put_bits(out + (uint64_t)g * c->n_rows * bits / 8, r, bits,
                     (c->zeros[(uint64_t)r * c->n_groups + g] - less) & ((1u << bits) - 1));
}

/* Rows become columns of words; planes is [n_rows, n_planes]. */
static void pack_awq(const uint8_t *planes, uint32_t n_rows, uint32_t n_planes, uint8_t *out)
{
    for (uint32_t plane = 0; plane < n_planes; plane++)
        for (uint32_t r = 0; r < n_rows; r++) {
            uint32_t slot = 0;
            while (awq_order[slot] != r % 8)
                slot++;
            put_bits(out + ((uint64_t)plane * n_rows / 8 + r / 8) * 4, slot, 4, planes[(uint64_t)r * n_planes + plane]);
        }
}

static void put_groups(const struct quantizer_matrix_shape *m, const struct quantizer_codes *c, uint8_t *out)
{
    for (uint32_t k = 0; k < c->n_cols; k++)
        le_store_u32(out + (uint64_t)k * 4, c->groups ? c->groups[k] : m->how->group ? k / m->how->group : 0);
}

static void put_shape(const struct quantizer_codes *c, uint8_t *out)
{
    le_store_u64(out, c->n_rows);
    le_store_u64(out + 8, c->n_cols);
}

/* Codes 0 to 2^bits − 1 as signed bytes. */
static void put_signed(const uint8_t *codes, uint64_t n, uint32_t bits, uint8_t *out)
{
    for (uint64_t i = 0; i < n; i++)
        out[i] = (uint8_t)(codes[i] - (1 << (bits - 1)));
}

static bool ends_with(const char *name, const char *suffix)
{
    const size_t n = strlen(name), m = strlen(suffix);
    return n >= m && strcmp(name + n - m, suffix) == 0;
}

void quantizer_layout_write(const struct quantizer_matrix_shape *m, const struct quantizer_codes *c,
                            const struct tensor_list_item *item, uint8_t *out)
{
    const uint32_t bits = m->how->bits;
    memset(out, 0, item->n_bytes);
    if (ends_with(item->name, ".weight_shape"))
        put_shape(c, out);
    else if (ends_with(item->name, ".weight_packed") || ends_with(item->name, "_blocks"))
        pack_rows(c, bits, item->n_bytes, out);
    else if (ends_with(item->name, ".weight_zero_point") && m->layout == LAYOUT_PACKED)
        pack_zeros(c, bits, out);
    else if (ends_with(item->name, ".weight_zero_point"))
        put_signed(c->zeros, item->n_bytes, bits, out);
    else if (ends_with(item->name, ".weight_scale") && m->layout == LAYOUT_FP8)
        put_float(c->scales[0], K_F32, out);
    else if (m->layout == LAYOUT_MXFP4) /* weight_scale, or _scales of experts */
        put_exponents(c, out);
    else if (ends_with(item->name, ".weight_scale"))
        put_scales(m, c, out);
    else if (ends_with(item->name, ".weight") && m->layout == LAYOUT_FP8)
        memcpy(out, c->codes, item->n_bytes);
    else if (ends_with(item->name, ".weight"))
        put_signed(c->codes, item->n_bytes, bits, out);
    else if (ends_with(item->name, ".g_idx"))
        put_groups(m, c, out);
    else if (ends_with(item->name, ".scales"))
        put_transposed_scales(c, out);
    else if (m->layout == LAYOUT_AWQ)
        ends_with(item->name, ".qweight") ? pack_awq(c->codes, c->n_rows, c->n_cols, out)
                                          : pack_awq(c->zeros, c->n_rows, c->n_groups, out);
    else
        ends_with(item->name, ".qweight") ? pack_gptq(c, bits, out) : pack_gptq_zeros(m, c, out);
}

/* ---- the reverse -------------------------------------------------------------------------------------------------- */

static uint32_t take_bits(const uint8_t *words, uint64_t element, uint32_t bits)
{
    const uint64_t at = element * bits;
    return (uint32_t)words[at / 8] >> at % 8 & ((1u << bits) - 1);
}

static void read_planes(const struct quantizer_matrix_shape *m, const uint8_t *zeros, const uint8_t *scales,
                        struct quantizer_codes *c)
{
    const uint32_t bits = m->how->bits, less = gptq_zero_is_less(m);
    for (uint32_t g = 0; g < c->n_groups; g++)
        for (uint32_t r = 0; r < c->n_rows; r++) {
            const uint64_t plane = (uint64_t)r * c->n_groups + g;
            if (zeros)
                c->zeros[plane] = (uint8_t)(take_bits(zeros + (uint64_t)g * c->n_rows * bits / 8, r, bits) + less);
            if (scales)
                c->scales[plane] = k_f32_from_f16(le_load_u16(scales + ((uint64_t)g * c->n_rows + r) * 2));
        }
}

void quantizer_layout_read(const struct quantizer_matrix_shape *m, const struct tensor_list_item *item,
                           const uint8_t *bytes, struct quantizer_codes *c)
{
    const uint32_t bits = m->how->bits, per_word = 32 / bits;
    if (ends_with(item->name, ".qzeros"))
        read_planes(m, bytes, NULL, c);
    else if (ends_with(item->name, ".scales"))
        read_planes(m, NULL, bytes, c);
    else if (ends_with(item->name, ".g_idx"))
        for (uint32_t k = 0; k < c->n_cols; k++)
            c->groups[k] = le_load_u32(bytes + (uint64_t)k * 4);
    else if (ends_with(item->name, ".qweight"))
        for (uint32_t r = 0; r < c->n_rows; r++)
            for (uint32_t k = 0; k < c->n_cols; k++)
                c->codes[(uint64_t)r * c->n_cols + k] = (uint8_t)take_bits(
                    bytes + ((uint64_t)(k / per_word) * c->n_rows + r) * 4, k % per_word, bits);
}
