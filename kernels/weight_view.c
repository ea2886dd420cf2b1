#include "kernels/weight_view.h"

static int check_part(const struct k_weight_view *part, uint32_t index, uint32_t n_cols, struct quire_error *err)
{
    if (part->dtype != K_F32 && part->dtype != K_F16 && part->dtype != K_BF16)
        return quire_fail(err, QUIRE_UNSUPPORTED, "weight part %u: unknown dtype %d", index, (int)part->dtype);
    if (!part->data || part->n_rows == 0 || part->n_cols == 0)
        return quire_fail(err, QUIRE_INVALID, "weight part %u: empty", index);
    if (part->n_cols != n_cols)
        return quire_fail(err, QUIRE_INVALID, "weight part %u: has %u columns, part 0 has %u", index, part->n_cols,
                          n_cols);
    size_t size = k_dtype_bytes(part->dtype);
    if ((uintptr_t)part->data % size != 0 || part->row_stride_bytes % size != 0 ||
        part->row_stride_bytes < (uint64_t)n_cols * size)
        return quire_fail(err, QUIRE_INVALID, "weight part %u: misaligned, or its rows overlap", index);
    return QUIRE_OK;
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
