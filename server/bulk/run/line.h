/* One line of a batch's input: {"custom_id", "method", "url", "body"} of OpenAI's API, or {"custom_id", "params"} of
 * Anthropic's. Pure.
 */
#ifndef QUIRE_BULK_LINE_H
#define QUIRE_BULK_LINE_H

#include "base/status.h"

#include <stddef.h>

#define BULK_MAX_LINE_BYTES ((size_t)16 << 20)
#define BULK_MAX_CUSTOM_ID 512 /* bytes, with its quotes */
#define BULK_MAX_DEPTH 64 /* of JSON */

enum bulk_dialect {
    BULK_OPENAI,
    BULK_ANTHROPIC,
};

/* What a line requests: spans of the line's text. */
struct bulk_line {
    const char *custom_id; /* JSON text with its quotes; NULL: the line has no id */
    size_t n_custom_id;
    const char *url; /* the endpoint's path; static, or the url that bulk_line_read() got. NULL: unknown */
    const char *body; /* the JSON object of the request */
    size_t n_body;
};

/* url: the batch's endpoint, such as "/v1/chat/completions"; NULL: each line names one of bulk_endpoint(). Anthropic's
 * lines name none. QUIRE_INVALID: err says what is wrong with the line; the custom_id is set where it could be read, so
 * that the entry of the error file has it. QUIRE_NO_MEMORY. */
int bulk_line_read(const char *text, size_t n_bytes, enum bulk_dialect dialect, const char *url, struct bulk_line *out,
                   struct quire_error *err);

/* The endpoints of OpenAI's lines by index, then NULL. */
const char *bulk_endpoint(size_t i);
#define BULK_MESSAGES_URL "/v1/messages"

#endif
