/* The functions that the .cu files export to the host side. Each queues its kernels on the stream and returns the
 * launch's error. The caller has checked the arguments, and no dimension is 0. for_gemm and x_for_gemm mean that the
 * buffer holds factors (factors.cuh). */
#ifndef QUIRE_KERNELS_CUDA_LAUNCH_H
#define QUIRE_KERNELS_CUDA_LAUNCH_H

#include "kernels/args/attention.h"
#include "kernels/args/gemm.h"
#include "kernels/args/group.h"
#include "kernels/args/kv_copy.h"
#include "kernels/args/norm.h"
#include "kernels/args/rope.h"
#include "kernels/args/rows.h"
#include "kernels/cuda/host/state.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Destination of the gate (kernels/math/gate.h) of a GEMM whose rows are gate's and then up's; it then writes nothing to y_dev.
 * NULL: the GEMM writes its plain result to y_dev. */
struct cuda_gated {
    float *out_dev;
    bool as_factors;
    struct k_gate gate;
};

/* A process group's memory, as kernels access it (peers.cuh). */
enum {
    CUDA_CONTROL_ABORT,
    CUDA_CONTROL_OVER,
    CUDA_CONTROL_LATE,
    CUDA_CONTROL_ARRIVED, /* turns of fold.cu */
    CUDA_CONTROL_LEFT,
    CUDA_CONTROL_WORDS
};
struct cuda_peers {
    unsigned char *memory[K_MAX_RANKS]; /* [n_ranks], CUDA_PEER_BYTES each */
    unsigned char *own; /* this rank's memory */
    /* In host memory: the host's abort flag, a kernel's abort flag, and the rank that did not arrive, counted from 1. */
    uint32_t *control;
    uint64_t timeout_ns;
    uint32_t rank, n_ranks;
};

/* A part of the data that ranks exchange through NCCL: n elements from `from` on. */
struct cuda_fold {
    float *gathered; /* [ranks][n]; [n] for a sum that NCCL has added */
    uint32_t *control; /* as in struct cuda_peers */
    uint64_t from;
    uint32_t n;
    uint32_t turn; /* number of the gathering, counted from 1 */
};

/* weight.cu */
cudaError_t launch_weight_exponents(cudaStream_t stream, const struct k_weight *w,
                                    uint64_t row_stride_bytes); /* the stride of BF16 rows at w->data_dev */
cudaError_t launch_weight_factors(cudaStream_t stream,
                                  const struct k_weight *w); /* BF16 in place, by w->exponents_dev */
/* load.cu */
/* Loads every kernel and continues after a failure. Returns the first error, and sets *name to the compiler's text
 * that contains that kernel's name. */
cudaError_t launch_load_all(const char **name);
/* elementwise.cu */
cudaError_t launch_embed(cudaStream_t stream, const struct k_embed_args *a);
cudaError_t launch_gate(cudaStream_t stream, const float *gate_up, const struct cuda_gated *gated, uint32_t n_tokens,
                        uint32_t n); /* [T, 2 n] to [T, n] */
cudaError_t launch_gather(cudaStream_t stream, const struct k_gather_args *a);
/* Computes the activations' f16 factors, x · 2^-4, in rows of cuda_gemm_factor_stride() that are padded with zeros. */
cudaError_t launch_gemm_factors(cudaStream_t stream, const struct k_gemm_args *a, void *factors);
cudaError_t launch_place_tokens(cudaStream_t stream, const struct k_place_tokens_args *a);
/* encode.cu */
cudaError_t launch_layernorm(cudaStream_t stream, const struct k_layernorm_args *a);
cudaError_t launch_activate(cudaStream_t stream, const struct k_activate_args *a);
cudaError_t launch_pool(cudaStream_t stream, const struct k_pool_args *a);
/* rmsnorm.cu */
cudaError_t launch_rmsnorm(cudaStream_t stream, const struct k_rmsnorm_args *a);
/* Returns whether the rows are few and small enough for a launch that also adds up the ranks' parts, for 2, 4 or 8
 * ranks. */
bool cuda_fuses_sum(uint32_t n_ranks, const struct k_rmsnorm_args *a);
cudaError_t launch_rmsnorm_of_sum(cudaStream_t stream, const struct cuda_peers *p, const struct k_rmsnorm_args *a);
/* rope.cu */
cudaError_t launch_rope_angles(cudaStream_t stream, const struct k_rope_angles_args *a);
cudaError_t launch_rope_kv(cudaStream_t stream, const struct k_rope_kv_args *a);
/* kv_copy.cu */
cudaError_t launch_kv_copy(cudaStream_t stream, const struct k_kv_copy_args *a);
cudaError_t launch_embed_quant(cudaStream_t stream, const struct k_embed_args *a); /* gemm_quant.cu */
/* group.cu: for 2, 4 or 8 ranks, which all make the same launch */
cudaError_t launch_all_reduce(cudaStream_t stream, const struct cuda_peers *p, const struct k_all_reduce_args *a);
cudaError_t launch_all_gather(cudaStream_t stream, const struct cuda_peers *p, const struct k_all_gather_args *a);
cudaError_t launch_checksum(cudaStream_t stream, const struct k_checksum_args *a);
/* fold.cu: before and after a gathering */
cudaError_t launch_fold_arrive(cudaStream_t stream, const struct cuda_fold *f);
cudaError_t launch_fold(cudaStream_t stream, const struct cuda_fold *f, uint32_t n_parts,
                        const struct k_all_reduce_args *a); /* n_parts: the ranks, or 1 */
cudaError_t launch_fold_leave(cudaStream_t stream, const struct cuda_fold *f); /* if no other launch follows */
cudaError_t launch_fold_pack(cudaStream_t stream, const struct cuda_fold *f, uint32_t rank, uint32_t n_ranks,
                             const struct k_all_gather_args *a); /* moves this rank's part to its position */
cudaError_t launch_fold_unpack(cudaStream_t stream, const struct cuda_fold *f, uint32_t rank, uint32_t n_ranks,
                               const struct k_all_gather_args *a);
/* attention_lane.cu */
cudaError_t launch_attention_lane(cudaStream_t stream, const struct k_attention_args *a);

/* attention_mma.cu: the mma form, by the plan in plan_dev. is_small, as
 * attn_is_small() says: attention_decode.cu's kernel. */
cudaError_t launch_attention_mma(cudaStream_t stream, const struct k_attention_args *a, bool is_small,
                                 uint32_t n_blocks);
uint32_t attention_mma_shared_bytes(uint32_t head_dim, bool is_small); /* per block */

#ifdef __cplusplus
}
#endif

#endif
