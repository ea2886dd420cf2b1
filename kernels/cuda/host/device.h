/* Selects the GPU and reads its properties. Private to this folder. One thread at a time. */
#ifndef QUIRE_KERNELS_CUDA_DEVICE_H
#define QUIRE_KERNELS_CUDA_DEVICE_H

#include "kernels/cuda/host/state.h"
#include "kernels/open.h"

/* Selects the GPU given by the options' device ("cuda", "cuda:N") and choice for this thread, and fills in its
 * properties. err contains only the reason, for a line that starts with the device. */
int cuda_device_open(struct cuda_backend *c, const struct k_backend_options *options, struct quire_error *err);
/* for the backend table */
int cuda_memory(struct k_backend *b, uint64_t *total, uint64_t *available, struct quire_error *err);

#endif
