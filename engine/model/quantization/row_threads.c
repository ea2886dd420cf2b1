#include "engine/model/quantization/row_threads.h"

#include <pthread.h>
#include <stdbool.h>

#define MIN_THREAD_BYTES ((uint64_t)1 << 20) /* that are worth another thread */

struct share {
    row_threads_fn fn;
    void *context;
    uint32_t i, first, last;
};

static void *run_share(void *context)
{
    const struct share *s = context;
    s->fn(s->context, s->i, s->first, s->last);
    return NULL;
}

void row_threads_run(uint32_t n_rows, uint32_t unit, uint64_t bytes, uint32_t n_threads, row_threads_fn fn,
                     void *context)
{
    struct share shares[ROW_THREADS_MAX];
    pthread_t threads[ROW_THREADS_MAX];
    bool is_running[ROW_THREADS_MAX] = {false};
    const uint64_t most = bytes / MIN_THREAD_BYTES + 1, n_units = ((uint64_t)n_rows + unit - 1) / unit;
    uint32_t n = n_threads < ROW_THREADS_MAX ? n_threads : ROW_THREADS_MAX;
    n = n < most ? n : (uint32_t)most;
    n = n ? n : 1;
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t first = n_units * i / n * unit, last = n_units * (i + 1) / n * unit;
        shares[i] = (struct share){fn, context, i, (uint32_t)first, last < n_rows ? (uint32_t)last : n_rows};
    }
    for (uint32_t i = 1; i < n; i++)
        is_running[i] = pthread_create(&threads[i], NULL, run_share, &shares[i]) == 0;
    for (uint32_t i = 0; i < n; i++)
        if (!is_running[i])
            run_share(&shares[i]);
    for (uint32_t i = 1; i < n; i++)
        if (is_running[i])
            pthread_join(threads[i], NULL);
}
