/* A pool of compute threads for one backend: the caller's thread is thread 0, the owner.
 *
 * Owns its worker threads. All calls come from one thread. A task is cut into pieces by the function
 * that runs, from (index, count); which thread runs a piece is decided while it runs and must not
 * matter to what is computed. A thread has pieces of its own, neighbours in memory, which it takes first,
 * and then takes what others have not begun: nobody waits for a thread to arrive, only for pieces that
 * have begun. Where even that costs more than the workers bring, because other processes want their cores,
 * fewer of them are asked for a while.
 *
 * Workers wait awake for a short, bounded time within a step and sleep otherwise, so that an idle pool uses
 * no CPU, and give their core away when another thread wants it. With one thread there is no worker and
 * no system call at all. An empty task takes about 0.1 us on two threads that have a core each.
 */
#ifndef QUIRE_KERNELS_POOL_H
#define QUIRE_KERNELS_POOL_H

#include "base/status.h"
#include "kernels/kernels.h"

#include <stdint.h>

struct k_pool;

struct k_piece {
    uint32_t index, count; /* of the task */
    uint32_t thread;       /* that runs it: for scratch memory, nothing else */
};

typedef void (*k_pool_fn)(void *context, struct k_piece piece);

/* n_threads: 1..K_MAX_THREADS. The caller destroys the pool. */
int k_pool_create(uint32_t n_threads, struct k_pool **out, struct quire_error *err);
void k_pool_destroy(struct k_pool *pool); /* NULL is fine; no k_pool_run may be in progress */

uint32_t k_pool_n_threads(const struct k_pool *pool);

/* Those that are asked at present: with 1, cutting a task is in vain. */
uint32_t k_pool_n_asked(const struct k_pool *pool);

/* Wakes the workers for a step, where the step before had work for them; lets them sleep after it. k_pool_run works outside a
 * step too. */
void k_pool_step_begin(struct k_pool *pool);
void k_pool_step_end(struct k_pool *pool);

/* Runs each of n_pieces pieces once and returns when all are done; what they wrote is then visible. */
void k_pool_run(struct k_pool *pool, uint32_t n_pieces, k_pool_fn fn, void *context);

/* Runs fn once on each thread, as piece `thread` of n_threads, however long one takes to arrive. */
void k_pool_each(struct k_pool *pool, k_pool_fn fn, void *context);

/* A piece's share [*begin, *end) of n items: contiguous, sizes differ by at most one. */
static inline void k_pool_share(uint64_t n, struct k_piece piece, uint64_t *begin, uint64_t *end)
{
    uint64_t size = n / piece.count, rest = n % piece.count;
    *begin = size * piece.index + (piece.index < rest ? piece.index : rest);
    *end = *begin + size + (piece.index < rest ? 1 : 0);
}

#endif
