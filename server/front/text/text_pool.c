#include "server/front/text/text_pool.h"

#include "server/front/tenant/tenants.h"
#include "text/quire_chat.h"
#include "text/quire_text.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define TEXT_STACK_BYTES (QUIRE_TEXT_STACK_BYTES + ((size_t)1 << 20)) /* plus the stack of the frames below */

enum state { QUEUED, RUNNING, CANCELLED, FINISHED };

/* Classes by the memory that jobs hold once they have begun. */
enum size { SHORT, MEDIUM, LARGE, N_SIZES };
static const uint32_t most_begun[N_SIZES] = {UINT32_MAX, 16, 1};
static const uint32_t most_begun_by_tenant[N_SIZES] = {UINT32_MAX, 2, 1};

TAILQ_HEAD(job_list, text_job);

/* One tenant's jobs. */
struct queue {
    struct job_list fresh[N_SIZES], begun[N_SIZES];
    uint32_t n_jobs; /* in the lists */
    uint32_t n_begun[N_SIZES];
    uint32_t n_running; /* slices */
    bool begun_next; /* fresh and begun jobs take turns: begun is next */
    TAILQ_ENTRY(queue) link; /* while n_jobs > 0 */
};

struct text_pool {
    pthread_mutex_t lock; /* protects everything below, and the jobs' states */
    /* Posted when a thread may find work. This is not a condition variable: its signal waits for threads that were
     * woken earlier and that the machine has not yet scheduled. The loop waited 5 to 20 ms when more threads than
     * cores were busy. */
    sem_t wake;
    struct queue queues[TENANTS_MAX];
    TAILQ_HEAD(, queue) turns; /* tenants with jobs, the next one first */
    uint32_t n_begun[N_SIZES];
    bool prefers_idle;
    uint32_t n_long, max_long; /* running slices of jobs that are not short, and their maximum */
    uint64_t n_put;
    struct job_list finished;
    bool closing;
    int fd; /* eventfd: finished is not empty */
    struct event *event;
    uint32_t n_threads;
    pthread_t threads[16];
};

static enum size size_of(const struct text_job *job)
{
    return job->n_bytes <= TEXT_SHORT_BYTES ? SHORT : job->n_bytes <= TEXT_MEDIUM_BYTES ? MEDIUM : LARGE;
}

/* ---- with the lock held ---- */

static struct job_list *list_of(struct queue *q, const struct text_job *job)
{
    return job->is_begun ? &q->begun[size_of(job)] : &q->fresh[size_of(job)];
}

static void put(struct text_pool *pool, struct text_job *job)
{
    struct queue *q = &pool->queues[job->tenant];
    job->state = QUEUED;
    job->number = pool->n_put++;
    TAILQ_INSERT_TAIL(list_of(q, job), job, link);
    if (q->n_jobs++ == 0)
        TAILQ_INSERT_TAIL(&pool->turns, q, link);
}

static void take(struct text_pool *pool, struct text_job *job)
{
    struct queue *q = &pool->queues[job->tenant];
    TAILQ_REMOVE(list_of(q, job), job, link);
    if (--q->n_jobs == 0)
        TAILQ_REMOVE(&pool->turns, q, link);
}

static void begin(struct text_pool *pool, struct text_job *job)
{
    job->is_begun = true;
    pool->n_begun[size_of(job)]++;
    pool->queues[job->tenant].n_begun[size_of(job)]++;
}

static void wake_all(struct text_pool *pool)
{
    for (uint32_t i = 0; i < pool->n_threads; i++)
        sem_post(&pool->wake);
}

/* Ends a job: another may begin. */
static void end(struct text_pool *pool, struct text_job *job)
{
    if (!job->is_begun)
        return;
    job->is_begun = false;
    pool->n_begun[size_of(job)]--;
    pool->queues[job->tenant].n_begun[size_of(job)]--;
    if (size_of(job) != SHORT)
        wake_all(pool);
}

/* Returns the job that has waited longest, among the sizes that may run now. */
static struct text_job *oldest(const struct text_pool *pool, const struct queue *q, const struct job_list *lists,
                               bool is_fresh)
{
    struct text_job *first = NULL;
    for (int i = 0; i < N_SIZES; i++) {
        struct text_job *job = TAILQ_FIRST(&lists[i]);
        if (!job || (i != SHORT && pool->n_long == pool->max_long))
            continue;
        if (is_fresh && (pool->n_begun[i] >= most_begun[i] || q->n_begun[i] >= most_begun_by_tenant[i]))
            continue;
        if (!first || job->number < first->number)
            first = job;
    }
    return first;
}

/* Among the tenants with at most this many running slices. */
static struct text_job *next_job_among(struct text_pool *pool, uint32_t max_running)
{
    struct queue *q;
    TAILQ_FOREACH(q, &pool->turns, link)
    {
        if (q->n_running > max_running)
            continue;
        struct text_job *begun = oldest(pool, q, q->begun, false), *fresh = oldest(pool, q, q->fresh, true);
        struct text_job *job = begun && (q->begun_next || !fresh) ? begun : fresh;
        if (!job)
            continue; /* all of its jobs have to wait */
        q->begun_next = job == fresh;
        TAILQ_REMOVE(&pool->turns, q, link);
        TAILQ_INSERT_TAIL(&pool->turns, q, link);
        take(pool, job);
        return job;
    }
    return NULL;
}

/* Returns the job of the next slice; NULL: no job can run now. */
static struct text_job *next_job(struct text_pool *pool)
{
    struct text_job *job = pool->prefers_idle ? next_job_among(pool, 0) : NULL;
    return job ? job : next_job_among(pool, UINT32_MAX);
}

/* ---- the threads ---------------------------------------------------------------------------- */

static void *worker(void *context)
{
    struct text_pool *pool = context;
    const uint64_t one = 1;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        struct text_job *job = NULL;
        while (!pool->closing && !(job = next_job(pool))) {
            pthread_mutex_unlock(&pool->lock);
            sem_wait(&pool->wake);
            pthread_mutex_lock(&pool->lock);
        }
        if (pool->closing)
            break;
        if (!job->is_begun)
            begin(pool, job);
        job->state = RUNNING;
        bool is_long = size_of(job) != SHORT;
        pool->n_long += is_long;
        pool->queues[job->tenant].n_running++;
        pthread_mutex_unlock(&pool->lock);

        bool more = job->calls->work(job);

        pthread_mutex_lock(&pool->lock);
        pool->n_long -= is_long;
        pool->queues[job->tenant].n_running--;
        if (is_long && !TAILQ_EMPTY(&pool->turns))
            sem_post(&pool->wake); /* another thread may sleep because of this limit */
        if (more && job->state == RUNNING) {
            if (job->needs_bytes > job->n_bytes) {
                end(pool, job);
                job->n_bytes = job->needs_bytes;
            }
            put(pool, job);
            continue;
        }
        if (job->state == RUNNING)
            job->state = FINISHED;
        bool first = TAILQ_EMPTY(&pool->finished); /* otherwise the loop is already awake, and takes all of them */
        end(pool, job);
        TAILQ_INSERT_TAIL(&pool->finished, job, link);
        pthread_mutex_unlock(&pool->lock); /* the loop, once awake, needs the lock */
        while (first && write(pool->fd, &one, sizeof one) < 0 && errno == EINTR) {
        }
        pthread_mutex_lock(&pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* On the loop: returns finished jobs, one at a time, because done() may cancel another. */
static void on_finished(evutil_socket_t fd, short what, void *context)
{
    struct text_pool *pool = context;
    (void)fd;
    (void)what;
    for (;;) {
        pthread_mutex_lock(&pool->lock);
        struct text_job *job = TAILQ_FIRST(&pool->finished);
        bool cancelled = job && job->state == CANCELLED;
        if (job)
            TAILQ_REMOVE(&pool->finished, job, link);
        pthread_mutex_unlock(&pool->lock);
        if (!job)
            return;
        if (cancelled)
            job->calls->release(job);
        else
            job->calls->done(job);
    }
}

static int start_threads(struct text_pool *pool, uint32_t n, struct quire_error *err)
{
    int failed = 0;
    /* Only the loop handles signals; threads inherit the mask of their creator. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const uint32_t most = sizeof pool->threads / sizeof pool->threads[0];
    /* templates render on this stack; without enough address space they start a thread themselves */
    pthread_attr_t deep;
    pthread_attr_init(&deep);
    pthread_attr_setstacksize(&deep, TEXT_STACK_BYTES);
    for (uint32_t i = 0; !failed && i < n && i < most; i++) {
        failed = pthread_create(&pool->threads[i], &deep, worker, pool);
        if (failed)
            failed = pthread_create(&pool->threads[i], NULL, worker, pool);
        if (!failed)
            pool->n_threads++;
    }
    pthread_attr_destroy(&deep);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return quire_fail(err, QUIRE_IO, "a text thread could not be started: %s", strerror(failed));
    return QUIRE_OK;
}

int text_pool_open(struct event_base *base, uint32_t n_threads, struct text_pool **out, struct quire_error *err)
{
    *out = NULL;
    struct text_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    pthread_mutex_init(&pool->lock, NULL);
    sem_init(&pool->wake, 0, 0);
    pool->max_long = n_threads > 1 ? n_threads - 1 : 1;
    TAILQ_INIT(&pool->turns);
    TAILQ_INIT(&pool->finished);
    for (size_t i = 0; i < TENANTS_MAX; i++) {
        for (int j = 0; j < N_SIZES; j++) {
            TAILQ_INIT(&pool->queues[i].fresh[j]);
            TAILQ_INIT(&pool->queues[i].begun[j]);
        }
    }
    int status = QUIRE_OK;
    /* Each write to an eventfd is an edge: it is never read. */
    pool->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (pool->fd < 0)
        status = quire_fail(err, QUIRE_IO, "eventfd: %s", strerror(errno));
    if (status == QUIRE_OK) {
        pool->event = event_new(base, pool->fd, EV_READ | EV_ET | EV_PERSIST, on_finished, pool);
        if (!pool->event || event_add(pool->event, NULL) < 0)
            status = quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    }
    if (status == QUIRE_OK)
        status = start_threads(pool, n_threads, err);
    if (status != QUIRE_OK) {
        text_pool_close(pool);
        return status;
    }
    *out = pool;
    return QUIRE_OK;
}

void text_pool_prefer_idle(struct text_pool *pool)
{
    pthread_mutex_lock(&pool->lock); /* its threads run already */
    pool->prefers_idle = true;
    pthread_mutex_unlock(&pool->lock);
}

void text_pool_close(struct text_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->closing = true;
    wake_all(pool);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->n_threads; i++)
        pthread_join(pool->threads[i], NULL);

    struct queue *q;
    while ((q = TAILQ_FIRST(&pool->turns))) {
        for (int i = 0; i < N_SIZES; i++) {
            TAILQ_CONCAT(&pool->finished, &q->fresh[i], link);
            TAILQ_CONCAT(&pool->finished, &q->begun[i], link);
        }
        TAILQ_REMOVE(&pool->turns, q, link);
    }
    struct text_job *job;
    while ((job = TAILQ_FIRST(&pool->finished))) {
        TAILQ_REMOVE(&pool->finished, job, link);
        job->calls->release(job);
    }
    if (pool->event)
        event_free(pool->event);
    if (pool->fd >= 0)
        close(pool->fd);
    sem_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

void text_pool_submit(struct text_pool *pool, struct text_job *job)
{
    pthread_mutex_lock(&pool->lock);
    job->is_begun = false;
    put(pool, job);
    pthread_mutex_unlock(&pool->lock);
    sem_post(&pool->wake);
}

void text_pool_cancel(struct text_pool *pool, struct text_job *job)
{
    pthread_mutex_lock(&pool->lock);
    bool mine = job->state != RUNNING;
    if (job->state == QUEUED) {
        take(pool, job);
        end(pool, job);
    } else if (job->state == FINISHED) {
        TAILQ_REMOVE(&pool->finished, job, link);
    } else {
        job->state = CANCELLED;
    }
    pthread_mutex_unlock(&pool->lock);
    if (mine)
        job->calls->release(job);
}
