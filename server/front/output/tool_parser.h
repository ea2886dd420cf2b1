/* Finds tool calls in the text that a model writes.
 *
 * The caller adds text as it is generated, in pieces of any size. Content and calls come out in the order in which
 * they were written, whatever the size of the pieces. Text that may become a call is held back until this is decided.
 * A call is passed on as a whole: a name, and arguments that are not a string, as the model wrote them, even if
 * truncated or invalid JSON. Text that only resembles a call is content and comes back unchanged. Blanks before a call
 * are omitted, and also those after it, if no text follows or no text came before. If a grammar forces calls
 * (is_forced), a call begins as soon as its name is known, and its arguments are passed on as they come. Loop's thread.
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
    TOOL_LLAMA3_JSON, /* {"name":...,"parameters":{...}} at the start, with or without <|python_tag|>; more after ; */
};
/* Finds a format by vLLM's name. Returns false for an unknown name. */
bool tool_format_find(const char *name, enum tool_format *out);
/* The text that begins a call and that models of other formats do not write; NULL for TOOL_NONE. */
const char *tool_format_tag(enum tool_format format);

/* Borrowed until the call returns. */
struct tool_call {
    const char *name, *arguments;
    size_t n_name, n_arguments;
};
struct tool_sink {
    void (*text)(void *context, const char *text, size_t n);
    void (*call)(void *context, const struct tool_call *call);
    /* Of a forced call: its name, and then pieces of its arguments, in whole characters. NULL: call() gets it. */
    void (*begin)(void *context, const struct tool_call *call);
    void (*arguments)(void *context, const char *text, size_t n);
    void *context;
};

enum tool_state { TOOL_TEXT, TOOL_OBJECT, TOOL_AFTER, TOOL_PLAIN };

struct tool_parser { /* zero at first, except format */
    enum tool_format format;
    enum tool_state state;
    struct buffer held;  /* not passed on yet: may be a call */
    struct buffer blank; /* blanks before it, passed on if no call follows */
    size_t at;             /* held is parsed up to here */
    size_t object, end;    /* the position of the object in it */
    uint32_t depth;
    bool in_string, is_escaped, after_call, has_text;
    bool is_forced; /* set at first: a grammar forces calls */
    size_t passed;  /* of a forced call that has begun: its arguments are passed on up to here; 0: it has not begun */
    size_t arguments_end; /* 0: not reached */
    bool is_stopped; /* set before tool_parser_finish(): a stop string ended the text, so a truncated call is content */
};
void tool_parser_free(struct tool_parser *p);

/* Adds text. Returns false if memory is out. */
bool tool_parser_push(struct tool_parser *p, const char *text, size_t n, const struct tool_sink *sink);
/* The text is over: passes on the held text. Call it once. */
bool tool_parser_finish(struct tool_parser *p, const struct tool_sink *sink);

#endif
