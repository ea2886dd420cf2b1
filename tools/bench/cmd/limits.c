#include "tools/bench/cmd/limits.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define MIN_BUFFER_BYTES (1ull << 30)
#define ROW_BYTES 8192u
#define LINE_BYTES 64u
#define MAX_STREAMS 8u
#define SAMPLE_BYTES (16u << 20)
#define FMA_ITERATIONS 400000u
#define FMA_SUMS 10u /* independent: more than latency 4 times 2 units per cycle */

/* One thread's reading: sums the floats of [p, p + n_bytes) in n_streams parallel rows. */
typedef float (*read_fn)(const char *p, uint64_t n_bytes, uint32_t n_streams);
/* FMA_ITERATIONS times FMA_SUMS multiply-adds of a register each. */
typedef float (*fma_fn)(float x);

struct bench_limits {
    char *buffer;
    uint64_t n_bytes;
    read_fn read;
    fma_fn fma;
    uint32_t fma_width; /* floats per register */
    uint32_t n_streams; /* of the current sample */
    uint64_t at, sample_bytes; /* of each thread's share of the buffer: the current sample, or the next */
    volatile float sink; /* keeps the compiler from removing the sums */
};

/* ---- the loops ---- */

/* Blocks of n_streams rows; within a block, a line of each row in turn. */
#define READ_LOOP(p, n_bytes, n_streams, USE_LINE) \
    for (uint64_t block = 0; block + (uint64_t)ROW_BYTES * n_streams <= n_bytes; \
         block += (uint64_t)ROW_BYTES * n_streams) \
        for (uint32_t at = 0; at < ROW_BYTES; at += LINE_BYTES) \
            for (uint32_t s = 0; s < n_streams; s++) { \
                const float *line = (const float *)(const void *)(p + block + (uint64_t)s * ROW_BYTES + at); \
                USE_LINE; \
            }

#if defined(__x86_64__)

#define AVX512 __attribute__((target("avx512f")))
#define AVX2 __attribute__((target("avx2,fma")))

AVX512 static float read_wide(const char *p, uint64_t n_bytes, uint32_t n_streams)
{
    __m512 sums[MAX_STREAMS];
    for (uint32_t i = 0; i < MAX_STREAMS; i++)
        sums[i] = _mm512_setzero_ps();
    READ_LOOP(p, n_bytes, n_streams, sums[s] = _mm512_add_ps(sums[s], _mm512_load_ps(line)))
    float total = 0;
    for (uint32_t i = 0; i < MAX_STREAMS; i++)
        total += _mm512_reduce_add_ps(sums[i]);
    return total;
}

AVX512 static float fma_wide(float x)
{
    __m512 sums[FMA_SUMS], factor = _mm512_set1_ps(x), term = _mm512_set1_ps(1 - x);
    for (uint32_t i = 0; i < FMA_SUMS; i++)
        sums[i] = _mm512_set1_ps((float)i);
    for (uint32_t n = 0; n < FMA_ITERATIONS; n++)
        for (uint32_t i = 0; i < FMA_SUMS; i++)
            sums[i] = _mm512_fmadd_ps(sums[i], factor, term);
    float total = 0;
    for (uint32_t i = 0; i < FMA_SUMS; i++)
        total += _mm512_reduce_add_ps(sums[i]);
    return total;
}

AVX2 static float first_of(__m256 v)
{
    return _mm256_cvtss_f32(v);
}

AVX2 static float read_narrow(const char *p, uint64_t n_bytes, uint32_t n_streams)
{
    __m256 sums[MAX_STREAMS];
    for (uint32_t i = 0; i < MAX_STREAMS; i++)
        sums[i] = _mm256_setzero_ps();
    READ_LOOP(p, n_bytes, n_streams,
              sums[s] = _mm256_add_ps(sums[s], _mm256_add_ps(_mm256_load_ps(line), _mm256_load_ps(line + 8))))
    for (uint32_t i = 1; i < MAX_STREAMS; i++)
        sums[0] = _mm256_add_ps(sums[0], sums[i]);
    return first_of(sums[0]);
}

AVX2 static float fma_narrow(float x)
{
    __m256 sums[FMA_SUMS], factor = _mm256_set1_ps(x), term = _mm256_set1_ps(1 - x);
    for (uint32_t i = 0; i < FMA_SUMS; i++)
        sums[i] = _mm256_set1_ps((float)i);
    for (uint32_t n = 0; n < FMA_ITERATIONS; n++)
        for (uint32_t i = 0; i < FMA_SUMS; i++)
            sums[i] = _mm256_fmadd_ps(sums[i], factor, term);
    for (uint32_t i = 1; i < FMA_SUMS; i++)
        sums[0] = _mm256_add_ps(sums[0], sums[i]);
    return first_of(sums[0]);
}

static void choose_loops(struct bench_limits *l, bool wide)
{
    l->read = wide ? read_wide : read_narrow;
    l->fma = wide ? fma_wide : fma_narrow;
    l->fma_width = wide ? 16 : 8;
}

#elif defined(__aarch64__)

static float read_neon(const char *p, uint64_t n_bytes, uint32_t n_streams)
{
    float32x4_t sums[MAX_STREAMS];
    for (uint32_t i = 0; i < MAX_STREAMS; i++)
        sums[i] = vdupq_n_f32(0);
    READ_LOOP(p, n_bytes, n_streams,
              sums[s] = vaddq_f32(sums[s], vaddq_f32(vaddq_f32(vld1q_f32(line), vld1q_f32(line + 4)),
                                                     vaddq_f32(vld1q_f32(line + 8), vld1q_f32(line + 12)))))
    for (uint32_t i = 1; i < MAX_STREAMS; i++)
        sums[0] = vaddq_f32(sums[0], sums[i]);
    return vaddvq_f32(sums[0]);
}

static float fma_neon(float x)
{
    float32x4_t sums[FMA_SUMS], factor = vdupq_n_f32(x), term = vdupq_n_f32(1 - x);
    for (uint32_t i = 0; i < FMA_SUMS; i++)
        sums[i] = vdupq_n_f32((float)i);
    for (uint32_t n = 0; n < FMA_ITERATIONS; n++)
        for (uint32_t i = 0; i < FMA_SUMS; i++)
            sums[i] = vfmaq_f32(term, sums[i], factor);
    for (uint32_t i = 1; i < FMA_SUMS; i++)
        sums[0] = vaddq_f32(sums[0], sums[i]);
    return vaddvq_f32(sums[0]);
}

static void choose_loops(struct bench_limits *l, bool wide)
{
    (void)wide;
    l->read = read_neon;
    l->fma = fma_neon;
    l->fma_width = 4;
}

#endif

/* ---- all threads ---- */

#define UNIT_BYTES ((uint64_t)ROW_BYTES * MAX_STREAMS)

static uint64_t share_bytes(const struct bench_limits *l, uint32_t n_threads)
{
    return l->n_bytes / n_threads / UNIT_BYTES * UNIT_BYTES;
}

static void fill(void *context, struct k_piece piece)
{
    struct bench_limits *l = context;
    uint64_t n = share_bytes(l, piece.count) / sizeof(float);
    float *p = (float *)(void *)(l->buffer + piece.index * n * sizeof(float));
    for (uint64_t i = 0; i < n; i++)
        p[i] = 1;
}

static void read_sample(void *context, struct k_piece piece)
{
    struct bench_limits *l = context;
    l->sink = l->read(l->buffer + piece.index * share_bytes(l, piece.count) + l->at, l->sample_bytes, l->n_streams);
}

static void multiply_add(void *context, struct k_piece piece)
{
    struct bench_limits *l = context;
    (void)piece;
    l->sink = l->fma(l->sink == 0.25f ? 0.25f : 0.5f); /* not a constant, so the compiler cannot compute the result */
}

static double seconds(struct bench_limits *l, struct k_pool *pool, k_pool_fn fn)
{
    double start = quire_now_s();
    k_pool_each(pool, fn, l);
    return quire_now_s() - start;
}

double bench_limits_read(struct bench_limits *l, struct k_pool *pool, uint32_t n_streams)
{
    uint32_t n_threads = k_pool_n_threads(pool);
    uint64_t sample = SAMPLE_BYTES / n_threads / UNIT_BYTES * UNIT_BYTES;
    l->sample_bytes = sample > UNIT_BYTES ? sample : UNIT_BYTES;
    l->n_streams = n_streams;
    if (l->at + l->sample_bytes > share_bytes(l, n_threads))
        l->at = 0;
    double s = seconds(l, pool, read_sample);
    l->at += l->sample_bytes;
    return (double)l->sample_bytes * n_threads / s * 1e-9;
}

double bench_limits_fma(struct bench_limits *l, struct k_pool *pool)
{
    double flops = 2.0 * FMA_SUMS * FMA_ITERATIONS * l->fma_width * k_pool_n_threads(pool);
    return flops / seconds(l, pool, multiply_add) * 1e-9;
}

void bench_limits_sweep(struct bench_limits *l, struct k_pool *pool)
{
    l->at = 0;
    l->sample_bytes = share_bytes(l, k_pool_n_threads(pool));
    l->n_streams = MAX_STREAMS;
    k_pool_each(pool, read_sample, l);
}

/* ---- opening ---- */

uint64_t bench_cache_bytes(void)
{
    long n = -1;
#if defined(_SC_LEVEL3_CACHE_SIZE)
    n = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    return n > 0 ? (uint64_t)n : 32u << 20;
}

int bench_limits_open(struct k_pool *pool, bool wide, struct bench_limits **out, struct quire_error *err)
{
    struct bench_limits *l = calloc(1, sizeof *l);
    *out = NULL;
    if (!l)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    uint64_t n_bytes = 4 * bench_cache_bytes();
    l->n_bytes = n_bytes > MIN_BUFFER_BYTES ? n_bytes : MIN_BUFFER_BYTES;
    choose_loops(l, wide);
    void *p = mmap(NULL, l->n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        double gib = (double)l->n_bytes / (1 << 30);
        free(l);
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory for the %.1f GiB whose read speed is the limit", gib);
    }
    l->buffer = p;
    madvise(l->buffer, l->n_bytes, MADV_HUGEPAGE);
    k_pool_each(pool, fill, l);
    *out = l;
    return QUIRE_OK;
}

void bench_limits_close(struct bench_limits *l)
{
    if (!l)
        return;
    munmap(l->buffer, l->n_bytes);
    free(l);
}
