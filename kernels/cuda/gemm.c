/* GEMM: which kernel takes it. The form decides the bits, the number of tokens only the speed. */
#include "kernels/cuda/launch.h"

int cuda_gemm(struct k_backend *b, const struct k_gemm_args *a, struct quire_error *err)
{
    int status = cuda_alive(b, err);
    if (status == QUIRE_OK && !cuda_supports_form(b, b->form, a->weight->dtype))
        status = quire_fail(err, QUIRE_UNSUPPORTED, "gemm: the form %s does not take %s weights", k_form_name(b->form),
                            k_dtype_name(a->weight->dtype));
    if (status != QUIRE_OK || a->n_tokens == 0)
        return status;
    cudaStream_t stream = cuda_of(b)->stream;
    cudaError_t error = b->form == K_FORM_LANE                      ? launch_gemm_lane(stream, a)
                        : a->n_tokens <= CUDA_GEMM_SMALL_TOKENS ? launch_gemm_small(stream, a)
                                                                    : launch_gemm_large(stream, a);
    return cuda_check(b, error, "gemm", err);
}
