/* Pings of a stream that is silent, so that no proxy or client takes it for dead. Loop's thread. */
#ifndef QUIRE_FRONT_STREAM_PING_H
#define QUIRE_FRONT_STREAM_PING_H

#include <stdint.h>

struct event_base;
struct stream_ping;

/* From now on, ping() is called whenever the stream was silent for after_ms: it begins the stream if it has not begun,
 * and writes an event without content. NULL: out of memory. */
struct stream_ping *stream_ping_new(struct event_base *base, uint64_t after_ms, void (*ping)(void *context),
                                    void *context);
void stream_ping_free(struct stream_ping *p); /* NULL is allowed */
/* Something was written at that time. NULL is allowed. */
void stream_ping_wrote(struct stream_ping *p, uint64_t at_us);

#endif
