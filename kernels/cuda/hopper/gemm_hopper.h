/* The GEMM of many tokens on Hopper: its kernels, as gemm_hopper.cu launches them and open.cu tries them. Without CUDA's
 * headers of sm_90a. */
#ifndef QUIRE_KERNELS_CUDA_HOPPER_GEMM_HOPPER_H
#define QUIRE_KERNELS_CUDA_HOPPER_GEMM_HOPPER_H

#include "kernels/cuda/launch.h"

/* What a kernel sums. Tails: segments of which some end within a stage. */
enum hopper_kind { HOPPER_PLAIN, HOPPER_GATED, HOPPER_SEGMENTS, HOPPER_TAILS };
#define HOPPER_KINDS 4
#define HOPPER_VARIANTS 10

/* NULL: this GPU, its driver or this build lacks what is needed, or the host's memory is full. Nothing was tried. */
struct cuda_gemm_hopper *gemm_hopper_new(const struct cuda_gemm_means *gpu, int compute_capability);

/* The kernels by an index below HOPPER_VARIANTS. */
enum hopper_kind gemm_hopper_kind(uint32_t variant);
bool gemm_hopper_is_refused(const struct cuda_gemm_hopper *h, enum hopper_kind kind);
void gemm_hopper_refuse(struct cuda_gemm_hopper *h, enum hopper_kind kind);
/* As launch_gemm_hopper(), by one kernel that is of the GEMM's kind. */
cudaError_t gemm_hopper_try(const struct cuda_gemm_hopper *h, cudaStream_t stream, const struct k_gemm_args *a,
                            const struct cuda_gated *gated, uint32_t variant, bool *done);

#endif
