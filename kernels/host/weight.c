#include "kernels/host/host.h"
#include "kernels/weight_view.h"

#include <stdlib.h>

/* With zero points, q may exceed the range of a byte. */
static bool is_bytes(const struct k_weight_view *w)
{
    const uint32_t group = w->format.group;
    const uint64_t n = w->n_rows * (group ? ((uint64_t)w->n_cols + group - 1) / group : 1);
    const int least = w->format.bits == 4 ? 15 - INT8_MAX : 0, most = w->format.bits == 4 ? INT8_MAX : 0;
    if (!k_format_is_integers(w->format))
        return false;
    for (uint64_t i = 0; w->zero_points && i < n; i++)
        if (w->zero_points[i] < least || w->zero_points[i] > most)
            return false;
    return true;
}

static struct k_weight *new_weight(const struct k_weight_view *parts, uint32_t n_parts, uint32_t n_rows)
{
    struct k_weight *w = calloc(1, sizeof *w + n_parts * sizeof *w->parts);
    uint32_t row = 0;
    if (!w)
        return NULL;
    *w = (struct k_weight){.n_rows = n_rows, .n_cols = parts->n_cols, .n_parts = n_parts, .n_experts = 1};
    for (uint32_t i = 0; i < n_parts; i++) {
        w->parts[i] = (struct host_part){.view = parts[i], .first_row = row, .is_bytes = is_bytes(&parts[i])};
        row += parts[i].n_rows;
    }
    return w;
}

/* NULL: memory is out. */
static struct k_weight *new_experts(struct k_backend *b, const struct k_weight_view *parts, uint32_t n_experts,
                                    uint32_t n_parts, uint32_t n_rows)
{
    struct k_weight *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    *w = (struct k_weight){.n_rows = n_rows, .n_cols = parts->n_cols, .n_experts = n_experts};
    w->experts = calloc(n_experts, sizeof *w->experts);
    bool is_made = w->experts != NULL;
    for (uint32_t e = 0; is_made && e < n_experts; e++) {
        w->experts[e] = new_weight(parts + (size_t)e * n_parts, n_parts, n_rows);
        is_made = w->experts[e] != NULL;
    }
    if (is_made)
        return w;
    host_weight_destroy(b, w);
    return NULL;
}

int host_weight_create(struct k_backend *b, const struct k_weight_view *parts, uint32_t n_experts, uint32_t n_parts,
                       struct k_weight **out, struct quire_error *err)
{
    *out = NULL;
    uint32_t n_rows = 0;
    int status = k_weight_check_experts(parts, n_experts, n_parts, &n_rows, err);
    if (status != QUIRE_OK)
        return status;
    *out = n_experts == 1 ? new_weight(parts, n_parts, n_rows) : new_experts(b, parts, n_experts, n_parts, n_rows);
    return *out ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "weight: out of memory");
}

void host_weight_destroy(struct k_backend *b, struct k_weight *w)
{
    for (uint32_t e = 0; w && w->experts && e < w->n_experts; e++)
        host_weight_destroy(b, w->experts[e]);
    if (w) {
        b->ops->free(b, w->repacked);
        free(w->experts);
    }
    free(w);
}

static bool form_takes(enum k_gemm_form form, struct k_format weights)
{
    switch (form) {
    case K_FORM_LANE: return true;
    case K_FORM_TILE: return weights.kind == K_BF16 || weights.kind == K_F16;
    case K_FORM_TILE_BF16: return weights.kind == K_BF16;
    case K_FORM_INT8: return k_format_is_plain(weights) || k_format_is_integers(weights);
    case K_FORM_MMA:
    case K_FORM_AUTO: break;
    }
    return false;
}

bool host_supports(struct k_backend *b, enum k_operation operation, enum k_gemm_form form, struct k_format format)
{
    (void)b;
    const bool is_gemm = operation == K_OP_GEMM || operation == K_OP_GEMM_GATED || operation == K_OP_MOE_GEMM ||
                         operation == K_OP_MOE_GEMM_GATED;
    return k_takes_format(operation, format) && (!is_gemm || form_takes(form, format));
}

int host_check_form(struct k_backend *b, const struct k_weight *w, struct quire_error *err)
{
    for (uint32_t e = 0; w->experts && e < w->n_experts; e++) {
        const int status = host_check_form(b, w->experts[e], err);
        if (status != QUIRE_OK)
            return status;
    }
    for (uint32_t p = 0; p < w->n_parts; p++) {
        if (!form_takes(b->form, w->parts[p].view.format))
            return quire_fail(err, QUIRE_UNSUPPORTED, "gemm: the %s form does not support %s weights",
                              k_form_name(b->form), k_format_name(w->parts[p].view.format));
    }
    return QUIRE_OK;
}
