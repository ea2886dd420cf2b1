/* One line of a batch's input: {"custom_id", "method", "url", "body"} of OpenAI's API, or {"custom_id", "params"} of
 * Anthropic's. Pure.
 */
#ifndef QUIRE_BULK_LINE_H
#define QUIRE_BULK_LINE_H

#include "base/status.h"

#include <stddef.h>

#define BULK_MAX_LINE_BYTES ((size_t)16 << 20)
#define BULK_MAX_CUSTOM_ID 512 /* bytes */

enum bulk_dialect {
    BULK_OPENAI,
    BULK_ANTHROPIC,
};

/* What a line asks for: spans of the line's text. */
struct bulk_line {
    const char *custom_id; /* as JSON text, with its quotes; NULL: it has none */
    size_t n_custom_id;
    const char *body; /* the JSON object of the request */
    size_t n_body;
};

/* url: the batch's endpoint, such as "/v1/chat/completions". QUIRE_INVALID: err says what is wrong with the line; the
 * custom_id is set where it could be read, so that the entry of the error file has it. */
int bulk_line_read(const char *text, size_t n_bytes, enum bulk_dialect dialect, const char *url, struct bulk_line *out,
                   struct quire_error *err);

#endif
