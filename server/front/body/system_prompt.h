/* Turns the `system` of /v1/messages into the first message of a chat. Any thread. */
#ifndef QUIRE_FRONT_SYSTEM_PROMPT_H
#define QUIRE_FRONT_SYSTEM_PROMPT_H

#include "base/buffer.h"
#include "server/front/api/api_error.h"
#include "text/quire_json.h"

#include <stdbool.h>

/* Appends the message for a string or an array of text blocks; appends nothing without text. drops_billing: leaves out
 * a billing line at its beginning (billing_line_bytes()). Returns false with an error in e. */
bool system_prompt_add(struct buffer *o, struct quire_value system, bool drops_billing, struct api_error *e);

/* Returns the length of "x-anthropic-billing-header: key=value; key=value;" with the end of its line, at the beginning
 * of a JSON string's inside; 0: it does not begin so. Clients put it before their prompt, and a value in it changes
 * with each request. */
size_t billing_line_bytes(const char *text, size_t n);

#endif
