/* What the .cu files export to the host side: each queues its kernels on the stream and returns the launch's error.
 * Arguments were checked by the caller. Dimensions of 0 never come here. for_gemm and x_for_gemm say here that the buffer holds
 * factors (factors.cuh). */
#ifndef QUIRE_KERNELS_CUDA_LAUNCH_H
#define QUIRE_KERNELS_CUDA_LAUNCH_H

#include "kernels/cuda/host/state.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where silu(gate) · up of a GEMM goes whose rows are gate's and then up's; nothing goes to y_dev. NULL: y does, as it is. */
struct cuda_gated {
    float *out_dev;
    bool as_factors;
};

/* A group's memory, as kernels reach it (peers.cuh). */
enum {
    CUDA_CONTROL_ABORT,
    CUDA_CONTROL_OVER,
    CUDA_CONTROL_LATE,
    CUDA_CONTROL_ARRIVED, /* fold.cu's turns */
    CUDA_CONTROL_LEFT,
    CUDA_CONTROL_WORDS
};
struct cuda_peers {
    unsigned char *memory[K_MAX_RANKS]; /* of each rank, CUDA_PEER_BYTES */
    unsigned char *own; /* this one's */
    uint32_t
        *control; /* in host memory: the host's word that all is over; a kernel's that it is, and the rank that did not
                          * come, counted from 1 */
    uint64_t timeout_ns;
    uint32_t rank, n_ranks;
};

/* A part of what ranks bring together through NCCL: n elements from `from` on. */
struct cuda_fold {
    float *gathered; /* [ranks][n]; of a sum that NCCL has added [n] */
    uint32_t *control; /* struct cuda_peers' */
    uint64_t from;
    uint32_t n;
    uint32_t turn; /* of the gathering, counted from 1 */
};

/* weight.cu */
cudaError_t launch_weight_exponents(cudaStream_t stream, const struct k_weight *w,
                                    uint64_t row_stride_bytes); /* of BF16 rows so far apart at w->data_dev */
cudaError_t launch_weight_factors(cudaStream_t stream,
                                  const struct k_weight *w); /* BF16 in place, by w->exponents_dev */
/* load.cu */
/* Loads every kernel, also behind one that fails. The first error and that kernel's name, as the compiler has it in a longer text. */
cudaError_t launch_load_all(const char **name);
/* elementwise.cu */
cudaError_t launch_embed(cudaStream_t stream, const struct k_embed_args *a);
cudaError_t launch_silu_mul(cudaStream_t stream, const float *gate_up, const struct cuda_gated *gated,
                            uint32_t n_tokens, uint32_t n); /* [T, 2 n] to [T, n] */
cudaError_t launch_gather(cudaStream_t stream, const struct k_gather_args *a);
/* The activations' f16 factors, x · 2^-4, in rows of cuda_gemm_factor_stride() that end in zeros. */
cudaError_t launch_gemm_factors(cudaStream_t stream, const struct k_gemm_args *a, void *factors);
cudaError_t launch_place_tokens(cudaStream_t stream, const struct k_place_tokens_args *a);
/* encode.cu */
cudaError_t launch_layernorm(cudaStream_t stream, const struct k_layernorm_args *a);
cudaError_t launch_activate(cudaStream_t stream, const struct k_activate_args *a);
cudaError_t launch_pool(cudaStream_t stream, const struct k_pool_args *a);
/* rmsnorm.cu */
cudaError_t launch_rmsnorm(cudaStream_t stream, const struct k_rmsnorm_args *a);
/* Whether the rows are few and small enough for a launch that adds up the ranks' parts, too; of 2, 4 or 8 ranks. */
bool cuda_fuses_sum(uint32_t n_ranks, const struct k_rmsnorm_args *a);
cudaError_t launch_rmsnorm_of_sum(cudaStream_t stream, const struct cuda_peers *p, const struct k_rmsnorm_args *a);
/* rope.cu */
cudaError_t launch_rope_angles(cudaStream_t stream, const struct k_rope_angles_args *a);
cudaError_t launch_rope_kv(cudaStream_t stream, const struct k_rope_kv_args *a);
/* kv_copy.cu */
cudaError_t launch_kv_copy(cudaStream_t stream, const struct k_kv_copy_args *a);
/* gemm_lane.cu */
cudaError_t launch_gemm_lane(cudaStream_t stream, const struct k_gemm_args *a, const struct cuda_gated *gated);
/* gemm_quant.cu: quantized weights in the lane form, or in the form int8. */
cudaError_t launch_gemm_quant(cudaStream_t stream, const struct k_gemm_args *a, const struct cuda_gated *gated,
                              bool as_int8);
cudaError_t launch_embed_quant(cudaStream_t stream, const struct k_embed_args *a);
/* gemm_small.cu, gemm_large.cu: the mma form; few tokens, and any number of them */
#define CUDA_GEMM_SMALL_TOKENS 32u
cudaError_t launch_gemm_small(cudaStream_t stream, const struct k_gemm_args *a, const struct cuda_gated *gated);
struct cuda_gemm_means {
    uint32_t n_sms, shared_bytes; /* multiprocessors; the most that a block gets */
    uint32_t *arrivals_dev; /* [CUDA_GEMM_ARRIVALS], 0 before and after each launch */
};
cudaError_t launch_gemm_large(cudaStream_t stream, const struct k_gemm_args *a, const struct cuda_gated *gated,
                              const struct cuda_gemm_means *gpu);
/* hopper/: more than 64 tokens of the mma form on Hopper, with gemm_large.cu's bits. Opening runs both on small GEMMs and refuses what
 * differs; an error is of the GPU. *out: NULL where the GPU, the driver or this build lacks what is needed, so nothing is taken. */
struct cuda_gemm_hopper;
cudaError_t cuda_gemm_hopper_open(cudaStream_t stream, const struct cuda_gemm_means *gpu, int compute_capability,
                                  struct cuda_gemm_hopper **out);
void cuda_gemm_hopper_close(struct cuda_gemm_hopper *h); /* NULL, too */
const char *cuda_gemm_hopper_refusals(
    const struct cuda_gemm_hopper *h); /* of a description; empty where there are none */
bool cuda_gemm_hopper_takes(const struct cuda_gemm_hopper *h, const struct k_gemm_args *a,
                            const struct cuda_gated *gated);
/* *done: it took the GEMM; else nothing was launched. */
cudaError_t launch_gemm_hopper(const struct cuda_gemm_hopper *h, cudaStream_t stream, const struct k_gemm_args *a,
                               const struct cuda_gated *gated, bool *done);
/* group.cu: of 2, 4 or 8 ranks, which all launch the same */
cudaError_t launch_all_reduce(cudaStream_t stream, const struct cuda_peers *p, const struct k_all_reduce_args *a);
cudaError_t launch_all_gather(cudaStream_t stream, const struct cuda_peers *p, const struct k_all_gather_args *a);
cudaError_t launch_checksum(cudaStream_t stream, const struct k_checksum_args *a);
/* fold.cu: before a gathering, and after it */
cudaError_t launch_fold_arrive(cudaStream_t stream, const struct cuda_fold *f);
cudaError_t launch_fold(cudaStream_t stream, const struct cuda_fold *f, uint32_t n_parts,
                        const struct k_all_reduce_args *a); /* n_parts: the ranks, or 1 */
cudaError_t launch_fold_leave(cudaStream_t stream, const struct cuda_fold *f); /* where nothing else follows */
cudaError_t launch_fold_pack(cudaStream_t stream, const struct cuda_fold *f, uint32_t rank, uint32_t n_ranks,
                             const struct k_all_gather_args *a); /* this rank's part into its place */
cudaError_t launch_fold_unpack(cudaStream_t stream, const struct cuda_fold *f, uint32_t rank, uint32_t n_ranks,
                               const struct k_all_gather_args *a);
/* attention_lane.cu */
cudaError_t launch_attention_lane(cudaStream_t stream, const struct k_attention_args *a);

/* attention_mma.cu: the mma form, by the plan in plan_dev. is_small, as
 * attn_is_small() says: attention_decode.cu's kernel. */
cudaError_t launch_attention_mma(cudaStream_t stream, const struct k_attention_args *a, bool is_small,
                                 uint32_t n_blocks);
uint32_t attention_mma_shared_bytes(uint32_t head_dim, bool is_small); /* of a block */

#ifdef __cplusplus
}
#endif

#endif
