#include "server/front/body/text_pool.h"

#include "text/quire_text.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define TEXT_STACK_BYTES (QUIRE_TEXT_STACK_BYTES + ((size_t)1 << 20)) /* and what lies below it */

enum state { QUEUED, RUNNING, CANCELLED, FINISHED };

TAILQ_HEAD(job_list, text_job);

struct text_pool {
    pthread_mutex_t lock; /* the lists, the jobs' states, closing */
    pthread_cond_t wake;
    struct job_list queued, finished;
    bool closing;
    int fd; /* eventfd: finished is not empty */
    struct event *event;
    uint32_t n_threads;
    pthread_t threads[16];
};

static void *worker(void *context)
{
    struct text_pool *pool = context;
    const uint64_t one = 1;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        struct text_job *job;
        while (!(job = TAILQ_FIRST(&pool->queued)) && !pool->closing)
            pthread_cond_wait(&pool->wake, &pool->lock);
        if (pool->closing)
            break;
        TAILQ_REMOVE(&pool->queued, job, link);
        job->state = RUNNING;
        pthread_mutex_unlock(&pool->lock);

        job->work(job);

        pthread_mutex_lock(&pool->lock);
        if (job->state == RUNNING)
            job->state = FINISHED;
        bool first = TAILQ_EMPTY(&pool->finished); /* else the loop was woken, and takes all there are */
        TAILQ_INSERT_TAIL(&pool->finished, job, link);
        while (first && write(pool->fd, &one, sizeof one) < 0 && errno == EINTR) {
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* On the loop: hands finished jobs back, one at a time, because done() may cancel another. */
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
            job->release(job);
        else
            job->done(job);
    }
}

static int start_threads(struct text_pool *pool, uint32_t n, struct quire_error *err)
{
    int failed = 0;
    /* Signals are the loop's; threads inherit the mask they are started under. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const uint32_t most = sizeof pool->threads / sizeof pool->threads[0];
    pthread_attr_t deep; /* where templates render; without so much address space they find a thread themselves */
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
    pthread_cond_init(&pool->wake, NULL);
    TAILQ_INIT(&pool->queued);
    TAILQ_INIT(&pool->finished);
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

void text_pool_close(struct text_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->closing = true;
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->n_threads; i++)
        pthread_join(pool->threads[i], NULL);

    struct text_job *job;
    TAILQ_CONCAT(&pool->finished, &pool->queued, link);
    while ((job = TAILQ_FIRST(&pool->finished))) {
        TAILQ_REMOVE(&pool->finished, job, link);
        job->release(job);
    }
    if (pool->event)
        event_free(pool->event);
    if (pool->fd >= 0)
        close(pool->fd);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

void text_pool_submit(struct text_pool *pool, struct text_job *job)
{
    pthread_mutex_lock(&pool->lock);
    job->state = QUEUED;
    TAILQ_INSERT_TAIL(&pool->queued, job, link);
    pthread_cond_signal(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}

void text_pool_cancel(struct text_pool *pool, struct text_job *job)
{
    pthread_mutex_lock(&pool->lock);
    bool mine = job->state != RUNNING;
    if (job->state == QUEUED)
        TAILQ_REMOVE(&pool->queued, job, link);
    else if (job->state == FINISHED)
        TAILQ_REMOVE(&pool->finished, job, link);
    else
        job->state = CANCELLED;
    pthread_mutex_unlock(&pool->lock);
    if (mine)
        job->release(job);
}
