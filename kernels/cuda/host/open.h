/* The public header of libquire_cuda.so, for kernels/backend.c, which opens the library. Needs no CUDA headers. Any
 * thread. */
#ifndef QUIRE_KERNELS_CUDA_OPEN_H
#define QUIRE_KERNELS_CUDA_OPEN_H

#include "kernels/backend.h"
#include "kernels/kv.h"
#include "kernels/open.h"

/* Like k_backend_open() with the device "auto", "cuda" or "cuda:N"; "auto" is GPU 0. err contains only the reason, to
 * follow the device's name. */
typedef int quire_cuda_open_fn(const struct k_backend_options *options, struct k_backend **out, const char **why,
                               struct quire_error *err);
__attribute__((visibility("default"))) quire_cuda_open_fn quire_cuda_open;

/* The Quire version of the library. Structs of another version are incompatible. */
__attribute__((visibility("default"))) extern const char quire_cuda_version[];

#endif
