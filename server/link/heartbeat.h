/* Whether an engine lives: it is asked for a sign twice a second, and one that has given none for 3.5 s is taken for lost, so that
 * who waits is told within 5. Only turns of the loop count: a machine that stood still, or a front end that was stopped, loses
 * nobody. Loop's thread. */
#ifndef QUIRE_LINK_HEARTBEAT_H
#define QUIRE_LINK_HEARTBEAT_H

#include <event2/event.h>
#include <stdbool.h>

#define HEARTBEAT_LOST_MS 3500
#define HEARTBEAT_LOST "the engine has not answered for 3.5 s: it hangs, or is stopped"

struct heartbeat;

struct heartbeat_calls { /* all set */
    /* Asks for a sign; whether the one before has come. */
    bool (*lives)(void *context);
    /* Once: nothing is asked any more. May call heartbeat_begin(). */
    void (*lost)(void *context);
    void *context;
};

/* NULL: no memory. */
struct heartbeat *heartbeat_new(struct event_base *base, const struct heartbeat_calls *calls);
/* From now on, whatever was before. */
void heartbeat_begin(struct heartbeat *p);
void heartbeat_end(struct heartbeat *p);
/* The last sign has come. */
bool heartbeat_is_felt(const struct heartbeat *p);
void heartbeat_free(struct heartbeat *p); /* NULL is fine */

#endif
