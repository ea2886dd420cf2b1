#include "base/clock.h"
#include "kernels/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Waiting is done in three stages. Both sides spin for SPIN_NS: operations and their parts end that
 * close together while every thread has a core. Then they go on looking but give the core to
 * whoever wants it: with more threads than cores the one waited for may be in the queue behind the
 * one that waits (4 threads on 2 cores: 12 us for an empty task with the yielding, 87 us without).
 * After WAIT_NS they sleep, so that a machine with other work to do loses little, and an idle pool
 * costs nothing. A neighbour that keeps a core for more than GREEDY_NS after it was given away (a
 * time slice is milliseconds) is given none by this thread for SHUN_NS: the thread spins and sleeps, and
 * the kernel wakes a sleeper early. */
#define SPIN_NS 4000
#define WAIT_NS 40000
#define GREEDY_NS 400000
#define SHUN_NS 100000000
#define SPINS_PER_CLOCK_READ 32

#define CACHE_LINE 64

/* Invariants.
 * 1. task and context are written by the owner only while n_pending is 0, and published by epoch.
 * 2. epoch rises by one with every task; a worker runs each task exactly once.
 * 3. A thread that is about to sleep says so (n_asleep, owner_asleep) before it looks once more at
 *    what it waits for, and the other side looks at that after it has changed it. Both are
 *    sequentially consistent, so one of the two sees the other: no wake-up is lost.
 *
 * What the owner writes, what the workers write, and what changes only around a sleep lie on lines
 * of their own: a worker that is done does not take from the others the line they spin on. */
struct k_pool {
    alignas(CACHE_LINE) atomic_uint epoch;
    k_pool_fn task;
    void *context;
    atomic_bool in_step;

    alignas(CACHE_LINE) atomic_uint n_pending; /* workers that have not finished the current task */

    alignas(CACHE_LINE) atomic_uint n_asleep;
    atomic_bool owner_asleep;
    atomic_uint n_steps; /* steps begun: wakes workers that slept through the last one */
    atomic_bool closing;
    pthread_mutex_t mutex;
    pthread_cond_t work;     /* epoch, n_steps or closing changed */
    pthread_cond_t finished; /* n_pending became 0 */

    uint64_t greedy_until; /* the owner's */
    uint32_t n_threads;
    uint32_t n_started; /* workers that exist */
    pthread_t *workers;
};

struct worker_start {
    struct k_pool *pool;
    uint32_t thread;
};

static void cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* Waits awake until (*value == known) is `until`: true; false when it has taken too long, or the step
 * that in_step tells of (NULL: none) has ended. greedy_until: the calling thread's own, 0 at first. */
static bool wait_awake(atomic_uint *value, unsigned known, bool until, atomic_bool *in_step, uint64_t *greedy_until)
{
    uint64_t begin = quire_now_ns(), waited;
    bool may_yield = begin >= *greedy_until;
    do {
        for (int i = 0; i < SPINS_PER_CLOCK_READ; i++) {
            if ((atomic_load_explicit(value, memory_order_acquire) == known) == until)
                return true;
            cpu_relax();
        }
        waited = quire_now_ns() - begin;
        if (may_yield && waited > SPIN_NS && waited < WAIT_NS) {
            sched_yield();
            uint64_t away = quire_now_ns() - begin - waited;
            if (away > GREEDY_NS)
                *greedy_until = begin + away + SHUN_NS;
        }
        if (in_step && !atomic_load_explicit(in_step, memory_order_relaxed))
            return false;
    } while (waited < WAIT_NS);
    return false;
}

/* Returns when there is a task newer than seen (true) or the pool closes (false). */
static bool wait_for_task(struct k_pool *pool, unsigned seen, uint64_t *greedy_until)
{
    for (;;) {
        unsigned step = atomic_load(&pool->n_steps);
        if (atomic_load(&pool->in_step) && wait_awake(&pool->epoch, seen, false, &pool->in_step, greedy_until))
            return true;
        pthread_mutex_lock(&pool->mutex);
        atomic_fetch_add(&pool->n_asleep, 1);
        while (atomic_load(&pool->epoch) == seen && atomic_load(&pool->n_steps) == step && !atomic_load(&pool->closing))
            pthread_cond_wait(&pool->work, &pool->mutex);
        atomic_fetch_sub(&pool->n_asleep, 1);
        pthread_mutex_unlock(&pool->mutex);
        if (atomic_load(&pool->epoch) != seen)
            return true;
        if (atomic_load(&pool->closing))
            return false;
    }
}

static void *worker_main(void *argument)
{
    struct worker_start start = *(struct worker_start *)argument;
    free(argument);
    struct k_pool *pool = start.pool;
    uint64_t greedy_until = 0;
    for (unsigned seen = 0; wait_for_task(pool, seen, &greedy_until); seen++) {
        pool->task(pool->context, start.thread, pool->n_threads);
        if (atomic_fetch_sub(&pool->n_pending, 1) == 1 && atomic_load(&pool->owner_asleep)) {
            pthread_mutex_lock(&pool->mutex);
            pthread_cond_signal(&pool->finished);
            pthread_mutex_unlock(&pool->mutex);
        }
    }
    return NULL;
}

static int start_worker(struct k_pool *pool, uint32_t thread)
{
    struct worker_start *start = malloc(sizeof *start);
    if (!start)
        return -1;
    *start = (struct worker_start){pool, thread};
    if (pthread_create(&pool->workers[thread - 1], NULL, worker_main, start) != 0) {
        free(start);
        return -1;
    }
    pool->n_started++;
    return 0;
}

int k_pool_create(uint32_t n_threads, struct k_pool **out, struct quire_error *err)
{
    *out = NULL;
    if (n_threads == 0 || n_threads > K_MAX_THREADS)
        return quire_fail(err, QUIRE_INVALID, "threads: must be 1 to %u, got %u", K_MAX_THREADS, n_threads);
    struct k_pool *pool = aligned_alloc(alignof(struct k_pool), sizeof *pool);
    if (!pool)
        return quire_fail(err, QUIRE_NO_MEMORY, "thread pool: out of memory");
    memset(pool, 0, sizeof *pool);
    pool->n_threads = n_threads;
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->finished, NULL);
    pool->workers = calloc(n_threads, sizeof *pool->workers);
    if (!pool->workers) {
        k_pool_destroy(pool);
        return quire_fail(err, QUIRE_NO_MEMORY, "thread pool: out of memory");
    }
    for (uint32_t thread = 1; thread < n_threads; thread++) {
        if (start_worker(pool, thread) != 0) {
            k_pool_destroy(pool);
            return quire_fail(err, QUIRE_EXHAUSTED,
                              "thread pool: cannot start thread %u of %u: lower --threads, or "
                              "raise the limit on processes",
                              thread + 1, n_threads);
        }
    }
    *out = pool;
    return QUIRE_OK;
}

void k_pool_destroy(struct k_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->in_step, false);
    atomic_store(&pool->closing, true);
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->mutex);
    for (uint32_t i = 0; i < pool->n_started; i++)
        pthread_join(pool->workers[i], NULL);
    pthread_cond_destroy(&pool->finished);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->mutex);
    free(pool->workers);
    free(pool);
}

uint32_t k_pool_n_threads(const struct k_pool *pool)
{
    return pool->n_threads;
}

void k_pool_step_begin(struct k_pool *pool)
{
    if (pool->n_threads == 1)
        return;
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->in_step, true);
    atomic_fetch_add(&pool->n_steps, 1);
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->mutex);
}

void k_pool_step_end(struct k_pool *pool)
{
    if (pool->n_threads > 1)
        atomic_store(&pool->in_step, false);
}

void k_pool_run(struct k_pool *pool, k_pool_fn fn, void *context)
{
    if (pool->n_threads == 1) {
        fn(context, 0, 1);
        return;
    }
    pool->task = fn;
    pool->context = context;
    atomic_store_explicit(&pool->n_pending, pool->n_threads - 1, memory_order_relaxed);
    atomic_fetch_add(&pool->epoch, 1); /* publishes all three */
    if (atomic_load(&pool->n_asleep) > 0) {
        pthread_mutex_lock(&pool->mutex);
        pthread_cond_broadcast(&pool->work);
        pthread_mutex_unlock(&pool->mutex);
    }
    fn(context, 0, pool->n_threads);

    if (wait_awake(&pool->n_pending, 0, true, NULL, &pool->greedy_until))
        return;
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->owner_asleep, true);
    while (atomic_load(&pool->n_pending) != 0)
        pthread_cond_wait(&pool->finished, &pool->mutex);
    atomic_store(&pool->owner_asleep, false);
    pthread_mutex_unlock(&pool->mutex);
}
