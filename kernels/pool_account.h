/* How many threads of a pool are asked for a task: an account of what the others save the owner and what it waits for them.
 *
 * A thread whose core another process wants may be stopped, for a time slice of 3 ms or more, in the middle of a piece, and the
 * owner then waits. Where waiting costs more than is saved, a quarter of the threads, at least one, is not asked for a
 * while. Plain arithmetic: no clock, no memory, no threads; the pool's owner is its caller.
 */
#ifndef QUIRE_KERNELS_POOL_ACCOUNT_H
#define QUIRE_KERNELS_POOL_ACCOUNT_H

#include <stdint.h>

struct pool_account {
    uint32_t n_threads, n_asked; /* 1 <= n_asked <= n_threads */
    int64_t balance_ns;
    uint64_t hold_ns, hold_until_ns;
};

void pool_account_open(struct pool_account *a, uint32_t n_threads);

/* After a task: saved_ns of the owner's time by the others, who kept it waiting for waited_ns. */
void pool_account_enter(struct pool_account *a, uint64_t saved_ns, uint64_t waited_ns, uint64_t now_ns);

/* Threads that were left out are tried again when their time is over. Call it when n_asked < n_threads. */
void pool_account_try(struct pool_account *a, uint64_t now_ns);

#endif
