/* Quantized parts of a weight on the device. Private to this folder. One thread, the engine's. */
#ifndef QUIRE_KERNELS_CUDA_QUANT_H
#define QUIRE_KERNELS_CUDA_QUANT_H

#include "kernels/cuda/host/state.h"

/* Fills w->quant from parts[n_experts][n_parts]. After a failure, cuda_quant_destroy() frees the finished parts. */
int cuda_quant_create(struct k_backend *b, const struct k_weight_view *parts, uint32_t n_experts, uint32_t n_parts,
                      struct k_weight *w, struct quire_error *err);
void cuda_quant_destroy(struct k_backend *b, struct k_weight *w);

#endif
