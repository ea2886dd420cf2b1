/* What carries frames: a socket, or memory where both ends are on one loop.
 *
 * In one process a token's frame goes from daemon to front end within one turn of the loop, and a prompt's back: no
 * system call, where a socketpair takes three for each. Both behave as a non-blocking socket does, so neither end
 * knows which it has.
 *
 * Loop's thread. Functions that are told of are called by the loop, never from within a call below; they may close the
 * stream.
 */
#ifndef QUIRE_SERVER_WIRE_STREAM_H
#define QUIRE_SERVER_WIRE_STREAM_H

#include "base/status.h"

#include <event2/event.h>
#include <sys/types.h>
#include <sys/uio.h>

struct wire_stream;

/* fd: a connected stream socket, consumed also on failure. NULL: it is none, or there is no memory. */
struct wire_stream *wire_stream_of_socket(struct event_base *base, int fd);
/* Two ends; each is to be closed. QUIRE_NO_MEMORY. */
int wire_stream_pair(struct event_base *base, struct wire_stream *ends[2], struct quire_error *err);
void wire_stream_close(struct wire_stream *s); /* NULL is fine */

/* readable: bytes came, or the end, and again for as long as some are left. writable: as wire_stream_await_room() has it.
 * QUIRE_NO_MEMORY. */
int wire_stream_listen(struct wire_stream *s, void (*readable)(void *context), void (*writable)(void *context),
                       void *context);
/* writable() once, when there is room: now, or after the other end has read. */
void wire_stream_await_room(struct wire_stream *s);

/* How many bytes were taken, or -1 and errno: EAGAIN without room, EPIPE when the other end is closed. */
ssize_t wire_stream_send(struct wire_stream *s, const void *bytes, size_t n);
ssize_t wire_stream_send_parts(struct wire_stream *s, struct iovec *parts, int n_parts);
/* How many bytes came, 0 at the end, or -1 and errno: EAGAIN when there are none now. */
ssize_t wire_stream_receive(struct wire_stream *s, void *bytes, size_t n);
/* Nothing more will be sent. */
void wire_stream_end(struct wire_stream *s);

#endif
