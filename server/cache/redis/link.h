/* The connection to a Redis: it comes and goes by itself, in growing pauses (0.1 s to 5 s) while there is none. Commands
 * are put into words by hiredis from arguments with lengths, so nothing in them is ever read as another command, and are
 * answered in the order in which they were sent.
 *
 * A Redis that says nothing for 1 s where an answer is due, takes more than 10 s for one, or says what is no reply, is hung
 * up on. All on the loop's thread.
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
void redis_link_close(struct redis_link *l); /* what it was asked is lost, and told so first */

bool redis_link_is_ready(const struct redis_link *l);
const char *redis_link_trouble(const struct redis_link *l); /* the last, in words; empty: none */
void redis_link_note(struct redis_link *l, const char *what, const char *why); /* trouble that a reply told */

enum redis_urgency { REDIS_URGENT /* goes before what is not */, REDIS_LATER };
/* reply: NULL: there will be none. Borrowed until it returns. Never from within redis_link_ask(). */
typedef void (*redis_answered)(void *context, const struct redis_reply *reply);
/* Arguments are copied. False: it is not ready, or there is no memory, and answered is not called. */
bool redis_link_ask(struct redis_link *l, enum redis_urgency urgency, int n, const char *const *arguments,
                    const size_t *n_bytes, redis_answered answered, void *context);
/* Without the loop: until all is answered, the connection breaks, or that moment of quire_now_ns(). What can be sent at once
 * is sent in any case. */
void redis_link_drain(struct redis_link *l, uint64_t until_ns);

#endif
