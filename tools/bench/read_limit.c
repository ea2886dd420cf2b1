/* The maximum read rate of this machine in the access pattern of a GEMV with f16 weights: every thread walks its own
 * part in several rows of 8 KiB at once, and each number is widened and multiplied once. Prints the best of a few
 * passes, over 2, 4, 8 and 16 rows, in GB/s.
 *
 * cc -O3 -march=native -pthread read_limit.c -o read_limit && ./read_limit 2
 */
#define _GNU_SOURCE
#include <immintrin.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define TOTAL_BYTES ((size_t)1 << 30) /* far more than any cache */
#define ROW_BYTES 8192
#define MAX_ROWS 16
#define MAX_THREADS 256
#define N_PASSES 4

#ifdef __AVX512F__
typedef __m512 lanes;
#define WIDEN(p) _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)(p)))
#define FMA _mm512_fmadd_ps
#else
typedef __m256 lanes;
#define WIDEN(p) _mm256_cvtph_ps(_mm_load_si128((const __m128i *)(p)))
#define FMA _mm256_fmadd_ps
#endif
#define LANES_BYTES (sizeof(lanes) / 2) /* of f16 */

static char *memory;
static long n_threads;
static int n_rows;
static pthread_barrier_t barrier;
static volatile float sink;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* n is a constant after inlining, so that the sums stay in registers. */
static inline __attribute__((always_inline)) float read_rows(const char *p, size_t part, int n)
{
    lanes sum[MAX_ROWS] = {0};
    const lanes factor = sum[0] + 0.5f;
    for (size_t block = 0; block + (size_t)n * ROW_BYTES <= part; block += (size_t)n * ROW_BYTES)
        for (size_t i = 0; i < ROW_BYTES; i += LANES_BYTES)
            for (int row = 0; row < n; row++)
                sum[row] = FMA(WIDEN(p + block + (size_t)row * ROW_BYTES + i), factor, sum[row]);
    for (int row = 1; row < n; row++)
        sum[0] += sum[row];
    return sum[0][0];
}

static void *read_part(void *argument)
{
    size_t part = TOTAL_BYTES / (size_t)n_threads;
    const char *p = memory + (size_t)(intptr_t)argument * part;
    for (int pass = 0; pass < N_PASSES; pass++) {
        pthread_barrier_wait(&barrier);
        switch (n_rows) {
        case 2: sink += read_rows(p, part, 2); break;
        case 4: sink += read_rows(p, part, 4); break;
        case 8: sink += read_rows(p, part, 8); break;
        default: sink += read_rows(p, part, MAX_ROWS); break;
        }
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    n_threads = argc > 1 ? strtol(argv[1], NULL, 10) : 1;
    if (n_threads < 1 || n_threads > MAX_THREADS) {
        fprintf(stderr, "usage: read_limit THREADS (1 to %d)\n", MAX_THREADS);
        return 2;
    }
    memory = mmap(NULL, TOTAL_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("read_limit: mmap");
        return 1;
    }
    madvise(memory, TOTAL_BYTES, MADV_HUGEPAGE);
    memset(memory, 0x3c, TOTAL_BYTES);

    double best = 0;
    for (n_rows = 2; n_rows <= MAX_ROWS; n_rows *= 2) {
        pthread_t threads[MAX_THREADS];
        pthread_barrier_init(&barrier, NULL, (unsigned)n_threads + 1);
        for (long i = 0; i < n_threads; i++)
            if (pthread_create(&threads[i], NULL, read_part, (void *)i) != 0) {
                fprintf(stderr, "read_limit: no thread %ld\n", i);
                return 1;
            }
        for (int pass = 0; pass < N_PASSES; pass++) {
            pthread_barrier_wait(&barrier);
            double start = now();
            pthread_barrier_wait(&barrier);
            double gb_s = (double)TOTAL_BYTES / (now() - start) / 1e9;
            best = gb_s > best ? gb_s : best;
        }
        for (long i = 0; i < n_threads; i++)
            pthread_join(threads[i], NULL);
        pthread_barrier_destroy(&barrier);
    }
    printf("%.2f\n", best);
    return 0;
}
