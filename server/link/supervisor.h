/* The supervisor of quire serve --restart. The engine runs in a child process of the front end and is restarted when it
 * exits or stops responding. Meanwhile, requests see an unavailable engine, as with --engine.
 *
 * The child is this program as `quire engine`. QUIRE_FRONT gives it two descriptors: a socket to serve, and one that
 * closes with its parent. When the parent dies in any way, the kernel ends the child. Main thread, on the loop.
 */
#ifndef QUIRE_LINK_SUPERVISOR_H
#define QUIRE_LINK_SUPERVISOR_H

#include "base/status.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

/* Consecutive starts without a minute of service before the supervisor gives up. */
#define SUPERVISOR_TRIES 5
#define SUPERVISOR_MAX_ARGUMENTS 512

struct supervisor;

struct supervisor_calls { /* all set; called on the loop */
    /* The engine has loaded and sends HELLO on the other end of fd, which the callee owns. */
    void (*up)(void *context, int fd);
    /* The engine is expected back in about retry_ms. Called once for each process that ended or did not start. */
    void (*down)(void *context, uint32_t retry_ms, const char *why);
    /* Sends a heartbeat to a running engine, twice a second; returns whether the previous one was answered. */
    bool (*answers)(void *context);
    /* A running engine is ended because it does not respond. why: static. */
    void (*lost)(void *context, const char *why);
    /* The engine is not restarted: it never started, or failed too often. */
    void (*given_up)(void *context, const char *why);
    void *context;
};

/* argv: of the child, NULL-terminated; borrowed until supervisor_end(). Starts the child at once. */
int supervisor_begin(struct event_base *base, char *const *argv, uint32_t tries, const struct supervisor_calls *calls,
                     struct supervisor **out, struct quire_error *err);
/* The connection to the engine is lost: ends the process if it does not exit soon. */
void supervisor_lost(struct supervisor *k);
/* How its process ended, possibly in a moment: "the engine's process 1234 was ended by signal 9 (Killed)". NULL: it is
 * alive. Valid until the next start. */
const char *supervisor_how_ended(struct supervisor *k);
/* No restarts from now on. NULL is allowed. */
void supervisor_drain(struct supervisor *k);
/* Ends the engine. One that serves gets time to finish its files. Returns false if it had already failed. NULL is
 * allowed. */
bool supervisor_end(struct supervisor *k);

/* ---- in the child ---- */

bool supervisor_is_child(void);
/* Returns two descriptors, owned by the caller. Call it once. */
int supervisor_join(int *front_fd, int *life_fd, struct quire_error *err);

#endif
