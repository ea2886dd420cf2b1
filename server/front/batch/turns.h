/* Prompts that wait in the front end for their turn at the engine: those of requests that have several.
 *
 * A request's first prompt goes to the engine at once, and is taken or refused for all of them. The others stand here,
 * in the queue of their tenant, and go as room comes: tenants in turn, and a tenant's requests in turn, a prompt each.
 * The engine holds only so many of them at once that it is busy, so that three quarters of its queue, and an eighth of
 * its places, stay free for everybody else. A small request is not held back: it is as so many requests of one prompt.
 *
 * A turn and a place belong to their owner; zero them to begin. Loop's thread.
 */
#ifndef QUIRE_FRONT_TURNS_H
#define QUIRE_FRONT_TURNS_H

#include "base/status.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#define TURNS_SMALL 16 /* choices of a request that is not held back */

struct turns;

/* A request of which prompts wait. */
struct turn {
    uint32_t tenant; /* index */
    bool is_small;
    uint32_t n_choices; /* of each prompt */
    uint32_t n_waiting; /* prompts */
    uint32_t n_tokens;  /* of the prompt that is next */
    /* Submits that prompt, and says with turns_wait() what waits now. May end the turn. From the loop only. */
    void (*next)(struct turn *turn);
    /* The queue's own. */
    bool queued;
    uint32_t n_counted;
    TAILQ_ENTRY(turn) link;
};

/* What a submitted prompt of a request that is held back takes of the engine. */
struct turn_place {
    uint32_t n_choices, n_tokens; /* n_tokens: until the first token came */
};

int turns_open(struct event_base *base, struct turns **out, struct quire_error *err);
void turns_close(struct turns *t); /* no turn waits any more; NULL is fine */
/* What the engine has: places for sequences and in its queue, and tokens of a step. 0: it does not say. */
void turns_set_engine(struct turns *t, uint32_t max_seqs, uint32_t max_queued, uint32_t step_tokens);

/* So many prompts will wait if the first is taken. They count as waiting from now on, or requests that come together would
 * each find that nobody waits. */
void turns_expect(struct turns *t, struct turn *turn, uint32_t n_prompts);
/* The turn's numbers are set, or have changed; with n_waiting 0 it is out of the queue. */
void turns_wait(struct turns *t, struct turn *turn);
/* Choices of this tenant that wait here; of all of them. */
uint64_t turns_n_waiting(const struct turns *t, uint32_t tenant);
uint64_t turns_n_all(const struct turns *t);

/* A prompt was submitted, has its first token, is over. Also where none was. */
void turns_take(struct turns *t, const struct turn *turn, struct turn_place *place, uint32_t n_tokens);
void turns_began(struct turns *t, struct turn_place *place);
void turns_leave(struct turns *t, struct turn_place *place);
/* It was refused: the engine's queue is full, of others perhaps. Nobody's turn comes until one of ours is over, or for
 * a tenth of a second. */
void turns_refused(struct turns *t, struct turn_place *place);

#endif
