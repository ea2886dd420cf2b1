/* The `system` of /v1/messages as the first message of a chat. Any thread. */
#ifndef QUIRE_FRONT_SYSTEM_PROMPT_H
#define QUIRE_FRONT_SYSTEM_PROMPT_H

#include "base/buffer.h"
#include "server/front/api/api_error.h"
#include "text/quire_json.h"

#include <stdbool.h>

/* Appends the message for a string or an array of text blocks; nothing for one without text. drops_billing: a billing
 * line at its beginning is left out (billing_line_bytes()). False: e says what is wrong. */
bool system_prompt_add(struct buffer *o, struct quire_value system, bool drops_billing, struct api_error *e);

/* The length of "x-anthropic-billing-header: key=value; key=value;", with the line's end, at the beginning of a JSON
 * string's inside; 0: it does not begin so. Clients put it before their prompt, and a value in it changes with each
 * request. */
size_t billing_line_bytes(const char *text, size_t n);

#endif
