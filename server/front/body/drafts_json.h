/* The body's fields for speculation: `speculative` (whether and how) and `prediction` (the expected answer). Neither
 * changes a bit of an answer. On the text pool. */
#ifndef QUIRE_FRONT_DRAFTS_JSON_H
#define QUIRE_FRONT_DRAFTS_JSON_H

#include "request/spec.h"
#include "server/front/api/api_error.h"
#include "text/quire_json.h"

#include <stdbool.h>
#include <stddef.h>

/* true, false, or {"method": …, "num_speculative_tokens": …}. Both functions return false with an error in e. */
bool speculative_json_read(struct request_spec *spec, const struct quire_doc *body, struct api_error *e);

/* OpenAI's {"type": "content", "content": a string, or an array of text parts}. *text is malloc'd. Without a
 * prediction it stays unchanged, and *given is false. */
bool prediction_json_read(const struct quire_doc *body, char **text, size_t *n_text, bool *given, struct api_error *e);

#endif
