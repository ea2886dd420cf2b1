#include "engine/grammar/crew.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

struct crew {
    pthread_mutex_t mutex;
    pthread_cond_t begun, done;
    pthread_t *threads;
    uint32_t n_threads;

    /* Under the mutex: a piece takes 10 µs and more, so taking it may cost a lock. */
    void (*work)(void *context, uint32_t i);
    void *context;
    uint32_t n, next, n_done;
    bool closing;
};

/* Takes pieces until none is left. Under the mutex, except while it works. */
static void do_pieces(struct crew *c)
{
    while (c->next < c->n) {
        uint32_t i = c->next++;
        pthread_mutex_unlock(&c->mutex);
        c->work(c->context, i);
        pthread_mutex_lock(&c->mutex);
        if (++c->n_done == c->n)
            pthread_cond_signal(&c->done);
    }
}

static void *run(void *crew)
{
    struct crew *c = crew;
    pthread_mutex_lock(&c->mutex);
    while (!c->closing) {
        do_pieces(c);
        if (!c->closing)
            pthread_cond_wait(&c->begun, &c->mutex);
    }
    pthread_mutex_unlock(&c->mutex);
    return NULL;
}

int crew_create(uint32_t n_threads, struct crew **out, struct quire_error *err)
{
    struct crew *c = calloc(1, sizeof *c);
    if (!c)
        return quire_fail(err, QUIRE_NO_MEMORY, "mask threads: out of memory");
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->begun, NULL);
    pthread_cond_init(&c->done, NULL);
    *out = c;
    c->threads = calloc(n_threads + 1, sizeof *c->threads);
    int status = c->threads ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "mask threads: out of memory");
    while (status == QUIRE_OK && c->n_threads < n_threads) {
        if (pthread_create(&c->threads[c->n_threads], NULL, run, c) != 0)
            status = quire_fail(err, QUIRE_EXHAUSTED, "mask threads: the system starts no further thread");
        else
            c->n_threads++;
    }
    if (status != QUIRE_OK) {
        crew_destroy(c);
        *out = NULL;
    }
    return status;
}

void crew_destroy(struct crew *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->mutex);
    c->closing = true;
    pthread_cond_broadcast(&c->begun);
    pthread_mutex_unlock(&c->mutex);
    for (uint32_t i = 0; i < c->n_threads; i++)
        pthread_join(c->threads[i], NULL);
    pthread_cond_destroy(&c->done);
    pthread_cond_destroy(&c->begun);
    pthread_mutex_destroy(&c->mutex);
    free(c->threads);
    free(c);
}

void crew_start(struct crew *c, void (*work)(void *context, uint32_t i), void *context, uint32_t n)
{
    pthread_mutex_lock(&c->mutex);
    c->work = work;
    c->context = context;
    c->n = n;
    c->next = c->n_done = 0;
    if (n > 1)
        pthread_cond_broadcast(&c->begun);
    else if (n == 1)
        pthread_cond_signal(&c->begun);
    pthread_mutex_unlock(&c->mutex);
}

void crew_join(struct crew *c)
{
    pthread_mutex_lock(&c->mutex);
    do_pieces(c);
    while (c->n_done < c->n)
        pthread_cond_wait(&c->done, &c->mutex);
    c->n = c->next = c->n_done = 0;
    pthread_mutex_unlock(&c->mutex);
}
