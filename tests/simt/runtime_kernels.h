/* Kernels for runtime_test.c, correct and faulty ones. Each function queues its kernel and returns the launch's
 * error. */
#ifndef QUIRE_TESTS_SIMT_RUNTIME_KERNELS_H
#define QUIRE_TESTS_SIMT_RUNTIME_KERNELS_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* x[i] = x[i] * factor + addend */
cudaError_t launch_affine(cudaStream_t stream, float *x, float factor, float addend, unsigned n);
/* The same with these dimensions, valid or not. */
cudaError_t launch_shaped(cudaStream_t stream, unsigned grid_x, unsigned grid_y, unsigned threads, size_t shared_bytes);
cudaError_t allow_shared(int bytes);                            /* cudaFuncSetAttribute of launch_shaped's kernel */
cudaError_t occupancy(int *n_blocks, int threads, size_t shared_bytes);
cudaError_t launch_past_the_end(cudaStream_t stream,
                                float *x); /* x[n], where n is the end of an allocation of 64 floats */
cudaError_t launch_misaligned(cudaStream_t stream, float *x);   /* 16 bytes from x + 1 */
cudaError_t launch_race(cudaStream_t stream, float *x);         /* through shared memory without a barrier */

#ifdef __cplusplus
}
#endif

#endif
