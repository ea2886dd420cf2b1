/* What the daemon's files share. The loop's thread owns everything that is not marked "locked". */
#ifndef QUIRE_DAEMON_INTERNAL_H
#define QUIRE_DAEMON_INTERNAL_H

#include "server/daemon/daemon.h"
#include "server/daemon/requests.h"
#include "server/wire/address.h"
#include "server/wire/frame_reader.h"
#include "server/wire/key.h"
#include "server/wire/wire.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>
#include <sys/stat.h>

#define DAEMON_LINGER_MS 1000       /* what a closed connection gets to read its ERROR */
#define DAEMON_DRAIN_LINGER_MS 5000 /* what clients of a finished daemon get to read the rest */

enum connection_state {
    CONNECTION_GREETED, /* our greeting is sent, HELLO is awaited */
    CONNECTION_READY,
    CONNECTION_CLOSING, /* only what is already released, then end of file; input is thrown away */
};

struct connection {
    struct daemon *d;
    struct connection *next, *previous;
    struct wire_stream *stream;
    enum connection_state state;
    const struct key256 *key; /* the listener's, NULL: none is asked for */
    uint8_t nonce[WIRE_NONCE_BYTES];
    struct event *deadline;
    struct frame_reader in;
    struct buffer out; /* [sent, released) may be written; [released, n) waits for credit */
    size_t sent, released;
    uint64_t credit;
    bool client_drained; /* it sends no more SUBMIT: closed once its last request is delivered */
    bool end_sent;       /* CLOSING: shutdown() is done */

    /* locked */
    struct buffer pending; /* frames that the loop has not taken yet */
    struct request_list requests;
    struct connection *next_dirty;
    bool dirty;      /* in the daemon's list */
    bool overflowed; /* nothing is queued any more; the loop closes it */
    uint32_t n_answers; /* of the daemon's, that are its */

    atomic_size_t backlog; /* bytes of out that are not sent: the loop writes, the sink reads */
};

struct listener {
    struct daemon *d;
    int fd;
    struct event *acceptable, *resume;
    bool has_key;
    struct key256 key;
    char text[160];
    bool is_unix;
    char path[108];
    dev_t device; /* of the socket file, so that only our own is removed */
    ino_t inode;
};

/* What connection.c, which knows bytes and times only, tells of a connection. */
struct connection_events {
    void (*opened)(struct connection *c); /* it is to be greeted */
    /* The state may be CLOSING afterwards; the connection itself stays. */
    void (*frame)(struct connection *c, const struct wire_header *header, const uint8_t *body);
    void (*changed)(struct daemon *d); /* something left, or somebody did: the daemon may be idle now */
};

/* To a CONTROL, until the engine has carried out what was asked before or by it. */
struct control_answer {
    TAILQ_ENTRY(control_answer) link;
    struct connection *c;
    uint64_t order;
    struct buffer frame;
};

struct daemon {
    struct event_base *base;
    struct connection_events events;
    struct daemon_options options;
    char *model;
    struct engine *engine;
    struct shadow *shadow;
    struct connection *connections;
    uint32_t n_connections;
    struct listener listeners[DAEMON_MAX_LISTENERS];
    size_t n_listeners;
    bool draining;           /* new requests are refused */
    bool drain_linger_begun; /* no request is live: clients take the rest */
    bool finishing;          /* all is delivered: connections are being closed, none is opened */
    bool idle_told;
    struct event *idle, *drain_linger;

    int wake_fd; /* eventfd */
    struct event *wake;
    pthread_mutex_t mutex;
    /* locked */
    struct request_table requests;
    struct connection *first_dirty;
    bool wake_sent;
    TAILQ_HEAD(, control_answer) answers; /* their orders never fall */
    uint64_t orders_given, orders_done;
};

/* connection.c */
/* The stream is consumed; NULL: there was no memory for one. */
int connection_open(struct daemon *d, struct wire_stream *stream, const struct key256 *key, struct quire_error *err);
/* Cancels its requests and frees it. */
void connection_close(struct connection *c);
/* Cancels its requests, sends ERROR (message NULL: nothing) and closes it a little later; c stays
 * until then. */
void connection_fail(struct connection *c, enum quire_status status, const char *message);
/* Writes what may be written. May close the connection: nothing may touch c after it. */
void connection_flush(struct connection *c);
/* For a frame that needs no credit (before READY, and ERROR): drops what waits for credit and
 * returns the buffer to encode into; end makes it ready to be written. */
struct buffer *connection_out_begin(struct connection *c);
void connection_out_end(struct connection *c);

/* queue.c: the outgoing queue, from either thread. begin locks and returns the queue, or NULL when
 * the connection takes nothing any more (and is not locked then); end unlocks. */
struct buffer *queue_begin(struct connection *c);
void queue_end(struct connection *c);
/* Locked. Marks it for the loop; closes its queue when that is over the limit. */
void queue_changed(struct connection *c);
/* The loop's: the next connection that has something, or NULL. */
struct connection *queue_next_dirty(struct daemon *d);

/* session.c: what a frame means. As in struct connection_events. */
void session_greet(struct connection *c);
void session_frame(struct connection *c, const struct wire_header *header, const uint8_t *body);

/* control.c: gives a command to the engine; *order is its number there, which stays where nothing is to be waited for.
 * QUIRE_UNSUPPORTED: there is none of that name. */
int control_run(struct daemon *d, const char *command, size_t n_command, uint64_t *order, struct quire_error *err);
/* Queues an answer, whose bytes it takes over, for when this order and those of earlier answers are carried out. An error: the
 * connection has too many that wait. */
int control_answer(struct connection *c, uint64_t order, struct buffer *frame, struct quire_error *err);
/* Locked. The orders up to this one are carried out: answers become frames. */
void control_carried_out(struct daemon *d, uint64_t order);
/* Locked. Drops the answers of a connection. */
void control_forget(struct connection *c);

/* listen.c */
void listener_close(struct listener *l);

#endif
