/* Memory that starts at a cache line, and prefetches. The cache's arrays are larger than a core's caches, so most of an
 * operation's time is the lines that it waits for. A record that fills or divides a line costs one of them. */
#ifndef QUIRE_MEMORY_CACHE_LINE_H
#define QUIRE_MEMORY_CACHE_LINE_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define KV_LINE_BYTES 64u

/* Returns n zeroed records from the start of a cache line on, or NULL. *memory is what the caller frees. n * size is
 * below 2^40. */
static inline void *kv_calloc_lines(size_t n, size_t size, void **memory)
{
    *memory = calloc(n * size + KV_LINE_BYTES - 1, 1);
    uintptr_t at = (uintptr_t)*memory;
    return *memory ? (char *)*memory + (KV_LINE_BYTES - at % KV_LINE_BYTES) % KV_LINE_BYTES : NULL;
}

/* Begins to load a line that will be read and written. Any address is allowed. */
static inline void kv_prefetch(const void *at)
{
    __builtin_prefetch(at, 1);
}

#endif
