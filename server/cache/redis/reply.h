/* Parses Redis replies (RESP) from bytes as they arrive. All input is untrusted. An invalid reply, or one larger
 * than any reply to our commands, is an error, and nothing more can be read. At most REDIS_REPLY_BYTES + 64 KiB are
 * buffered.
 *
 * hiredis' reader does the parsing. The objects are our own, because its own objects would trust an array's length.
 * One thread at a time.
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
    char *text; /* text, status or error; the final NUL is not counted in n */
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
