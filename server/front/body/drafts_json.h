/* What a body says of speculation: `speculative`, whether and how, and `prediction`, what the answer is expected to be.
 * Neither moves a bit of an answer. On the text pool. */
#ifndef QUIRE_FRONT_DRAFTS_JSON_H
#define QUIRE_FRONT_DRAFTS_JSON_H

#include "request/spec.h"
#include "server/front/api/api_error.h"
#include "text/quire_json.h"

#include <stdbool.h>
#include <stddef.h>

/* true, false, or {"method": …, "num_speculative_tokens": …}. False: e says what is wrong, here and below. */
bool speculative_json_read(struct request_spec *spec, const struct quire_doc *body, struct api_error *e);

/* OpenAI's {"type": "content", "content": a string, or an array of text parts}. *text is malloc'd; left as it was
 * without a prediction, which *given says. */
bool prediction_json_read(const struct quire_doc *body, char **text, size_t *n_text, bool *given, struct api_error *e);

#endif
