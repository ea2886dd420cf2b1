#include "base/clock.h"
#include "kernels/open.h"
#include "kernels/pool.h"
#include "kernels/pool_account.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Waiting has three stages. First both sides spin for SPIN_NS, because operations and their pieces end close together
 * while every thread has a core. Then they continue to poll but yield the core: with more threads than cores, the
 * awaited thread may be queued behind the waiting one (4 threads on 2 cores: 12 us for an empty task with yielding, 87
 * us without). After WAIT_NS they sleep, so a busy machine loses little, and an idle pool costs nothing. If another
 * process keeps a yielded core for more than GREEDY_NS (a time slice is milliseconds), this thread does not yield for
 * SHUN_NS: it spins and sleeps, and the kernel wakes a sleeper early.
 */
#define SPIN_NS 4000
#define WAIT_NS 40000
#define GREEDY_NS 400000
#define SHUN_NS 100000000
#define SPINS_PER_CLOCK_READ 32

/* Waking a thread costs the owner about 5 us, and the thread starts to compute 50 us later. So the owner wakes a
 * sleeping worker after this much time of a step's tasks, and at the start of a step only if the previous step had this
 * much. */
#define WAKE_NS 50000

/* A worker that runs on the owner's CPU, because no other CPU is free, sleeps again at once: the owner cannot run
 * meanwhile. The wake-up and two switches take about 10 us; the account charges twice that because of the caches. */
#define COLLISION_NS 20000

/* In a longer task the owner may have been stopped too. Its savings are then computed with the pace of the fastest
 * thread. (Reading the thread's CPU time instead makes the kernel check whether its slice is over: 554 instead of 304
 * stops per second next to two busy processes.) */
#define LONG_NS 300000

#define CACHE_LINE 64

/* A thread's own pieces of the current task: [end - n_left, end) have not begun. */
struct home {
    alignas(CACHE_LINE) atomic_int n_left; /* below 0: number of threads that found no piece */
    atomic_bool is_called; /* set by k_pool_each */
    uint32_t end;
    _Atomic uint64_t pace_ns; /* time per piece, when the thread last ran some */
};

/* Invariants.
 * 1. The owner writes task, context, n_pieces and each home's end only while n_unfinished is 0. Storing n_left, or
 *    is_called, with release publishes them.
 * 2. A thread that decrements n_left from above 0, with acquire, exclusively holds a piece of the current task, even if
 *    it looked for a piece of an earlier task: the owner does not return before that piece is finished. So the thread
 *    reads the fields of 1 after that.
 * 3. A worker sleeps on the value that n_wakes had before the worker found no pieces. So no wake-up is lost. A worker
 *    need not see a task published without a wake-up: the owner finds the worker's pieces in its home. n_asleep is a
 *    hint.
 * 4. The owner sets owner_asleep before it sleeps on n_unfinished, and the thread that sets n_unfinished to 0 reads
 *    owner_asleep afterwards. Both are sequentially consistent, so one of the two sees the other.
 * No lock exists that a stopped thread could hold.
 *
 * Fields written by the owner, fields written by the workers, and fields that change only around a sleep have cache
 * lines of their own: a worker that is done does not invalidate the line that the others spin on.
 */
struct k_pool {
    alignas(CACHE_LINE) k_pool_fn task;
    void *context;
    uint32_t n_pieces;
    atomic_uint n_asked; /* threads that have homes */
    atomic_int owner_cpu; /* the CPU on which the owner last ran */
    atomic_bool in_step;

    alignas(CACHE_LINE) atomic_uint n_unfinished; /* pieces of the current task */

    alignas(CACHE_LINE) atomic_uint n_wakes;
    atomic_uint n_asleep;
    atomic_uint n_collisions;
    atomic_bool owner_asleep;
    atomic_bool closing;

    /* fields of the owner */
    alignas(CACHE_LINE) struct pool_account account;
    uint64_t greedy_until;
    uint64_t step_ns; /* the owner's time in this step's tasks */
    uint64_t alone_ns; /* the part of step_ns with sleeping workers since they were last woken */
    bool is_long; /* the previous step had enough tasks to wake workers */
    uint32_t n_threads;
    uint32_t n_started; /* number of existing workers */
    pthread_t *workers;
    struct home *homes;
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

/* Returns when *word differs from `known`, or spuriously. */
static void futex_wait(atomic_uint *word, unsigned known)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, known, NULL, NULL, 0);
}

static void futex_wake(atomic_uint *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* ---- pieces ----------------------------------------------------------------------------------- */

/* Runs a piece of this home that has not begun. Returns false if there is no such piece. */
static bool run_piece(struct k_pool *pool, struct home *home, uint32_t thread)
{
    if (atomic_load_explicit(&home->n_left, memory_order_relaxed) <= 0)
        return false;
    int left = atomic_fetch_sub_explicit(&home->n_left, 1, memory_order_acquire);
    if (left <= 0)
        return false;
    pool->task(pool->context, (struct k_piece){home->end - (uint32_t)left, pool->n_pieces, thread});
    return true;
}

static uint32_t run_home(struct k_pool *pool, struct home *home, uint32_t thread)
{
    uint32_t n = 0;
    while (run_piece(pool, home, thread))
        n++;
    return n;
}

/* Records n finished pieces. Returns true if they were the last. */
static bool finish(struct k_pool *pool, uint32_t n)
{
    return atomic_fetch_sub(&pool->n_unfinished, n) == n;
}

static void finish_as_worker(struct k_pool *pool, uint32_t n)
{
    if (finish(pool, n) && atomic_load(&pool->owner_asleep))
        futex_wake(&pool->n_unfinished);
}

static void help(struct k_pool *pool, struct home *home, uint32_t thread)
{
    if (atomic_load_explicit(&home->n_left, memory_order_relaxed) <= 0)
        return;
    uint64_t begin = quire_now_ns();
    uint32_t n = run_home(pool, home, thread);
    if (n == 0)
        return;
    atomic_store_explicit(&pool->homes[thread].pace_ns, (quire_now_ns() - begin) / n, memory_order_relaxed);
    finish_as_worker(pool, n);
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Returns whether the wait is over: for a worker, its home has pieces; for the owner (NULL), all pieces are
 * finished. */
static bool is_over(struct k_pool *pool, struct home *home)
{
    if (!home)
        return atomic_load_explicit(&pool->n_unfinished, memory_order_acquire) == 0;
    return atomic_load_explicit(&home->n_left, memory_order_relaxed) > 0 ||
           atomic_load_explicit(&home->is_called, memory_order_relaxed);
}

/* Returns whether this worker runs on the owner's CPU, where it blocks the owner. */
static bool is_on_owners_cpu(struct k_pool *pool)
{
    return sched_getcpu() == atomic_load_explicit(&pool->owner_cpu, memory_order_relaxed);
}

static bool spin(struct k_pool *pool, struct home *home)
{
    for (int i = 0; i < SPINS_PER_CLOCK_READ; i++) {
        if (is_over(pool, home))
            return true;
        cpu_relax();
    }
    return false;
}

/* Waits awake. Returns true when the wait is over, and false after too long or, for a worker, when its step has ended.
 * greedy_until belongs to the calling thread and starts at 0. */
static bool wait_awake(struct k_pool *pool, struct home *home, uint64_t *greedy_until)
{
    uint64_t begin = quire_now_ns(), waited;
    bool may_yield = begin >= *greedy_until;
    do {
        if (spin(pool, home))
            return true;
        waited = quire_now_ns() - begin;
        if (may_yield && waited > SPIN_NS && waited < WAIT_NS) {
            sched_yield();
            uint64_t away = quire_now_ns() - begin - waited;
            if (away > GREEDY_NS)
                *greedy_until = begin + away + SHUN_NS;
        }
        if (home && (!atomic_load_explicit(&pool->in_step, memory_order_relaxed) || is_on_owners_cpu(pool)))
            return false;
    } while (waited < WAIT_NS);
    return false;
}

static bool is_called(struct home *home)
{
    return atomic_load_explicit(&home->is_called, memory_order_acquire);
}

/* Returns true when the thread's home may have pieces, and false when the pool closes. */
static bool wait_for_pieces(struct k_pool *pool, uint32_t thread, uint64_t *greedy_until)
{
    struct home *home = &pool->homes[thread];
    for (;;) {
        unsigned seen = atomic_load(&pool->n_wakes);
        if (atomic_load(&pool->closing))
            return false;
        bool has_cpu = !is_on_owners_cpu(pool);
        bool is_asked = atomic_load(&pool->in_step) &&
                        thread < atomic_load_explicit(&pool->n_asked, memory_order_relaxed);
        if (is_called(home) || (has_cpu && is_over(pool, home)) ||
            (has_cpu && is_asked && wait_awake(pool, home, greedy_until)))
            return true;
        if (!has_cpu)
            atomic_fetch_add_explicit(&pool->n_collisions, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&pool->n_asleep, 1, memory_order_relaxed);
        futex_wait(&pool->n_wakes, seen);
        atomic_fetch_sub_explicit(&pool->n_asleep, 1, memory_order_relaxed);
    }
}

static void wake_workers(struct k_pool *pool)
{
    atomic_fetch_add(&pool->n_wakes, 1);
    futex_wake(&pool->n_wakes);
}

/* Waits, as the owner, for pieces that others have begun. */
static void wait_for_others(struct k_pool *pool)
{
    if (wait_awake(pool, NULL, &pool->greedy_until))
        return;
    atomic_store(&pool->owner_asleep, true);
    for (unsigned left; (left = atomic_load(&pool->n_unfinished)) != 0;)
        futex_wait(&pool->n_unfinished, left);
    atomic_store(&pool->owner_asleep, false);
}

/* ---- workers --------------------------------------------------------------------------------- */

static void *worker_main(void *argument)
{
    struct worker_start start = *(struct worker_start *)argument;
    free(argument);
    struct k_pool *pool = start.pool;
    const uint32_t thread = start.thread;
    struct home *home = &pool->homes[thread];
    uint64_t greedy_until = 0;
    while (wait_for_pieces(pool, thread, &greedy_until)) {
        if (is_called(home)) {
            atomic_store_explicit(&home->is_called, false, memory_order_relaxed);
            pool->task(pool->context, (struct k_piece){thread, pool->n_threads, thread});
            finish_as_worker(pool, 1);
            continue;
        }
        for (uint32_t i = thread; i < thread + pool->n_threads; i++)
            help(pool, &pool->homes[i % pool->n_threads], thread);
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

/* ---- the pool -------------------------------------------------------------------------------- */

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
    atomic_store(&pool->n_asked, n_threads);
    pool_account_open(&pool->account, n_threads);
    pool->workers = calloc(n_threads, sizeof *pool->workers);
    pool->homes = aligned_alloc(alignof(struct home), n_threads * sizeof *pool->homes);
    if (!pool->workers || !pool->homes) {
        k_pool_destroy(pool);
        return quire_fail(err, QUIRE_NO_MEMORY, "thread pool: out of memory");
    }
    memset(pool->homes, 0, n_threads * sizeof *pool->homes);
    for (uint32_t thread = 1; thread < n_threads; thread++) {
        if (start_worker(pool, thread) != 0) {
            k_pool_destroy(pool);
            return quire_fail(err, QUIRE_EXHAUSTED,
                              "thread pool: cannot start thread %u of %u: lower --threads or "
                              "raise the process limit",
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
    atomic_store(&pool->in_step, false);
    atomic_store(&pool->closing, true);
    wake_workers(pool);
    for (uint32_t i = 0; i < pool->n_started; i++)
        pthread_join(pool->workers[i], NULL);
    free(pool->workers);
    free(pool->homes);
    free(pool);
}

uint32_t k_pool_n_asked(const struct k_pool *pool)
{
    return pool->account.n_asked;
}

uint32_t k_pool_n_threads(const struct k_pool *pool)
{
    return pool->n_threads;
}

static void see_owner(struct k_pool *pool)
{
    atomic_store_explicit(&pool->owner_cpu, sched_getcpu(), memory_order_relaxed);
}

void k_pool_step_begin(struct k_pool *pool)
{
    if (pool->n_threads == 1)
        return;
    if (pool->account.n_asked < pool->n_threads) {
        pool_account_try(&pool->account, quire_now_ns());
        atomic_store_explicit(&pool->n_asked, pool->account.n_asked, memory_order_relaxed);
    }
    pool->step_ns = 0;
    see_owner(pool);
    pool->alone_ns = 0;
    atomic_store(&pool->in_step, true);
    if (pool->is_long && pool->account.n_asked > 1)
        wake_workers(pool);
}

void k_pool_step_end(struct k_pool *pool)
{
    if (pool->n_threads == 1)
        return;
    atomic_store(&pool->in_step, false);
    pool->is_long = pool->step_ns >= WAKE_NS;
}

/* Distributes the pieces to the used threads, in runs of neighbours. */
static void publish(struct k_pool *pool, uint32_t n_pieces, k_pool_fn fn, void *context)
{
    const uint32_t n_asked = pool->account.n_asked;
    pool->task = fn;
    pool->context = context;
    pool->n_pieces = n_pieces;
    see_owner(pool);
    atomic_store_explicit(&pool->n_unfinished, n_pieces, memory_order_relaxed);
    for (uint32_t thread = n_asked; thread-- > 0;) {
        uint64_t begin, end;
        k_pool_share(n_pieces, (struct k_piece){thread, n_asked, thread}, &begin, &end);
        pool->homes[thread].end = (uint32_t)end;
        atomic_store_explicit(&pool->homes[thread].n_left, (int)(end - begin), memory_order_release);
    }
}

/* Returns the time that a piece of this task takes. */
static uint64_t pace_of(struct k_pool *pool, uint64_t own_ns, uint32_t n_own)
{
    uint64_t pace = n_own > 0 ? own_ns / n_own : own_ns;
    for (uint32_t i = 1; i < pool->n_threads && own_ns > LONG_NS; i++) {
        uint64_t other = atomic_load_explicit(&pool->homes[i].pace_ns, memory_order_relaxed);
        pace = other < pace ? other : pace;
    }
    return pace;
}

/* Runs the owner's own pieces while workers sleep: until no piece is left, or until it has run alone long enough that
 * they are woken. Sets how long waking took. */
static uint32_t run_alone(struct k_pool *pool, uint64_t begin, uint64_t *waking_ns)
{
    uint32_t n = 0;
    while (run_piece(pool, &pool->homes[0], 0)) {
        n++;
        uint64_t now = quire_now_ns();
        if (pool->alone_ns + (now - begin) < WAKE_NS)
            continue;
        wake_workers(pool);
        *waking_ns = quire_now_ns() - now;
        break;
    }
    return n;
}

void k_pool_run(struct k_pool *pool, uint32_t n_pieces, k_pool_fn fn, void *context)
{
    if (n_pieces == 1) {
        fn(context, (struct k_piece){0, 1, 0});
        return;
    }
    if (pool->account.n_asked == 1) { /* it changed during the operation */
        for (uint32_t i = 0; i < n_pieces; i++)
            fn(context, (struct k_piece){i, n_pieces, 0});
        return;
    }
    uint64_t begin = quire_now_ns(), waking = 0, waited = 0;
    publish(pool, n_pieces, fn, context);
    bool is_alone = atomic_load_explicit(&pool->n_asleep, memory_order_relaxed) >
                    pool->n_threads - pool->account.n_asked;
    uint32_t n_own = is_alone ? run_alone(pool, begin, &waking) : 0;
    n_own += run_home(pool, &pool->homes[0], 0);
    bool is_done = finish(pool, n_own);
    for (uint32_t i = 1; i < pool->n_threads && !is_done; i++) {
        uint32_t n = run_home(pool, &pool->homes[i], 0);
        is_done = n > 0 && finish(pool, n);
        n_own += n;
    }
    uint64_t end = quire_now_ns(), own = end - begin - waking;
    if (!is_done && !spin(pool, NULL)) {
        wait_for_others(pool);
        uint64_t now = quire_now_ns();
        waited = now - end;
        end = now;
    }
    pool->step_ns += own;
    pool->alone_ns = is_alone && waking == 0 ? pool->alone_ns + own : 0;
    waited += waking + COLLISION_NS * (uint64_t)atomic_exchange_explicit(&pool->n_collisions, 0, memory_order_relaxed);
    uint64_t saved = pace_of(pool, own, n_own) * (n_pieces - n_own);
    pool_account_enter(&pool->account, saved, waited, end);
    atomic_store_explicit(&pool->n_asked, pool->account.n_asked, memory_order_relaxed);
}

void k_pool_each(struct k_pool *pool, k_pool_fn fn, void *context)
{
    pool->task = fn;
    pool->context = context;
    atomic_store_explicit(&pool->n_unfinished, pool->n_threads, memory_order_relaxed);
    for (uint32_t thread = 1; thread < pool->n_threads; thread++)
        atomic_store_explicit(&pool->homes[thread].is_called, true, memory_order_release);
    if (pool->n_threads > 1)
        wake_workers(pool);
    fn(context, (struct k_piece){0, pool->n_threads, 0});
    if (!finish(pool, 1))
        wait_for_others(pool);
}
