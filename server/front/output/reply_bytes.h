/* How large replies may become. A reply that is not streamed is held whole until it is done, and so is what a stream
 * repeats of its prompts; logprobs make hundreds of bytes of a token that came as two.
 *
 * Before work begins a request is refused when its reply would be larger than one may be, and told to come back when
 * the replies of others leave no room for it. That is by what tokens and logprobs usually take; what replies really
 * take is counted as they grow, and ends the one that outgrows its bound. Those of up to a MiB are not counted: each
 * connection may hold as much. Building a reply takes up to twice its bytes. Loop's thread.
 */
#ifndef QUIRE_FRONT_REPLY_BYTES_H
#define QUIRE_FRONT_REPLY_BYTES_H

#include "server/front/api/api_error.h"
#include "server/front/front.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct generation;

/* Of all replies at once. Zero it to begin. */
struct replies {
    uint64_t n_bytes; /* counted */
    uint64_t of_tenants[TENANTS_MAX];
};

/* What one of them takes. Zero it to begin; it is its owner's. */
struct reply_room {
    struct replies *replies;
    uint32_t tenant;
    uint64_t reserved, held, counted;
};

/* At the least: what it shows of its prompts, with their logprobs. And at the most, as far as the request says how much
 * is to be generated. *field: what makes most of it; static. */
void reply_bytes_estimate(const struct generation *g, uint64_t *least, uint64_t *most, const char **field);

/* Room for a reply. shared: tenants are told apart, and none may have it all. False: a 400 or 429 in e. */
bool reply_room_take(struct reply_room *room, const struct generation *g, bool shared, struct api_error *e);
/* It has grown by so many bytes, or shrunk. QUIRE_INVALID: it is larger than one may be; QUIRE_EXHAUSTED: than there
 * is room for now. */
int reply_room_grow(struct reply_room *room, int64_t n_bytes, struct quire_error *err);
/* After its memory was freed. */
void reply_room_leave(struct reply_room *room);

#endif
