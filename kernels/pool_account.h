/* Decides how many threads of a pool a task uses, from an account of the time that the other threads save the owner and
 * the time that the owner waits for them.
 *
 * If another process wants a thread's core, the thread may be stopped in the middle of a piece for a time slice of 3 ms
 * or more, and the owner waits. If the waits cost more than the threads save, a quarter of the threads, at least one,
 * is not used for a while. Pure arithmetic: no clock, no memory, no threads. The pool's owner calls it.
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

/* Records a task: the other threads saved the owner saved_ns, and the owner waited waited_ns for them. */
void pool_account_enter(struct pool_account *a, uint64_t saved_ns, uint64_t waited_ns, uint64_t now_ns);

/* Uses excluded threads again when their time is over. Call it when n_asked < n_threads. */
void pool_account_try(struct pool_account *a, uint64_t now_ns);

#endif
