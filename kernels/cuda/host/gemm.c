/* GEMM: selects the kernel. The form determines the bits; the number of tokens affects only the speed. */
#include "kernels/cuda/host/operations.h"
#include "kernels/cuda/host/cublaslt.h"
#include "kernels/cuda/launch.h"
#include "kernels/check.h"

bool cuda_supports(struct k_backend *b, enum k_operation operation, enum k_gemm_form form, struct k_format format)
{
    (void)b;
    bool is_gemm = operation == K_OP_GEMM || operation == K_OP_GEMM_SILU_MUL;
    const bool is_plain = k_format_is_plain(format);
    bool has_form = form == K_FORM_LANE || (form == K_FORM_MMA && is_plain && format.kind != K_F32) ||
                    (form == K_FORM_INT8 && (is_plain || format.kind == K_INT));
    return k_takes_format(operation, format) && (!is_gemm || has_form);
}

static bool takes_weight(struct k_backend *b, const struct k_weight *w)
{
    bool takes = w->n_quant > 0 || cuda_supports(b, K_OP_GEMM, b->form, w->format);
    for (uint32_t i = 0; i < w->n_quant; i++) {
        enum cuda_quant_kind kind = w->quant[i].kind;
        takes &= b->form == K_FORM_LANE ||
                 (b->form == K_FORM_INT8 && kind != CUDA_QUANT_E4M3 && kind != CUDA_QUANT_E5M2);
    }
    return takes;
}

/* Sets *done if NVIDIA's library has computed the GEMM. SiLU is then a separate launch. */
static int gemm_by_library(struct k_backend *b, const struct k_gemm_args *a, const struct cuda_gated *gated, bool *done,
                           struct quire_error *err)
{
    struct cuda_backend *c = cuda_of(b);
    *done = false;
    if (!c->lt ||
        a->n_tokens <= CUDA_GEMM_SMALL_TOKENS) /* fewer tokens are limited by reading weights, where our kernels are
                                                * as fast */
        return QUIRE_OK;
    int status = cublaslt_gemm(b, a, done, err);
    if (status != QUIRE_OK || !*done || !gated)
        return status;
    cudaError_t error = launch_silu_mul(c->stream, a->y_dev, gated, a->n_tokens, a->weight->n_rows / 2);
    return cuda_check(b, error, "silu", err);
}

/* gated: the destination of silu(gate) · up, or NULL. */
static int gemm(struct k_backend *b, const struct k_gemm_args *args, const struct cuda_gated *gated,
                const char *operation, struct quire_error *err)
{
    struct k_gemm_args a = *args;
    int status = cuda_alive(b, err);
    if (status == QUIRE_OK && !takes_weight(b, a.weight))
        status = quire_fail(err, QUIRE_UNSUPPORTED, "%s: the %s form does not support %s weights", operation,
                            k_form_name(b->form), k_format_name(a.weight->format));
    if (status != QUIRE_OK || a.n_tokens == 0)
        return status;
    a.x_for_gemm = cuda_leaves_factors(b, a.x_for_gemm, a.x_dev, a.weight->n_cols);
    if (a.weight->n_quant > 0) {
        cudaError_t error = launch_gemm_quant(cuda_of(b)->stream, &a, gated, b->form == K_FORM_INT8);
        return cuda_check(b, error, operation, err);
    }
    bool done;
    status = gemm_by_library(b, &a, gated, &done, err);
    if (status != QUIRE_OK || done)
        return status;
    struct cuda_backend *c = cuda_of(b);
    cudaStream_t stream = c->stream;
    const struct cuda_gemm_means gpu = {c->n_sms, c->shared_bytes, c->arrivals_dev};
    cudaError_t error = launch_gemm_hopper(b->form == K_FORM_MMA ? c->hopper : NULL, stream, &a, gated, &done);
    if (error != cudaSuccess || done)
        return cuda_check(b, error, operation, err);
    error = b->form != K_FORM_MMA                  ? launch_gemm_lane(stream, &a, gated)
            : a.n_tokens <= CUDA_GEMM_SMALL_TOKENS ? launch_gemm_small(stream, &a, gated)
                                                   : launch_gemm_large(stream, &a, gated, &gpu);
    return cuda_check(b, error, operation, err);
}

int cuda_gemm(struct k_backend *b, const struct k_gemm_args *a, struct quire_error *err)
{
    return gemm(b, a, NULL, "gemm", err);
}

int cuda_gemm_silu_mul(struct k_backend *b, const struct k_gemm_silu_mul_args *a, struct quire_error *err)
{
    int status = k_check_gate_up(a->gemm.weight->n_rows, err);
    if (status != QUIRE_OK)
        return status;
    bool as_factors = cuda_leaves_factors(b, a->for_gemm, a->out_dev, a->gemm.weight->n_rows / 2);
    return gemm(b, &a->gemm, &(struct cuda_gated){a->out_dev, as_factors}, "gemm_silu_mul", err);
}
