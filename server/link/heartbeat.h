/* The heartbeat of an engine. It is sent twice a second. An engine that has not responded for 3.5 s counts as lost, so
 * that pending requests get the error within 5 s. Only turns of the loop count: a suspended machine, or a stopped front
 * end, loses no engine. Loop's thread. */
#ifndef QUIRE_LINK_HEARTBEAT_H
#define QUIRE_LINK_HEARTBEAT_H

#include <event2/event.h>
#include <stdbool.h>

#define HEARTBEAT_LOST_MS 3500
#define HEARTBEAT_LOST "the engine has not responded for 3.5 s: it hangs or is stopped"

struct heartbeat;

struct heartbeat_calls { /* all set */
    /* Sends a heartbeat; returns whether the previous one was answered. */
    bool (*lives)(void *context);
    /* Called once; no heartbeats follow. May call heartbeat_begin(). */
    void (*lost)(void *context);
    void *context;
};

/* NULL: out of memory. */
struct heartbeat *heartbeat_new(struct event_base *base, const struct heartbeat_calls *calls);
/* Starts from now on, whatever was before. */
void heartbeat_begin(struct heartbeat *p);
void heartbeat_end(struct heartbeat *p);
/* Returns whether the last heartbeat was answered. */
bool heartbeat_is_felt(const struct heartbeat *p);
void heartbeat_free(struct heartbeat *p); /* NULL is allowed */

#endif
