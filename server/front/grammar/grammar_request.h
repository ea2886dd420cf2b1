/* The restriction of an answer that a request's body states, before it is compiled: its form, its text and the field
 * that holds it. Any thread on its own request.
 */
#ifndef QUIRE_FRONT_GRAMMAR_REQUEST_H
#define QUIRE_FRONT_GRAMMAR_REQUEST_H

#include "base/hash.h"
#include "server/front/api/api_error.h"
#include "server/front/tools/reasoning_parser.h"
#include "text/quire_grammar_normal.h"
#include "text/quire_json.h"

#include <stddef.h>

struct grammar_request {
    struct quire_grammar_source source; /* its text is `text` */
    char *text; /* owned; never NULL */
    char field[96]; /* as the client wrote it, for errors: "response_format.json_schema.schema" */
    uint32_t first_tool; /* index of the first forced call in the request's tools */
    enum reasoning_format reasoning_format; /* of the reasoning before the answer; NONE: it has no reasoning */
    struct quire_grammar_reasoning reasoning; /* the source's, if the answer may have one */
    struct key256 digest; /* of the source */
};

/* Fields that every generating route has: structured_outputs, guided_*, grammar, json_schema, structural_tag. Leaves
 * *out unchanged if the body has none of them. Returns false with an error in e that names the field. */
bool grammar_request_read(const struct quire_doc *body, enum quire_grammar_whitespace otherwise,
                          struct grammar_request **out, struct api_error *e);
/* A format in the style of OpenAI's response_format, from the field of this name; empty or "text" restricts nothing.
 * If *out is already set, a second restriction is an error. */
bool grammar_request_format(struct quire_value format, const char *field, enum quire_grammar_whitespace otherwise,
                            struct grammar_request **out, struct api_error *e);
/* Takes over text, which is malloc'd, even if it fails. */
bool grammar_request_set(struct grammar_request **out, const struct quire_grammar_source *how, char *text, size_t n,
                         const char *field, struct api_error *e);
/* Lets a reasoning in this format come first, with at most `budget` tokens; negative: any number. If *out is NULL, the
 * answer behind the reasoning is free, and `field` is that of the budget. */
bool grammar_request_reason(struct grammar_request **out, enum reasoning_format format, int64_t budget,
                            const char *field, struct api_error *e);
/* The prompt is known, and shows where its answer begins. Frees a request that then restricts nothing. */
void grammar_request_place(struct grammar_request **r, enum reasoning_place place);
/* e has the reason of a rejection, which begins with a place in the text: puts the field before it, as the client wrote
 * it. */
void grammar_request_name(const struct grammar_request *r, struct api_error *e);
void grammar_request_free(struct grammar_request *r); /* NULL is allowed */

#endif
