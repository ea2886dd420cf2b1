/* Tool calls in what a model writes.
 *
 * Text goes in as it is generated, in pieces of any size; content and calls come out in the order in which they
 * were written, and do not depend on how the text was cut. What may become a call is held back until it is known to
 * be one or not to be. A call is given out whole: a name, and arguments that are no string, as the model wrote them, cut or
 * no JSON as they may be. Text that only looks like a call is content and comes back unchanged. Blanks before a call are left out, and
 * those after it when no text follows or none came before. Loop's thread.
 */
#ifndef QUIRE_FRONT_TOOL_PARSER_H
#define QUIRE_FRONT_TOOL_PARSER_H

#include "server/front/output/json_out.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tool_format {
    TOOL_NONE,
    TOOL_HERMES,      /* <tool_call>{"name":...,"arguments":{...}}</tool_call>, anywhere */
    TOOL_LLAMA3_JSON, /* {"name":...,"parameters":{...}} at the start, after <|python_tag|> or not; more after ; */
};
/* By the name that vLLM gives it; false: there is none of that name. */
bool tool_format_find(const char *name, enum tool_format *out);
/* The text that begins a call and that other models do not write; NULL for TOOL_NONE. */
const char *tool_format_tag(enum tool_format format);

/* Borrowed until the call returns. */
struct tool_call {
    const char *name, *arguments;
    size_t n_name, n_arguments;
};
struct tool_sink {
    void (*text)(void *context, const char *text, size_t n);
    void (*call)(void *context, const struct tool_call *call);
    void *context;
};

enum tool_state { TOOL_TEXT, TOOL_OBJECT, TOOL_AFTER, TOOL_PLAIN };

struct tool_parser { /* zero but for format to begin */
    enum tool_format format;
    enum tool_state state;
    struct buffer held;  /* not given out: what may be a call */
    struct buffer blank; /* before it: what is given out when no call follows */
    size_t at;             /* held is looked at up to here */
    size_t object, end;    /* where the object lies in it */
    uint32_t depth;
    bool in_string, is_escaped, after_call, has_text;
    bool is_stopped; /* set before tool_parser_finish(): a stop string ended the text, so what it cut is no call */
};
void tool_parser_free(struct tool_parser *p);

/* More text. False: out of memory. */
bool tool_parser_push(struct tool_parser *p, const char *text, size_t n, const struct tool_sink *sink);
/* The text is over: what was held back. Once. */
bool tool_parser_finish(struct tool_parser *p, const struct tool_sink *sink);

#endif
