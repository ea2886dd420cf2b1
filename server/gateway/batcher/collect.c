#include "server/gateway/batcher/collect.h"

#include <stdlib.h>
#include <string.h>

void collector_init(struct collector *c)
{
    TAILQ_INIT(&c->open);
}

static void close_batch(struct collector *c, struct batch *b)
{
    TAILQ_REMOVE(&c->open, b, link);
    b->is_open = false;
}

void collector_free(struct collector *c)
{
    struct batch *b;
    while ((b = TAILQ_FIRST(&c->open))) {
        close_batch(c, b);
        free(b);
    }
}

static struct batch *begin(struct collector *c, const struct key256 *key, struct batch_terms terms, uint64_t now_ms)
{
    struct batch *b = calloc(1, sizeof *b + terms.max_size * sizeof *b->members);
    if (!b)
        return NULL;
    b->key = *key;
    b->max_size = terms.max_size;
    b->due_ms = now_ms + terms.max_wait_ms;
    b->is_open = true;
    TAILQ_INSERT_TAIL(&c->open, b, link);
    return b;
}

struct batch *collector_add(struct collector *c, const struct key256 *key, struct batch_terms terms, void *member,
                            uint64_t now_ms)
{
    struct batch *b;
    TAILQ_FOREACH(b, &c->open, link)
    {
        if (memcmp(&b->key, key, sizeof *key) == 0)
            break;
    }
    if (!b)
        b = begin(c, key, terms, now_ms);
    if (!b)
        return NULL;
    b->members[b->n++] = member;
    if (b->n == b->max_size)
        close_batch(c, b);
    return b;
}

struct batch *collector_due(struct collector *c, uint64_t now_ms)
{
    struct batch *b;
    TAILQ_FOREACH(b, &c->open, link)
    {
        if (b->due_ms <= now_ms)
            break;
    }
    if (b)
        close_batch(c, b);
    return b;
}

uint64_t collector_next_ms(const struct collector *c)
{
    const struct batch *b;
    uint64_t next = 0;
    TAILQ_FOREACH(b, &c->open, link)
    {
        if (next == 0 || b->due_ms < next)
            next = b->due_ms;
    }
    return next;
}

uint32_t collector_leave(struct collector *c, struct batch *b, const void *member)
{
    uint32_t n_left = 0, at = b->n;
    for (uint32_t i = 0; i < b->n; i++) {
        if (b->members[i] == member)
            at = i;
        else
            n_left += b->members[i] != NULL;
    }
    if (at == b->n)
        return n_left;
    b->members[at] = NULL;
    if (!b->is_open)
        return n_left;
    memmove(b->members + at, b->members + at + 1, (b->n - at - 1) * sizeof *b->members);
    b->n--;
    if (b->n == 0) {
        close_batch(c, b);
        free(b);
    }
    return n_left;
}
