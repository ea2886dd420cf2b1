/* What a GPU can do at most, for tools/gpu_check.sh to hold the kernels against: memory read and copied, and products of
 * the tensor cores by the one instruction that the kernels have (numerics.md, section 17). Prints one JSON object.
 *
 *   gpu_limits [GPU]
 *
 * Reading and copying: 2 GiB, many times what any cache holds. Products: factors in registers, eight accumulators a warp, so that
 * nothing is waited for; what wgmma reaches beyond that on sm_90 is no limit of mma.sync, and a library's GEMM is measured
 * beside this where one is installed. Each figure is the best of 10 runs, which a limit is; the median stands beside it. */
#include "kernels/cuda/device.cuh"

#include <algorithm>
#include <stdio.h>
#include <stdlib.h>

#define BUFFER_BYTES (size_t(2) << 30)
#define N_RUNS 10
#define PRODUCT_ROUNDS 4096
#define N_SUMS 8
#define FLOPS_OF_MMA (2.0 * 16 * 8 * 16)

static void check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "gpu_limits: %s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

/* Four 16-byte loads on the way in each thread. */
__global__ void read_all(const uint4 *from, size_t n, uint32_t *sink)
{
    size_t step = size_t(gridDim.x) * blockDim.x;
    uint32_t sum = 0;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i + 3 * step < n; i += 4 * step) {
        uint4 a = from[i], b = from[i + step], c = from[i + 2 * step], d = from[i + 3 * step];
        sum ^= a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w ^ c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
    }
    if (sum == 1) /* of words of 0x3c3c3c3c never: but the compiler does not know */
        *sink = sum;
}

__global__ void copy_all(const uint4 *from, uint4 *to, size_t n)
{
    size_t step = size_t(gridDim.x) * blockDim.x;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i + 3 * step < n; i += 4 * step) {
        uint4 a = from[i], b = from[i + step], c = from[i + 2 * step], d = from[i + 3 * step];
        to[i] = a;
        to[i + step] = b;
        to[i + 2 * step] = c;
        to[i + 3 * step] = d;
    }
}

/* Factors of about 1 with mixed bits, as a model's are: zeros draw less power and would clock higher. */
__global__ void multiply(float *sink)
{
    uint32_t a[4], b[2];
    float c[N_SUMS][4];
    for (uint32_t i = 0; i < 4; i++)
        a[i] = 0x3a003a00u ^ ((threadIdx.x * 0x00930057u + i * 0x01110222u) & 0x03ff03ffu);
    for (uint32_t i = 0; i < 2; i++)
        b[i] = 0x2a00aa00u ^ ((threadIdx.x * 0x00570093u + i * 0x02220111u) & 0x03ff03ffu);
#pragma unroll
    for (uint32_t s = 0; s < N_SUMS; s++)
        for (uint32_t i = 0; i < 4; i++)
            c[s][i] = (float)s;
#pragma unroll 1
    for (uint32_t n = 0; n < PRODUCT_ROUNDS; n++) {
#pragma unroll
        for (uint32_t s = 0; s < N_SUMS; s++)
            mma_f16(c[s], a, b[0], b[1]);
    }
    float sum = 0;
#pragma unroll
    for (uint32_t s = 0; s < N_SUMS; s++)
        sum += c[s][0] + c[s][1] + c[s][2] + c[s][3];
    if (sum == 0.123f)
        *sink = sum;
}

struct times {
    double best, median; /* seconds */
};

template <typename Run> static struct times time_runs(const char *what, Run run)
{
    cudaEvent_t begin, end;
    double seconds[N_RUNS];
    check(cudaEventCreate(&begin), what);
    check(cudaEventCreate(&end), what);
    check(run(), what);
    for (int i = 0; i < N_RUNS; i++) {
        float ms;
        check(cudaEventRecord(begin, 0), what);
        check(run(), what);
        check(cudaEventRecord(end, 0), what);
        check(cudaEventSynchronize(end), what);
        check(cudaEventElapsedTime(&ms, begin, end), what);
        seconds[i] = ms * 1e-3;
    }
    std::sort(seconds, seconds + N_RUNS);
    return {seconds[0], seconds[N_RUNS / 2]};
}

int main(int argc, char **argv)
{
    int gpu = argc > 1 ? atoi(argv[1]) : 0, driver = 0;
    struct cudaDeviceProp prop;
    char *from, *to;
    check(cudaSetDevice(gpu), "choosing the GPU");
    check(cudaGetDeviceProperties(&prop, gpu), "asking what the GPU is");
    check(cudaDriverGetVersion(&driver), "asking for the driver");
    check(cudaMalloc((void **)&from, BUFFER_BYTES), "2 GiB of memory");
    check(cudaMalloc((void **)&to, BUFFER_BYTES), "2 GiB more");
    check(cudaMemset(from, 0x3c, BUFFER_BYTES), "filling");
    const unsigned blocks = (unsigned)prop.multiProcessorCount * 8;
    const size_t n = BUFFER_BYTES / sizeof(uint4);

    struct times read = time_runs("reading", [&] {
        return K_LAUNCH(read_all, dim3(blocks), dim3(512), 0, (cudaStream_t)0, (const uint4 *)from, n, (uint32_t *)to);
    });
    struct times copy = time_runs("copying", [&] {
        return K_LAUNCH(copy_all, dim3(blocks), dim3(512), 0, (cudaStream_t)0, (const uint4 *)from, (uint4 *)to, n);
    });
    struct times memcpy_ = time_runs(
        "cudaMemcpy", [&] { return cudaMemcpyAsync(to, from, BUFFER_BYTES, cudaMemcpyDeviceToDevice, 0); });
    struct times products = time_runs(
        "multiplying", [&] { return K_LAUNCH(multiply, dim3(blocks), dim3(256), 0, (cudaStream_t)0, (float *)to); });
    const double gb = BUFFER_BYTES * 1e-9, tflop = FLOPS_OF_MMA * N_SUMS * PRODUCT_ROUNDS * 8.0 * blocks * 1e-12;
    printf("{\"gpu\":\"%s\",\"compute_capability\":\"%d.%d\",\"sms\":%d,\"memory_bytes\":%zu,\"l2_bytes\":%d,"
           "\"driver_cuda\":\"%d.%d\",\"runtime_cuda\":\"%d.%d\","
           "\"read_gb_s\":%.1f,\"read_median_gb_s\":%.1f,\"copy_gb_s\":%.1f,\"copy_median_gb_s\":%.1f,"
           "\"memcpy_gb_s\":%.1f,\"mma_f16_tflop_s\":%.2f,\"mma_f16_median_tflop_s\":%.2f}\n",
           prop.name, prop.major, prop.minor, prop.multiProcessorCount, prop.totalGlobalMem, prop.l2CacheSize,
           driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10, gb / read.best,
           gb / read.median, 2 * gb / copy.best, 2 * gb / copy.median, 2 * gb / memcpy_.best, tflop / products.best,
           tflop / products.median);
    return 0;
}
