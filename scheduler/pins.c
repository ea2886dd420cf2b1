#include "scheduler/pins.h"

#include "scheduler/sequence.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_PERCENT 50u

/* Blocks of the smallest group that pins may hold. */
static uint32_t most_blocks(const struct sched *s)
{
    uint32_t percent = s->config.max_pinned_percent ? s->config.max_pinned_percent : DEFAULT_PERCENT;
    uint32_t n = s->config.kv.groups[0].n_blocks;
    for (uint32_t g = 1; g < s->config.kv.n_groups; g++)
        if (s->config.kv.groups[g].n_blocks < n)
            n = s->config.kv.groups[g].n_blocks;
    return (uint32_t)((uint64_t)n * percent / 100);
}

static void destroy(struct sched *s, struct pin *pin)
{
    s->pins.n_blocks -= pin->n_blocks;
    kv_table_destroy(pin->table);
    free(pin);
}

int pins_make(struct sched *s, const struct sched_request *r, struct pin **out, struct quire_error *err)
{
    uint32_t n_blocks = r->n_prompt / s->config.kv.block_tokens;
    *out = NULL;
    if (!s->config.kv.prefix_caching)
        return quire_fail(err, QUIRE_INVALID, "pin: needs prefix caching");
    if (n_blocks == 0)
        return quire_fail(err, QUIRE_INVALID, "pin: a prompt of %u tokens does not fill a block", r->n_prompt);
    /* While nobody is there nothing is planned, nor would it be if this one were refused. */
    pins_expire(s, r->arrival_us);
    if (s->pins.n + s->pins.n_promised == SCHED_MAX_PINS)
        return quire_fail(err, QUIRE_EXHAUSTED, "pin: there are %u already", SCHED_MAX_PINS);
    if (s->pins.n_blocks + n_blocks > most_blocks(s))
        return quire_fail(err, QUIRE_EXHAUSTED, "pin: needs %u blocks, %u of at most %u are pinned", n_blocks,
                          s->pins.n_blocks, most_blocks(s));
    struct pin *pin = calloc(1, sizeof *pin);
    if (!pin || kv_table_create(s->kv, &pin->table, err) || kv_table_prepare(pin->table, r->n_prompt)) {
        if (pin)
            kv_table_destroy(pin->table);
        free(pin);
        return quire_fail(err, QUIRE_NO_MEMORY, "pin: out of memory");
    }
    pin->n_blocks = n_blocks;
    pin->tenant = r->tenant;
    pin->ttl_us = r->pin_us;
    pin->last = r->hashes[n_blocks - 1];
    s->pins.n_promised++;
    s->pins.n_blocks += n_blocks;
    *out = pin;
    return QUIRE_OK;
}

void pins_forget(struct sched *s, struct pin *pin)
{
    if (!pin)
        return;
    s->pins.n_promised--;
    destroy(s, pin);
}

static bool same(const struct key256 *a, const struct key256 *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

void pins_fill(struct sched *s, struct pin *pin, const struct sequence *q)
{
    for (struct pin *old = s->pins.first; old; old = old->next)
        if (old->n_blocks == pin->n_blocks && same(&old->last, &pin->last)) {
            old->ttl_us = pin->ttl_us;
            old->due_us = s->now_us + pin->ttl_us;
            pins_forget(s, pin);
            return;
        }
    /* The blocks that have the names are those that are hit, and need not be q's own: what two compute
     * at the same time is named once, and a name may have been given up since. */
    for (uint32_t i = 0; i < pin->n_blocks; i++)
        kv_table_publish(q->table, i, &q->hashes[i]);
    uint32_t n_tokens = pin->n_blocks * s->config.kv.block_tokens;
    if (kv_table_match(pin->table, q->hashes, pin->n_blocks, n_tokens) < n_tokens) {
        pins_forget(s, pin); /* a window has passed what would be needed */
        return;
    }
    pin->due_us = s->now_us + pin->ttl_us;
    pin->next = s->pins.first;
    s->pins.first = pin;
    s->pins.n_promised--;
    s->pins.n++;
}

void pins_used(struct sched *s, const struct sequence *q, uint32_t n_blocks, uint64_t now_us)
{
    for (struct pin *pin = s->pins.first; pin; pin = pin->next)
        if (pin->n_blocks <= n_blocks && same(&q->hashes[pin->n_blocks - 1], &pin->last))
            pin->due_us = now_us + pin->ttl_us;
}

static void drop(struct sched *s, struct pin **link)
{
    struct pin *pin = *link;
    *link = pin->next;
    s->pins.n--;
    destroy(s, pin);
}

void pins_expire(struct sched *s, uint64_t now_us)
{
    for (struct pin **link = &s->pins.first; *link;)
        if ((*link)->due_us <= now_us)
            drop(s, link);
        else
            link = &(*link)->next;
}

bool pins_drop_one(struct sched *s)
{
    struct pin **soonest = &s->pins.first;
    if (!*soonest)
        return false;
    for (struct pin **link = soonest; *link; link = &(*link)->next)
        if ((*link)->due_us < (*soonest)->due_us)
            soonest = link;
    drop(s, soonest);
    return true;
}

uint32_t sched_unpin(struct sched *s, uint32_t tenant)
{
    uint32_t n = s->pins.n;
    for (struct pin **link = &s->pins.first; *link;)
        if (tenant == UINT32_MAX || (*link)->tenant == tenant)
            drop(s, link);
        else
            link = &(*link)->next;
    return n - s->pins.n;
}
