#include "server/gateway/relay/shared.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_REPLY_BYTES ((size_t)64 << 20)

/* A batch that was sent. */
struct shared_call {
    struct shared *s;
    struct batch *batch;
    enum joined_kind kind;
    struct remote_call *remote; /* NULL: it has ended */
    struct joined_body *bodies; /* [batch->n] */
    struct buffer body, reply;
    int status;
    char wrong[64];
    TAILQ_ENTRY(shared_call) link;
};

struct shared {
    struct collector collector;
    struct batch_list full; /* to be sent from the loop: the owners of their members are in calls of their own */
    struct event *timer;    /* for the next batch that is due */
    TAILQ_HEAD(call_list, shared_call) calls;
    struct call_list ended; /* freed by the timer, outside the callbacks in which they ended */
};

static void set_timer(struct shared *s)
{
    const uint64_t next_ms = collector_next_ms(&s->collector), now_ms = quire_now_ms();
    const uint64_t ms = next_ms > now_ms ? next_ms - now_ms : 0;
    const struct timeval tv = {.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000) * 1000};
    if (next_ms > 0)
        event_add(s->timer, &tv);
}

static void free_call(struct shared_call *c)
{
    free(c->batch);
    free(c->bodies);
    buffer_free(&c->body);
    buffer_free(&c->reply);
    free(c);
}

static void retire(struct shared_call *c)
{
    TAILQ_REMOVE(&c->s->calls, c, link);
    TAILQ_INSERT_TAIL(&c->s->ended, c, link);
    event_active(c->s->timer, EV_TIMEOUT, 0);
}

/* ---- the reply ------------------------------------------------------------------------------ */

static void end_member(struct shared_member *m, const struct shared_call *c, enum remote_end how, const char *why,
                       struct buffer *reply)
{
    m->batch = NULL;
    m->on_end(m, how, why, c->status, reply, c->wrong);
}

static void end_all(struct shared_call *c, enum remote_end how, const char *why)
{
    struct batch *b = c->batch;
    struct buffer *replies = calloc(b->n, sizeof *replies);
    const bool is_good = how == REMOTE_WHOLE && c->status == 200 && !c->wrong[0];
    const char *text = c->reply.data ? c->reply.data : "";
    if (is_good && b->n > 1 && (!replies || !joined_split(c->kind, text, c->reply.n, c->bodies, b->n, replies)))
        snprintf(c->wrong, sizeof c->wrong, "its reply does not answer each prompt of a batch");
    for (uint32_t i = 0; i < b->n; i++) {
        struct buffer copy = {0}, *reply = replies && b->n > 1 && is_good && !c->wrong[0] ? &replies[i] : &copy;
        if (reply == &copy)
            buffer_append(&copy, c->reply.data, c->reply.n);
        struct shared_member *m = b->members[i];
        b->members[i] = NULL;
        if (m)
            end_member(m, c, how, why, reply);
        buffer_free(reply);
    }
    free(replies);
}

/* ---- the call ------------------------------------------------------------------------------- */

static void on_head(void *context, int status)
{
    ((struct shared_call *)context)->status = status;
}

static void on_body(void *context, const char *bytes, size_t n)
{
    struct shared_call *c = context;
    if (c->wrong[0])
        return;
    if (n > MAX_REPLY_BYTES - c->reply.n)
        snprintf(c->wrong, sizeof c->wrong, "its reply is larger than 64 MiB");
    else if (buffer_append(&c->reply, bytes, n) != QUIRE_OK)
        snprintf(c->wrong, sizeof c->wrong, "out of memory");
}

static void on_end(void *context, enum remote_end how, const char *why)
{
    struct shared_call *c = context;
    c->remote = NULL;
    end_all(c, how, why);
    retire(c);
}

static bool write_body(struct shared_call *c)
{
    struct batch *b = c->batch;
    c->bodies = calloc(b->n, sizeof *c->bodies);
    for (uint32_t i = 0; c->bodies && i < b->n; i++)
        c->bodies[i] = ((struct shared_member *)b->members[i])->body;
    if (c->bodies && b->n > 1)
        joined_write(c->bodies, b->n, &c->body);
    else if (c->bodies)
        buffer_append(&c->body, c->bodies->text, c->bodies->n);
    for (uint32_t i = 0; c->bodies && i < b->n; i++)
        c->bodies[i].text = NULL; /* its owner may leave; the reply is divided by the lengths */
    return c->bodies && !c->body.failed;
}

static bool send_batch(struct shared_call *c, struct quire_error *why)
{
    static const struct remote_events events = {on_head, on_body, on_end};
    struct shared_member *first = c->batch->members[0];
    return write_body(c) && first->send(first, &c->body, &events, c, &c->remote, why);
}

/* Members may have left since the batch was full. */
static void close_gaps(struct batch *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n; i++)
        if (b->members[i])
            b->members[n++] = b->members[i];
    b->n = n;
}

/* Takes the batch. */
static void begin(struct shared *s, struct batch *b)
{
    struct quire_error why = {.text = "out of memory"};
    close_gaps(b);
    struct shared_call *c = b->n > 0 ? calloc(1, sizeof *c) : NULL;
    if (!c) {
        const struct shared_call none = {0};
        for (uint32_t i = 0; i < b->n; i++)
            end_member(b->members[i], &none, REMOTE_UNREACHED, why.text, &(struct buffer){0});
        free(b);
        return;
    }
    c->s = s;
    c->batch = b;
    c->kind = ((struct shared_member *)b->members[0])->kind;
    TAILQ_INSERT_TAIL(&s->calls, c, link);
    if (send_batch(c, &why))
        return;
    end_all(c, REMOTE_UNREACHED, why.text);
    retire(c);
}

static void on_timer(evutil_socket_t fd, short what, void *context)
{
    struct shared *s = context;
    struct shared_call *c;
    struct batch *b;
    (void)fd, (void)what;
    while ((c = TAILQ_FIRST(&s->ended))) {
        TAILQ_REMOVE(&s->ended, c, link);
        free_call(c);
    }
    while ((b = TAILQ_FIRST(&s->full))) {
        TAILQ_REMOVE(&s->full, b, link);
        begin(s, b);
    }
    while ((b = collector_due(&s->collector, quire_now_ms())))
        begin(s, b);
    set_timer(s);
}

/* ---- public --------------------------------------------------------------------------------- */

int shared_open(struct event_base *base, struct shared **out, struct quire_error *err)
{
    struct shared *s = *out = calloc(1, sizeof *s);
    if (s)
        s->timer = evtimer_new(base, on_timer, s);
    if (!s || !s->timer) {
        free(s);
        *out = NULL;
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    }
    collector_init(&s->collector);
    TAILQ_INIT(&s->full);
    TAILQ_INIT(&s->calls);
    TAILQ_INIT(&s->ended);
    return QUIRE_OK;
}

void shared_close(struct shared *s)
{
    struct shared_call *c;
    struct batch *b;
    if (!s)
        return;
    while ((c = TAILQ_FIRST(&s->calls))) {
        if (c->remote)
            remote_cancel(c->remote);
        TAILQ_REMOVE(&s->calls, c, link);
        free_call(c);
    }
    while ((c = TAILQ_FIRST(&s->ended))) {
        TAILQ_REMOVE(&s->ended, c, link);
        free_call(c);
    }
    while ((b = TAILQ_FIRST(&s->full))) {
        TAILQ_REMOVE(&s->full, b, link);
        free(b);
    }
    collector_free(&s->collector);
    event_free(s->timer);
    free(s);
}

bool shared_join(struct shared *s, struct shared_member *m, const struct key256 *key, struct batch_terms terms)
{
    m->batch = collector_add(&s->collector, key, terms, m, quire_now_ms());
    if (!m->batch)
        return false;
    if (!m->batch->is_open) {
        TAILQ_INSERT_TAIL(&s->full, m->batch, link);
        event_active(s->timer, EV_TIMEOUT, 0);
    } else {
        set_timer(s);
    }
    return true;
}

static struct shared_call *call_of(const struct shared *s, const struct batch *b)
{
    struct shared_call *c;
    TAILQ_FOREACH(c, &s->calls, link)
    {
        if (c->batch == b)
            return c;
    }
    return NULL;
}

void shared_leave(struct shared *s, struct shared_member *m)
{
    struct batch *b = m->batch;
    m->batch = NULL;
    if (!b)
        return;
    struct shared_call *c = b->is_open ? NULL : call_of(s, b);
    if (collector_leave(&s->collector, b, m) > 0 || !c || !c->remote)
        return;
    remote_cancel(c->remote);
    c->remote = NULL;
    retire(c);
}
