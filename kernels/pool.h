/* A pool of compute threads for one backend: the caller's thread is thread 0.
 *
 * Owns its worker threads. All calls come from one thread. Work is split by the function that runs,
 * from (thread, n_threads): nothing is handed out by chance. Workers wait awake for a short, bounded
 * time within a step and sleep otherwise, so that an idle pool uses no CPU, and give their core away
 * when another thread wants it. With one thread there is no worker and no system call at all.
 * An empty task takes about 0.1 us on two threads that have a core each.
 */
#ifndef QUIRE_KERNELS_POOL_H
#define QUIRE_KERNELS_POOL_H

#include "base/status.h"
#include "kernels/kernels.h"

#include <stdint.h>

struct k_pool;

/* Runs on every thread of the pool with its number. */
typedef void (*k_pool_fn)(void *context, uint32_t thread, uint32_t n_threads);

/* n_threads: 1..K_MAX_THREADS. The caller destroys the pool. */
int k_pool_create(uint32_t n_threads, struct k_pool **out, struct quire_error *err);
void k_pool_destroy(struct k_pool *pool); /* NULL is fine; no k_pool_run may be in progress */

uint32_t k_pool_n_threads(const struct k_pool *pool);

/* Wakes the workers for a step; lets them sleep after it. k_pool_run works outside a step too. */
void k_pool_step_begin(struct k_pool *pool);
void k_pool_step_end(struct k_pool *pool);

/* Calls fn once on each thread and returns when all are done; what they wrote is then visible. */
void k_pool_run(struct k_pool *pool, k_pool_fn fn, void *context);

/* Thread's share [*begin, *end) of n items: contiguous, sizes differ by at most one. */
static inline void k_pool_share(uint64_t n, uint32_t thread, uint32_t n_threads, uint64_t *begin, uint64_t *end)
{
    uint64_t size = n / n_threads, rest = n % n_threads;
    *begin = size * thread + (thread < rest ? thread : rest);
    *end = *begin + size + (thread < rest ? 1 : 0);
}

#endif
