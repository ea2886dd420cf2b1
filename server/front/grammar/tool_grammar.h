/* A tool_choice that forces calls, as a restriction of the answer: it consists of calls of the request's tools, written
 * as the model writes them (tool_parser.h). Pure; any thread. */
#ifndef QUIRE_FRONT_TOOL_GRAMMAR_H
#define QUIRE_FRONT_TOOL_GRAMMAR_H

#include "server/front/grammar/grammar_request.h"
#include "server/front/tools/tool_parser.h"

#include <stdbool.h>

/* tools: an array of checked tools, or empty. choice: the value of tool_choice; only "required" and a named function
 * force calls. is_single: at most one call. Leaves *out unchanged if calls are not forced. Returns false with an error
 * in e that names the field. */
bool tool_grammar_read(struct quire_value tools, struct quire_value choice, bool is_single, enum tool_format format,
                       struct grammar_request **out, struct api_error *e);

#endif
