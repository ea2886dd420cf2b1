/* A client's connection to the daemon, and its outgoing queue. The loop's thread owns every member that is not marked
 * "locked"; connection.c handles bytes and times, queue.c the frames that the engine's thread adds. */
#ifndef QUIRE_SERVER_DAEMON_CONNECTION_H
#define QUIRE_SERVER_DAEMON_CONNECTION_H

#include "base/buffer.h"
#include "base/hash.h"
#include "base/status.h"
#include "server/daemon/requests.h"
#include "server/wire/frame.h"
#include "server/wire/frame_reader.h"
#include "server/wire/key.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct daemon;

#define DAEMON_LINGER_MS 1000       /* the time for a closed connection to read its ERROR */
#define DAEMON_DRAIN_LINGER_MS 5000 /* the time for clients of a drained daemon to receive the rest */

enum connection_state {
    CONNECTION_GREETED, /* our greeting was sent; HELLO has not arrived */
    CONNECTION_READY,
    CONNECTION_CLOSING, /* sends the released bytes, then end of file; discards input */
};

struct connection {
    struct daemon *d;
    struct connection *next, *previous;
    struct wire_stream *stream;
    enum connection_state state;
    const struct key256 *key; /* the listener's key; NULL: no key needed */
    uint8_t nonce[WIRE_NONCE_BYTES];
    struct event *deadline;
    struct frame_reader in;
    struct buffer out; /* [sent, released) may be written; [released, n) waits for credit */
    size_t sent, released;
    uint64_t credit;
    bool client_drained; /* sends no more SUBMIT: closed after its last request is delivered */
    bool end_sent;       /* CLOSING: shutdown() was called */

    /* locked */
    struct buffer pending; /* frames that the loop has not taken yet */
    struct request_list requests;
    struct connection *next_dirty;
    bool dirty;      /* in the daemon's list */
    bool overflowed; /* the queue accepts no more frames; the loop closes the connection */
    uint32_t n_answers; /* number of entries in the daemon's `answers` */

    atomic_size_t backlog; /* unsent bytes of `out`: the loop writes, the sink reads */
};

/* Events of a connection. connection.c handles only bytes and times, and reports the rest here. */
struct connection_events {
    void (*opened)(struct connection *c); /* the connection needs a greeting */
    /* The state may be CLOSING after the call; the connection itself still exists. */
    void (*frame)(struct connection *c, const struct wire_header *header, const uint8_t *body);
    void (*changed)(struct daemon *d); /* a connection closed or delivered its bytes: the daemon may be idle */
};

/* connection.c */
/* Consumes the stream; NULL: memory for it ran out. */
int connection_open(struct daemon *d, struct wire_stream *stream, const struct key256 *key, struct quire_error *err);
/* Cancels the connection's requests and frees it. */
void connection_close(struct connection *c);
/* Cancels the connection's requests, sends ERROR (unless message is NULL) and closes the connection after
 * DAEMON_LINGER_MS; c remains valid until then. */
void connection_fail(struct connection *c, enum quire_status status, const char *message);
/* Writes the released bytes. May close the connection: do not use c after this call. */
void connection_flush(struct connection *c);
/* For a frame that needs no credit (before READY, and ERROR): drops the bytes that wait for credit and returns the
 * buffer to encode into. end makes the frame ready to send. */
struct buffer *connection_out_begin(struct connection *c);
void connection_out_end(struct connection *c);

/* queue.c: the outgoing queue, from either thread. begin locks and returns the queue, or returns NULL, without a
 * lock, if the connection accepts no more frames. end unlocks. */
struct buffer *queue_begin(struct connection *c);
void queue_end(struct connection *c);
/* Locked. Marks the connection for the loop; closes its queue if it exceeds the limit. */
void queue_changed(struct connection *c);
/* Loop's thread. Returns the next connection in the dirty list, or NULL. */
struct connection *queue_next_dirty(struct daemon *d);

#endif
