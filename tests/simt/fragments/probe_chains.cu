/* Chains of wgmma.m64n128k16 in one group, as a GEMM issues them, against tensor_core.h's sums one after the other.
 *
 * A lies in shared memory with its columns (K) or its rows (M) next to each other, or in registers. B lies there with K or N
 * next to each other. Shared memory has the 128-byte swizzle. The first instruction has a c, or scale-d 0, which must be the
 * same as a c of +0. Small integers, whose sums are exact, tell first whether a factor lies elsewhere than this program thinks.
 * Then A and B are exchanged: the result must be the transpose, bit for bit. */
#include "kernels/cuda/device.cuh"

#include "tests/simt/fragments/probe.h"
#include "tests/simt/fragments/products.h"
#include "tests/simt/fragments/tensor_core.h"
#include "tests/simt/fragments/wgmma_lists.cuh"

#ifdef __CUDACC__
#define N_ROWS 64
#define N_COLS 128
#define MOST_STEPS 32
#define BLOCK_BYTES (MOST_STEPS * 2048u) /* 64 rows or columns of all steps */

enum { BY_K, BY_MN, IN_REGISTERS };
static const char *const places[] = {"k", "mn", "registers"};

/* Factors as rows of K. How a descriptor's two strides are filled in: exchanged or not. d: a row of sums for each row of A. */
struct chain {
    uint16_t a[N_ROWS][MOST_STEPS * 16], b[N_COLS][MOST_STEPS * 16];
    float c[N_ROWS][N_COLS], d[N_ROWS][N_COLS];
    uint32_t scale_d, exchange_strides, has_wgmma;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define FROM_SHARED(place_a, place_b) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %66, 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" LIST_64 "}, %64, %65, p, 1, 1, " #place_a \
                 ", " #place_b ";\n}\n" \
                 : OUT_64(0) \
                 : "l"(a), "l"(b), "r"(scale_d))
#define FROM_REGISTERS(place_b) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %69, 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" LIST_64 \
                 "}, {%64,%65,%66,%67}, %68, p, 1, 1, " #place_b ";\n}\n" \
                 : OUT_64(0) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(scale_d))

template <int place_a, int place_b>
static __device__ __forceinline__ void multiply_shared(float (&d)[64], uint64_t a, uint64_t b, uint32_t scale_d)
{
    if (place_a == BY_K && place_b == BY_K)
        FROM_SHARED(0, 0);
    else if (place_a == BY_K)
        FROM_SHARED(0, 1);
    else if (place_b == BY_K)
        FROM_SHARED(1, 0);
    else
        FROM_SHARED(1, 1);
}

template <int place_b>
static __device__ __forceinline__ void multiply_registers(float (&d)[64], const uint32_t (&a)[4], uint64_t b,
                                                          uint32_t scale_d)
{
    if (place_b == BY_K)
        FROM_REGISTERS(0);
    else
        FROM_REGISTERS(1);
}

/* Where element (i, k) of 64 rows or columns lies, in bytes. By K: a tile of 8 KB for each 64 of K, 128 bytes a row. By MN: a
 * tile of 1 KB for each 8 of K, 128 bytes for each k. Within 1 KB, the swizzle moves units of 16 bytes. */
static __device__ uint32_t place_of(int place, uint32_t i, uint32_t k)
{
    if (place == BY_K)
        return k / 64 * 8192 + i * 128 + ((k % 64 * 2) ^ (i % 8 * 16));
    return k / 8 * 1024 + k % 8 * 128 + ((i * 2) ^ (k % 8 * 16));
}

/* Of the factors of 16-deep step `step`. Strides are in units of 16 bytes. By K, the one at bit 32 is from 8 rows to the next,
 * and the other is not used. By MN, the one at bit 32 is from 8 of K to the next, the one at bit 16 from 64 of MN to the next.
 * By K, 128 columns of B are two blocks of 64 rows, so a tile has 16 KB. */
static __device__ uint64_t descriptor_of(int place, uint32_t at, uint32_t step, uint32_t tile_bytes, bool exchange)
{
    at += place == BY_K ? step / 4 * tile_bytes + step % 4 * 32 : step * 2048;
    uint64_t leading = place == BY_K ? 1 : BLOCK_BYTES / 16, other = 64;
    return (uint64_t)(at >> 4 & 0x3fff) | (exchange ? other : leading) << 16 | (exchange ? leading : other) << 32 |
           1ull << 62;
}

static __device__ void store_factors(unsigned char *a, unsigned char *b, const struct chain *f, int place_a,
                                     int place_b)
{
    for (uint32_t i = threadIdx.x; i < (N_ROWS + N_COLS) * MOST_STEPS * 16; i += 128) {
        uint32_t row = i / (MOST_STEPS * 16), k = i % (MOST_STEPS * 16), col = row - N_ROWS;
        if (row < N_ROWS)
            *(uint16_t *)(a + place_of(place_a == BY_MN ? BY_MN : BY_K, row, k)) = f->a[row][k];
        else if (place_b == BY_K)
            *(uint16_t *)(b + k / 64 * 16384 + col / 64 * 8192 + place_of(BY_K, col % 64, k % 64)) = f->b[col][k];
        else
            *(uint16_t *)(b + col / 64 * BLOCK_BYTES + place_of(BY_MN, col % 64, k)) = f->b[col][k];
    }
}
#endif

K_DYNAMIC_SHARED;

template <int steps, int place_a, int place_b>
static __global__ void __launch_bounds__(128) multiply_chain(struct chain *f)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    unsigned char *a = k_shared + ((1024 - (__cvta_generic_to_shared(k_shared) & 1023)) & 1023), *b = a + BLOCK_BYTES;
    const uint32_t lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4, pair = lane % 4 * 2;
    uint32_t held[place_a == IN_REGISTERS ? steps : 1][4];
    float d[64];
    store_factors(a, b, f, place_a, place_b);
    if (place_a == IN_REGISTERS) {
#pragma unroll
        for (int i = 0; i < steps * 4; i++)
            held[i / 4][i % 4] = *(const uint32_t *)&f->a[row + i % 2 * 8][i / 4 * 16 + pair + i % 4 / 2 * 8];
    }
    for (int i = 0; i < 64; i++)
        d[i] = f->c[row + i / 2 % 2 * 8][i / 4 * 8 + pair + i % 2];
    asm volatile("fence.proxy.async;\n" ::: "memory");
    __syncthreads();
    uint32_t at_a = (uint32_t)__cvta_generic_to_shared(a), at_b = (uint32_t)__cvta_generic_to_shared(b),
             scale_d = f->scale_d;
    bool exchange = f->exchange_strides;
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
#pragma unroll
    for (uint32_t i = 0; i < steps; i++) {
        uint64_t of_b = descriptor_of(place_b, at_b, i, 16384, exchange && place_b == BY_MN);
        uint32_t keeps = i > 0 ? 1 : scale_d;
        if constexpr (place_a == IN_REGISTERS)
            multiply_registers<place_b>(d, held[i], of_b, keeps);
        else
            multiply_shared<place_a, place_b>(d, descriptor_of(place_a, at_a, i, 8192, exchange && place_a == BY_MN),
                                              of_b, keeps);
    }
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");
#pragma unroll
    for (int i = 0; i < 64; i++) {
        asm volatile("" : "+f"(d[i])::"memory");
        f->d[row + i / 2 % 2 * 8][i / 4 * 8 + pair + i % 2] = d[i];
    }
    f->has_wgmma = 1;
#endif
}

/* kind: of products.h, or n_product_kinds for integers of up to 8. */
static void fill_chain(struct chain *f, int kind)
{
    const bool exact = kind == n_product_kinds;
    uint32_t random = (uint32_t)kind * 7919u + 5;
    for (int i = 0; i < (N_ROWS + N_COLS) * MOST_STEPS * 16; i++) {
        uint16_t *at = i < N_ROWS * MOST_STEPS * 16 ? &f->a[0][0] + i : &f->b[0][0] + (i - N_ROWS * MOST_STEPS * 16);
        *at = exact ? f16_of_small((int)(next_random(&random) % 17) - 8) : random_factor(kind, &random);
    }
    for (int i = 0; i < N_ROWS * N_COLS; i++) {
        int size = (int)(next_random(&random) % 60) - 30;
        float c = (float)(int)next_random(&random) - 0x800000;
        f->c[i / N_COLS][i % N_COLS] = exact ? (float)(i % 1000) : ldexpf(c, size - 24);
    }
}

/* The sums after 1, 4 and 32 steps, from c or from +0. */
struct expected {
    float after[3][N_ROWS][N_COLS];
};
static const int step_counts[3] = {1, 4, 32};

static void expect(struct expected *out, const struct chain *f, bool has_c)
{
    static float a[N_ROWS][MOST_STEPS * 16], b[N_COLS][MOST_STEPS * 16];
    const struct tensor_core core = TENSOR_CORE_HOPPER;
    for (int k = 0; k < MOST_STEPS * 16; k++) {
        for (int row = 0; row < N_ROWS; row++)
            a[row][k] = f32_of_f16(f->a[row][k]);
        for (int col = 0; col < N_COLS; col++)
            b[col][k] = f32_of_f16(f->b[col][k]);
    }
    for (int i = 0; i < N_ROWS * N_COLS; i++) {
        int row = i / N_COLS, col = i % N_COLS, done = 0;
        float c = has_c ? f->c[row][col] : 0.0f;
        for (int step = 0; step < MOST_STEPS; step++) {
            c = tensor_core_sum(core, c, &a[row][step * 16], &b[col][step * 16]);
            if (step + 1 == step_counts[done])
                out->after[done++][row][col] = c;
        }
    }
}

typedef void (*chain_kernel)(struct chain *);
#define KERNELS(a, b) {multiply_chain<1, a, b>, multiply_chain<4, a, b>, multiply_chain<32, a, b>}
static const struct {
    int a, b;
    chain_kernel kernels[3]; /* by step_counts */
} layouts[] = {
    {BY_K, BY_K, KERNELS(BY_K, BY_K)},
    {BY_K, BY_MN, KERNELS(BY_K, BY_MN)},
    {BY_MN, BY_K, KERNELS(BY_MN, BY_K)},
    {BY_MN, BY_MN, KERNELS(BY_MN, BY_MN)},
    {IN_REGISTERS, BY_K, KERNELS(IN_REGISTERS, BY_K)},
    {IN_REGISTERS, BY_MN, KERNELS(IN_REGISTERS, BY_MN)},
};
enum { n_layouts = sizeof layouts / sizeof layouts[0], SHARED_BYTES = 1024 + 3 * BLOCK_BYTES };

/* Runs one chain; false where the GPU has no wgmma. With scale-d 0, c is replaced by a NaN, which must not be read. */
static bool run_chain(struct chain *device, struct chain *f, int layout, int steps, bool has_c)
{
    static struct chain copy;
    chain_kernel kernel = layouts[layout].kernels[steps];
    copy = *f;
    copy.scale_d = has_c;
    copy.has_wgmma = 0;
    for (int i = 0; !has_c && i < N_ROWS * N_COLS; i++)
        copy.c[i / N_COLS][i % N_COLS] = NAN;
    probe_check(cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES),
                "shared memory");
    probe_check(cudaMemcpy(device, &copy, sizeof copy, cudaMemcpyHostToDevice), "copying");
    void *arguments[] = {&device};
    probe_check(cudaLaunchKernel((const void *)kernel, dim3(1), dim3(128), arguments, SHARED_BYTES, nullptr),
                "a chain of wgmma");
    probe_check(cudaMemcpy(&copy, device, sizeof copy, cudaMemcpyDeviceToHost), "a chain of wgmma");
    memcpy(f->d, copy.d, sizeof f->d);
    return copy.has_wgmma;
}

static long count_other(const float (*d)[N_COLS], const float (*want)[N_COLS])
{
    long n = 0;
    for (int i = 0; i < N_ROWS * N_COLS; i++)
        n += memcmp(&d[i / N_COLS][i % N_COLS], &want[i / N_COLS][i % N_COLS], 4) != 0;
    return n;
}

/* Prints the first sum of small integers that is other than it must be. */
static void print_first(const struct chain *f, const struct expected *want)
{
    for (int i = 0; i < N_ROWS * N_COLS; i++) {
        float got = f->d[i / N_COLS][i % N_COLS], right = want->after[0][i / N_COLS][i % N_COLS];
        uint32_t bits;
        if (got == right)
            continue;
        memcpy(&bits, &got, sizeof bits);
        printf(",\"first_misplaced\":{\"row\":%d,\"col\":%d,\"got_bits\":\"%08x\",\"want\":%g}", i / N_COLS, i % N_COLS,
               bits, right);
        return;
    }
}

static struct chain made[n_product_kinds + 1];
static struct expected wanted[n_product_kinds + 1][2]; /* with c; without */

/* Prints one layout; yields whether all its sums are the model's. */
static bool probe_layout(struct chain *device, int layout)
{
    struct chain *exact = &made[n_product_kinds];
    long misplaced = 0, other = 0, other_without_c = 0;
    for (uint32_t exchange = 0; exchange < 2; exchange++) {
        for (int kind = 0; kind <= n_product_kinds; kind++)
            made[kind].exchange_strides = exchange;
        run_chain(device, exact, layout, 0, true);
        misplaced = count_other(exact->d, wanted[n_product_kinds][0].after[0]);
        printf("%s{\"a\":\"%s\",\"b\":\"%s\",\"strides_exchanged\":%s,\"misplaced\":%ld", layout + exchange ? "," : "",
               places[layouts[layout].a], places[layouts[layout].b], exchange ? "true" : "false", misplaced);
        if (!misplaced)
            break;
        print_first(exact, &wanted[n_product_kinds][0]);
        printf("}");
    }
    if (misplaced)
        return false;
    for (int steps = 0; steps < 3; steps++) {
        other = other_without_c = 0;
        for (int kind = 0; kind <= n_product_kinds; kind++) {
            run_chain(device, &made[kind], layout, steps, true);
            other += count_other(made[kind].d, wanted[kind][0].after[steps]);
            run_chain(device, &made[kind], layout, steps, false);
            other_without_c += count_other(made[kind].d, wanted[kind][1].after[steps]);
        }
        printf(",\"other_than_model_%d\":%ld,\"other_with_scale_d_0_%d\":%ld", step_counts[steps], other,
               step_counts[steps], other_without_c);
        misplaced += other + other_without_c;
    }
    printf("}");
    return misplaced == 0;
}

/* How many of 64 x 64 sums move when A and the first 64 columns of B change places, of every kind. */
static long probe_exchange(struct chain *device)
{
    static struct chain other;
    long n = 0;
    for (int kind = 0; kind < n_product_kinds; kind++) {
        struct chain *f = &made[kind];
        f->exchange_strides = 0;
        other = *f;
        memcpy(other.a, f->b, sizeof other.a);
        memcpy(other.b, f->a, sizeof f->a);
        for (int i = 0; i < N_ROWS * N_ROWS; i++)
            other.c[i % N_ROWS][i / N_ROWS] = f->c[i / N_ROWS][i % N_ROWS];
        run_chain(device, f, 0, 2, true);
        run_chain(device, &other, 0, 2, true);
        for (int i = 0; i < N_ROWS * N_ROWS; i++)
            n += memcmp(&f->d[i / N_ROWS][i % N_ROWS], &other.d[i % N_ROWS][i / N_ROWS], 4) != 0;
    }
    return n;
}

int probe_chains(void)
{
    struct chain *device;
    bool same = true;
    probe_check(cudaMalloc((void **)&device, sizeof *device), "memory");
    for (int kind = 0; kind <= n_product_kinds; kind++)
        fill_chain(&made[kind], kind);
    printf("\"chains\":");
    if (!run_chain(device, &made[0], 0, 0, true)) {
        printf("\"not available\"");
        return -1;
    }
    for (int kind = 0; kind <= n_product_kinds; kind++)
        for (int without_c = 0; without_c < 2; without_c++)
            expect(&wanted[kind][without_c], &made[kind], !without_c);
    printf("[");
    for (int layout = 0; layout < n_layouts; layout++) {
        same &= probe_layout(device, layout);
        fflush(stdout);
    }
    long n_moved = probe_exchange(device);
    printf("],\"chain_sums_each\":%d,\"moved_by_exchange\":%ld", (n_product_kinds + 1) * N_ROWS * N_COLS, n_moved);
    cudaFree(device);
    return same && n_moved == 0 ? 0 : 1;
}
#else
int probe_chains(void)
{
    printf("\"chains\":\"not available\"");
    return -1;
}
#endif
