#include "tests/simt/runtime_kernels.h"

#include "kernels/cuda/device.cuh"

K_DYNAMIC_SHARED;

static __global__ void affine(float *x, float factor, float addend, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] = x[i] * factor + addend;
}

cudaError_t launch_affine(cudaStream_t stream, float *x, float factor, float addend, unsigned n)
{
    return K_LAUNCH(affine, dim3((n + 63) / 64), dim3(64), 0, stream, x, factor, addend, n);
}

static __global__ void shaped(size_t shared_bytes)
{
    if (shared_bytes > 0 && threadIdx.x == 0)
        k_shared[shared_bytes - 1] = 1;
}

cudaError_t launch_shaped(cudaStream_t stream, unsigned grid_x, unsigned grid_y, unsigned threads, size_t shared_bytes)
{
    return K_LAUNCH(shaped, dim3(grid_x, grid_y), dim3(threads), shared_bytes, stream, shared_bytes);
}

cudaError_t allow_shared(int bytes)
{
    return cudaFuncSetAttribute(shaped, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

cudaError_t occupancy(int *n_blocks, int threads, size_t shared_bytes)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(n_blocks, shaped, threads, shared_bytes);
}

static __global__ void past_the_end(float *x)
{
    x[threadIdx.x + 1] = 1;
}

cudaError_t launch_past_the_end(cudaStream_t stream, float *x)
{
    return K_LAUNCH(past_the_end, dim3(1), dim3(64), 0, stream, x);
}

static __global__ void misaligned(float *x)
{
    *(float4 *)(x + 1) = make_float4(0, 0, 0, 0);
}

cudaError_t launch_misaligned(cudaStream_t stream, float *x)
{
    return K_LAUNCH(misaligned, dim3(1), dim3(1), 0, stream, x);
}

static __global__ void race(float *x)
{
    __shared__ float passed[64];
    passed[threadIdx.x] = x[threadIdx.x];
    x[threadIdx.x] = passed[threadIdx.x ^ 32];
}

cudaError_t launch_race(cudaStream_t stream, float *x)
{
    return K_LAUNCH(race, dim3(1), dim3(64), 0, stream, x);
}
