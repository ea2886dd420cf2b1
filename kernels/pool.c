#include "kernels/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Long enough to bridge the gap between two operations of a step, short enough that a machine with
 * other work to do loses little. */
#define SPIN_NS 40000
#define SPINS_PER_CLOCK_READ 64

/* Invariants.
 * 1. task and context are written by the owner only while n_pending is 0, and published by epoch.
 * 2. epoch rises by one with every task; a worker runs each task exactly once.
 * 3. A thread that is about to sleep says so (n_asleep, owner_asleep) before it looks once more at
 *    what it waits for, and the other side looks at that after it has changed it. Both are
 *    sequentially consistent, so one of the two sees the other: no wake-up is lost. */
struct k_pool {
    uint32_t n_threads;
    uint32_t n_started; /* workers that exist */
    pthread_t *workers;

    k_pool_fn task;
    void *context;
    atomic_uint epoch;
    atomic_uint n_pending; /* workers that have not finished the current task */
    atomic_uint n_asleep;
    atomic_bool owner_asleep;
    atomic_bool in_step;
    atomic_uint n_steps; /* steps begun: wakes workers that slept through the last one */
    atomic_bool closing;

    pthread_mutex_t mutex;
    pthread_cond_t work;     /* epoch, n_steps or closing changed */
    pthread_cond_t finished; /* n_pending became 0 */
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

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Spins until *value differs from old (true), or the time is over or the step has ended (false). */
static bool spin_while_equal(struct k_pool *pool, atomic_uint *value, unsigned old)
{
    uint64_t deadline = now_ns() + SPIN_NS;
    do {
        for (int i = 0; i < SPINS_PER_CLOCK_READ; i++) {
            if (atomic_load_explicit(value, memory_order_acquire) != old)
                return true;
            cpu_relax();
        }
    } while (atomic_load_explicit(&pool->in_step, memory_order_relaxed) && now_ns() < deadline);
    return false;
}

/* Returns when there is a task newer than seen (true) or the pool closes (false). */
static bool wait_for_task(struct k_pool *pool, unsigned seen)
{
    for (;;) {
        unsigned step = atomic_load(&pool->n_steps);
        if (atomic_load(&pool->in_step) && spin_while_equal(pool, &pool->epoch, seen))
            return true;
        pthread_mutex_lock(&pool->mutex);
        atomic_fetch_add(&pool->n_asleep, 1);
        while (atomic_load(&pool->epoch) == seen && atomic_load(&pool->n_steps) == step &&
               !atomic_load(&pool->closing))
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
    for (unsigned seen = 0; wait_for_task(pool, seen); seen++) {
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
        return quire_fail(err, QUIRE_INVALID, "threads: must be 1 to %u, got %u",
                          K_MAX_THREADS, n_threads);
    struct k_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return quire_fail(err, QUIRE_NO_MEMORY, "thread pool: out of memory");
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
                              "raise the limit on processes", thread + 1, n_threads);
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
    atomic_store(&pool->n_pending, pool->n_threads - 1);
    atomic_fetch_add(&pool->epoch, 1);
    if (atomic_load(&pool->n_asleep) > 0) {
        pthread_mutex_lock(&pool->mutex);
        pthread_cond_broadcast(&pool->work);
        pthread_mutex_unlock(&pool->mutex);
    }
    fn(context, 0, pool->n_threads);

    unsigned pending;
    uint64_t deadline = now_ns() + SPIN_NS;
    while ((pending = atomic_load_explicit(&pool->n_pending, memory_order_acquire)) != 0 &&
           now_ns() < deadline)
        cpu_relax();
    if (pending == 0)
        return;
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->owner_asleep, true);
    while (atomic_load(&pool->n_pending) != 0)
        pthread_cond_wait(&pool->finished, &pool->mutex);
    atomic_store(&pool->owner_asleep, false);
    pthread_mutex_unlock(&pool->mutex);
}

/* The lowest-numbered CPU that shares cpu's core, or cpu itself where the system does not say. */
static int core_of(int cpu)
{
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *file = fopen(path, "re");
    if (!file)
        return cpu;
    int first = cpu;
    if (fscanf(file, "%d", &first) != 1 || first < 0)
        first = cpu;
    fclose(file);
    return first;
}

uint32_t k_default_threads(void)
{
    cpu_set_t allowed, cores;
    CPU_ZERO(&allowed);
    CPU_ZERO(&cores);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return 1;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &allowed)) {
            int core = core_of(cpu);
            CPU_SET(core < CPU_SETSIZE ? core : cpu, &cores);
        }
    }
    int n = CPU_COUNT(&cores);
    if (n < 1)
        return 1;
    return (uint32_t)n < K_MAX_THREADS ? (uint32_t)n : K_MAX_THREADS;
}
