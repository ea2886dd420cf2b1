/* CUDA's qualifiers, for g++.
 *
 * __shared__ is thread_local: one OS thread runs one block at a time, all its threads as fibers, so that an OS
 * thread's own copy of a variable is a block's. A thread_local in a block scope is static, as __shared__ is there;
 * the one extern array k_shared (kernels/cuda/device.cuh) is defined by the emulator.
 *
 * __noinline__ is left alone: libstdc++ writes it as an attribute's name. */
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
