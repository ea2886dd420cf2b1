/* The memory budget of replies. A reply that is not streamed is held until it is complete, and so are the prompts that
 * a stream repeats. With logprobs, a token that came as two bytes takes hundreds.
 *
 * Before work begins, a request is rejected if its reply would exceed the limit of one reply. It gets a 429 if other
 * replies have used up the budget. This check uses the typical sizes of tokens and logprobs. The real sizes are
 * counted as replies grow, and a reply that exceeds its limit is ended. Replies up to one MiB are not counted: each
 * connection may hold as much. Building a reply takes up to twice its bytes. Loop's thread.
 */
#ifndef QUIRE_FRONT_REPLY_BYTES_H
#define QUIRE_FRONT_REPLY_BYTES_H

#include "server/front/api/api_error.h"
#include "server/front/front.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct reply;

/* All replies together. All zero at first. */
struct replies {
    uint64_t n_bytes; /* counted bytes */
    uint64_t of_tenants[TENANTS_MAX];
};

/* The bytes of one reply. All zero at first; belongs to its owner. */
struct reply_budget {
    struct replies *replies;
    uint32_t tenant;
    uint64_t reserved, held, counted;
};

/* *least: the bytes of its prompts and their logprobs. *most: also those of generated tokens, if the request limits
 * their number. *field: the field with the largest part; static. */
void reply_bytes_estimate(const struct reply *r, uint64_t *least, uint64_t *most, const char **field);

/* Reserves space for a reply. shared: there are several tenants, and no tenant may use all of it. Returns false with a
 * 400 or 429 in e. */
bool reply_budget_take(struct reply_budget *budget, const struct reply *r, bool shared, struct api_error *e);
/* The reply has grown by so many bytes, or shrunk. QUIRE_INVALID: it exceeds the limit of one reply; QUIRE_EXHAUSTED:
 * the budget is used up now. */
int reply_budget_grow(struct reply_budget *budget, int64_t n_bytes, struct quire_error *err);
/* Call it after the reply's memory was freed. */
void reply_budget_leave(struct reply_budget *budget);

#endif
