#include "server/bulk/disk.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct jobs {
    struct bulk_job *first, **end;
};

struct lane {
    struct bulk_disk *disk;
    pthread_t thread;
    bool started;
    pthread_cond_t work;
    struct jobs asked;
};

struct bulk_disk {
    pthread_mutex_t mutex; /* guards the members up to `closing`, and `asked` of the lanes */
    pthread_cond_t answered_one;
    struct jobs answered;
    uint64_t n_open; /* asked, but not answered */
    bool closing;
    struct lane lanes[BULK_N_LANES];
    int wake; /* eventfd: jobs are answered */
    struct event *event;
};

static void append(struct jobs *to, struct bulk_job *job)
{
    job->next = NULL;
    *to->end = job;
    to->end = &job->next;
}

static struct bulk_job *take(struct jobs *from)
{
    struct bulk_job *job = from->first;
    if (job && !(from->first = job->next))
        from->end = &from->first;
    return job;
}

static void *work(void *context)
{
    struct lane *lane = context;
    struct bulk_disk *d = lane->disk;
    const uint64_t one = 1;
    pthread_mutex_lock(&d->mutex);
    for (;;) {
        struct bulk_job *job = take(&lane->asked);
        if (!job && d->closing)
            break;
        if (!job) {
            pthread_cond_wait(&lane->work, &d->mutex);
            continue;
        }
        pthread_mutex_unlock(&d->mutex);
        job->work(job);
        pthread_mutex_lock(&d->mutex);
        append(&d->answered, job);
        d->n_open--;
        pthread_cond_signal(&d->answered_one);
        const ssize_t n = write(d->wake, &one, sizeof one);
        (void)n; /* the eventfd is full: the loop is already notified */
    }
    pthread_mutex_unlock(&d->mutex);
    return NULL;
}

static void call_done(struct bulk_disk *d)
{
    struct bulk_job *job;
    do {
        pthread_mutex_lock(&d->mutex);
        job = take(&d->answered);
        pthread_mutex_unlock(&d->mutex);
        if (job)
            job->done(job);
    } while (job);
}

static void on_wake(evutil_socket_t fd, short what, void *context)
{
    uint64_t n;
    const ssize_t got = read(fd, &n, sizeof n);
    (void)what, (void)got;
    call_done(context);
}

int bulk_disk_open(struct event_base *base, struct bulk_disk **out, struct quire_error *err)
{
    struct bulk_disk *d = *out = calloc(1, sizeof *d);
    if (!d)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    pthread_mutex_init(&d->mutex, NULL);
    pthread_cond_init(&d->answered_one, NULL);
    d->answered.end = &d->answered.first;
    d->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    d->event = d->wake >= 0 ? event_new(base, d->wake, EV_READ | EV_PERSIST, on_wake, d) : NULL;
    bool good = d->event && event_add(d->event, NULL) == 0;
    for (int i = 0; i < BULK_N_LANES; i++) {
        struct lane *lane = &d->lanes[i];
        lane->disk = d;
        lane->asked.end = &lane->asked.first;
        pthread_cond_init(&lane->work, NULL);
        lane->started = good && pthread_create(&lane->thread, NULL, work, lane) == 0;
        good &= lane->started;
    }
    if (good)
        return QUIRE_OK;
    bulk_disk_close(d);
    *out = NULL;
    return quire_fail(err, QUIRE_NO_MEMORY, "--batch-dir: its threads cannot be started");
}

void bulk_disk_settle(struct bulk_disk *d)
{
    bool is_idle = false;
    while (!is_idle) {
        pthread_mutex_lock(&d->mutex);
        while (d->n_open > 0 && !d->answered.first)
            pthread_cond_wait(&d->answered_one, &d->mutex);
        pthread_mutex_unlock(&d->mutex);
        call_done(d);
        pthread_mutex_lock(&d->mutex);
        is_idle = d->n_open == 0 && !d->answered.first;
        pthread_mutex_unlock(&d->mutex);
    }
}

void bulk_disk_close(struct bulk_disk *d)
{
    if (!d)
        return;
    bulk_disk_settle(d);
    pthread_mutex_lock(&d->mutex);
    d->closing = true;
    for (int i = 0; i < BULK_N_LANES; i++)
        pthread_cond_signal(&d->lanes[i].work);
    pthread_mutex_unlock(&d->mutex);
    for (int i = 0; i < BULK_N_LANES; i++) {
        if (d->lanes[i].started)
            pthread_join(d->lanes[i].thread, NULL);
        pthread_cond_destroy(&d->lanes[i].work);
    }
    if (d->event)
        event_free(d->event);
    if (d->wake >= 0)
        close(d->wake);
    pthread_cond_destroy(&d->answered_one);
    pthread_mutex_destroy(&d->mutex);
    free(d);
}

void bulk_disk_do(struct bulk_disk *d, enum bulk_lane lane, struct bulk_job *job)
{
    pthread_mutex_lock(&d->mutex);
    append(&d->lanes[lane].asked, job);
    d->n_open++;
    pthread_cond_signal(&d->lanes[lane].work);
    pthread_mutex_unlock(&d->mutex);
}
