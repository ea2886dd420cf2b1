/* The time to search the index of similar questions, and to add to it. The vectors are written to a file on request,
 * so that a peer searches the same ones (tests/bench/similar/vector_peer.py).
 *     vector_bench N_VECTORS N_NUMBERS random|topics N_QUERIES [FILE]
 * One context. "random": no vector is close to another. "topics": 2,000 of them; a vector has a cosine of 0.75 to 0.95
 * to its topic's. Half of the queries are paraphrases, with a cosine of 0.95 to a stored vector; the others are drawn
 * like the stored ones. FILE: vectors, then queries, as f32. Prints JSON. */
#include "base/clock.h"
#include "server/similar/scan.h"
#include "server/similar/vector_index.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define N_TOPICS 2000u

static uint64_t state_of = 42;
static uint32_t n_numbers;

static float normal(void) /* sum of four uniform numbers: close enough to a normal one */
{
    float sum = 0;
    for (int i = 0; i < 4; i++) {
        state_of = state_of * UINT64_C(6364136223846793005) + 1442695040888963407u;
        sum += (float)(state_of >> 40) * 0x1p-24f;
    }
    return sum - 2;
}

static void unit(float *v)
{
    double squares = 0;
    for (uint32_t i = 0; i < n_numbers; i++)
        squares += (double)v[i] * v[i];
    for (uint32_t i = 0; i < n_numbers; i++)
        v[i] = (float)(v[i] / sqrt(squares));
}

static void draw(float *v)
{
    for (uint32_t i = 0; i < n_numbers; i++)
        v[i] = normal();
    unit(v);
}

/* A vector with about this cosine to `to`. */
static void draw_near(const float *to, float cosine, float *v)
{
    draw(v);
    for (uint32_t i = 0; i < n_numbers; i++)
        v[i] = to[i] * cosine + v[i] * sqrtf(1 - cosine * cosine);
    unit(v);
}

/* Of this thread, without the time of other threads. */
static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void look(struct vector_index *x, const float *queries, uint32_t n_queries, float threshold)
{
    double *took = calloc(2 * n_queries, sizeof *took), *worked = took + n_queries, sum = 0;
    const struct key256 context = {{7}};
    struct vector_index_stats before, after;
    uint32_t n_found = 0;
    vector_index_stats(x, &before);
    for (uint32_t i = 0; took && i < n_queries; i++) {
        struct key256 answer;
        float similarity;
        const uint64_t begun = quire_now_ns(), begun_cpu = cpu_ns();
        n_found += vector_index_find(x, &context, queries + (size_t)i * n_numbers, threshold, 1, &answer, &similarity);
        worked[i] = (double)(cpu_ns() - begun_cpu) * 1e-6;
        took[i] = (double)(quire_now_ns() - begun) * 1e-6;
        sum += took[i];
    }
    vector_index_stats(x, &after);
    qsort(took, n_queries, sizeof *took, by_size);
    qsort(worked, n_queries, sizeof *worked, by_size);
    printf(
        "{\"threshold\": %.2f, \"cpu_p50_ms\": %.3f, \"mean_ms\": %.3f, \"p50_ms\": %.3f, \"p95_ms\": %.3f, \"found\": %u, \"of\": %u, "
        "\"compared_whole\": %.1f}",
        (double)threshold, worked[n_queries / 2], sum / n_queries, took[n_queries / 2], took[n_queries * 95 / 100],
        n_found, n_queries, (double)(after.n_compared - before.n_compared) / n_queries);
    free(took);
}

static struct vector_index *fill(const float *vectors, uint32_t n)
{
    struct vector_index *x = vector_index_create(n_numbers, n);
    const struct key256 context = {{7}};
    const uint64_t begun = quire_now_ns();
    for (uint32_t i = 0; x && i < n; i++) {
        const struct key256 answer = quire_sha256(&i, sizeof i);
        if (!vector_index_add(x, &context, vectors + (size_t)i * n_numbers, &answer, 1000))
            exit(1);
    }
    struct vector_index_stats stats;
    vector_index_stats(x, &stats);
    printf("\"isa\": \"%s\", \"add_us\": %.2f, \"bytes\": %llu", scan_isa()->name,
           (double)(quire_now_ns() - begun) * 1e-3 / n, (unsigned long long)stats.n_bytes);
    return x;
}

int main(int argc, char **argv)
{
    if (argc < 5)
        return 2;
    const uint32_t n = (uint32_t)atoi(argv[1]), n_queries = (uint32_t)atoi(argv[4]);
    n_numbers = (uint32_t)atoi(argv[2]);
    const bool topics = strcmp(argv[3], "topics") == 0;
    float *vectors = malloc(((size_t)n + n_queries + N_TOPICS) * n_numbers * sizeof *vectors);
    if (!vectors || quire_hash_init() != 0)
        return 1;
    float *queries = vectors + (size_t)n * n_numbers, *middle = queries + (size_t)n_queries * n_numbers;
    for (uint32_t t = 0; t < N_TOPICS; t++)
        draw(middle + (size_t)t * n_numbers);
    for (uint32_t i = 0; i < n + n_queries; i++) {
        float *v = vectors + (size_t)i * n_numbers;
        if (i >= n && i % 2)
            draw_near(vectors + (size_t)(i * 7919u % n) * n_numbers, 0.95f, v);
        else if (topics)
            draw_near(middle + (size_t)(i * 31u % N_TOPICS) * n_numbers, 0.75f + 0.2f * (float)(i % 97) / 97, v);
        else
            draw(v);
    }
    FILE *file = argc > 5 ? fopen(argv[5], "wb") : NULL;
    if (file && (fwrite(vectors, n_numbers * sizeof *vectors, n + n_queries, file) != n + n_queries || fclose(file)))
        return 1;
    printf("{\"vectors\": %u, \"numbers\": %u, \"kind\": \"%s\", ", n, n_numbers, argv[3]);
    struct vector_index *x = fill(vectors, n);
    static const float thresholds[] = {0.8f, 0.85f, 0.92f, 0.95f};
    printf(", \"finds\": [");
    for (size_t i = 0; i < sizeof thresholds / sizeof *thresholds; i++) {
        printf(i ? ",\n  " : "\n  ");
        look(x, queries, n_queries, thresholds[i]);
    }
    printf("]}\n");
    vector_index_free(x);
    free(vectors);
    return 0;
}
