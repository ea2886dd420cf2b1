/* A BF16 weight in the mma form (docs/internals/numerics.md §17): computes e of each row, where the row's largest
 * finite |w| times 2^-e lies in [2^14, 2^15), and then replaces the numbers by the factors f16(w · 2^-e).
 *
 * Runs once per weight, when it is loaded. Each pass reads the matrix once, one warp per row and 16 bytes per lane at a
 * time, and the second pass writes it. 16 GB take 48 GB of traffic, 15 ms of a GPU that waits for a disk. GEMMs then
 * need no instruction for it (it was 159 of 378 in a stage of gemm_large.cu). Without their sign the bits of bf16
 * numbers rise as the numbers do, so the largest is found among integers, and exactly.
 */
#include "kernels/cuda/device.cuh"

#include "kernels/cuda/launch.h"
#include "kernels/math/bits.h"

#define WARPS_PER_BLOCK 8u

static __device__ uint32_t larger_finite(uint32_t best, uint32_t bits)
{
    bits &= 0x7fffu;
    return bits < 0x7f80u && bits > best ? bits : best;
}

/* Returns floor(log2 |w|) - 14, at least -120; it never exceeds 113. */
static __device__ int32_t exponent_of(uint32_t bits)
{
    if (bits == 0)
        return 0;
    int32_t log2 = bits >= 0x80u ? (int32_t)(bits >> 7) - 127 : 31 - __clz((int)bits) - 133;
    return log2 - 14 < -120 ? -120 : log2 - 14;
}

/* All lanes of a warp call it together. */
static __device__ int32_t row_exponent(const uint4 *words, uint64_t n_words)
{
    uint32_t best = 0;
    for (uint64_t i = threadIdx.x % 32; i < n_words; i += 32) { /* a row is padded with zeros */
        uint4 w = words[i];
        uint32_t pairs[4] = {w.x, w.y, w.z, w.w};
        for (int p = 0; p < 4; p++) {
            best = larger_finite(best, pairs[p]);
            best = larger_finite(best, pairs[p] >> 16);
        }
    }
    for (int step = 16; step > 0; step /= 2) {
        uint32_t other = __shfl_xor_sync(0xffffffffu, best, step);
        best = other > best ? other : best;
    }
    return exponent_of(best);
}

static __global__ void weight_exponents(const unsigned char *data, uint64_t row_stride_bytes, uint32_t n_rows,
                                        int8_t *exponents)
{
    uint32_t row = blockIdx.x * WARPS_PER_BLOCK + threadIdx.x / 32;
    if (row >= n_rows)
        return; /* the same for the whole warp */
    int32_t e = row_exponent((const uint4 *)(data + row * row_stride_bytes), row_stride_bytes / 16);
    if (threadIdx.x % 32 == 0)
        exponents[row] = (int8_t)e;
}

extern "C" cudaError_t launch_weight_exponents(cudaStream_t stream, const struct k_weight *w, uint64_t row_stride_bytes)
{
    uint32_t n_blocks = w->n_rows / WARPS_PER_BLOCK + (w->n_rows % WARPS_PER_BLOCK != 0);
    return K_LAUNCH(weight_exponents, n_blocks, WARPS_PER_BLOCK * 32, 0, stream, (const unsigned char *)w->data_dev,
                    row_stride_bytes, w->n_rows, w->exponents_dev);
}

static __device__ uint32_t factors_of(uint32_t pair, float scale)
{
    __half2 factors = __floats2half2_rn(k_f32_from_bits(pair << 16) * scale,
                                        k_f32_from_bits(pair & 0xffff0000u) * scale);
    memcpy(&pair, &factors, sizeof pair);
    return pair;
}

static __global__ void weight_factors(unsigned char *data, uint64_t row_stride_bytes, uint32_t n_rows,
                                      const int8_t *exponents)
{
    uint32_t row = blockIdx.x * WARPS_PER_BLOCK + threadIdx.x / 32;
    if (row >= n_rows)
        return;
    float scale = k_f32_from_bits((uint32_t)(127 - exponents[row]) << 23);
    uint4 *words = (uint4 *)(data + row * row_stride_bytes);
    for (uint64_t i = threadIdx.x % 32; i < row_stride_bytes / 16; i += 32) {
        uint4 w = words[i];
        words[i] = make_uint4(factors_of(w.x, scale), factors_of(w.y, scale), factors_of(w.z, scale),
                              factors_of(w.w, scale));
    }
}

extern "C" cudaError_t launch_weight_factors(cudaStream_t stream, const struct k_weight *w)
{
    uint32_t n_blocks = w->n_rows / WARPS_PER_BLOCK + (w->n_rows % WARPS_PER_BLOCK != 0);
    return K_LAUNCH(weight_factors, n_blocks, WARPS_PER_BLOCK * 32, 0, stream, (unsigned char *)w->data_dev,
                    w->row_stride_bytes, w->n_rows, w->exponents_dev);
}
