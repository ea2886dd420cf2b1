/* RMSNorm, which first adds the residual, or adds the norm to the output (docs/internals/numerics.md §7).
 *
 * Bytes: 16 per element with a residual, 8 without (x, add in; x, out out), and the weight from L2. A block has a row.
 * The specification's sum is one chain of n / 16 dependent fmas for each of 16 lanes, so the row goes into shared
 * memory, where 16 threads sum it. Element 16 i + j is step i of lane j; each lane's steps are contiguous, so that one
 * load reads four of them.
 *
 * Time of a row of 4,096: loads 1 µs, the chain of 256 fmas of 4 clocks 0.6 µs, stores. With one token that is the
 * whole time. To keep it short, a thread issues all its loads, including the weight, before it waits, and loads the
 * chain's operands 16 steps early: ptxas' schedule for sm_90a takes 73 clocks for 16 steps; with loads of one step each
 * it took 108, because the chain always waited for some of them. With many tokens the SM's other blocks hide the chain:
 * three of 256 threads are resident and move 64 KB each. An SM's share of 3.35 TB/s is 25 KB per µs, so even 7 µs per
 * row would be fast enough.
 *
 * There are two kernels. One is for rows that a block holds in registers, 16 elements per thread, by 16-byte accesses;
 * these are the rows of every model. The other is for all other rows, which pass through shared memory in pieces and
 * are scaled from x itself, which L2 still holds. A thread writes the elements that it read, so out may be x. Output
 * that only GEMMs read is stored as factors, 2 bytes per element.
 */
#include "kernels/cuda/factors.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/peers.cuh"
#include "kernels/math/activation.h"
#include "kernels/math/lane_sum.h"

#define HELD 11264u /* columns in shared memory: 44 of the 48 KB that every GPU has by default; a multiple of ROUND */
#define EACH 4u /* accesses per thread in the first kernel */
#define MAX_THREADS 704u /* HELD / (4 EACH) */
#define AHEAD 4u /* loads of four steps each: 64 clocks, and the latency of shared memory is 33 */
#define ROUND (4 * AHEAD * K_LANES)
#define PIECE_THREADS 512u

K_DYNAMIC_SHARED;

/* The position of column k: in the row of lane k % 16, at step k / 16; rows 8 to 15 exchange each two groups of eight
 * steps. Rows are 4 floats further apart than a multiple of 32. So neither the 4 lanes × 8 steps that a warp stores at
 * once nor the 8 lanes that read 16 bytes at once share a bank. */
struct steps {
    float *shared;
    uint32_t stride;

    __device__ __forceinline__ float *at(uint32_t k) const
    {
        uint32_t lane = k % K_LANES;
        return shared + lane * stride + (k / K_LANES ^ (lane & 8));
    }
    __device__ __forceinline__ void set4(uint32_t k, float4 v) const /* k is a multiple of 4 */
    {
        float *to = at(k);
        to[0] = v.x;
        to[stride] = v.y;
        to[2 * stride] = v.z;
        to[3 * stride] = v.w;
    }
    /* Pads n columns with zeros to a multiple of ROUND, so that the sum has no remainder. A term of +0 · +0 changes no
     * lane, because a sum of squares is never −0. */
    __device__ __forceinline__ void fill_up(uint32_t n) const
    {
        for (uint32_t k = n + threadIdx.x; k < (n + ROUND - 1) / ROUND * ROUND; k += blockDim.x)
            *at(k) = 0.0f;
    }
};

static __host__ __device__ __forceinline__ uint32_t stride_of(uint32_t n_cols)
{
    return (n_cols + 32 * K_LANES - 1) / (32 * K_LANES) * 32 + 4;
}

static __device__ __forceinline__ float add_four(float s, float4 x)
{
    return fmaf(x.w, x.w, fmaf(x.z, x.z, fmaf(x.y, x.y, fmaf(x.x, x.x, s))));
}

/* Returns s_j + Σ x_k · x_k over lane j's elements. Every four steps are followed by the load of four that are added 16
 * steps later. */
static __device__ __forceinline__ float add_squares(float s, const struct steps &columns, uint32_t n, uint32_t lane)
{
    uint32_t flip = (lane & 8) / 4, n_fours = (n + ROUND - 1) / ROUND * AHEAD;
    const float4 *even = (const float4 *)(columns.shared + lane * columns.stride) + flip; /* fours 0, 1, 4, 5, … */
    const float4 *odd = even + 2 - 2 * flip; /* 2, 3, 6, 7, … */
    float4 x[AHEAD];
#pragma unroll
    for (uint32_t i = 0; i < AHEAD; i++)
        x[i] = (i % 4 < 2 ? even : odd)[i - i % 4 + i % 2];
#pragma unroll 1
    for (uint32_t from = AHEAD; from < n_fours; from += AHEAD) {
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++) {
            s = add_four(s, x[i]);
            x[i] = (i % 4 < 2 ? even : odd)[from + i - i % 4 + i % 2];
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < AHEAD; i++)
        s = add_four(s, x[i]);
    return s;
}

/* Folds the lanes of the first 16 threads of the first warp and returns the row's factor to every thread. */
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

static __global__ void __launch_bounds__(MAX_THREADS)
    rmsnorm_kernel(float *x, const float *add, const float *weight, float *out, uint32_t n_cols, uint64_t stride,
                   bool into, bool as_factors, float eps)
{
    const struct steps columns = {(float *)k_shared, stride_of(n_cols)};
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
            columns.set4(k, v[i]);
        }
    }
    columns.fill_up(n_cols);
    __syncthreads();
    float rs = factor(threadIdx.x < K_LANES ? add_squares(0.0f, columns, n_cols, threadIdx.x) : 0.0f, n_cols, eps);
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

/* The same for an addend that is the sum over ranks of `part`, plus a bias (peers.cuh). A block has a row here, too. It
 * loads the row and the weight before it waits for the peers. */
template <uint32_t n_ranks>
static __global__ void __launch_bounds__(MAX_THREADS)
    rmsnorm_of_sum_kernel(const __grid_constant__ struct cuda_peers p, float *x, const float *part, const float *bias,
                          const float *weight, float *out, uint32_t n_cols, bool as_factors, float eps)
{
    const struct steps columns = {(float *)k_shared, stride_of(n_cols)};
    const uint64_t row = blockIdx.x * (uint64_t)n_cols;
    uint32_t round;
    float4 v[EACH], w[EACH];
    if (!peers_begin(p, &round))
        return;
    float4 *own = peer_area<float4>(p.own, ++round);
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
        uint32_t k = 4 * (threadIdx.x + i * blockDim.x);
        if (k < n_cols) {
            own[k / 4] = *(const float4 *)(part + row + k);
            v[i] = *(const float4 *)(x + row + k);
            w[i] = *(const float4 *)(weight + k);
        }
    }
    if (!peers_meet(p, round))
        return;
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
        uint32_t k = 4 * (threadIdx.x + i * blockDim.x);
        if (k < n_cols) {
            float4 of[n_ranks];
#pragma unroll
            for (uint32_t r = 0; r < n_ranks; r++)
                of[r] = peer_area<float4>(p.memory[r], round)[k / 4];
            const float4 s = tree(of);
            v[i] = sum(v[i], bias ? sum(s, *(const float4 *)(bias + k)) : s);
            *(float4 *)(x + row + k) = v[i];
            columns.set4(k, v[i]);
        }
    }
    columns.fill_up(n_cols);
    __syncthreads();
    float rs = factor(threadIdx.x < K_LANES ? add_squares(0.0f, columns, n_cols, threadIdx.x) : 0.0f, n_cols, eps);
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
        uint32_t k = 4 * (threadIdx.x + i * blockDim.x);
        if (k < n_cols)
            store4(out, as_factors, row + k,
                   make_float4((v[i].x * rs) * w[i].x, (v[i].y * rs) * w[i].y, (v[i].z * rs) * w[i].z,
                               (v[i].w * rs) * w[i].w));
    }
    peers_end(p, round);
}

static __global__ void __launch_bounds__(PIECE_THREADS)
    rmsnorm_pieces_kernel(float *x, const float *add, const float *weight, float *out, uint32_t n_cols, uint64_t stride,
                          bool into, bool as_factors, float eps)
{
    const struct steps columns = {(float *)k_shared, stride_of(min(n_cols, HELD))};
    uint64_t row = blockIdx.x * stride, out_row = as_factors ? blockIdx.x * (uint64_t)n_cols : row;
    float s = 0.0f;
    for (uint32_t from = 0; from < n_cols; from += HELD) {
        uint32_t n = min(n_cols - from, HELD);
        if (from > 0)
            __syncthreads(); /* the previous piece is summed */
        for (uint32_t k = threadIdx.x; k < n; k += blockDim.x) {
            uint64_t at = row + from + k;
            float v = x[at];
            if (add) {
                v = v + add[at];
                x[at] = v;
            }
            *columns.at(k) = v;
        }
        columns.fill_up(n);
        __syncthreads();
        if (threadIdx.x < K_LANES)
            s = add_squares(s, columns, n, threadIdx.x);
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
    size_t shared_bytes = K_LANES * stride_of(a->n_cols < HELD ? a->n_cols : HELD) * sizeof(float);
    if (a->n_cols <= HELD && a->n_cols % 4 == 0 && stride % 4 == 0 && addresses % 16 == 0)
        return K_LAUNCH(rmsnorm_kernel, dim3(a->n_tokens), dim3(round_up(a->n_cols, 128 * EACH) / (4 * EACH)),
                        shared_bytes, stream, a->x_dev, a->add_dev, a->weight_dev, a->out_dev, a->n_cols, stride,
                        a->into, a->for_gemm, a->eps);
    return K_LAUNCH(rmsnorm_pieces_kernel, dim3(a->n_tokens), dim3(a->n_cols < 4096 ? 128 : PIECE_THREADS),
                    shared_bytes, stream, a->x_dev, a->add_dev, a->weight_dev, a->out_dev, a->n_cols, stride, a->into,
                    a->for_gemm, a->eps);
}

template <uint32_t n_ranks>
static cudaError_t launch_of_sum(cudaStream_t stream, const struct cuda_peers *p, const struct k_rmsnorm_args *a)
{
    return K_LAUNCH((rmsnorm_of_sum_kernel<n_ranks>), dim3(a->n_tokens),
                    dim3(round_up(a->n_cols, 128 * EACH) / (4 * EACH)), K_LANES * stride_of(a->n_cols) * sizeof(float),
                    stream, *p, a->x_dev, a->add_dev, a->add_bias_dev, a->weight_dev, a->out_dev, a->n_cols,
                    a->for_gemm, a->eps);
}

bool cuda_fuses_sum(uint32_t n_ranks, const struct k_rmsnorm_args *a)
{
    uintptr_t addresses = (uintptr_t)a->x_dev | (uintptr_t)a->add_dev | (uintptr_t)a->weight_dev |
                          (uintptr_t)a->out_dev | (uintptr_t)a->add_bias_dev;
    return !a->into && a->n_tokens <= CUDA_PEER_BLOCKS && a->n_cols <= HELD &&
           a->n_cols <= CUDA_PEER_AREA_BYTES / sizeof(float) && a->n_cols % 4 == 0 && addresses % 16 == 0 &&
           peers_are_one_shot(n_ranks, (uint64_t)a->n_tokens * a->n_cols * sizeof(float));
}

cudaError_t launch_rmsnorm_of_sum(cudaStream_t stream, const struct cuda_peers *p, const struct k_rmsnorm_args *a)
{
    return p->n_ranks == 2   ? launch_of_sum<2>(stream, p, a)
           : p->n_ranks == 4 ? launch_of_sum<4>(stream, p, a)
                             : launch_of_sum<8>(stream, p, a);
}
