#include "kernels/host/host.h"

#include <stdlib.h>

static int check_part(const struct k_weight_view *part, uint32_t index, uint32_t n_cols,
                      struct quire_error *err)
{
    if (part->dtype != K_F32 && part->dtype != K_F16 && part->dtype != K_BF16)
        return quire_fail(err, QUIRE_UNSUPPORTED, "weight part %u: unknown dtype %d", index,
                          (int)part->dtype);
    if (!part->data || part->n_rows == 0 || part->n_cols == 0)
        return quire_fail(err, QUIRE_INVALID, "weight part %u: empty", index);
    if (part->n_cols != n_cols)
        return quire_fail(err, QUIRE_INVALID, "weight part %u: has %u columns, part 0 has %u",
                          index, part->n_cols, n_cols);
    size_t size = k_dtype_bytes(part->dtype);
    if ((uintptr_t)part->data % size != 0 || part->row_stride_bytes % size != 0 ||
        part->row_stride_bytes < (uint64_t)n_cols * size)
        return quire_fail(err, QUIRE_INVALID,
                          "weight part %u: misaligned, or its rows overlap", index);
    return QUIRE_OK;
}

int host_weight_create(struct k_backend *b, const struct k_weight_view *parts, uint32_t n_parts,
                      struct k_weight **out, struct quire_error *err)
{
    (void)b;
    *out = NULL;
    if (n_parts == 0 || n_parts > K_WEIGHT_MAX_PARTS)
        return quire_fail(err, QUIRE_INVALID, "weight: %u parts, must be 1 to %d", n_parts,
                          K_WEIGHT_MAX_PARTS);
    struct k_weight *w = calloc(1, sizeof *w);
    if (!w)
        return quire_fail(err, QUIRE_NO_MEMORY, "weight: out of memory");
    w->n_parts = n_parts;
    w->n_cols = parts[0].n_cols;
    uint64_t n_rows = 0;
    for (uint32_t i = 0; i < n_parts; i++) {
        int status = check_part(&parts[i], i, w->n_cols, err);
        if (status == QUIRE_OK && n_rows + parts[i].n_rows > UINT32_MAX)
            status = quire_fail(err, QUIRE_INVALID, "weight: more than 2^32 rows");
        if (status != QUIRE_OK) {
            free(w);
            return status;
        }
        w->parts[i] = (struct host_part){
            .data = parts[i].data,
            .dtype = parts[i].dtype,
            .first_row = (uint32_t)n_rows,
            .n_rows = parts[i].n_rows,
            .row_stride_bytes = parts[i].row_stride_bytes,
        };
        n_rows += parts[i].n_rows;
    }
    w->n_rows = (uint32_t)n_rows;
    *out = w;
    return QUIRE_OK;
}

void host_weight_destroy(struct k_backend *b, struct k_weight *w)
{
    (void)b;
    free(w);
}

bool host_supports_form(struct k_backend *b, enum k_gemm_form form, enum k_dtype weights)
{
    (void)b;
    switch (form) {
    case K_FORM_LANE: return true;
    case K_FORM_TILE: return weights == K_BF16 || weights == K_F16;
    case K_FORM_TILE_BF16: return weights == K_BF16;
    case K_FORM_MMA:
    case K_FORM_AUTO: break;
    }
    return false;
}

int host_check_form(struct k_backend *b, const struct k_weight *w, struct quire_error *err)
{
    for (uint32_t p = 0; p < w->n_parts; p++) {
        if (!host_supports_form(b, b->form, w->parts[p].dtype))
            return quire_fail(err, QUIRE_UNSUPPORTED, "gemm: the form %s does not take %s weights",
                              k_form_name(b->form), k_dtype_name(w->parts[p].dtype));
    }
    return QUIRE_OK;
}
