/* Reads the parts of a body of /v1/responses. Private to this folder.
 *
 * All functions return false with an error in e that names the field by its path, such as input[2].call_id. Any thread
 * on its own body. */
#ifndef QUIRE_FRONT_RESPONSES_READ_H
#define QUIRE_FRONT_RESPONSES_READ_H

#include "base/buffer.h"
#include "server/front/body/json_field.h"

#include <stdbool.h>

struct generation_job;

/* ---- responses_items.c ---- */

/* Appends items as messages of a chat, without the brackets of the array: first those of the responses before (an array,
 * or empty), then the body's input. */
bool responses_items_add(struct buffer *o, struct quire_value before, struct quire_value input, struct api_error *e);

/* ---- responses_tools.c ---- */

/* The tools of a body, in the form of a chat. Both texts are empty without tools, or if tool_choice is "none". */
struct responses_tools {
    struct buffer tools; /* an array of functions */
    struct buffer choice; /* as tool_choice of a chat */
};
bool responses_tools_read(const struct quire_doc *body, struct responses_tools *out, struct api_error *e);
void responses_tools_free(struct responses_tools *t);

/* ---- responses_echo.c ---- */

/* Sets g->echo: all fields of the reply that do not depend on the generated text. g->params->response is set. */
bool responses_echo(struct generation_job *g, const struct quire_doc *body);

#endif
