/* Pings of a stream that is silent, so that no proxy or client takes it for dead. Loop's thread. */
#ifndef QUIRE_FRONT_STREAM_PING_H
#define QUIRE_FRONT_STREAM_PING_H

#include "server/http/http.h"

#include <stdint.h>

struct event_base;
struct stream_ping;

/* From now on, a stream that is silent for after_ms gets a comment. open() is called before each one, to begin the
 * stream if it has not begun. NULL: out of memory. */
struct stream_ping *stream_ping_new(struct event_base *base, struct http_exchange *x, uint64_t after_ms,
                                    void (*open)(void *context), void *context);
void stream_ping_free(struct stream_ping *p); /* NULL is allowed */
/* Something was written at that time. NULL is allowed. */
void stream_ping_wrote(struct stream_ping *p, uint64_t at_us);

#endif
