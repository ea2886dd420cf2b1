/* Bodies of the routes of keys and budgets. Loop's thread. */
#ifndef QUIRE_GATEWAY_ACCOUNT_BODY_H
#define QUIRE_GATEWAY_ACCOUNT_BODY_H

#include "base/encoding/json.h"
#include "server/front/api/api_error.h"

struct http_exchange;

/* The body as an object with fields of known[n] only; an empty body is an empty object. The caller owns *out. */
bool account_body(struct http_exchange *x, const char *const *known, size_t n, json_t **out, struct api_error *e);
/* A name of an organisation or tenant: 1 to 64 of A-Z a-z 0-9 - _ . : */
bool account_body_name(const json_t *body, const char *field, const char **out, struct api_error *e);
/* Dollars a day as a number or a decimal text, at most a million: picodollars. null or absent: *has is false. A number
 * counts to a billionth of a dollar. */
bool account_body_dollars(const json_t *body, const char *field, bool *has, uint64_t *out, struct api_error *e);

/* Whether a text is such a name. */
bool account_is_name(const char *text);

#endif
