#include "kernels/weight_view.h"

#include "kernels/quant.h"

struct k_weight_view k_plain_view(const void *data, enum k_dtype dtype, uint32_t n_rows, uint32_t n_cols,
                                  uint64_t row_stride_bytes)
{
    return (struct k_weight_view){.data = data,
                                  .format = k_format_of(dtype),
                                  .n_rows = n_rows,
                                  .n_cols = n_cols,
                                  .row_stride_bytes = row_stride_bytes};
}

static int check_planes(const struct k_weight_view *part, uint32_t index, struct quire_error *err)
{
    const bool has_planes = part->format.packing == K_PACKING_PLANES;
    if (has_planes != (part->scales != NULL) ||
        (!has_planes && (part->zero_points || part->permutation || part->scale_rows || part->scale_step)))
        return quire_fail(err, QUIRE_INVALID, "weight part %u: %s %s scales, zero points or permutation", index,
                          k_format_name(part->format), has_planes ? "needs" : "cannot have");
    for (uint32_t k = 0; part->permutation && k < part->n_cols; k++)
        if (part->permutation[k] >= part->n_cols)
            return quire_fail(err, QUIRE_INVALID, "weight part %u: column %u maps to input %u, there are %u", index, k,
                              part->permutation[k], part->n_cols);
    return QUIRE_OK;
}

static int check_part(const struct k_weight_view *part, uint32_t index, uint32_t n_cols, struct quire_error *err)
{
    const bool is_plain = k_format_is_plain(part->format);
    const struct k_blocks *blocks = k_blocks_of(part->format.packing);
    if (!is_plain && !k_format_is_quantized(part->format))
        return quire_fail(err, QUIRE_UNSUPPORTED, "weight part %u: no kernel supports %u-bit %s in groups of %u", index,
                          part->format.bits, k_format_name(part->format), part->format.group);
    if (!part->data || part->n_rows == 0 || part->n_cols == 0)
        return quire_fail(err, QUIRE_INVALID, "weight part %u: empty", index);
    if (part->n_cols != n_cols)
        return quire_fail(err, QUIRE_INVALID, "weight part %u: has %u columns, part 0 has %u", index, part->n_cols,
                          n_cols);
    if (blocks && n_cols % blocks->columns != 0)
        return quire_fail(err, QUIRE_INVALID, "weight part %u: %u columns are not a whole number of %s blocks", index,
                          n_cols, blocks->name);
    size_t size = is_plain ? k_dtype_bytes(part->format.kind) : 1;
    if ((uintptr_t)part->data % size != 0 || part->row_stride_bytes % size != 0 ||
        part->row_stride_bytes < k_format_bytes(part->format, n_cols))
        return quire_fail(err, QUIRE_INVALID, "weight part %u: misaligned or overlapping rows", index);
    if (part->whole && (!is_plain || (uintptr_t)part->whole % size != 0 || part->whole_cols < n_cols ||
                        part->row_stride_bytes < k_format_bytes(part->format, part->whole_cols)))
        return quire_fail(err, QUIRE_INVALID, "weight part %u: not a column range of the rows of `whole`", index);
    return check_planes(part, index, err);
}

int k_weight_check(const struct k_weight_view *parts, uint32_t n_parts, uint32_t *n_rows, struct quire_error *err)
{
    if (n_parts == 0 || n_parts > K_WEIGHT_MAX_PARTS)
        return quire_fail(err, QUIRE_INVALID, "weight: %u parts, must be 1 to %d", n_parts, K_WEIGHT_MAX_PARTS);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n_parts; i++) {
        int status = check_part(&parts[i], i, parts[0].n_cols, err);
        if (status != QUIRE_OK)
            return status;
        sum += parts[i].n_rows;
    }
    if (sum > UINT32_MAX)
        return quire_fail(err, QUIRE_INVALID, "weight: more than 2^32 rows");
    *n_rows = (uint32_t)sum;
    return QUIRE_OK;
}

int k_weight_check_experts(const struct k_weight_view *parts, uint32_t n_experts, uint32_t n_parts, uint32_t *n_rows,
                           struct quire_error *err)
{
    if (n_experts == 0)
        return quire_fail(err, QUIRE_INVALID, "weight: has no experts, must have at least one");
    int status = k_weight_check(parts, n_parts, n_rows, err);
    for (uint32_t e = 1; status == QUIRE_OK && e < n_experts; e++) {
        uint32_t rows;
        status = k_weight_check(parts + (size_t)e * n_parts, n_parts, &rows, err);
        if (status == QUIRE_OK && (rows != *n_rows || parts[(size_t)e * n_parts].n_cols != parts->n_cols))
            status = quire_fail(err, QUIRE_INVALID, "weight: expert %u is %u × %u, but expert 0 is %u × %u", e, rows,
                                parts[(size_t)e * n_parts].n_cols, *n_rows, parts->n_cols);
    }
    return status;
}
