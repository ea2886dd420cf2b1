/* The GEMM of many tokens on Hopper: the kernels as gemm_hopper.cu launches them and open.cu tries them. Needs no
 * CUDA headers of sm_90a. Private to kernels/cuda; the engine's thread. */
#ifndef QUIRE_KERNELS_CUDA_HOPPER_GEMM_HOPPER_H
#define QUIRE_KERNELS_CUDA_HOPPER_GEMM_HOPPER_H

#include "kernels/args/gemm.h"
#include "kernels/cuda/gemm_launch.h"

/* What a kernel sums. TAILS: some segments end within a stage. */
enum hopper_kind { HOPPER_PLAIN, HOPPER_GATED, HOPPER_SEGMENTS, HOPPER_TAILS };
#define HOPPER_KINDS 4
#define HOPPER_VARIANTS 10

/* Returns NULL if this GPU, its driver or this build lacks a requirement, or if host memory is full. Runs no trial. */
struct cuda_gemm_hopper *gemm_hopper_new(const struct cuda_gemm_means *gpu);

/* Kernels are numbered below HOPPER_VARIANTS: `variant` of their rows. */
enum hopper_kind gemm_hopper_kind(uint32_t variant);
bool gemm_hopper_is_refused(const struct cuda_gemm_hopper *h, enum hopper_kind kind);
void gemm_hopper_refuse(struct cuda_gemm_hopper *h, enum hopper_kind kind);

#endif
