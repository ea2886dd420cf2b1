/* The operations that only encoders use: LayerNorm, GELU and tanh, and the pooling of a text's tokens into one vector
 * (docs/internals/numerics.md §18).
 *
 * Simple first versions: with an encoder a GPU spends its time in GEMMs. A block computes one row of a LayerNorm.
 * Between its passes the row lies in `out`, which the SM's L1 still holds, and 16 threads sum it, one lane each. Bytes:
 * 12 per element with the addend, and 16 from L1. Activations move 8 bytes per element, one element per thread. Pooling
 * reads 4 bytes per element once, one column per thread, in rising order.
 */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/math/activation.h"
#include "kernels/math/lane_sum.h"

#include "kernels/check.h"

#define THREADS 256u

/* Returns to every thread the lane sum of a row of n, or of its squares. There must be a barrier after the writes of
 * the row. */
template <bool squares> static __device__ __forceinline__ float lane_sum(const float *x, uint32_t n)
{
    __shared__ float sum;
    float s = 0.0f;
    if (threadIdx.x < K_LANES) {
        for (uint32_t k = threadIdx.x; k < n; k += K_LANES)
            s = squares ? fmaf(x[k], x[k], s) : s + x[k];
        /* Terms of 0 pad the last group: they turn a lane of -0 into +0. */
        if (n % K_LANES != 0 && threadIdx.x >= n % K_LANES)
            s = s + 0.0f;
    }
    if (threadIdx.x < 32) {
#pragma unroll
        for (uint32_t apart = K_LANES / 2; apart > 0; apart /= 2)
            s = s + __shfl_xor_sync(~0u, s, apart);
        if (threadIdx.x == 0)
            sum = s;
    }
    __syncthreads();
    s = sum;
    __syncthreads();
    return s;
}

static __global__ void __launch_bounds__(THREADS) layernorm_kernel(const struct k_layernorm_args a)
{
    const uint64_t row = blockIdx.x * (uint64_t)a.n_cols;
    float *out = a.out_dev + row;
    for (uint32_t k = threadIdx.x; k < a.n_cols; k += THREADS) {
        float x = a.x_dev[row + k];
        out[k] = a.add_dev ? x + a.add_dev[row + k] : x;
    }
    __syncthreads();
    float mean = lane_sum<false>(out, a.n_cols) / (float)a.n_cols;
    for (uint32_t k = threadIdx.x; k < a.n_cols; k += THREADS)
        out[k] = out[k] - mean;
    __syncthreads();
    float rs = k_rsqrt(lane_sum<true>(out, a.n_cols) / (float)a.n_cols + a.eps);
    for (uint32_t k = threadIdx.x; k < a.n_cols; k += THREADS)
        out[k] = fmaf(out[k] * rs, a.weight_dev[k], a.bias_dev[k]);
}

cudaError_t launch_layernorm(cudaStream_t stream, const struct k_layernorm_args *a)
{
    return K_LAUNCH(layernorm_kernel, dim3(a->n_tokens), dim3(THREADS), 0, stream, *a);
}

static __global__ void __launch_bounds__(THREADS) activate_kernel(const struct k_activate_args a)
{
    uint32_t k = blockIdx.y * THREADS + threadIdx.x;
    if (k >= a.n_cols)
        return;
    float *x = a.x_dev + blockIdx.x * (uint64_t)a.n_cols + k;
    switch (a.activation) {
    case K_ACT_GELU: *x = k_gelu(*x); break;
    case K_ACT_TANH: *x = k_tanh(*x); break;
    case K_ACT_SCALE: *x = *x * a.by; break;
    case K_ACT_SOFTCAP: *x = k_softcap(*x, a.by, 1.0f / a.by); break;
    }
}

cudaError_t launch_activate(cudaStream_t stream, const struct k_activate_args *a)
{
    return K_LAUNCH(activate_kernel, dim3(a->n_tokens, (a->n_cols + THREADS - 1) / THREADS), dim3(THREADS), 0, stream,
                    *a);
}

static __global__ void __launch_bounds__(THREADS) pool_kernel(const struct k_pool_args a)
{
    const struct k_pool_row row = a.rows_dev[blockIdx.x];
    const uint64_t n = a.n_cols;
    const float *x = a.x_dev + row.token * n;
    float *out = a.out_dev + blockIdx.x * n;
    for (uint32_t k = threadIdx.x; k < n; k += THREADS) {
        float v = x[(a.pooling == K_POOL_LAST ? row.n_tokens - 1 : 0) * n + k];
        if (a.pooling == K_POOL_MEAN) {
            for (uint64_t t = 1; t < row.n_tokens; t++)
                v = v + x[t * n + k];
            v = v / (float)row.n_tokens;
        }
        out[k] = v;
    }
    if (!a.normalize)
        return;
    __syncthreads();
    float length = K_SQRTF(lane_sum<true>(out, a.n_cols));
    length = length < K_POOL_LEAST_LENGTH ? K_POOL_LEAST_LENGTH : length;
    for (uint32_t k = threadIdx.x; k < n; k += THREADS)
        out[k] = out[k] / length;
}

cudaError_t launch_pool(cudaStream_t stream, const struct k_pool_args *a)
{
    return K_LAUNCH(pool_kernel, dim3(a->n_rows), dim3(THREADS), 0, stream, *a);
}
