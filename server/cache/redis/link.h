/* The connection to a Redis. It reconnects by itself after growing pauses (0.1 s to 5 s). hiredis formats commands
 * from arguments with lengths, so an argument is never read as another command. Replies arrive in the order of the
 * commands.
 *
 * The link disconnects if Redis sends nothing for 1 s while a reply is due, takes more than 10 s for one, or sends
 * an invalid reply. Loop's thread.
 */
#ifndef QUIRE_CACHE_REDIS_LINK_H
#define QUIRE_CACHE_REDIS_LINK_H

#include "server/cache/redis/reply.h"
#include "server/cache/redis/url.h"

#include <event2/event.h>
#include <stdbool.h>

struct redis_link;

struct redis_link_events {
    /* It can be asked; or cannot, after each try (what it was asked is answered first). */
    void (*on_change)(void *context, bool is_ready);
    void *context;
};
int redis_link_open(struct event_base *base, const struct redis_url *url, struct redis_link_events events,
                    struct redis_link **out, struct quire_error *err);
void redis_link_close(struct redis_link *l); /* pending commands fail first, through their callbacks */

bool redis_link_is_ready(const struct redis_link *l);
const char *redis_link_trouble(const struct redis_link *l); /* the last, in words; empty: none */
/* logs an error that a reply contained */
void redis_link_note(struct redis_link *l, const char *what, const char *why);

enum redis_urgency { REDIS_URGENT /* goes before what is not */, REDIS_LATER };
/* reply: NULL if no reply will come. Borrowed until the callback returns. Never called from within redis_link_ask(). */
typedef void (*redis_answered)(void *context, const struct redis_reply *reply);
/* Arguments are copied. False: it is not ready, or there is no memory, and answered is not called. */
bool redis_link_ask(struct redis_link *l, enum redis_urgency urgency, int n, const char *const *arguments,
                    const size_t *n_bytes, redis_answered answered, void *context);
/* Runs without the loop until every reply has arrived, the connection breaks, or quire_now_ns() reaches until_ns.
 * Data that can be sent at once is always sent. */
void redis_link_drain(struct redis_link *l, uint64_t until_ns);

#endif
