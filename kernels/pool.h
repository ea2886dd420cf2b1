/* A pool of compute threads for one backend. The caller's thread is thread 0, the owner.
 *
 * Owns its worker threads. All calls come from one thread. A task function derives its piece of the work from (index,
 * count). The thread that runs a piece is chosen at run time and must not affect the result. Each thread has its own
 * pieces, which are adjacent in memory. It runs these first and then takes pieces that other threads have not begun. So
 * the owner never waits for a thread to arrive, only for pieces that have begun. If even this costs more than the
 * workers save, because other processes use their cores, the pool uses fewer workers for a while.
 *
 * Within a step, idle workers wait awake for a short, bounded time; otherwise they sleep, so an idle pool uses no CPU.
 * They yield their core when another thread needs it. With one thread there are no workers and no system calls. An
 * empty task takes about 0.1 us on two threads with a core each.
 */
#ifndef QUIRE_KERNELS_POOL_H
#define QUIRE_KERNELS_POOL_H

#include "base/status.h"

#include <stdint.h>

struct k_pool;

struct k_piece {
    uint32_t index, count; /* of the task */
    uint32_t thread;       /* the thread that runs it; only for selecting scratch memory */
};

typedef void (*k_pool_fn)(void *context, struct k_piece piece);

/* n_threads: 1..K_MAX_THREADS. The caller destroys the pool. */
int k_pool_create(uint32_t n_threads, struct k_pool **out, struct quire_error *err);
void k_pool_destroy(struct k_pool *pool); /* NULL is allowed; no k_pool_run may be in progress */

uint32_t k_pool_n_threads(const struct k_pool *pool);

/* Returns the number of threads that are currently used. With 1, dividing a task has no benefit. */
uint32_t k_pool_n_asked(const struct k_pool *pool);

/* step_begin wakes the workers for a step if the previous step had work for them. step_end lets them sleep. k_pool_run
 * also works outside a step. */
void k_pool_step_begin(struct k_pool *pool);
void k_pool_step_end(struct k_pool *pool);

/* Runs each of n_pieces pieces once and returns when all are done. Their writes are then visible. */
void k_pool_run(struct k_pool *pool, uint32_t n_pieces, k_pool_fn fn, void *context);

/* Runs fn once on each thread, as piece `thread` of n_threads. Waits for every thread to arrive. */
void k_pool_each(struct k_pool *pool, k_pool_fn fn, void *context);

/* Computes a piece's share [*begin, *end) of n items: contiguous, sizes differ by at most one. */
static inline void k_pool_share(uint64_t n, struct k_piece piece, uint64_t *begin, uint64_t *end)
{
    uint64_t size = n / piece.count, rest = n % piece.count;
    *begin = size * piece.index + (piece.index < rest ? piece.index : rest);
    *end = *begin + size + (piece.index < rest ? 1 : 0);
}

#endif
