/* Prefixes that stay cached while no sequence uses them, such as system prompts. A pin is a block table that holds
 * references on the full blocks of a prompt until its time to live has passed since its last use.
 *
 * A pin is allocated when its request is submitted and filled when choice 0 ends. It is dropped by the first plan or
 * new pin after its expiry, by sched_unpin(), or when the only sequence that runs or could run needs the blocks; then
 * the pin that expires first is dropped first. Blocks are counted for each pin, shared or not.
 *
 * Cached answers (of a response cache, and of a client's session) have pins of the same kind, within the rest of the
 * share, if a share is configured. With several tenants, a new one displaces pins of the tenant that holds most. Such a pin is made when the answer ends, for its prompt and generated tokens. It is ranked by how often
 * the answer was served (sched_served()) or its blocks were hit; tokens per byte are the same for every block. The lowest
 * count is dropped first, and among equals the oldest. A pin that another one extends becomes part of it, and shared
 * blocks count once. These pins are dropped for other pins, and before a live sequence is preempted for want of
 * blocks, and for the only one that could run. A sequence that waits for others' blocks leaves them.
 */
#ifndef QUIRE_SCHEDULER_PINS_H
#define QUIRE_SCHEDULER_PINS_H

#include "base/hash.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define SCHED_MAX_PINS 256u
#define SCHED_MAX_KEPT 256u

struct pin {
    struct pin *next;        /* in the list of filled pins, or of cached answers */
    struct kv_table *table;  /* owned */
    uint32_t n_blocks, tenant;
    uint64_t ttl_us, due_us;
    struct key256 last;      /* name of its last block */
    uint64_t name;           /* of a cached answer */
    uint32_t n_given, n_hits; /* their sum is its rank */
};

struct pins {
    struct pin *first;       /* filled */
    uint32_t n, n_promised;  /* filled; allocated and not filled */
    uint32_t n_blocks;       /* of one group, for both kinds */
    struct pin *kept;        /* of cached answers, the youngest first */
    uint32_t n_kept, n_kept_blocks;
};

struct sched;
struct sched_request;
struct sequence;

/* Allocates a pin for r's prompt. QUIRE_EXHAUSTED: too many pins, or their share of the blocks is used up. */
int pins_make(struct sched *s, const struct sched_request *r, struct pin **out, struct quire_error *err);
/* Frees an unfilled pin. NULL is allowed. */
void pins_forget(struct sched *s, struct pin *pin);
/* Choice 0 has computed its prompt: the pin takes references on its full blocks. */
void pins_fill(struct sched *s, struct pin *pin, const struct sequence *q);
/* An admission hit n_blocks of q's names: renews the pins among them and raises the rank of cached answers among them.
 */
void pins_used(struct sched *s, const struct sequence *q, uint32_t n_blocks, uint64_t now_us);
/* Drops the pins of a tenant (UINT32_MAX: of all); returns their number. */
uint32_t pins_drop(struct sched *s, uint32_t tenant);
/* Drops expired pins. */
void pins_expire(struct sched *s, uint64_t now_us);
/* A sequence of a request with keep_us ended by itself. If memory is short, nothing is pinned. */
void pins_keep(struct sched *s, const struct sequence *q);
/* The correct value of n_kept_blocks, for checks. O(n_kept²). */
uint32_t pins_kept_blocks(const struct sched *s);
/* Drops the cached answer of lowest rank. Returns false if no answer is cached. */
bool pins_drop_kept(struct sched *s);
/* Drops the cached answer of lowest rank, or the pin that expires first. Returns false if there is no pin. */
bool pins_drop_one(struct sched *s);

#endif
