/* What a Redis says, from bytes as they come (RESP). All of it is hostile: what is no reply, or larger than anything that is
 * asked for here, is an error, and nothing more can be read. At most REDIS_REPLY_BYTES + 64 KiB wait in here.
 *
 * hiredis' reader does the reading; the objects are our own, since its own would take an array's length on trust. One thread
 * at a time.
 */
#ifndef QUIRE_CACHE_REDIS_REPLY_H
#define QUIRE_CACHE_REDIS_REPLY_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

#define REDIS_REPLY_MAX_BYTES \
    (((size_t)512 << 10) + 256) /* all texts of one: the largest answer that is kept, and its head */
#define REDIS_REPLY_MAX_ITEMS 4096u /* of all its arrays */

enum redis_type { REDIS_NIL, REDIS_TEXT, REDIS_STATUS, REDIS_ERROR, REDIS_INTEGER, REDIS_ARRAY, REDIS_OTHER };
struct redis_reply {
    enum redis_type type;
    int64_t integer;
    char *text; /* of a text, a status, an error; with a NUL that n does not count */
    size_t n;
    struct redis_reply *items;
    size_t n_items;
};
void redis_reply_free(struct redis_reply *reply);

struct redis_replies;
struct redis_replies *redis_replies_new(void); /* NULL: out of memory */
void redis_replies_free(struct redis_replies *r);
int redis_replies_feed(struct redis_replies *r, const void *bytes, size_t n, struct quire_error *err);
/* *out: the next whole one, the caller's (redis_reply_free()); NULL: it has not come yet. To be called until that. */
int redis_replies_next(struct redis_replies *r, struct redis_reply **out, struct quire_error *err);

#endif
