/* The door of libquire_cuda.so, for kernels/backend.c, which opens the library; without CUDA's headers. */
#ifndef QUIRE_KERNELS_CUDA_OPEN_H
#define QUIRE_KERNELS_CUDA_OPEN_H

#include "kernels/kernels.h"

/* As k_backend_open() with the device "auto", "cuda" or "cuda:N"; "auto" is GPU 0. err has the reason alone, to be put
 * after the device's name. */
typedef int quire_cuda_open_fn(const struct k_backend_options *options, struct k_backend **out, const char **why,
                               struct quire_error *err);
__attribute__((visibility("default"))) quire_cuda_open_fn quire_cuda_open;

/* The version of Quire that the library is of: no other's structs may pass between them. */
__attribute__((visibility("default"))) extern const char quire_cuda_version[];

#endif
