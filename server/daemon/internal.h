/* The daemon's state, and what its files do for each other. The loop's thread owns every member that is not marked
 * "locked". Errors are statuses (base/status.h). */
#ifndef QUIRE_SERVER_DAEMON_INTERNAL_H
#define QUIRE_SERVER_DAEMON_INTERNAL_H

#include "server/daemon/connection.h"
#include "server/daemon/daemon.h"
#include "server/daemon/requests.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct listeners; /* private to listen.c */

struct daemon {
    struct event_base *base;
    struct connection_events events;
    struct daemon_options options;
    char *model;
    struct engine *engine;
    struct shadow *shadow;
    struct connection *connections;
    uint32_t n_connections;
    struct listeners *listeners; /* NULL until the first */
    bool draining;           /* new requests are rejected */
    bool drain_linger_begun; /* no request is live: clients receive the rest */
    bool finishing;          /* everything is delivered: connections are closed, no new ones are accepted */
    bool idle_told;
    struct event *idle, *drain_linger;

    int wake_fd; /* eventfd */
    struct event *wake;
    pthread_mutex_t mutex;
    /* locked */
    struct request_table requests;
    struct connection *first_dirty;
    bool wake_sent;
    struct control_answers *answers; /* private to control.c */
};

/* session.c: handles frames. As in struct connection_events. */
void session_greet(struct connection *c);
void session_frame(struct connection *c, const struct wire_header *header, const uint8_t *body);

/* control.c: opens and closes the waiting replies. QUIRE_NO_MEMORY. */
int control_open(struct daemon *d);
void control_close(struct daemon *d);
/* Passes a command to the engine; *order becomes its number there, or stays if there is nothing to wait
 * for. QUIRE_UNSUPPORTED: unknown command. */
int control_run(struct daemon *d, const char *command, size_t n_command, uint64_t *order, struct quire_error *err);
/* Queues a reply until the engine has carried out this order and those of earlier replies. Takes over the frame's
 * bytes. Returns an error if the connection has too many waiting replies. */
int control_answer(struct connection *c, uint64_t order, struct buffer *frame, struct quire_error *err);
/* Locked. Sends the replies whose order is at most this one. */
void control_carried_out(struct daemon *d, uint64_t order);
/* Locked. Drops the waiting replies of a connection. */
void control_forget(struct connection *c);

/* listen.c */
void listeners_close(struct daemon *d);

#endif
