/* The outgoing queue of a connection: the engine's thread and the loop add frames, and the loop sends them. */
#include "server/daemon/connection.h"
#include "server/daemon/internal.h"

struct buffer *queue_begin(struct connection *c)
{
    pthread_mutex_lock(&c->d->mutex);
    if (!c->overflowed)
        return &c->pending;
    pthread_mutex_unlock(&c->d->mutex);
    return NULL;
}

void queue_end(struct connection *c)
{
    queue_changed(c);
    pthread_mutex_unlock(&c->d->mutex);
}

void queue_changed(struct connection *c)
{
    size_t backlog = atomic_load_explicit(&c->backlog, memory_order_relaxed);
    if (c->pending.failed || c->pending.n + backlog > c->d->options.max_queued_bytes) {
        buffer_free(&c->pending);
        c->overflowed = true;
    }
    if (!c->dirty) {
        c->dirty = true;
        c->next_dirty = c->d->first_dirty;
        c->d->first_dirty = c;
    }
}

struct connection *queue_next_dirty(struct daemon *d)
{
    pthread_mutex_lock(&d->mutex);
    struct connection *c = d->first_dirty;
    if (c) {
        d->first_dirty = c->next_dirty;
        c->dirty = false;
    }
    pthread_mutex_unlock(&d->mutex);
    return c;
}
