/* Which GPU, and what it is. */
#ifndef QUIRE_KERNELS_CUDA_DEVICE_H
#define QUIRE_KERNELS_CUDA_DEVICE_H

#include "kernels/cuda/host/state.h"

/* Makes the GPU that the options' device ("cuda", "cuda:N") and their choice name the thread's, and fills in what it is. err says
 * the reason alone, for a line that begins with the device. */
int cuda_device_open(struct cuda_backend *c, const struct k_backend_options *options, struct quire_error *err);
int cuda_memory(struct k_backend *b, uint64_t *total, uint64_t *available, struct quire_error *err); /* the table's */

#endif
