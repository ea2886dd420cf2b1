/* The heartbeat of an engine. It is sent twice a second. An engine that has not responded for 3.5 s counts as lost, so
 * that pending requests get the error within 5 s. Only turns of the loop count: a suspended machine, or a stopped front
 * end, loses no engine. Loop's thread. */
#ifndef QUIRE_TOOLS_PULSE_H
#define QUIRE_TOOLS_PULSE_H

#include <event2/event.h>
#include <stdbool.h>

#define PULSE_LOST_MS 3500
#define PULSE_LOST "the engine has not responded for 3.5 s: it hangs or is stopped"

struct pulse;

struct pulse_calls { /* all set */
    /* Sends a heartbeat; returns whether the previous one was answered. */
    bool (*lives)(void *context);
    /* Called once; no heartbeats follow. May call pulse_begin(). */
    void (*lost)(void *context);
    void *context;
};

/* NULL: out of memory. */
struct pulse *pulse_new(struct event_base *base, const struct pulse_calls *calls);
/* Starts from now on, whatever was before. */
void pulse_begin(struct pulse *p);
void pulse_end(struct pulse *p);
/* Returns whether the last heartbeat was answered. */
bool pulse_is_felt(const struct pulse *p);
void pulse_free(struct pulse *p); /* NULL is allowed */

#endif
