/* Quantized parts of a weight on the device. */
#ifndef QUIRE_KERNELS_CUDA_QUANT_H
#define QUIRE_KERNELS_CUDA_QUANT_H

#include "kernels/cuda/host/state.h"

/* Fills w->quant. On failure what was made is freed by cuda_quant_destroy(). */
int cuda_quant_create(struct k_backend *b, const struct k_weight_view *parts, uint32_t n_parts, struct k_weight *w,
                      struct quire_error *err);
void cuda_quant_destroy(struct k_backend *b, struct k_weight *w);

#endif
