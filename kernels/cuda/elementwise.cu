/* Embedding, SiLU-mul, gather, placing of sampled tokens, factors of activations: operations that read each number once
 * and do little arithmetic.
 *
 * Memory is the limit. SiLU-mul moves 12 bytes for each output, gather 8, embedding 6 (of 16-bit weights). To keep 3.35
 * TB/s busy at 600 ns per load, an SM must have 15 KB in flight; 2,048 threads with two 16-byte loads each have 64 KB.
 * So a thread processes four adjacent elements with one 16-byte access if rows are aligned to that (n a multiple of 4,
 * as in every model), and there is no loop. Otherwise it processes one element.
 *
 * Grid: x is the row, which may be any number; y is the part of a row that a block processes.
 */
#include "kernels/cuda/factors.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/plan/plan.h"
#include "kernels/cuda/widen.cuh"
#include "kernels/math/gate.h"

#define THREADS 256u

/* Returns whether rows of n_cols floats at these addresses are 16-byte aligned. */
static bool is_vector(uint32_t n_cols, const void *a, const void *b)
{
    return n_cols % 4 == 0 && ((uintptr_t)a | (uintptr_t)b) % 16 == 0;
}

static dim3 row_grid(uint32_t n_rows, uint32_t n_cols, uint32_t each)
{
    uint32_t span = THREADS * each;
    return dim3(n_rows, n_cols / span + (n_cols % span != 0));
}

/* Returns the first of this thread's `each` elements of its row. */
static __device__ __forceinline__ uint32_t first_column(uint32_t each)
{
    return (blockIdx.y * THREADS + threadIdx.x) * each;
}

/* ---- embed ----------------------------------------------------------------------------------- */

/* An id may come from the sampler's row of a request that has ended. If it is not a row of the table, the token's
 * activations are NaN, so its request ends (docs/internals/numerics.md §14) and no other request is affected. */
template <enum k_dtype dtype>
static __global__ void __launch_bounds__(THREADS)
    embed_kernel(const unsigned char *table, uint64_t row_stride_bytes, uint32_t n_rows, const uint32_t *ids,
                 float *out, uint32_t n_cols, bool vector, bool into, float by, const int8_t *exponents)
{
    uint32_t k = first_column(4), id = ids[blockIdx.x];
    if (k >= n_cols)
        return;
    float nan = k_f32_from_bits(0x7fc00000u);
    float4 v = make_float4(nan, nan, nan, nan);
    if (id < n_rows) /* rows are padded to 16 bytes with zeros, so the last four may be read as a whole */
        v = widen4<dtype>(table + id * row_stride_bytes, k);
    if (dtype == K_F16 && exponents && id < n_rows) { /* BF16 that is stored as factors */
        float scale = k_f32_from_bits((uint32_t)(127 + exponents[id]) << 23);
        v = make_float4(v.x * scale, v.y * scale, v.z * scale, v.w * scale);
    }
    v = make_float4(v.x * by, v.y * by, v.z * by, v.w * by);
    float *to = out + (uint64_t)blockIdx.x * n_cols + k;
    if (vector) {
        float4 was = into ? *(const float4 *)to : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        *(float4 *)to = into ? make_float4(was.x + v.x, was.y + v.y, was.z + v.z, was.w + v.w) : v;
        return;
    }
    to[0] = into ? to[0] + v.x : v.x;
    if (k + 1 < n_cols)
        to[1] = into ? to[1] + v.y : v.y;
    if (k + 2 < n_cols)
        to[2] = into ? to[2] + v.z : v.z;
    if (k + 3 < n_cols)
        to[3] = into ? to[3] + v.w : v.w;
}

cudaError_t launch_embed(cudaStream_t stream, const struct k_embed_args *a)
{
    const struct k_weight *table = a->table;
    dim3 grid = row_grid(a->n_tokens, table->n_cols, 4);
    bool vector = is_vector(table->n_cols, a->out_dev, NULL);
    const unsigned char *data = (const unsigned char *)table->data_dev;
    const float by = a->scale != 0 ? a->scale : 1.0f;
    if (table->stored == K_F16)
        return K_LAUNCH(embed_kernel<K_F16>, grid, dim3(THREADS), 0, stream, data, table->row_stride_bytes,
                        table->n_rows, a->ids_dev, a->out_dev, table->n_cols, vector, a->into, by,
                        table->exponents_dev);
    if (table->stored == K_BF16)
        return K_LAUNCH(embed_kernel<K_BF16>, grid, dim3(THREADS), 0, stream, data, table->row_stride_bytes,
                        table->n_rows, a->ids_dev, a->out_dev, table->n_cols, vector, a->into, by,
                        table->exponents_dev);
    return K_LAUNCH(embed_kernel<K_F32>, grid, dim3(THREADS), 0, stream, data, table->row_stride_bytes, table->n_rows,
                    a->ids_dev, a->out_dev, table->n_cols, vector, a->into, by, table->exponents_dev);
}

/* ---- gates, on the output of cuBLASLt; our own GEMMs include it --------------------------- */

static __global__ void __launch_bounds__(THREADS)
    gate_4_kernel(const float *gate_up, const struct cuda_gated to, uint32_t n)
{
    uint32_t i = first_column(4);
    if (i >= n)
        return;
    const float *gate = gate_up + blockIdx.x * 2 * (uint64_t)n + i;
    float4 g = *(const float4 *)gate, u = *(const float4 *)(gate + n);
    store4(to.out_dev, to.as_factors, (uint64_t)blockIdx.x * n + i,
           make_float4(k_gated(to.gate, g.x, u.x), k_gated(to.gate, g.y, u.y), k_gated(to.gate, g.z, u.z),
                       k_gated(to.gate, g.w, u.w)));
}

static __global__ void __launch_bounds__(THREADS)
    gate_kernel(const float *gate_up, const struct cuda_gated to, uint32_t n)
{
    uint32_t i = first_column(1);
    if (i >= n)
        return;
    const float *gate = gate_up + blockIdx.x * 2 * (uint64_t)n + i;
    store1(to.out_dev, to.as_factors, (uint64_t)blockIdx.x * n + i, k_gated(to.gate, gate[0], gate[n]));
}

cudaError_t launch_gate(cudaStream_t stream, const float *gate_up, const struct cuda_gated *gated, uint32_t n_tokens,
                        uint32_t n)
{
    if (is_vector(n, gate_up, gated->out_dev))
        return K_LAUNCH(gate_4_kernel, row_grid(n_tokens, n, 4), dim3(THREADS), 0, stream, gate_up, *gated, n);
    return K_LAUNCH(gate_kernel, row_grid(n_tokens, n, 1), dim3(THREADS), 0, stream, gate_up, *gated, n);
}

/* ---- gather ---------------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(THREADS)
    gather_4_kernel(const float *x, const uint32_t *index, float *out, bool as_factors, uint32_t n)
{
    uint32_t i = first_column(4);
    if (i < n)
        store4(out, as_factors, (uint64_t)blockIdx.x * n + i,
               *(const float4 *)(x + index[blockIdx.x] * (uint64_t)n + i));
}

static __global__ void __launch_bounds__(THREADS)
    gather_kernel(const float *x, const uint32_t *index, float *out, bool as_factors, uint32_t n)
{
    uint32_t i = first_column(1);
    if (i < n)
        store1(out, as_factors, (uint64_t)blockIdx.x * n + i, x[index[blockIdx.x] * (uint64_t)n + i]);
}

cudaError_t launch_gather(cudaStream_t stream, const struct k_gather_args *a)
{
    if (is_vector(a->n_cols, a->x_dev, a->out_dev))
        return K_LAUNCH(gather_4_kernel, row_grid(a->n_rows, a->n_cols, 4), dim3(THREADS), 0, stream, a->x_dev,
                        a->index_dev, a->out_dev, a->for_gemm, a->n_cols);
    return K_LAUNCH(gather_kernel, row_grid(a->n_rows, a->n_cols, 1), dim3(THREADS), 0, stream, a->x_dev, a->index_dev,
                    a->out_dev, a->for_gemm, a->n_cols);
}

/* ---- place_tokens ---------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(THREADS)
    place_tokens_kernel(uint32_t *ids, const uint32_t *sampled, const struct k_token_source *sources, uint32_t n)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i < n && sources[i].token != K_NO_TOKEN)
        ids[sources[i].token] = sampled[sources[i].row];
}

cudaError_t launch_place_tokens(cudaStream_t stream, const struct k_place_tokens_args *a)
{
    return K_LAUNCH(place_tokens_kernel, dim3(a->n / THREADS + (a->n % THREADS != 0)), dim3(THREADS), 0, stream,
                    a->ids_dev, a->sampled_dev, a->sources_dev, a->n);
}

/* ---- the activations' factors ---------------------------------------------------------------- */

/* Converts 8 columns of a token: x [T, n_cols] to factors [T, stride], with zeros from n_cols on. stride is a multiple
 * of 16. */
static __global__ void __launch_bounds__(THREADS) gemm_convert(const float *x, uint16_t *factors, uint32_t n_tokens,
                                                               uint32_t n_cols, uint32_t stride, bool is_aligned)
{
    uint64_t at = ((uint64_t)blockIdx.x * THREADS + threadIdx.x) * 8;
    uint64_t token = at / stride;
    uint32_t col = (uint32_t)(at % stride);
    if (token >= n_tokens)
        return;
    const float *from = x + token * n_cols + col;
    float v[8];
    if (is_aligned && col + 8 <= n_cols) {
        float4 low = ((const float4 *)from)[0], high = ((const float4 *)from)[1];
        v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
        v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
    } else {
#pragma unroll
        for (uint32_t i = 0; i < 8; i++)
            v[i] = col + i < n_cols ? from[i] : 0.0f;
    }
    *(uint4 *)(factors + at) = make_uint4(factors2(v[0], v[1]), factors2(v[2], v[3]), factors2(v[4], v[5]),
                                          factors2(v[6], v[7]));
}

cudaError_t launch_gemm_factors(cudaStream_t stream, const struct k_gemm_args *a, void *factors)
{
    uint32_t n_cols = a->weight->n_cols, stride = cuda_gemm_factor_stride(n_cols);
    uint64_t n_threads = (uint64_t)a->n_tokens * stride / 8;
    bool is_aligned = n_cols % 4 == 0 && (uintptr_t)a->x_dev % 16 == 0;
    return K_LAUNCH(gemm_convert, dim3((uint32_t)((n_threads + THREADS - 1) / THREADS)), dim3(THREADS), 0, stream,
                    a->x_dev, (uint16_t *)factors, a->n_tokens, n_cols, stride, is_aligned);
}
