/* Prompts that wait in the front end for their turn at the engine: those of requests with several prompts.
 *
 * A request's first prompt goes to the engine at once, and is accepted or refused for all of them. The others wait
 * here, in the queue of their tenant, and go as space becomes free: tenants take turns, and a tenant's requests take
 * turns, one prompt each. The engine holds only enough of them to be busy: three quarters of its queue, and an eighth
 * of its sequence slots, stay free for other requests. A small request is not held back: it counts as so many requests
 * of one prompt.
 *
 * A turn and a place belong to their owner, which zeroes them first. Loop's thread.
 */
#ifndef QUIRE_FRONT_TURNS_H
#define QUIRE_FRONT_TURNS_H

#include "base/status.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#define TURNS_SMALL 16 /* largest number of choices of a request that is not held back */

struct turns;

/* A request with waiting prompts. */
struct turn {
    uint32_t tenant; /* index of the tenant */
    bool is_small;
    uint32_t n_choices; /* of each prompt */
    uint32_t n_waiting; /* prompts */
    uint32_t n_tokens;  /* of the next prompt */
    /* Submits that prompt, and reports with turns_wait() how many wait now. May end the turn. Called from the loop
     * only. */
    void (*next)(struct turn *turn);
    /* Private to the queue. */
    bool queued;
    uint32_t n_counted;
    TAILQ_ENTRY(turn) link;
};

/* The engine's resources that a submitted prompt of a held-back request uses. */
struct turn_place {
    uint32_t n_choices, n_tokens; /* n_tokens: until the first token came */
};

int turns_open(struct event_base *base, struct turns **out, struct quire_error *err);
void turns_close(struct turns *t); /* no turn may be waiting; NULL is allowed */
/* Sets the engine's limits: sequence slots, queue entries and tokens of a step. 0: unknown. */
void turns_set_engine(struct turns *t, uint32_t max_seqs, uint32_t max_queued, uint32_t step_tokens);

/* Announces so many prompts that will wait if the first is accepted. They count as waiting from now on. Otherwise
 * simultaneous requests would each see an empty queue. */
void turns_expect(struct turns *t, struct turn *turn, uint32_t n_prompts);
/* Call when the turn's numbers are set or have changed; with n_waiting 0 it leaves the queue. */
void turns_wait(struct turns *t, struct turn *turn);
/* Choices that wait here: of this tenant; of all tenants. */
uint64_t turns_n_waiting(const struct turns *t, uint32_t tenant);
uint64_t turns_n_all(const struct turns *t);

/* A prompt was submitted, has its first token, is over. The last two accept a place that is all zero. */
void turns_take(struct turns *t, const struct turn *turn, struct turn_place *place, uint32_t n_tokens);
void turns_began(struct turns *t, struct turn_place *place);
void turns_leave(struct turns *t, struct turn_place *place);
/* The prompt was refused because the engine's queue is full, perhaps of other requests. No turn comes until one of our
 * prompts is over, or for a tenth of a second. */
void turns_refused(struct turns *t, struct turn_place *place);

#endif
