/* Every kernel source includes this file first. It includes CUDA's headers under nvcc and the emulator of
 * tests/simt/ under g++, and defines the three things that differ there: launches, dynamic shared memory and PTX
 * (ptx.cuh).
 *
 * A kernel compiles with both: no <<<>>>, no extern __shared__ and no asm outside of this file and ptx.cuh. Bits:
 * -fmad=false, IEEE division and square root, denormals kept (numerics.md §17); fmaf() only where the specification
 * says fma. kernels/math/ is the same text as on the CPU. */
#ifndef QUIRE_KERNELS_CUDA_DEVICE_CUH
#define QUIRE_KERNELS_CUDA_DEVICE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

/* A list of every kernel that a K_LAUNCH names, built while the library is loaded. load.cu loads them all, so that
 * no kernel is loaded by its first launch, which may happen while a step is recorded. */
struct k_loadable {
    const void *kernel;
    const char *name; /* the compiler's text, which ends in "kernel = NAME]" or similar */
    const struct k_loadable *next;
    static inline const struct k_loadable *first;

    k_loadable(const void *k, const char *text) : kernel(k), name(text), next(first)
    {
        first = this;
    }
};

template <auto kernel> struct k_loadable_of {
    static const char *name()
    {
        return __PRETTY_FUNCTION__;
    }
    static inline const struct k_loadable entry{(const void *)kernel, name()};
};

/* Launches kernel(args...) and yields its cudaError_t. */
#ifdef __CUDACC__
#define K_LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
    ((void)&k_loadable_of<(kernel)>::entry, kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__), \
     cudaGetLastError())
#else
#define K_LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
    ((void)&k_loadable_of<(kernel)>::entry, \
     simt::launch_on((stream), (grid), (block), (shared_bytes), #kernel, (kernel), __VA_ARGS__))
#endif

/* A block's dynamic shared memory, 128-byte aligned. One array for the whole file, declared at file scope once:
 * K_DYNAMIC_SHARED; kernels use it as k_shared. */
#define K_DYNAMIC_SHARED extern __shared__ __align__(128) unsigned char k_shared[]

/* Returns whether this block is the last of n to store its part; it then sees the parts of all others. The stores of
 * its threads precede the barrier and the fence, and therefore the count; the last count follows all others. The
 * counter wraps to 0 for the next launch. All threads of the block must call it together. */
static __device__ __forceinline__ bool cuda_is_last_to_arrive(uint32_t *arrivals, uint32_t n)
{
    bool is_last = false;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        is_last = atomicInc(arrivals, n - 1) == n - 1;
        __threadfence();
    }
    return __syncthreads_or(is_last) != 0;
}

#include "kernels/cuda/ptx.cuh"

/* Folds the lanes of four neighbouring threads: 8, 4, 2, 1 apart. Each of the four threads gets the result. */
static __device__ __forceinline__ float fold_lanes(float4 s)
{
    float lanes[4] = {s.x, s.y, s.z, s.w};
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        lanes[i] = lanes[i] + __shfl_xor_sync(~0u, lanes[i], 2);
        lanes[i] = lanes[i] + __shfl_xor_sync(~0u, lanes[i], 1);
    }
    return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

#endif
