/* Transports frames over a socket, or through memory if both ends run on one event loop.
 *
 * In one process, a token's frame goes from the daemon to the front end within one turn of the loop, and a prompt
 * goes back, without a system call. A socketpair takes three system calls for each. Both kinds behave like a
 * non-blocking socket, so an end does not depend on the kind.
 *
 * Loop's thread. The loop calls the callbacks, never from within a call below; they may close the stream. */
#ifndef QUIRE_SERVER_WIRE_STREAM_H
#define QUIRE_SERVER_WIRE_STREAM_H

#include "base/buffer.h"
#include "base/status.h"

#include <event2/event.h>
#include <sys/types.h>
#include <sys/uio.h>

struct wire_stream;

/* fd: a connected stream socket, consumed also on failure. Returns NULL if fd is invalid or memory runs out. */
struct wire_stream *wire_stream_of_socket(struct event_base *base, int fd);
/* Creates two ends; the caller closes each. QUIRE_NO_MEMORY. */
int wire_stream_pair(struct event_base *base, struct wire_stream *ends[2], struct quire_error *err);
void wire_stream_close(struct wire_stream *s); /* NULL is allowed */

/* Calls readable() when bytes or the end arrive, and again while some are unread. wire_stream_await_space() requests
 * writable(). QUIRE_NO_MEMORY. */
int wire_stream_listen(struct wire_stream *s, void (*readable)(void *context), void (*writable)(void *context),
                       void *context);
/* Calls writable() once there is space: now, or after the other end has read. */
void wire_stream_await_space(struct wire_stream *s);

/* Returns the number of bytes accepted, or -1 and errno: EAGAIN if there is no space, EPIPE if the other end is
 * closed. */
ssize_t wire_stream_send(struct wire_stream *s, const void *bytes, size_t n);
ssize_t wire_stream_send_parts(struct wire_stream *s, struct iovec *parts, int n_parts);
/* Returns the number of bytes received, 0 at the end, or -1 and errno: EAGAIN if no bytes are available now. */
ssize_t wire_stream_receive(struct wire_stream *s, void *bytes, size_t n);
/* Receives all bytes of an in-memory stream without a copy, by exchanging its buffer with this empty one. Returns their
 * number; 0: there are none, there are more than `most`, or it is a socket, and wire_stream_receive() receives. */
size_t wire_stream_exchange(struct wire_stream *s, struct buffer *empty, size_t most);
/* Ends this direction: no more bytes will be sent. */
void wire_stream_end(struct wire_stream *s);

#endif
