/* The kernels of GEMMs that the .cu files export to host/gemm.c, whose table has a row for each (kernels/kernel_table.h).
 * The rules of launch.h apply. Private to kernels/cuda; the engine's thread. */
#ifndef QUIRE_KERNELS_CUDA_GEMM_LAUNCH_H
#define QUIRE_KERNELS_CUDA_GEMM_LAUNCH_H

#include "kernels/args/gemm.h"
#include "kernels/cuda/launch.h"
#include "kernels/kernel_table.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_moe_call;

/* What a GEMM may use of the GPU. */
struct cuda_gemm_means {
    uint32_t n_sms, shared_bytes; /* multiprocessors; the most shared memory of a block */
    uint32_t compute_capability; /* 90 for sm_90: `arch` of the rows */
    uint32_t *arrivals_dev; /* [CUDA_GEMM_ARRIVALS], 0 before and after each launch */
    const struct cuda_gemm_hopper *hopper; /* NULL: the kernels of hopper/ are not used */
};

/* The `call` of the rows. Of experts' GEMMs `args` has all experts' weight, and n_tokens is the rows of x. */
struct cuda_gemm_call {
    const struct k_gemm_args *args;
    const struct cuda_gated *gated; /* or NULL */
    const struct cuda_gemm_means *gpu;
    cudaStream_t stream;
    const struct cuda_moe_call *moe; /* NULL: no GEMM of experts */
};

/* Returns the launch's error. cudaErrorNotSupported: nothing was launched, and the next row may compute the GEMM. */
typedef cudaError_t cuda_gemm_launch_fn(const struct k_kernel *kernel, const struct cuda_gemm_call *call);
struct cuda_gemm_kernel {
    struct k_kernel kernel;
    cuda_gemm_launch_fn *launch;
};

/* gemm_lane.cu; experts, too */
cuda_gemm_launch_fn launch_gemm_lane;
/* gemm_quant.cu: quantized weights in the lane form (variant 0), or in the form int8 (variant 1); experts, too */
cuda_gemm_launch_fn launch_gemm_quant;
/* gemm_small.cu: the mma form of few tokens */
#define CUDA_GEMM_SMALL_TOKENS 32u
cuda_gemm_launch_fn launch_gemm_small;
/* gemm_large.cu: the mma form, any number of tokens; clocks are those of an SM. The variants are the rows and tokens
 * of a block. */
enum cuda_gemm_large {
    CUDA_LARGE_128X64, /* at most 64 tokens, as all variants with 64 but 64x64 */
    CUDA_LARGE_64X64,
    CUDA_LARGE_192X128,
    CUDA_LARGE_128X128,
    CUDA_LARGE_224X64,
    CUDA_LARGE_SPREAD, /* gemm_small.cu's tile, whose warps share the chunks */
    CUDA_LARGE_VARIANTS
};
bool cuda_gemm_large_takes(const struct k_kernel *kernel, const void *call);
uint64_t cuda_gemm_large_clocks(const struct k_kernel *kernel, const void *call);
cuda_gemm_launch_fn launch_gemm_large;

/* The same kernels for experts (moe/list.h). The variants are the tokens of a tile: 8, 16 or 32, and 64 or 128. */
cuda_gemm_launch_fn launch_gemm_small_grouped;
cuda_gemm_launch_fn launch_gemm_large_grouped;

/* hopper/: more than 64 tokens of the mma form on Hopper, with gemm_large.cu's bits. Opening runs both on small
 * GEMMs and rejects kinds that differ; it returns only errors of the GPU. *out: NULL if the GPU, the driver or this
 * build lacks a requirement. The variants are those of hopper/gemm_hopper.h; clocks are ns. */
struct cuda_gemm_hopper;
cudaError_t cuda_gemm_hopper_open(cudaStream_t stream, const struct cuda_gemm_means *gpu,
                                  struct cuda_gemm_hopper **out);
void cuda_gemm_hopper_close(struct cuda_gemm_hopper *h); /* NULL is allowed */
const char *cuda_gemm_hopper_refusals(
    const struct cuda_gemm_hopper *h); /* text for a description; empty if nothing was rejected */
/* Makes w->tensor_maps, after all else of the weight; a map that cannot be made is not marked as there, and the
 * kernels that need it do not take the weight. h may be NULL. */
void cuda_gemm_hopper_describe(const struct cuda_gemm_hopper *h, struct k_weight *w);
bool cuda_gemm_hopper_takes(const struct k_kernel *kernel, const void *call);
uint64_t cuda_gemm_hopper_clocks(const struct k_kernel *kernel, const void *call);
cuda_gemm_launch_fn launch_gemm_hopper;

#ifdef __cplusplus
}
#endif

#endif
