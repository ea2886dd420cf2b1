/* GEMM: which kernel takes it. The form decides the bits, the number of tokens only the speed. */
#include "kernels/cuda/launch.h"
#include "kernels/host/check.h"

/* gated_out_dev: where silu(gate) · up goes, or NULL. */
static int gemm(struct k_backend *b, const struct k_gemm_args *a, float *gated_out_dev, const char *operation, struct quire_error *err)
{
    int status = cuda_alive(b, err);
    if (status == QUIRE_OK && !cuda_supports_form(b, b->form, a->weight->dtype))
        status = quire_fail(err, QUIRE_UNSUPPORTED, "%s: the form %s does not take %s weights", operation, k_form_name(b->form),
                            k_dtype_name(a->weight->dtype));
    if (status != QUIRE_OK || a->n_tokens == 0)
        return status;
    cudaStream_t stream = cuda_of(b)->stream;
    cudaError_t error = b->form == K_FORM_LANE                  ? launch_gemm_lane(stream, a, gated_out_dev)
                        : a->n_tokens <= CUDA_GEMM_SMALL_TOKENS ? launch_gemm_small(stream, a, gated_out_dev)
                                                                : launch_gemm_large(stream, a, gated_out_dev);
    return cuda_check(b, error, operation, err);
}

int cuda_gemm(struct k_backend *b, const struct k_gemm_args *a, struct quire_error *err)
{
    return gemm(b, a, NULL, "gemm", err);
}

int cuda_gemm_silu_mul(struct k_backend *b, const struct k_gemm_silu_mul_args *a, struct quire_error *err)
{
    int status = host_check_gate_up(a->gemm.weight->n_rows, err);
    return status == QUIRE_OK ? gemm(b, &a->gemm, a->out_dev, "gemm_silu_mul", err) : status;
}
