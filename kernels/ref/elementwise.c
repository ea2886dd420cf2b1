#include "kernels/args/rows.h"
#include "kernels/math/gate.h"
#include "kernels/math/convert.h"
#include "kernels/quant.h"
#include "kernels/ref/ref.h"

#include <string.h>

/* ---- embed ----------------------------------------------------------------------------------- */

/* Computes fma(scale, q, least) or scale · q, in the order of the input. */
static void quant_row(const struct k_weight_view *w, uint32_t row, bool into, float by, float *out)
{
    const bool has_least = k_format_has_least(w->format);
    float q[K_QUANT_READ], scale, least;
    for (uint32_t k = 0, end; k < w->n_cols; k = end) {
        end = k_group_end(w->format, w->n_cols, k);
        end = end - k > K_QUANT_READ ? k + K_QUANT_READ : end;
        k_quant_read(w, row, k, end, q);
        k_quant_scale(w, row, k, &scale, &least);
        for (uint32_t i = k; i < end; i++) {
            float v = (has_least ? __builtin_fmaf(scale, q[i - k], least) : scale * q[i - k]) * by;
            float *at = &out[w->permutation ? w->permutation[i] : i];
            *at = into ? *at + v : v;
        }
    }
}

/* by: 1 changes no bit. */
static void embed_row(const struct k_weight *table, uint32_t id, bool into, float by, float *restrict out)
{
    uint32_t i = 0;
    while (id >= table->parts[i].first_row + table->parts[i].view.n_rows)
        i++;
    const struct host_part *part = &table->parts[i];
    const void *row = host_row(part, id - part->first_row);
    uint32_t n = table->n_cols;
    if (!k_format_is_plain(part->view.format)) {
        quant_row(&part->view, id - part->first_row, into, by, out);
    } else if (part->view.format.kind == K_F32) {
        const float *f = row;
        for (uint32_t k = 0; k < n; k++)
            out[k] = into ? out[k] + f[k] * by : f[k] * by;
    } else if (part->view.format.kind == K_F16) {
        const uint16_t *h = row;
        for (uint32_t k = 0; k < n; k++)
            out[k] = into ? out[k] + k_f32_from_f16(h[k]) * by : k_f32_from_f16(h[k]) * by;
    } else {
        const uint16_t *h = row;
        for (uint32_t k = 0; k < n; k++)
            out[k] = into ? out[k] + k_f32_from_bf16(h[k]) * by : k_f32_from_bf16(h[k]) * by;
    }
}

static void embed_task(void *context, struct k_piece piece)
{
    const struct k_embed_args *a = context;
    uint64_t begin, end;
    k_pool_share(a->n_tokens, piece, &begin, &end);
    for (uint64_t t = begin; t < end; t++)
        embed_row(a->table, a->ids_dev[t], a->into, a->scale != 0 ? a->scale : 1.0f, a->out_dev + t * a->table->n_cols);
}

int ref_embed(struct k_backend *b, const struct k_embed_args *a, struct quire_error *err)
{
    for (uint32_t t = 0; t < a->n_tokens; t++) {
        if (a->ids_dev[t] >= a->table->n_rows)
            return quire_fail(err, QUIRE_INVALID, "embed: token id %u, the table has %u rows", a->ids_dev[t],
                              a->table->n_rows);
    }
    struct k_embed_args args = *a;
    host_run(b, (uint64_t)a->n_tokens * a->table->n_cols, embed_task, &args);
    return QUIRE_OK;
}

/* ---- gates ----------------------------------------------------------------------------------- */

/* A loop for each kind, so that the compiler makes vectors of each. */
static void gate_row(struct k_gate how, const float *restrict gate, const float *restrict up, float *restrict out,
                     uint32_t n)
{
    switch (how.kind) {
    case K_GATE_SILU:
        for (uint32_t i = 0; i < n; i++)
            out[i] = k_silu(gate[i]) * up[i];
        break;
    case K_GATE_GELU_TANH:
        for (uint32_t i = 0; i < n; i++)
            out[i] = k_gelu_tanh(gate[i]) * up[i];
        break;
    case K_GATE_CLAMPED:
        for (uint32_t i = 0; i < n; i++)
            out[i] = k_gate_clamped(gate[i], up[i], how.limit);
        break;
    }
}

void ref_gate_row(struct k_gate how, const float *gate_up, float *out, uint32_t n)
{
    gate_row(how, gate_up, gate_up + n, out, n);
}

static void gate_task(void *context, struct k_piece piece)
{
    const struct k_gemm_gated_args *a = context;
    uint64_t begin, end;
    k_pool_share(a->gemm.n_tokens, piece, &begin, &end);
    uint32_t n = a->gemm.weight->n_rows / 2;
    for (uint64_t t = begin; t < end; t++) {
        const float *gate = a->gemm.y_dev + t * 2 * n;
        gate_row(a->gate, gate, gate + n, a->out_dev + t * n, n);
    }
}

void ref_gate(struct k_backend *b, const struct k_gemm_gated_args *a)
{
    struct k_gemm_gated_args args = *a;
    host_run(b, (uint64_t)a->gemm.n_tokens * a->gemm.weight->n_rows * 4, gate_task, &args);
}

int ref_gemm_gated(struct k_backend *b, const struct k_gemm_gated_args *a, struct quire_error *err)
{
    int status = k_check_gate_up(a->gemm.weight->n_rows, err);
    if (status == QUIRE_OK)
        status = ref_gemm(b, &a->gemm, err);
    if (status == QUIRE_OK)
        ref_gate(b, a);
    return status;
}

/* ---- gather ---------------------------------------------------------------------------------- */

int ref_gather(struct k_backend *b, const struct k_gather_args *a, struct quire_error *err)
{
    (void)b;
    (void)err;
    uint64_t n = a->n_cols;
    for (uint64_t i = 0; i < a->n_rows; i++)
        memcpy(a->out_dev + i * n, a->x_dev + a->index_dev[i] * n, (size_t)n * sizeof(float));
    return QUIRE_OK;
}

/* ---- place_tokens ----------------------------------------------------------------------------- */

int ref_place_tokens(struct k_backend *b, const struct k_place_tokens_args *a, struct quire_error *err)
{
    (void)b;
    (void)err;
    for (uint32_t i = 0; i < a->n; i++)
        if (a->sources_dev[i].token != K_NO_TOKEN)
            a->ids_dev[a->sources_dev[i].token] = a->sampled_dev[a->sources_dev[i].row];
    return QUIRE_OK;
}
