/* Threads that share the rows of a matrix while loading repacks it. They end with the call. */
#ifndef QUIRE_ENGINE_ROW_THREADS_H
#define QUIRE_ENGINE_ROW_THREADS_H

#include <stdint.h>

#define ROW_THREADS_MAX 64u

/* Called for each share, on a thread of its own, with rows [first, last), in rising order of shares. */
typedef void (*row_threads_fn)(void *context, uint32_t share, uint32_t first, uint32_t last);

/* Returns when all rows are done: by at most n_threads, fewer where they would have less than a MiB each or cannot be had.
 * unit: rows that stay together. */
void row_threads_run(uint32_t n_rows, uint32_t unit, uint64_t bytes, uint32_t n_threads, row_threads_fn fn,
                     void *context);

#endif
