/* The operations, and the weights that they use: members of the backend table. Private to this folder. One thread, the
 * engine's. */
#ifndef QUIRE_KERNELS_CUDA_OPERATIONS_H
#define QUIRE_KERNELS_CUDA_OPERATIONS_H

#include "kernels/cuda/host/state.h"

int cuda_weight_create(struct k_backend *b, const struct k_weight_view *parts, uint32_t n_experts, uint32_t n_parts,
                       struct k_weight **out, struct quire_error *err);
void cuda_weight_destroy(struct k_backend *b, struct k_weight *w);
bool cuda_supports(struct k_backend *b, enum k_operation operation, enum k_gemm_form form, struct k_format format);

/* Returns whether the backend's form has GEMMs with the weight. */
bool cuda_takes_weight(struct k_backend *b, const struct k_weight *w);

/* The backend's table after joining a group whose transport cannot be recorded. */
extern const struct k_backend_ops cuda_ops_without_graphs;

/* Row i of the tables of gemm.c, moe.c and attention.c; NULL past the last. */
const struct k_kernel *cuda_gemm_kernel_at(uint32_t i);
const struct k_kernel *cuda_moe_kernel_at(uint32_t i);
const struct k_kernel *cuda_attention_kernel_at(uint32_t i);

/* One function per operation: int cuda_embed(struct k_backend *b, const struct k_embed_args *a, struct quire_error
 * *err). */
#define CUDA_OPERATION(NAME, name, text) \
    int cuda_##name(struct k_backend *b, const struct k_##name##_args *a, struct quire_error *err);
K_OPERATIONS(CUDA_OPERATION)
#undef CUDA_OPERATION

#endif
