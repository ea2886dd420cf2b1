/* quire serve --restart: the engine is a process of its own, the child of the one that listens, and is started again when it
 * ends or stops answering. Requests see an engine that is away for a while, as with --engine.
 *
 * The child is this program as `quire engine`, which finds in QUIRE_FRONT two descriptors: a socket to serve, and one that
 * ends with its parent. When the parent dies, however it does, the kernel ends the child. Main thread, on the loop.
 */
#ifndef QUIRE_LINK_SUPERVISOR_H
#define QUIRE_LINK_SUPERVISOR_H

#include "base/status.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

/* Starts in a row, none of which served for a minute, before it is given up. */
#define SUPERVISOR_TRIES 5
#define SUPERVISOR_MAX_ARGUMENTS 512

struct supervisor;

struct supervisor_calls { /* all set; on the loop */
    /* It has loaded, and says HELLO at the other end of fd, which is the callee's. */
    void (*up)(void *context, int fd);
    /* It is expected back in about retry_ms. Once for each that is gone or did not come. */
    void (*down)(void *context, uint32_t retry_ms, const char *why);
    /* Asks it for a sign of life; whether the one before has come. Of an engine that is up, twice a second. */
    bool (*answers)(void *context);
    /* One that is up is ended, since it does not answer. why: static. */
    void (*lost)(void *context, const char *why);
    /* It is not started again: it never came, or too often in vain. */
    void (*given_up)(void *context, const char *why);
    void *context;
};

/* argv: of the child, NULL-terminated; borrowed until supervisor_end(). The child is started at once. */
int supervisor_begin(struct event_base *base, char *const *argv, uint32_t tries, const struct supervisor_calls *calls,
                     struct supervisor **out, struct quire_error *err);
/* The connection to it is lost: where it does not end by itself soon, it is ended. */
void supervisor_lost(struct supervisor *k);
/* How its process ended, which may be about to: "the engine has ended: its process 1234, by signal 9 (Killed)". NULL: it lives. Valid until the
 * next start. */
const char *supervisor_how_ended(struct supervisor *k);
/* From here on what ends is not started again. NULL is fine. */
void supervisor_drain(struct supervisor *k);
/* Ends it: one that serves has a moment to finish what it writes. False: it had failed by then. NULL is fine. */
bool supervisor_end(struct supervisor *k);

/* ---- in the child ---- */

bool supervisor_is_child(void);
/* Two descriptors, the caller's; once. */
int supervisor_join(int *front_fd, int *life_fd, struct quire_error *err);

#endif
