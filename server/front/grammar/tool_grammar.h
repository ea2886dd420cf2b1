/* Calls of a request's tools as a restriction of the answer, written as the model writes them (tool_parser.h). A
 * tool_choice may force calls. Otherwise the answer is free, but the arguments of strict functions are not. Pure; any
 * thread. */
#ifndef QUIRE_FRONT_TOOL_GRAMMAR_H
#define QUIRE_FRONT_TOOL_GRAMMAR_H

#include "server/front/grammar/grammar_request.h"
#include "server/front/tools/notation.h"

#include <stdbool.h>

struct tool_calls {
    struct quire_value tools;  /* an array of checked tools, or empty */
    struct quire_value choice; /* the value of tool_choice; only "required" and a named function force calls */
    bool is_single; /* at most one call */
    enum tool_format format;
    const struct special_tags *tags; /* of the format */
};
/* Leaves *out unchanged if nothing is restricted. Returns false with an error in e that names the field. */
bool tool_grammar_read(const struct tool_calls *calls, struct grammar_request **out, struct api_error *e);

#endif
