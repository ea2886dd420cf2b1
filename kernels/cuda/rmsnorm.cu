/* RMSNorm, with the residual added first or into what is there (docs/numerics.md §7).
 *
 * Bytes: 16 for each element with a residual, 8 without (x, add in; x, out out), and the weight from L2. A block has a row. The page's
 * sum is one chain of n / 16 dependent fmas for each of 16 lanes, so the row goes into shared memory, from where 16 threads sum it:
 * element 16 i + j is lane j's, so they read in order, without a bank conflict, 32 elements ahead of the fmas.
 *
 * Time of a row of 4,096: loads 1 µs, the chain of 256 fmas of 4 to 5 cycles 0.7 µs, stores. Of one token that is the time; it is kept
 * by asking for all that a thread needs, the weight too, before anything is waited for. Of many tokens the chain is hidden by the SM's
 * other blocks: four of 256 threads are there at once and move 64 KB each; an SM's share of 3.35 TB/s is 25 KB a µs, so one that
 * takes 10 µs a row would still keep up.
 *
 * Two kernels: one for rows that a block holds in registers, 16 elements a thread, by 16-byte accesses, which is every model's; and
 * one for the rest, whose rows pass through shared memory in pieces and are scaled from x itself, which L2 still has. A thread writes the
 * elements that it read, so out may be x. What GEMMs alone read is stored as their factors, 2 bytes an element. */
#include "kernels/cuda/factors.cuh"
#include "kernels/cuda/launch.h"

#define HELD \
    11264u /* columns in shared memory: 44 of the 48 KB that every GPU gives without asking; a multiple of ROUND */
#define EACH 4u /* accesses of a thread in the first kernel */
#define MAX_THREADS 704u /* HELD / (4 EACH) */
#define AHEAD 32u
#define ROUND (AHEAD * K_LANES)
#define PIECE_THREADS 512u

K_DYNAMIC_SHARED;

/* Shared memory holds n columns: zeros up to a multiple of ROUND, so that the sum has no remainder. A term of +0 · +0 changes no
 * lane, for a sum of squares is never −0. */
static __device__ __forceinline__ void fill_up(float *shared, uint32_t n)
{
    for (uint32_t k = n + threadIdx.x; k < (n + ROUND - 1) / ROUND * ROUND; k += blockDim.x)
        shared[k] = 0.0f;
}

/* s_j + Σ x_k · x_k over lane j's elements. */
static __device__ __forceinline__ float add_squares(float s, const float *shared, uint32_t n, uint32_t lane)
{
    for (uint32_t k = lane; k < n; k += ROUND) {
        float x[AHEAD];
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++)
            x[i] = shared[k + i * K_LANES];
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++)
            s = fmaf(x[i], x[i], s);
    }
    return s;
}

/* The lanes of the first warp's first 16 threads, folded and made the row's factor, which every thread gets. */
static __device__ __forceinline__ float factor(float s, uint32_t n_cols, float eps)
{
    __shared__ float rs;
    if (threadIdx.x < 32) {
#pragma unroll
        for (uint32_t apart = K_LANES / 2; apart > 0; apart /= 2)
            s = s + __shfl_xor_sync(~0u, s, apart);
        if (threadIdx.x == 0)
            rs = k_rsqrt(s / (float)n_cols + eps);
    }
    __syncthreads();
    return rs;
}

static __device__ __forceinline__ float4 sum(float4 a, float4 b)
{
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

static __global__ void __launch_bounds__(MAX_THREADS)
    rmsnorm_kernel(float *x, const float *add, const float *weight, float *out, uint32_t n_cols, uint64_t stride,
                   bool into, bool as_factors, float eps)
{
    float *shared = (float *)k_shared;
    uint64_t row = blockIdx.x * stride, out_row = as_factors ? blockIdx.x * (uint64_t)n_cols : row;
    float4 v[EACH], a[EACH], w[EACH];
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
        uint32_t k = 4 * (threadIdx.x + i * blockDim.x);
        if (k < n_cols) {
            v[i] = *(const float4 *)(x + row + k);
            if (add || into)
                a[i] = *(const float4 *)((add ? add : out) + row + k);
            w[i] = *(const float4 *)(weight + k);
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
        uint32_t k = 4 * (threadIdx.x + i * blockDim.x);
        if (k < n_cols) {
            if (add) {
                v[i] = sum(v[i], a[i]);
                *(float4 *)(x + row + k) = v[i];
            }
            *(float4 *)(shared + k) = v[i];
        }
    }
    fill_up(shared, n_cols);
    __syncthreads();
    float rs = factor(threadIdx.x < K_LANES ? add_squares(0.0f, shared, n_cols, threadIdx.x) : 0.0f, n_cols, eps);
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
        uint32_t k = 4 * (threadIdx.x + i * blockDim.x);
        if (k < n_cols) {
            v[i] = make_float4((v[i].x * rs) * w[i].x, (v[i].y * rs) * w[i].y, (v[i].z * rs) * w[i].z,
                               (v[i].w * rs) * w[i].w);
            store4(out, as_factors, out_row + k, into ? sum(a[i], v[i]) : v[i]);
        }
    }
}

static __global__ void __launch_bounds__(PIECE_THREADS)
    rmsnorm_pieces_kernel(float *x, const float *add, const float *weight, float *out, uint32_t n_cols, uint64_t stride,
                          bool into, bool as_factors, float eps)
{
    float *shared = (float *)k_shared;
    uint64_t row = blockIdx.x * stride, out_row = as_factors ? blockIdx.x * (uint64_t)n_cols : row;
    float s = 0.0f;
    for (uint32_t from = 0; from < n_cols; from += HELD) {
        uint32_t n = min(n_cols - from, HELD);
        if (from > 0)
            __syncthreads(); /* the piece before is summed */
        for (uint32_t k = threadIdx.x; k < n; k += blockDim.x) {
            uint64_t at = row + from + k;
            float v = x[at];
            if (add) {
                v = v + add[at];
                x[at] = v;
            }
            shared[k] = v;
        }
        fill_up(shared, n);
        __syncthreads();
        if (threadIdx.x < K_LANES)
            s = add_squares(s, shared, n, threadIdx.x);
    }
    float rs = factor(s, n_cols, eps);
    for (uint32_t k = threadIdx.x; k < n_cols; k += blockDim.x) {
        float y = (x[row + k] * rs) * weight[k];
        store1(out, as_factors, out_row + k, into ? out[row + k] + y : y);
    }
}

static uint32_t round_up(uint32_t n, uint32_t to)
{
    return (n + to - 1) / to * to;
}

cudaError_t launch_rmsnorm(cudaStream_t stream, const struct k_rmsnorm_args *a)
{
    uintptr_t addresses = (uintptr_t)a->x_dev | (uintptr_t)a->add_dev | (uintptr_t)a->weight_dev |
                          (uintptr_t)a->out_dev;
    uint64_t stride = a->row_stride ? a->row_stride : a->n_cols;
    size_t shared_bytes = round_up(a->n_cols < HELD ? a->n_cols : HELD, ROUND) * sizeof(float);
    if (a->n_cols <= HELD && a->n_cols % 4 == 0 && stride % 4 == 0 && addresses % 16 == 0)
        return K_LAUNCH(rmsnorm_kernel, dim3(a->n_tokens), dim3(round_up(a->n_cols, 128 * EACH) / (4 * EACH)),
                        shared_bytes, stream, a->x_dev, a->add_dev, a->weight_dev, a->out_dev, a->n_cols, stride,
                        a->into, a->for_gemm, a->eps);
    return K_LAUNCH(rmsnorm_pieces_kernel, dim3(a->n_tokens), dim3(a->n_cols < 4096 ? 128 : PIECE_THREADS),
                    shared_bytes, stream, a->x_dev, a->add_dev, a->weight_dev, a->out_dev, a->n_cols, stride, a->into,
                    a->for_gemm, a->eps);
}
