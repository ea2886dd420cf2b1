/* CUDA's qualifiers, for g++.
 *
 * __shared__ is thread_local: one OS thread runs one block at a time, all its threads as fibers, so an OS thread's copy
 * of a variable belongs to a block. A thread_local in a block scope is static, as __shared__ is. The emulator defines
 * the only extern array, k_shared (kernels/cuda/device.cuh).
 *
 * __noinline__ is not defined, because libstdc++ uses it as an attribute's name.
 */
#ifndef QUIRE_TESTS_SIMT_DEVICE_QUALIFIERS_H
#define QUIRE_TESTS_SIMT_DEVICE_QUALIFIERS_H

#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ thread_local
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __grid_constant__

#endif
