/* Prefixes that stay cached though nobody uses them: system prompts. A pin is a block table of its own
 * that holds references on the full blocks of a prompt, until its time to live has passed since it was
 * last used.
 *
 * A pin is made when its request is submitted (all that is ever allocated), filled when choice 0 ends,
 * and dropped by the first plan or new pin after it is due, by sched_unpin(), or, the soonest due first, when the only sequence that
 * runs or could run needs the blocks. Blocks are counted for each pin, shared or not.
 *
 * Answers that their askers keep (a response cache) have pins of the same kind, in what the others leave of the share, if a share
 * was given: made when the answer ends, of its prompt and what it generated. They are ranked by worth, which is how often the answer
 * was given (pins_given()) or its blocks were hit: tokens by bytes are the same of every block. Who is worth least goes first, on a
 * tie the oldest; one that another goes beyond is part of that, and blocks that several hold count once. They give way to others'
 * pins and, as those do, to the only sequence that could run.
 */
#ifndef QUIRE_SCHEDULER_PINS_H
#define QUIRE_SCHEDULER_PINS_H

#include "memory/kv_cache.h"

#include <stdint.h>

#define SCHED_MAX_PINS 256u
#define SCHED_MAX_KEPT 256u

struct pin {
    struct pin *next;        /* of those filled, or of the kept answers */
    struct kv_table *table;  /* owned */
    uint32_t n_blocks, tenant;
    uint64_t ttl_us, due_us;
    struct key256 last;      /* the name of its last block */
    uint64_t name;           /* of a kept answer; */
    uint32_t n_given, n_hits; /* what it is worth */
};

struct pins {
    struct pin *first;       /* filled */
    uint32_t n, n_promised;  /* filled; made and not filled */
    uint32_t n_blocks;       /* of one group, of both kinds */
    struct pin *kept;        /* of answers, the youngest first */
    uint32_t n_kept, n_kept_blocks;
};

struct sched;
struct sched_request;
struct sequence;

/* A pin for r's prompt. QUIRE_EXHAUSTED: too many, or their share of the blocks is used up. */
int pins_make(struct sched *s, const struct sched_request *r, struct pin **out, struct quire_error *err);
/* An unfilled one is not needed after all. NULL is fine. */
void pins_forget(struct sched *s, struct pin *pin);
/* Choice 0 has computed its prompt: the pin takes references on its full blocks. */
void pins_fill(struct sched *s, struct pin *pin, const struct sequence *q);
/* An admission hit n_blocks of q's names: pins among them live on, kept answers among them are worth more. */
void pins_used(struct sched *s, const struct sequence *q, uint32_t n_blocks, uint64_t now_us);
/* Drops what is due. */
void pins_expire(struct sched *s, uint64_t now_us);
/* A sequence of a request with keep_us has ended by itself. Nothing is pinned where there is no memory, too. */
void pins_keep(struct sched *s, const struct sequence *q);
/* sched_request.given. Of names that nobody has nothing is known. */
void pins_given(struct sched *s, const uint32_t *given, uint32_t n);
/* What n_kept_blocks should be. O(n_kept²). */
uint32_t pins_kept_blocks(const struct sched *s);
/* Drops the kept answer of least worth, or the pin that is due first; false when there is none. */
bool pins_drop_one(struct sched *s);

#endif
