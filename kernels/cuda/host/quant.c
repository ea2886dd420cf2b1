/* Uploads quantized weights to the device (gemm_quant.cu documents their layout). kernels/quant.h reads each part,
 * whatever its file format, and the part is repacked on the way through the pinned pieces of memory.c. A thread repacks
 * about 100 million elements per second, so a model of 8B parameters takes a minute and a half. */
#include "kernels/cuda/host/quant.h"

#include "kernels/cuda/host/memory.h"
#include "kernels/cuda/plan/plan.h"
#include "kernels/quant.h"

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

static int create_part(struct k_backend *b, const struct k_weight_view *part, struct cuda_quant *out,
                       struct quire_error *err)
{
    if (part->n_cols > MOST_COLUMNS)
        return quire_fail(err, QUIRE_UNSUPPORTED, "weight: %u columns; a GPU supports quantized weights of at most %u",
                          part->n_cols, MOST_COLUMNS);
    void *dev;
    int status = cuda_alloc(b, cuda_weight_bytes(part->format, part->n_rows, part->n_cols), &dev, err);
    if (status != QUIRE_OK)
        return status;
    unsigned char *groups_dev = (unsigned char *)dev + part->n_rows * out->row_stride_bytes;
    unsigned char *order_dev = groups_dev + (uint64_t)part->n_rows * out->n_groups * sizeof(struct cuda_quant_group);
    out->data_dev = dev;
    status = upload_plane(b, part, out, ROWS, dev, err);
    if (k_format_is_plain(part->format))
        return status;
    out->groups_dev = (const struct cuda_quant_group *)(const void *)groups_dev;
    if (status == QUIRE_OK)
        status = upload_plane(b, part, out, GROUPS, groups_dev, err);
    if (status != QUIRE_OK || !part->permutation)
        return status;
    out->permutation_dev = (const uint32_t *)(const void *)order_dev;
    return cuda_upload(b, order_dev, part->permutation, part->n_cols * sizeof *part->permutation, err);
}

int cuda_quant_create(struct k_backend *b, const struct k_weight_view *parts, uint32_t n_parts, struct k_weight *w,
                      struct quire_error *err)
{
    uint32_t row = 0;
    int status = QUIRE_OK;
    for (uint32_t i = 0; i < n_parts && status == QUIRE_OK; row += parts[i].n_rows, i++) {
        const struct k_format format = parts[i].format;
        w->quant[i] = (struct cuda_quant){
            .kind = kind_of(format),
            .has_least = k_format_has_least(format),
            .has_zeros = parts[i].zero_points && format.bits == 8,
            .first_row = row,
            .n_rows = parts[i].n_rows,
            .group = format.group ? format.group : parts[i].n_cols,
            .n_groups = cuda_quant_groups(format, parts[i].n_cols),
            .x_group = k_quant_x_group(format),
            .x_scale = parts[i].x_scale,
            .row_stride_bytes = k_format_is_plain(format) ? cuda_weight_row_stride(format, parts[i].n_cols)
                                                          : cuda_quant_row_stride(format, parts[i].n_cols),
        };
        if (!k_format_codes(format, &w->quant[i].codes))
            w->quant[i].codes = k_codes_plain();
        w->n_quant = i + 1;
        status = create_part(b, &parts[i], &w->quant[i], err);
    }
    return status;
}

void cuda_quant_destroy(struct k_backend *b, struct k_weight *w)
{
    for (uint32_t i = 0; i < w->n_quant; i++)
        cuda_free(b, (void *)w->quant[i].data_dev);
}
