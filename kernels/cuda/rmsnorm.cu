/* RMSNorm, with the residual added first (docs/numerics.md §7).
 *
 * Bytes: 16 for each element with a residual, 8 without (x, add in; x, out out), and the weight from L2. A block has a row: all
 * of its threads read, add and store it, by 16-byte accesses where rows are aligned to that, and leave it in shared memory,
 * from where it is scaled in the end. The page's sum is one chain of n / 16 dependent fmas for each of 16 lanes, which
 * 16 threads do: element 16 i + j is lane j's, so they read shared memory in order, without a bank conflict.
 *
 * Time of a chain for 4,096 columns: 256 fmas of 4 cycles, 0.6 µs, while the block's other threads wait. That is hidden by the
 * SM's other blocks: eight of 256 threads and 16 KB are there at once and move 64 KB each; 132 such SMs at 3.35 TB/s need 20 µs
 * for what they hold, and a row's chain, loads and stores take about 3. Narrow rows take smaller blocks, of which more fit.
 *
 * Rows wider than CHUNK pass through shared memory piece by piece and are scaled from x itself, which L2 still has. */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"

#define CHUNK 12288u /* columns in shared memory: 48 KB, what every GPU gives without asking; a multiple of 16 */
#define MAX_THREADS 512u

K_DYNAMIC_SHARED;

static __device__ __forceinline__ float4 add4(float4 a, float4 b)
{
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

/* x += add for n columns, which shared memory then holds, with zeros up to a multiple of 16. */
template <bool vector>
static __device__ __forceinline__ void load_row(float *shared, float *x, const float *add, uint32_t n)
{
    if (vector) {
        for (uint32_t k = 4 * threadIdx.x; k < n; k += 4 * blockDim.x) {
            float4 v = *(const float4 *)(x + k);
            if (add) {
                v = add4(v, *(const float4 *)(add + k));
                *(float4 *)(x + k) = v;
            }
            *(float4 *)(shared + k) = v;
        }
    } else {
        for (uint32_t k = threadIdx.x; k < n; k += blockDim.x) {
            float v = x[k];
            if (add) {
                v = v + add[k];
                x[k] = v;
            }
            shared[k] = v;
        }
    }
    uint32_t end = (n + K_LANES - 1) / K_LANES * K_LANES;
    if (n + threadIdx.x < end) /* at most 15, and a block has 32 threads at least */
        shared[n + threadIdx.x] = 0.0f;
}

/* s_j + Σ x_k · x_k over lane j's elements. */
static __device__ __forceinline__ float add_squares(float s, const float *shared, uint32_t n, uint32_t lane)
{
#pragma unroll 8
    for (uint32_t k = lane; k < n; k += K_LANES)
        s = fmaf(shared[k], shared[k], s);
    return s;
}

template <bool vector>
static __device__ __forceinline__ void scale_row(const float *x, const float *weight, float *out, uint32_t n, float rs)
{
    if (vector) {
        for (uint32_t k = 4 * threadIdx.x; k < n; k += 4 * blockDim.x) {
            float4 v = *(const float4 *)(x + k), w = *(const float4 *)(weight + k);
            *(float4 *)(out + k) = make_float4((v.x * rs) * w.x, (v.y * rs) * w.y, (v.z * rs) * w.z, (v.w * rs) * w.w);
        }
    } else {
        for (uint32_t k = threadIdx.x; k < n; k += blockDim.x)
            out[k] = (x[k] * rs) * weight[k];
    }
}

template <bool vector>
static __global__ void __launch_bounds__(MAX_THREADS)
rmsnorm_kernel(float *x, const float *add, const float *weight, float *out, uint32_t n_cols, float eps)
{
    __shared__ float shared_rs;
    float *shared = (float *)k_shared;
    uint64_t row = (uint64_t)blockIdx.x * n_cols;
    x += row;
    uint32_t lane = threadIdx.x % 32;
    float s = 0.0f;
    for (uint32_t from = 0; from < n_cols; from += CHUNK) {
        uint32_t n = min(n_cols - from, CHUNK);
        if (from > 0)
            __syncthreads(); /* the chunk before is summed */
        load_row<vector>(shared, x + from, add ? add + row + from : NULL, n);
        __syncthreads();
        if (threadIdx.x < K_LANES)
            s = add_squares(s, shared, (n + K_LANES - 1) / K_LANES * K_LANES, lane);
    }
    if (threadIdx.x < 32) {
        for (uint32_t apart = K_LANES / 2; apart > 0; apart /= 2)
            s = s + __shfl_xor_sync(~0u, s, apart);
        if (threadIdx.x == 0)
            shared_rs = k_rsqrt(s / (float)n_cols + eps);
    }
    __syncthreads();
    scale_row<vector>(n_cols <= CHUNK ? shared : x, weight, out + row, n_cols, shared_rs);
}

/* A thread has 16 elements of a row of 4,096 and more of wider ones; a narrow row takes one warp at least. */
static uint32_t threads_of(uint32_t n_cols)
{
    uint32_t threads = (n_cols / 16 + 31) / 32 * 32;
    return threads < 32 ? 32 : threads > MAX_THREADS ? MAX_THREADS : threads;
}

cudaError_t launch_rmsnorm(cudaStream_t stream, const struct k_rmsnorm_args *a)
{
    uint32_t held = a->n_cols < CHUNK ? (a->n_cols + K_LANES - 1) / K_LANES * K_LANES : CHUNK;
    uintptr_t addresses = (uintptr_t)a->x_dev | (uintptr_t)a->add_dev | (uintptr_t)a->weight_dev | (uintptr_t)a->out_dev;
    dim3 grid(a->n_tokens), block(threads_of(a->n_cols));
    size_t shared_bytes = held * sizeof(float);
    if (a->n_cols % 4 == 0 && addresses % 16 == 0)
        return K_LAUNCH(rmsnorm_kernel<true>, grid, block, shared_bytes, stream, a->x_dev, a->add_dev, a->weight_dev,
                        a->out_dev, a->n_cols, a->eps);
    return K_LAUNCH(rmsnorm_kernel<false>, grid, block, shared_bytes, stream, a->x_dev, a->add_dev, a->weight_dev,
                    a->out_dev, a->n_cols, a->eps);
}
