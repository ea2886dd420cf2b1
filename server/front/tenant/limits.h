/* A tenant's limits as a request meets them: when it comes, when its prompt's length is known, with
 * every token, and in the headers of its reply. http-api.md. Loop's thread.
 */
#ifndef QUIRE_FRONT_LIMITS_H
#define QUIRE_FRONT_LIMITS_H

#include "server/front/api/api_error.h"
#include "server/front/tenant/tenants.h"

#include <stdbool.h>
#include <stdint.h>

struct http_exchange;

/* A request begins. False: a 429 in e, with when to come back; else limits_end() ends it. */
bool limits_begin(struct tenant *t, uint64_t now_us, struct api_error *e);
/* Its prompts have n_tokens. False: as above, and it has still to be ended. */
bool limits_prompt(struct tenant *t, uint64_t n_tokens, uint64_t now_us, struct api_error *e);
/* n choices begin to wait for their first tokens. False: a 429, or a 400 where there are more than may ever wait; else
 * limits_dequeue() counts them back. */
bool limits_queue(struct tenant *t, uint32_t n, struct api_error *e);
void limits_dequeue(struct tenant *t, uint32_t n);
/* A token was generated for it. */
void limits_token(struct tenant *t, uint64_t now_us);
void limits_end(struct tenant *t);

/* x-ratelimit-..., for the limits that there are. */
void limits_headers(const struct tenant *t, uint64_t now_us, struct http_exchange *x);

/* "1m30.5s", "20ms": a time as OpenAI writes it, rounded up to a millisecond. */
#define LIMITS_TIME_BYTES 40
void limits_time(uint64_t us, char out[LIMITS_TIME_BYTES]);

#endif
