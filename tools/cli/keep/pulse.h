/* Whether an engine lives: it is asked for a sign twice a second, and one that has given none for 3.5 s is taken for lost, so that
 * who waits is told within 5. Only turns of the loop count: a machine that stood still, or a front end that was stopped, loses
 * nobody. Loop's thread. */
#ifndef QUIRE_TOOLS_PULSE_H
#define QUIRE_TOOLS_PULSE_H

#include <event2/event.h>
#include <stdbool.h>

#define PULSE_LOST_MS 3500
#define PULSE_LOST "the engine has not answered for 3.5 s: it hangs, or is stopped"

struct pulse;

struct pulse_calls { /* all set */
    /* Asks for a sign; whether the one before has come. */
    bool (*lives)(void *context);
    /* Once: nothing is asked any more. May call pulse_begin(). */
    void (*lost)(void *context);
    void *context;
};

/* NULL: no memory. */
struct pulse *pulse_new(struct event_base *base, const struct pulse_calls *calls);
/* From now on, whatever was before. */
void pulse_begin(struct pulse *p);
void pulse_end(struct pulse *p);
/* The last sign has come. */
bool pulse_is_felt(const struct pulse *p);
void pulse_free(struct pulse *p); /* NULL is fine */

#endif
