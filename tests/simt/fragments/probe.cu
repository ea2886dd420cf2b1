/* Measures how this GPU's tensor cores round, and prints one JSON object. For tools/gpu_check.sh.
 *
 *   gpu_probe [SUMS]          SUMS: number of sums of each kind, default 1000000
 *
 * 1. mma.sync, on products.h's kinds of factors: how many sums differ from tensor_core.h's for this GPU, from those for
 *    the other sort of GPU, and from fma in sequence.
 * 2. wgmma.m64nNk16 on sm_90a, N from 8 to 256: how many sums differ from mma.sync's with the same factors. It starts
 *    with small integers, whose sums are exact: if those differ, the layout of factors is not as assumed, and the probe
 * stops. Exit status 0: the model matches this GPU, and wgmma's bits equal mma.sync's if there is a wgmma. 1: they
 * differ. 2: it did not run. On the emulator, whose mma is that model and which has no wgmma, it tests itself, with a
 * fiftieth of the sums.
 */
#include "kernels/cuda/device.cuh"

#include <stdio.h>
#include <stdlib.h>

#include "tests/simt/fragments/products.h"
#include "tests/simt/fragments/tensor_core.h"

#define N_AT_ONCE 256 /* instructions per launch */
#ifdef __CUDACC__
#define N_SUMS 1000000
#else
#define N_SUMS 20000
#endif

static void check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "gpu_probe: %s: %s\n", what, cudaGetErrorString(error));
    exit(2);
}

static __global__ void __launch_bounds__(32) multiply(struct fragments *all)
{
    struct fragments *f = all + blockIdx.x;
    int lane = (int)threadIdx.x;
    uint32_t a[4];
    float c[4];
    for (int i = 0; i < 4; i++) {
        a[i] = f->a[lane][i];
        c[i] = f->c[lane][i];
    }
    mma_f16(c, a, f->b[lane][0], f->b[lane][1]);
    for (int i = 0; i < 4; i++)
        f->mma[lane][i] = c[i];
}

enum { HOPPER, AMPERE, CHAIN, n_models };
static const char *const model_names[] = {"hopper", "ampere", "fma_in_sequence"};

static float sum_by(int model, float c, const float *a, const float *b)
{
    static const struct tensor_core cores[] = {TENSOR_CORE_HOPPER, TENSOR_CORE_AMPERE};
    if (model != CHAIN)
        return tensor_core_sum(cores[model], c, a, b);
    for (int k = 0; k < 16; k++)
        c = fmaf(a[k], b[k], c);
    return c;
}

/* Counts the sums of one instruction that differ from each model. */
static void compare(const struct fragments *f, long differ[n_models])
{
    float a[16][16], b[8][16];
    for (int k = 0; k < 16; k++) {
        for (int row = 0; row < 16; row++)
            a[row][k] = f32_of_f16((uint16_t)(f->a[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2] >> 16 * (k % 2)));
        for (int col = 0; col < 8; col++)
            b[col][k] = f32_of_f16((uint16_t)(f->b[col * 4 + k % 8 / 2][k / 8] >> 16 * (k % 2)));
    }
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++)
            for (int model = 0; model < n_models; model++) {
                float d = sum_by(model, f->c[lane][i], a[lane / 4 + i / 2 * 8], b[lane % 4 * 2 + i % 2]);
                differ[model] += memcmp(&d, &f->mma[lane][i], 4) != 0;
            }
}

/* Prints the counts of each kind. Returns how many sums differ from this GPU's model. */
static long probe_mma(long n_sums, int model)
{
    static struct fragments host[N_AT_ONCE];
    struct fragments *device;
    long all = 0;
    check(cudaMalloc((void **)&device, sizeof host), "memory");
    printf("\"model\":\"%s\",\"mma\":[", model_names[model]);
    for (int kind = 0; kind < n_product_kinds; kind++) {
        long differ[n_models] = {0, 0, 0}, n = 0;
        for (uint32_t round = 0; n < n_sums; round += N_AT_ONCE) {
            for (uint32_t i = 0; i < N_AT_ONCE; i++)
                fill_products(&host[i], kind, round + i);
            check(cudaMemcpy(device, host, sizeof host, cudaMemcpyHostToDevice), "copying");
            check(K_LAUNCH(multiply, N_AT_ONCE, 32, 0, nullptr, device), "mma");
            check(cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost), "mma");
            for (int i = 0; i < N_AT_ONCE && n < n_sums; i++, n += 128)
                compare(&host[i], differ);
        }
        printf("%s{\"kind\":\"%s\",\"sums\":%ld,\"other_than_hopper\":%ld,\"other_than_ampere\":%ld,"
               "\"other_than_fma_in_sequence\":%ld}",
               kind ? "," : "", product_kinds[kind], n, differ[HOPPER], differ[AMPERE], differ[CHAIN]);
        all += differ[model];
    }
    printf("],\"mma_other_than_model\":%ld", all);
    cudaFree(device);
    return all;
}

/* ---- wgmma ---- */

/* A's fragments as for mma.sync, one warp for 16 of 64 rows; B in the layout of shared memory; c as for both. */
struct wide {
    uint32_t a[128][4], b[256 * 8];
    float c[128][128];
    uint32_t has_wgmma, n_other;
};

#ifdef __CUDACC__
#define LIST_4 "%0,%1,%2,%3"
#define LIST_8 \
    LIST_4 "," \
           "%4,%5,%6,%7"
#define LIST_16 \
    LIST_8 "," \
           "%8,%9,%10,%11,%12,%13,%14,%15"
#define LIST_32 \
    LIST_16 "," \
            "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define LIST_64 \
    LIST_32 "," \
            "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55," \
            "%56,%57,%58,%59,%60,%61,%62,%63"
#define LIST_128 \
    LIST_64 "," \
            "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87," \
            "%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108," \
            "%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define OUT_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define OUT_8(i) OUT_4(i), OUT_4(i + 4)
#define OUT_16(i) OUT_8(i), OUT_8(i + 8)
#define OUT_32(i) OUT_16(i), OUT_16(i + 16)
#define OUT_64(i) OUT_32(i), OUT_32(i + 32)
#define OUT_128(i) OUT_64(i), OUT_64(i + 64)

template <int n> static __device__ void wgmma(float (&d)[n / 2], const uint32_t (&a)[4], uint64_t b);

/* d += A B, with A from registers and B by columns from shared memory. rest: A's four registers and B, after the
 * sums. */
#define DEFINE_WGMMA(n, sums, rest) \
    template <> __device__ void wgmma<n>(float(&d)[n / 2], const uint32_t(&a)[4], uint64_t b) \
    { \
        asm volatile("{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\n" \
                     "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16 {" LIST_##sums "}, " rest \
                                                                                            ", p, 1, 1, 0;\n}\n" \
                     : OUT_##sums(0) \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)); \
    }

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
DEFINE_WGMMA(8, 4, "{%4,%5,%6,%7}, %8")
DEFINE_WGMMA(16, 8, "{%8,%9,%10,%11}, %12")
DEFINE_WGMMA(32, 16, "{%16,%17,%18,%19}, %20")
DEFINE_WGMMA(64, 32, "{%32,%33,%34,%35}, %36")
DEFINE_WGMMA(128, 64, "{%64,%65,%66,%67}, %68")
DEFINE_WGMMA(256, 128, "{%128,%129,%130,%131}, %132")
#endif

/* Returns the position, in words, of the pair of rows 2 p and 2 p + 1 of B's column `col`. 8 columns of 8 rows are 128
 * bytes, and a column is 16 of them. Such blocks follow each other by columns, then come those of the other 8 rows. */
static __host__ __device__ int place_in_b(int n, int p, int col)
{
    return p / 4 * (n / 8 * 32) + col / 8 * 32 + col % 8 * 4 + p % 4;
}

template <int n> static __global__ void __launch_bounds__(128) multiply_wide(struct wide *w)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    __shared__ alignas(128) uint32_t b[n * 8];
    const int lane = (int)threadIdx.x % 32;
    uint32_t a[4], n_other = 0;
    float d[n / 2];
    for (int i = (int)threadIdx.x; i < n * 8; i += 128)
        b[i] = w->b[i];
    for (int i = 0; i < 4; i++)
        a[i] = w->a[threadIdx.x][i];
    for (int i = 0; i < n / 2; i++)
        d[i] = w->c[threadIdx.x][i];
    asm volatile("fence.proxy.async;\n" ::: "memory");
    __syncthreads();
    /* no swizzle; the stride from the first 8 rows to the others is n / 8 blocks, that from 8 columns to the next is
     * one block, in units of 16 bytes */
    uint64_t descriptor = (uint64_t)(__cvta_generic_to_shared(b) >> 4 & 0x3fff) | (uint64_t)n << 16 | 8ull << 32;
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
    wgmma<n>(d, a, descriptor);
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");
#pragma unroll
    for (int col = 0; col < n; col += 8) {
        float c[4];
        for (int i = 0; i < 4; i++)
            c[i] = w->c[threadIdx.x][col / 2 + i];
        mma_f16(c, a, b[place_in_b(n, lane % 4, col + lane / 4)], b[place_in_b(n, lane % 4 + 4, col + lane / 4)]);
        for (int i = 0; i < 4; i++)
            n_other += __float_as_uint(c[i]) != __float_as_uint(d[col / 2 + i]);
    }
    atomicAdd(&w->n_other, n_other);
    w->has_wgmma = 1;
#endif
}

static void fill_wide(struct wide *w, int kind, uint32_t *random)
{
    const bool exact = kind == n_product_kinds; /* integers of up to 8 */
    for (size_t i = 0; i < sizeof w->a / 4 + sizeof w->b / 4; i++) {
        uint32_t word = 0;
        for (int half = 0; half < 2; half++)
            word |= (uint32_t)(exact ? f16_of_small((int)(next_random(random) % 17) - 8) : random_factor(kind, random))
                    << 16 * half;
        *(i < sizeof w->a / 4 ? &w->a[i / 4][i % 4] : &w->b[i - sizeof w->a / 4]) = word;
    }
    for (int i = 0; i < 128 * 128; i++) {
        int size = (int)(next_random(random) % 60) - 30;
        float c = (float)(int)next_random(random) - 0x800000;
        w->c[i / 128][i % 128] = exact ? (float)(i % 1000) : ldexpf(c, size - 24);
    }
}

/* Returns the number of sums of `rounds` instructions that differ from mma.sync's; negative without wgmma. */
template <int n> static long run_wide(struct wide *device, int kind, long rounds)
{
    static struct wide host;
    uint32_t random = (uint32_t)(n + kind);
    long n_other = 0;
    for (long round = 0; round < rounds; round++) {
        fill_wide(&host, kind, &random);
        host.has_wgmma = host.n_other = 0;
        check(cudaMemcpy(device, &host, sizeof host, cudaMemcpyHostToDevice), "copying");
        check(K_LAUNCH(multiply_wide<n>, 1, 128, 0, nullptr, device), "wgmma");
        check(cudaMemcpy(&host, device, sizeof host, cudaMemcpyDeviceToHost), "wgmma");
        if (!host.has_wgmma)
            return -1;
        n_other += host.n_other;
    }
    return n_other;
}

/* Prints one shape. Returns whether its bits equal mma.sync's. */
template <int n> static bool probe_shape(struct wide *device, long n_sums)
{
    long rounds = n_sums / (n_product_kinds * 64 * n) + 1, n_other = 0,
         misplaced = run_wide<n>(device, n_product_kinds, 4);
    for (int kind = 0; misplaced == 0 && kind < n_product_kinds; kind++)
        n_other += run_wide<n>(device, kind, rounds);
    printf("%s{\"n\":%d,\"sums\":%ld,\"misplaced\":%ld,\"other_than_mma\":", n > 8 ? "," : "", n,
           misplaced ? 0 : rounds * n_product_kinds * 64 * n, misplaced);
    printf(misplaced ? "null}" : "%ld}", n_other);
    return misplaced == 0 && n_other == 0;
}

/* Returns 0 if the bits equal mma.sync's, 1 if not, and a negative number without wgmma. */
static int probe_wgmma(long n_sums)
{
    struct wide *device;
    check(cudaMalloc((void **)&device, sizeof *device), "memory");
    if (run_wide<8>(device, n_product_kinds, 1) < 0)
        return -1;
    printf("[");
    bool same = probe_shape<8>(device, n_sums);
    same &= probe_shape<16>(device, n_sums);
    same &= probe_shape<32>(device, n_sums);
    same &= probe_shape<64>(device, n_sums);
    same &= probe_shape<128>(device, n_sums);
    same &= probe_shape<256>(device, n_sums);
    printf("]");
    cudaFree(device);
    return same ? 0 : 1;
}
#else
static int probe_wgmma(long)
{
    return -1;
}
#endif

int main(int argc, char **argv)
{
    long n_sums = argc > 1 ? atol(argv[1]) : N_SUMS;
    struct cudaDeviceProp gpu;
    check(cudaGetDeviceProperties(&gpu, 0), "asking what the GPU is");
    printf("{\"gpu\":\"%s\",\"compute_capability\":\"%d.%d\",", gpu.name, gpu.major, gpu.minor);
    long n_other = probe_mma(n_sums, gpu.major == 8 ? AMPERE : HOPPER);
    printf(",\"wgmma\":");
    int wide = probe_wgmma(n_sums);
    if (wide < 0)
        printf("\"not available\"");
    printf(",\"mma_is_the_model\":%s,\"wgmma_is_mma\":%s}\n", n_other ? "false" : "true",
           wide < 0 ? "null"
           : wide   ? "false"
                    : "true");
    return n_other > 0 || wide > 0;
}
