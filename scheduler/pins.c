#include "scheduler/pins.h"

#include "memory/kv_table.h"
#include "scheduler/state/checked.h"
#include "scheduler/state/scheduler_state.h"
#include "scheduler/state/sequence_state.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_PERCENT 50u

/* Limit of the blocks that pins may hold, for the smallest group. */
static uint32_t most_blocks(const struct sched *s)
{
    uint32_t percent = s->config->max_pinned_percent ? s->config->max_pinned_percent : DEFAULT_PERCENT;
    uint32_t n = s->config->kv.groups[0].n_blocks;
    for (uint32_t g = 1; g < s->config->kv.n_groups; g++)
        if (s->config->kv.groups[g].n_blocks < n)
            n = s->config->kv.groups[g].n_blocks;
    return (uint32_t)((uint64_t)n * percent / 100);
}

static void pin_free(struct pin *pin)
{
    if (pin)
        kv_table_destroy(pin->table);
    free(pin);
}

static void destroy(struct sched *s, struct pin *pin)
{
    s->pins->n_blocks -= pin->n_blocks;
    pin_free(pin);
}

static bool same(const struct key256 *a, const struct key256 *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

/* A pin with a table for this many blocks. NULL: out of memory. */
static struct pin *pin_new(struct sched *s, uint32_t n_blocks)
{
    struct pin *pin = calloc(1, sizeof *pin);
    if (!pin || kv_table_create(s->kv, &pin->table, NULL) ||
        kv_table_prepare(pin->table, n_blocks * s->config->kv.block_tokens)) {
        pin_free(pin);
        return NULL;
    }
    pin->n_blocks = n_blocks;
    return pin;
}

/* Takes references on the blocks with q's names. They are cache hits and need not be q's own: if two sequences compute
 * the same block, only one gets the name, and a named block may have been evicted since. Returns false if a window has
 * passed a needed block. */
static bool fill(struct sched *s, struct pin *pin, const struct sequence *q)
{
    uint32_t n_tokens = pin->n_blocks * s->config->kv.block_tokens;
    for (uint32_t i = 0; i < pin->n_blocks; i++)
        kv_table_publish(q->table, i, &seq_hashes(q)[i]);
    return kv_table_match(pin->table, seq_hashes(q), pin->n_blocks, n_tokens) == n_tokens;
}

/* ---- kept answers --------------------------------------------------------------------------- */

static uint64_t worth(const struct pin *pin)
{
    return (uint64_t)pin->n_given + pin->n_hits;
}

/* Leading blocks that both hold. A name has one block while it is referenced, so ids can be compared, in a group that
 * holds all of a prefix if there is one. One by one: two sequences may have computed a block twice, and share later ones. */
static uint32_t n_common(const struct sched *s, const struct pin *a, const struct pin *b)
{
    uint32_t g = 0, n_a, n_b;
    while (g + 1 < s->config->kv.n_groups && s->config->kv.groups[g].window > 0)
        g++;
    if (s->config->kv.groups[g].window > 0)
        g = 0;
    const uint32_t *of_a = kv_table_blocks(a->table, g, &n_a), *of_b = kv_table_blocks(b->table, g, &n_b);
    const uint32_t most = n_a < n_b ? n_a : n_b;
    uint32_t low = 0;
    while (low < most && of_a[low] == of_b[low])
        low++;
    return low;
}

/* Number of its blocks that no pin of the list holds. */
static uint32_t own_blocks(const struct sched *s, const struct pin *pin, const struct pin *list)
{
    uint32_t most = 0;
    for (; list; list = list->next) {
        uint32_t n = list == pin ? 0 : n_common(s, pin, list);
        most = n > most ? n : most;
    }
    return pin->n_blocks - most;
}

uint32_t pins_kept_blocks(const struct sched *s)
{
    uint32_t n = 0;
    for (const struct pin *pin = s->pins->kept; pin; pin = pin->next)
        n += own_blocks(s, pin, pin->next);
    return n;
}

static void drop_kept(struct sched *s, struct pin **link)
{
    struct pin *pin = *link;
    *link = pin->next;
    s->pins->n_kept--;
    s->pins->n_kept_blocks -= own_blocks(s, pin, s->pins->kept);
    pin_free(pin);
}

#define ANY_TENANT UINT32_MAX

/* The tenant's cached answer of least worth; NULL: it has none. */
static struct pin **least_kept(struct sched *s, uint32_t tenant)
{
    struct pin **least = NULL;
    for (struct pin **link = &s->pins->kept; *link; link = &(*link)->next)
        if ((tenant == ANY_TENANT || (*link)->tenant == tenant) && (!least || worth(*link) <= worth(*least)))
            least = link;
    return least;
}

/* The tenant whose cached answers hold the most blocks. `own`, the blocks of a new pin, count for its tenant, which is
 * preferred among equals. Tenants share no blocks unless they share a domain; then the older pin's tenant pays. */
static uint32_t largest_tenant(const struct sched *s, const struct pin *new_pin, uint32_t own)
{
    uint32_t held[SCHED_MAX_TENANTS] = {0}, largest = new_pin->tenant;
    if (s->config->policy_options.n_tenants <= 1)
        return ANY_TENANT;
    held[largest] = own;
    for (const struct pin *pin = s->pins->kept; pin; pin = pin->next)
        held[pin->tenant] += own_blocks(s, pin, pin->next);
    for (uint32_t t = 0; t < s->config->policy_options.n_tenants; t++)
        if (held[t] > held[largest])
            largest = t;
    return largest;
}

/* Drops cached answers, because other pins have priority in the share. */
static void make_way(struct sched *s)
{
    while (s->pins->n_kept > 0 && s->pins->n_blocks + s->pins->n_kept_blocks > most_blocks(s))
        drop_kept(s, least_kept(s, ANY_TENANT));
}

/* Merges pins that it extends. Returns false if another pin covers it. */
static bool join_others(struct sched *s, struct pin *pin)
{
    for (struct pin **link = &s->pins->kept; *link;) {
        struct pin *old = *link;
        uint32_t n = n_common(s, pin, old);
        if (n == pin->n_blocks) {
            old->due_us = old->due_us > pin->due_us ? old->due_us : pin->due_us;
            return false;
        }
        if (n < old->n_blocks) {
            link = &old->next;
            continue;
        }
        pin->n_given = pin->n_given > old->n_given ? pin->n_given : old->n_given;
        pin->n_hits = pin->n_hits > old->n_hits ? pin->n_hits : old->n_hits;
        drop_kept(s, link);
    }
    return true;
}

/* Drops pins of the tenant that holds most until the new one fits, so that no tenant's sessions displace those of a
 * tenant with less. Returns false if this is its own tenant and its other pins have a higher rank. */
static bool find_share(struct sched *s, const struct pin *pin)
{
    const uint32_t share = most_blocks(s), n_others = s->pins->n_blocks;
    uint32_t own = own_blocks(s, pin, s->pins->kept);
    while (s->pins->n_kept == SCHED_MAX_KEPT || n_others + s->pins->n_kept_blocks + own > share) {
        const uint32_t tenant = largest_tenant(s, pin, own);
        struct pin **least = least_kept(s, tenant);
        const bool is_own = tenant == ANY_TENANT || tenant == pin->tenant;
        if (!least || (is_own && worth(*least) > worth(pin)))
            return false;
        drop_kept(s, least);
        own = own_blocks(s, pin, s->pins->kept);
    }
    return true;
}

void pins_keep(struct sched *s, const struct sequence *q)
{
    const struct sched_job *job = q->job;
    const uint32_t n_blocks = q->n_published;
    /* If it exceeds the whole share, nothing is dropped for it. */
    if (s->config->max_pinned_percent == 0 || s->config->max_pinned_percent == SCHED_NO_PINS || job->n > 1 ||
        n_blocks == 0 || s->pins->n_blocks + n_blocks > most_blocks(s))
        return;
    struct pin *pin = pin_new(s, n_blocks);
    if (!pin)
        return;
    pin->tenant = q->key.tenant;
    pin->name = job->keep_name;
    pin->due_us = s->waits->now_us + job->keep_us;
    pin->last = seq_hashes(q)[n_blocks - 1];
    if (!fill(s, pin, q) || !join_others(s, pin) || !find_share(s, pin)) {
        pin_free(pin);
        return;
    }
    s->pins->n_kept_blocks += own_blocks(s, pin, s->pins->kept);
    pin->next = s->pins->kept;
    s->pins->kept = pin;
    s->pins->n_kept++;
}

void sched_served(struct sched *s, const uint32_t *served, uint32_t n_served)
{
    for (uint32_t i = 0; i < n_served; i++, served += 3) {
        const uint64_t name = served[0] | (uint64_t)served[1] << 32;
        while (name == 0 && s->pins->kept)
            drop_kept(s, &s->pins->kept);
        for (struct pin *pin = s->pins->kept; pin; pin = pin->next)
            if (pin->name == name)
                pin->n_given = served[2];
    }
    SCHED_CHECKED(s);
}

/* ---- pins that are asked for ----------------------------------------------------------------- */

int pins_make(struct sched *s, const struct sched_request *r, struct pin **out, struct quire_error *err)
{
    uint32_t n_blocks = r->n_prompt / s->config->kv.block_tokens;
    *out = NULL;
    if (!s->config->kv.prefix_caching)
        return quire_fail(err, QUIRE_INVALID, "pin: needs prefix caching");
    if (s->config->max_pinned_percent == SCHED_NO_PINS)
        return quire_fail(err, QUIRE_INVALID, "pin: --max-pinned-percent 0 allows no pins");
    if (n_blocks == 0)
        return quire_fail(err, QUIRE_INVALID, "pin: a prompt of %u tokens does not fill a block", r->n_prompt);
    /* Where no live sequence is preempted, background blocks count as free, because background sequences give way. A
     * pin does not. */
    if (r->background && s->config->preemption == SCHED_PREEMPT_NEVER)
        return quire_fail(err, QUIRE_INVALID, "pin: a background request cannot pin blocks if nothing is preempted");
    /* Expires pins here, because nothing is planned while there are no sequences, not even if this one is rejected. */
    pins_expire(s, r->arrival_us);
    if (s->pins->n + s->pins->n_promised == SCHED_MAX_PINS)
        return quire_fail(err, QUIRE_EXHAUSTED, "pin: the limit of %u pins is reached", SCHED_MAX_PINS);
    if (s->pins->n_blocks + n_blocks > most_blocks(s))
        return quire_fail(err, QUIRE_EXHAUSTED, "pin: needs %u blocks; %u of at most %u are pinned", n_blocks,
                          s->pins->n_blocks, most_blocks(s));
    struct pin *pin = pin_new(s, n_blocks);
    if (!pin)
        return quire_fail(err, QUIRE_NO_MEMORY, "pin: out of memory");
    pin->tenant = r->tenant;
    pin->ttl_us = r->pin_us;
    pin->last = r->hashes[n_blocks - 1];
    s->pins->n_promised++;
    s->pins->n_blocks += n_blocks;
    make_way(s);
    *out = pin;
    return QUIRE_OK;
}

void pins_forget(struct sched *s, struct pin *pin)
{
    if (!pin)
        return;
    s->pins->n_promised--;
    destroy(s, pin);
}

void pins_fill(struct sched *s, struct pin *pin, const struct sequence *q)
{
    for (struct pin *old = s->pins->first; old; old = old->next)
        if (old->n_blocks == pin->n_blocks && same(&old->last, &pin->last)) {
            old->ttl_us = pin->ttl_us;
            old->due_us = s->waits->now_us + pin->ttl_us;
            pins_forget(s, pin);
            return;
        }
    if (!fill(s, pin, q)) {
        pins_forget(s, pin);
        return;
    }
    pin->due_us = s->waits->now_us + pin->ttl_us;
    pin->next = s->pins->first;
    s->pins->first = pin;
    s->pins->n_promised--;
    s->pins->n++;
}

void pins_used(struct sched *s, const struct sequence *q, uint32_t n_blocks, uint64_t now_us)
{
    for (struct pin *pin = s->pins->first; pin; pin = pin->next)
        if (pin->n_blocks <= n_blocks && same(&seq_hashes(q)[pin->n_blocks - 1], &pin->last))
            pin->due_us = now_us + pin->ttl_us;
    for (struct pin *pin = s->pins->kept; pin && !q->was_admitted; pin = pin->next)
        pin->n_hits += pin->n_blocks <= n_blocks && same(&seq_hashes(q)[pin->n_blocks - 1], &pin->last);
}

static void drop(struct sched *s, struct pin **link)
{
    struct pin *pin = *link;
    *link = pin->next;
    s->pins->n--;
    destroy(s, pin);
}

void pins_expire(struct sched *s, uint64_t now_us)
{
    for (struct pin **link = &s->pins->first; *link;)
        if ((*link)->due_us <= now_us)
            drop(s, link);
        else
            link = &(*link)->next;
    for (struct pin **link = &s->pins->kept; *link;)
        if ((*link)->due_us <= now_us)
            drop_kept(s, link);
        else
            link = &(*link)->next;
}

bool pins_drop_kept(struct sched *s)
{
    if (!s->pins->kept)
        return false;
    drop_kept(s, least_kept(s, ANY_TENANT));
    return true;
}

bool pins_drop_one(struct sched *s)
{
    struct pin **soonest = &s->pins->first;
    if (pins_drop_kept(s))
        return true;
    if (!*soonest)
        return false;
    for (struct pin **link = soonest; *link; link = &(*link)->next)
        if ((*link)->due_us < (*soonest)->due_us)
            soonest = link;
    drop(s, soonest);
    return true;
}

uint32_t pins_drop(struct sched *s, uint32_t tenant)
{
    uint32_t n = s->pins->n + s->pins->n_kept;
    for (struct pin **link = &s->pins->first; *link;)
        if (tenant == UINT32_MAX || (*link)->tenant == tenant)
            drop(s, link);
        else
            link = &(*link)->next;
    for (struct pin **link = &s->pins->kept; *link;)
        if (tenant == UINT32_MAX || (*link)->tenant == tenant)
            drop_kept(s, link);
        else
            link = &(*link)->next;
    return n - s->pins->n - s->pins->n_kept;
}

uint32_t sched_unpin(struct sched *s, uint32_t tenant)
{
    uint32_t n = pins_drop(s, tenant);
    SCHED_CHECKED(s);
    return n;
}
