/* Kernels that run each operation of device/ once. */
#include "kernels/cuda/device.cuh"

#include "tests/simt/device.h"

namespace
{

/* Copies host memory to the device and back around a launch. */
template <class T> void run(dim3 grid, dim3 block, void (*kernel)(T *), T *host, int n = 1)
{
    T *device = (T *)simt::dev_alloc(n * sizeof(T));
    memcpy(device, host, n * sizeof(T));
    simt::launch_k(grid, block, 0, kernel, device);
    memcpy(host, device, n * sizeof(T));
    simt::dev_free(device);
}

__global__ void shuffle(struct shuffles *s)
{
    unsigned lane = threadIdx.x;
    int width = (int)s->width, operand = (int)s->operand;
    uint64_t own = 1000000000000ull * (lane + 1);
    s->index[lane] = __shfl_sync(~0u, own, operand, width);
    s->up[lane] = __shfl_up_sync(~0u, own, (unsigned)operand, width);
    s->down[lane] = __shfl_down_sync(~0u, own, (unsigned)operand, width);
    s->bfly[lane] = __shfl_xor_sync(~0u, own, operand, width);
    s->index_f32[lane] = __shfl_sync(~0u, (float)lane, operand, width);
    s->bfly_f64[lane] = __shfl_xor_sync(~0u, (double)lane, operand, width);
}

__global__ void vote(struct votes *v)
{
    unsigned lane = threadIdx.x, mask = v->mask, value = v->value[lane];
    if (!(mask >> lane & 1))
        return;
    v->ballot[lane] = __ballot_sync(mask, (int)(value & 1));
    v->any[lane] = (uint32_t)__any_sync(mask, (int)(value & 2));
    v->all[lane] = (uint32_t)__all_sync(mask, (int)(value & 4));
    v->add[lane] = __reduce_add_sync(mask, value);
    v->min[lane] = __reduce_min_sync(mask, value);
    v->max[lane] = __reduce_max_sync(mask, value);
    v->signed_min[lane] = __reduce_min_sync(mask, (int)value);
    v->signed_max[lane] = __reduce_max_sync(mask, (int)value);
}

__global__ void index(struct indices *out)
{
    unsigned n = blockDim.x * blockDim.y * blockDim.z;
    unsigned t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    unsigned b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    struct indices i = {{threadIdx.x, threadIdx.y, threadIdx.z},
                        {blockIdx.x, blockIdx.y, blockIdx.z},
                        {blockDim.x, blockDim.y, blockDim.z},
                        {gridDim.x, gridDim.y, gridDim.z},
                        0,
                        0,
                        0};
    i.count = (uint32_t)__syncthreads_count(t % 3 == 0);
    i.any = (uint32_t)__syncthreads_or(t == b);
    i.all = (uint32_t)__syncthreads_and(t != 2 * b);
    out[b * n + t] = i;
}

__global__ void atomic(struct atomics *a)
{
    __shared__ unsigned in_shared;
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x == 0)
        in_shared = 0;
    __syncthreads();
    atomicAdd(&in_shared, i);
    __syncthreads();
    if (threadIdx.x == 0)
        atomicAdd(&a->in_shared, in_shared);

    atomicAdd(&a->add, i);
    atomicOr(&a->or_bits[i / 32], 1u << i % 32);
    atomicMax(&a->max, i);
    atomicMin(&a->min, i);
    atomicXor(&a->xor_all, i);
    atomicMax(&a->signed_max, (int)i - 5000);
    atomicMin(&a->signed_min, (int)i - 5000);
    atomicSub(&a->signed_sub, (int)i);
    atomicAdd((unsigned long long *)&a->add64, (unsigned long long)i << 32);
    atomicMax((unsigned long long *)&a->max64, (unsigned long long)i << 40);
    atomicAdd(&a->add_f32, 0.5f);
    if (atomicInc(&a->wrapped, 999u) == 999u)
        atomicAdd(&a->n_wraps, 1u);
    unsigned left = atomicExch(&a->last, i);
    atomicAdd((unsigned long long *)&a->exchanged_sum, (unsigned long long)left);
    for (unsigned seen = atomicCAS(&a->by_cas, 0u, 0u), was = ~0u; seen != was;) {
        was = seen;
        seen = atomicCAS(&a->by_cas, was, was + 3);
    }
}

} // namespace

void run_shuffles(struct shuffles *s)
{
    run(1, 32, shuffle, s);
}

void run_votes(struct votes *v)
{
    run(1, 32, vote, v);
}

void run_indices(struct indices *out)
{
    run(dim3(3, 2, 2), dim3(5, 7, 3), index, out, n_indices);
}

void run_atomics(struct atomics *a)
{
    run(40, 64, atomic, a);
}
