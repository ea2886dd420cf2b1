/* Uploads quantized weights to the device (gemm_quant.cu documents their layout). kernels/quant.h reads each part,
 * whatever its file format, and the part is repacked on the way through the pinned pieces of memory.c. A thread repacks
 * about 100 million elements per second, so a model of 8B parameters takes a minute and a half. */
#include "kernels/cuda/host/quant.h"

#include "kernels/cuda/host/memory.h"
#include "kernels/cuda/plan/plan.h"
#include "kernels/quant.h"

#include <stdlib.h>
#include <string.h>

/* Returns the number to subtract from an element on the device: a group's own zero point; for 4 bits, 8 or 4 if q may
 * be negative. */
static int zero_of(const struct k_weight_view *part, uint32_t row, uint32_t group)
{
    const uint32_t n_groups = cuda_quant_groups(part->format, part->n_cols);
    if (part->zero_points)
        return part->zero_points[(uint64_t)row * n_groups + group];
    if (part->format.packing == K_PACKING_Q3_K)
        return 4;
    const bool is_int4 = part->format.packing == K_PACKING_PLANES && part->format.kind == K_INT &&
                         part->format.bits == 4;
    return part->format.packing == K_PACKING_Q4_0 || is_int4 ? 8 : 0;
}

/* Columns [begin, end), within one group. code_of: of each number, as a byte. */
static void pack_columns(const struct k_weight_view *part, const struct cuda_quant *to, uint32_t row, uint32_t begin,
                         uint32_t end, const unsigned char code_of[256], unsigned char *out)
{
    const int zero = zero_of(part, row, begin / to->group);
    float q[K_QUANT_READ];
    if (part->format.packing == K_PACKING_PLANES && to->kind != CUDA_QUANT_INT4) {
        memcpy(out + begin, (const char *)part->data + row * part->row_stride_bytes + begin, end - begin);
        return;
    }
    k_quant_read(part, row, begin, end, q);
    for (uint32_t k = begin; k < end; k++) {
        int v = (int)q[k - begin];
        if (to->kind == CUDA_QUANT_INT4)
            out[k / 2] |= (unsigned char)(code_of[(v + zero) & 255] << k % 2 * 4);
        else
            out[k] = (unsigned char)(int8_t)v;
    }
}

static void pack_row(const struct k_weight_view *part, const struct cuda_quant *to, uint32_t row, unsigned char *out)
{
    unsigned char code_of[256] = {0};
    memset(out, 0, (size_t)to->row_stride_bytes);
    if (k_format_is_plain(part->format)) {
        memcpy(out, (const char *)part->data + row * part->row_stride_bytes,
               (size_t)k_format_bytes(part->format, part->n_cols));
        return;
    }
    for (uint32_t i = 16; i-- > 0;) /* of equal numbers the first */
        code_of[k_code_number(to->codes, i) & 255] = (unsigned char)i;
    for (uint32_t k = 0, end; k < part->n_cols; k = end) {
        end = k_group_end(part->format, part->n_cols, k);
        end = end - k > K_QUANT_READ ? k + K_QUANT_READ : end;
        pack_columns(part, to, row, k, end, code_of, out);
    }
}

static void pack_groups(const struct k_weight_view *part, const struct cuda_quant *to, uint32_t row,
                        struct cuda_quant_group *out)
{
    for (uint32_t g = 0; g < to->n_groups; g++) {
        float least;
        k_quant_scale(part, row, g * to->group, &out[g].scale, &least);
        out[g].second = to->has_least ? least : (float)zero_of(part, row, g);
    }
}

enum plane { ROWS, GROUPS };

/* Uploads one plane of the part, in units of as many rows as a pinned piece holds. */
static int upload_plane(struct k_backend *b, const struct k_weight_view *part, const struct cuda_quant *to,
                        enum plane plane, unsigned char *dst_dev, struct quire_error *err)
{
    const uint64_t stride = plane == ROWS ? to->row_stride_bytes : to->n_groups * sizeof(struct cuda_quant_group);
    for (uint32_t row = 0; row < part->n_rows;) {
        void *staged;
        uint64_t bytes;
        int status = cuda_stage(b, (part->n_rows - row) * stride, &staged, &bytes, err);
        if (status != QUIRE_OK)
            return status;
        const uint32_t n = (uint32_t)(bytes / stride);
        if (n == 0)
            return quire_fail(err, QUIRE_UNSUPPORTED, "weight: rows of %llu bytes are too long for a GPU",
                              (unsigned long long)stride);
        for (uint32_t i = 0; i < n; i++) {
            if (plane == GROUPS)
                pack_groups(part, to, row + i, (struct cuda_quant_group *)staged + (uint64_t)i * to->n_groups);
            else
                pack_row(part, to, row + i, (unsigned char *)staged + i * stride);
        }
        cudaError_t error = cudaMemcpyAsync(dst_dev + row * stride, staged, (size_t)(n * stride),
                                            cudaMemcpyHostToDevice, cuda_of(b)->stream);
        status = cuda_check(b, error, "uploading a weight", err);
        if (status != QUIRE_OK)
            return status;
        row += n;
    }
    return QUIRE_OK;
}

static enum cuda_quant_kind kind_of(struct k_format format)
{
    if (k_format_is_plain(format))
        return format.kind == K_F32 ? CUDA_QUANT_F32 : format.kind == K_F16 ? CUDA_QUANT_F16 : CUDA_QUANT_BF16;
    if (format.kind == K_E4M3)
        return CUDA_QUANT_E4M3;
    if (format.kind == K_E5M2)
        return CUDA_QUANT_E5M2;
    return format.bits <= 4 ? CUDA_QUANT_INT4 : CUDA_QUANT_INT8;
}

#define MOST_COLUMNS (1u << 17) /* at most 127 · 128 each, so an int32 holds the sum */

/* Part `of` of each expert: parts[e * n_parts]. */
struct parts_at {
    const struct k_weight_view *parts;
    uint32_t n_experts, n_parts;
};

static const struct k_weight_view *part_of(const struct parts_at *at, uint32_t expert)
{
    return at->parts + (size_t)expert * at->n_parts;
}

/* Uploads one plane of the part of every expert. */
static int upload_planes(struct k_backend *b, const struct parts_at *at, const struct cuda_quant *to, enum plane plane,
                         unsigned char *dst_dev, struct quire_error *err)
{
    const uint64_t stride = plane == ROWS ? to->row_stride_bytes : to->n_groups * sizeof(struct cuda_quant_group);
    int status = QUIRE_OK;
    for (uint32_t e = 0; status == QUIRE_OK && e < at->n_experts; e++)
        status = upload_plane(b, part_of(at, e), to, plane, dst_dev + e * (uint64_t)to->n_rows * stride, err);
    return status;
}

/* Uploads the column orders of all experts, if any has one; an expert without has its columns in their order. */
static int upload_orders(struct k_backend *b, const struct parts_at *at, struct cuda_quant *out,
                         unsigned char *orders_dev, struct quire_error *err)
{
    const uint32_t n_cols = at->parts->n_cols;
    bool is_ordered = false;
    for (uint32_t e = 0; e < at->n_experts; e++)
        is_ordered |= part_of(at, e)->permutation != NULL;
    if (!is_ordered)
        return QUIRE_OK;
    uint32_t *rising = malloc(n_cols * sizeof *rising);
    if (!rising)
        return quire_fail(err, QUIRE_NO_MEMORY, "weight: out of memory");
    for (uint32_t k = 0; k < n_cols; k++)
        rising[k] = k;
    int status = QUIRE_OK;
    for (uint32_t e = 0; status == QUIRE_OK && e < at->n_experts; e++) {
        const uint32_t *order = part_of(at, e)->permutation;
        status = cuda_upload(b, orders_dev + e * (uint64_t)n_cols * sizeof *order, order ? order : rising,
                             n_cols * sizeof *order, err);
    }
    free(rising);
    out->permutation_dev = (const uint32_t *)(const void *)orders_dev;
    return status;
}

/* Uploads the stated scales of several experts' activations, if there is one. */
static int upload_scales(struct k_backend *b, const struct parts_at *at, struct cuda_quant *out,
                         unsigned char *scales_dev, struct quire_error *err)
{
    bool is_stated = false;
    for (uint32_t e = 0; e < at->n_experts; e++)
        is_stated |= part_of(at, e)->x_scale != 0;
    if (!is_stated || at->n_experts == 1)
        return QUIRE_OK;
    int status = QUIRE_OK;
    for (uint32_t e = 0; status == QUIRE_OK && e < at->n_experts; e++)
        status = cuda_upload(b, scales_dev + e * sizeof(float), &part_of(at, e)->x_scale, sizeof(float), err);
    out->x_scales_dev = (const float *)(const void *)scales_dev;
    return status;
}

static int create_part(struct k_backend *b, const struct parts_at *at, struct cuda_quant *out, struct quire_error *err)
{
    const struct k_weight_view *part = at->parts;
    if (part->n_cols > MOST_COLUMNS)
        return quire_fail(err, QUIRE_UNSUPPORTED, "weight: %u columns; a GPU supports quantized weights of at most %u",
                          part->n_cols, MOST_COLUMNS);
    void *dev;
    int status = cuda_alloc(b, cuda_weight_bytes(part->format, at->n_experts, part->n_rows, part->n_cols), &dev, err);
    if (status != QUIRE_OK)
        return status;
    const uint64_t n_rows = at->n_experts * (uint64_t)part->n_rows;
    unsigned char *groups_dev = (unsigned char *)dev + n_rows * out->row_stride_bytes;
    unsigned char *orders_dev = groups_dev + n_rows * out->n_groups * sizeof(struct cuda_quant_group);
    out->data_dev = dev;
    status = upload_planes(b, at, out, ROWS, dev, err);
    if (k_format_is_plain(part->format))
        return status;
    out->groups_dev = (const struct cuda_quant_group *)(const void *)groups_dev;
    if (status == QUIRE_OK)
        status = upload_planes(b, at, out, GROUPS, groups_dev, err);
    if (status == QUIRE_OK)
        status = upload_orders(b, at, out, orders_dev, err);
    return status == QUIRE_OK
               ? upload_scales(b, at, out, orders_dev + at->n_experts * (uint64_t)part->n_cols * sizeof(uint32_t), err)
               : status;
}

/* The device has one layout for a part of all experts. */
static int check_experts(const struct parts_at *at, uint32_t i, struct quire_error *err)
{
    const struct k_format format = at->parts->format;
    for (uint32_t e = 1; e < at->n_experts; e++) {
        const struct k_weight_view *part = part_of(at, e);
        if (part->n_rows != at->parts->n_rows || part->format.kind != format.kind || part->format.bits != format.bits ||
            part->format.group != format.group || part->format.packing != format.packing)
            return quire_fail(
                err, QUIRE_UNSUPPORTED,
                "weight part %u: expert %u has %u rows in %s, but expert 0 has %u rows in %s; a GPU needs "
                "experts of one format",
                i, e, part->n_rows, k_format_name(part->format), at->parts->n_rows, k_format_name(format));
    }
    return QUIRE_OK;
}

static bool has_zeros(const struct parts_at *at)
{
    bool has = false;
    for (uint32_t e = 0; e < at->n_experts; e++)
        has |= part_of(at, e)->zero_points && at->parts->format.bits == 8;
    return has;
}

int cuda_quant_create(struct k_backend *b, const struct k_weight_view *parts, uint32_t n_experts, uint32_t n_parts,
                      struct k_weight *w, struct quire_error *err)
{
    uint32_t row = 0;
    int status = QUIRE_OK;
    for (uint32_t i = 0; i < n_parts && status == QUIRE_OK; row += parts[i].n_rows, i++) {
        const struct k_format format = parts[i].format;
        const struct parts_at at = {&parts[i], n_experts, n_parts};
        status = check_experts(&at, i, err);
        if (status != QUIRE_OK)
            return status;
        w->quant[i] = (struct cuda_quant){
            .kind = kind_of(format),
            .has_least = k_format_has_least(format),
            .has_zeros = has_zeros(&at),
            .first_row = row,
            .n_rows = parts[i].n_rows,
            .group = format.group ? format.group : parts[i].n_cols,
            .n_groups = cuda_quant_groups(format, parts[i].n_cols),
            .x_group = k_quant_x_group(format),
            .x_scale = n_experts == 1 ? parts[i].x_scale : 0,
            .row_stride_bytes = k_format_is_plain(format) ? cuda_weight_row_stride(format, parts[i].n_cols)
                                                          : cuda_quant_row_stride(format, parts[i].n_cols),
        };
        if (!k_format_codes(format, &w->quant[i].codes))
            w->quant[i].codes = k_codes_plain();
        w->n_quant = i + 1;
        status = create_part(b, &at, &w->quant[i], err);
    }
    return status;
}

void cuda_quant_destroy(struct k_backend *b, struct k_weight *w)
{
    for (uint32_t i = 0; i < w->n_quant; i++)
        cuda_free(b, (void *)w->quant[i].data_dev);
}
