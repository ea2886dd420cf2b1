/* What a model's files say about its notation: the formats, and the tags that its tokenizer hides. Any thread. */
#ifndef QUIRE_FRONT_NOTATION_H
#define QUIRE_FRONT_NOTATION_H

#include "server/front/tools/reasoning_parser.h"
#include "server/front/tools/tool_parser.h"
#include "text/quire_text.h"

/* The formats of these names; NULL or "auto": as the chat template shows. A template that shows no format of calls has
 * hermes. QUIRE_INVALID for an unknown name, with the names that exist. */
int notation_tools(const struct quire_text *text, const char *name, enum tool_format *out, struct quire_error *err);
int notation_reasoning(const struct quire_text *text, const char *name, enum reasoning_format *out,
                       struct quire_error *err);

/* Whether the chat template shows a request's tools to the model: a prompt with a tool differs from the one without. Also
 * true without a template, and if it cannot be found out. Renders two short chats, each twice. */
bool notation_shows_tools(const struct quire_text *text);

/* Where the answer to a prompt begins. */
int notation_reasoning_place(const struct quire_text *text, enum reasoning_format format, const uint32_t *prompt,
                             size_t n, enum reasoning_place *out, struct quire_error *err);

/* Tags that are special tokens, which a decoder omits. */
#define SPECIAL_TAGS_MAX 8
struct special_tags {
    uint32_t n;
    uint32_t ids[SPECIAL_TAGS_MAX];
    const char *texts[SPECIAL_TAGS_MAX]; /* static */
};
/* Those of a format. */
int special_tags_of_tools(const struct quire_text *text, enum tool_format format, struct special_tags *out,
                          struct quire_error *err);
int special_tags_of_reasoning(const struct quire_text *text, enum reasoning_format format, struct special_tags *out,
                              struct quire_error *err);
/* The text of the token if it is such a tag; NULL otherwise. tags may be NULL. */
const char *special_tags_find(const struct special_tags *tags, uint32_t id);

#endif
