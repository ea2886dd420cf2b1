#include "kernels/host/host.h"
#include "kernels/weight_view.h"

#include <stdlib.h>

/* With zero points, q may exceed the range of a byte. */
static bool is_bytes(const struct k_weight_view *w)
{
    const uint32_t group = w->format.group;
    const uint64_t n = w->n_rows * (group ? ((uint64_t)w->n_cols + group - 1) / group : 1);
    const int least = w->format.bits == 4 ? 15 - INT8_MAX : 0, most = w->format.bits == 4 ? INT8_MAX : 0;
    if (k_format_is_plain(w->format) || w->format.kind != K_INT)
        return false;
    for (uint64_t i = 0; w->zero_points && i < n; i++)
        if (w->zero_points[i] < least || w->zero_points[i] > most)
            return false;
    return true;
}

int host_weight_create(struct k_backend *b, const struct k_weight_view *parts, uint32_t n_experts, uint32_t n_parts,
                       struct k_weight **out, struct quire_error *err)
{
    (void)b;
    *out = NULL;
    uint32_t n_rows = 0;
    int status = k_weight_check_experts(parts, n_experts, n_parts, &n_rows, err);
    if (status != QUIRE_OK)
        return status;
    struct k_weight *w = calloc(1, sizeof *w + (size_t)n_experts * n_parts * sizeof *w->parts);
    if (!w)
        return quire_fail(err, QUIRE_NO_MEMORY, "weight: out of memory");
    w->n_experts = n_experts;
    w->n_parts = n_parts;
    w->n_rows = n_rows;
    w->n_cols = parts[0].n_cols;
    uint32_t row = 0;
    for (uint32_t i = 0; i < n_experts * n_parts; i++) {
        row = i % n_parts == 0 ? 0 : row;
        w->parts[i] = (struct host_part){.view = parts[i], .first_row = row, .is_bytes = is_bytes(&parts[i])};
        row += parts[i].n_rows;
    }
    *out = w;
    return QUIRE_OK;
}

void host_weight_destroy(struct k_backend *b, struct k_weight *w)
{
    if (w)
        b->ops->free(b, w->repacked);
    free(w);
}

static bool form_takes(enum k_gemm_form form, struct k_format weights)
{
    switch (form) {
    case K_FORM_LANE: return true;
    case K_FORM_TILE: return weights.kind == K_BF16 || weights.kind == K_F16;
    case K_FORM_TILE_BF16: return weights.kind == K_BF16;
    case K_FORM_INT8: return k_format_is_plain(weights) || weights.kind == K_INT;
    case K_FORM_MMA:
    case K_FORM_AUTO: break;
    }
    return false;
}

bool host_supports(struct k_backend *b, enum k_operation operation, enum k_gemm_form form, struct k_format format)
{
    (void)b;
    return k_takes_format(operation, format) &&
           ((operation != K_OP_GEMM && operation != K_OP_GEMM_GATED) || form_takes(form, format));
}

int host_check_form(struct k_backend *b, const struct k_weight *w, struct quire_error *err)
{
    for (uint32_t p = 0; p < w->n_parts; p++) {
        if (!form_takes(b->form, w->parts[p].view.format))
            return quire_fail(err, QUIRE_UNSUPPORTED, "gemm: the %s form does not support %s weights",
                              k_form_name(b->form), k_format_name(w->parts[p].view.format));
    }
    return QUIRE_OK;
}
