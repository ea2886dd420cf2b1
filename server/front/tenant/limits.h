/* Applies a tenant's limits to a request: at its arrival, when its prompt's length is known, with every token, and in
 * the headers of its reply. http-api.md. Loop's thread.
 */
#ifndef QUIRE_FRONT_LIMITS_H
#define QUIRE_FRONT_LIMITS_H

#include "server/front/api/api_error.h"
#include "server/front/tenant/tenants.h"

#include <stdbool.h>
#include <stdint.h>

struct http_exchange;

/* Begins a request. Returns false with a 429 in e, which has the time to retry. Otherwise limits_end() must end it. */
bool limits_begin(struct tenant *t, uint64_t now_us, struct api_error *e);
/* Its prompts have n_tokens. Returns false as above; limits_end() must still be called. */
bool limits_prompt(struct tenant *t, uint64_t n_tokens, uint64_t now_us, struct api_error *e);
/* n choices begin to wait for their first tokens. Returns false with a 429, or a 400 if there are more than may ever
 * wait. Otherwise limits_dequeue() must count them back. */
bool limits_queue(struct tenant *t, uint32_t n, struct api_error *e);
void limits_dequeue(struct tenant *t, uint32_t n);
/* Counts a generated token. */
void limits_token(struct tenant *t, uint64_t now_us);
void limits_end(struct tenant *t);

/* Adds x-ratelimit-... headers for the configured limits. */
void limits_headers(const struct tenant *t, uint64_t now_us, struct http_exchange *x);

/* Formats a time as OpenAI does, rounded up to a millisecond: "1m30.5s", "20ms". */
#define LIMITS_TIME_BYTES 40
void limits_time(uint64_t us, char out[LIMITS_TIME_BYTES]);

#endif
