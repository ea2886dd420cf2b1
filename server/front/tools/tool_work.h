/* The state of a tool parser, shared by the notations. Private to tools/tool_*.c.
 *
 * The held text begins with what is undecided: each step decides some of it, and drops it. */
#ifndef QUIRE_FRONT_TOOL_WORK_H
#define QUIRE_FRONT_TOOL_WORK_H

#include "base/buffer.h"
#include "server/front/tools/tool_parser.h"

/* ---- formats ---- */

/* How a call begins and how its arguments are written. */
enum tool_notation {
    TOOL_JSON_OBJECT, /* {"name":...,"arguments":{...}}, where "parameters" is the same as "arguments" */
    TOOL_NAMED, /* the name, a separator, and arguments in JSON */
    TOOL_TAGGED, /* the name, and a tag for each argument */
    TOOL_PYTHON, /* [name(key=value)] */
};
struct tool_form {
    const char *name, *alias;
    const char *tag; /* that identifies the format */
    const char *lead, *tail; /* optional, before and after calls */
    const char *begins[2]; /* begin a call; none: a call is at the start only */
    const char *separator; /* behind the name */
    const char *fence, *unfence; /* optional, around the arguments */
    const char *end; /* optional, behind a call */
    const char *const *specials;
    enum tool_notation notation;
};
const struct tool_form *tool_form(enum tool_format format);

/* ---- the state ---- */

enum tool_state { TOOL_START, TOOL_TEXT, TOOL_HEAD, TOOL_ARGUMENTS, TOOL_REST, TOOL_END, TOOL_AFTER, TOOL_PLAIN };

/* A JSON value while it is read. It ends where its own kind of bracket matches: what a model wrote may be no JSON. */
struct tool_value {
    char open; /* '{', '[', '"', or 0: another value, which ends at a comma or brace */
    char last;
    bool in_string, is_escaped;
    uint32_t depth;
};
enum tool_value_step { TOOL_VALUE_GOES_ON, TOOL_VALUE_ENDS_BEFORE, TOOL_VALUE_ENDS_BEHIND };
void tool_value_begin(struct tool_value *v); /* the first byte comes with the first step */
enum tool_value_step tool_value_step(struct tool_value *v, char c);

enum tool_place { TOOL_OPEN, TOOL_KEY, TOOL_IN_KEY, TOOL_COLON, TOOL_VALUE, TOOL_IN_VALUE, TOOL_COMMA };
struct tool_span {
    size_t from, n; /* n 0: not found */
};
/* An object with a call while it is read; positions in the held text. */
struct tool_object {
    enum tool_place place;
    struct tool_value value;
    struct tool_span key, name, arguments;
    size_t value_from;
    bool is_rest; /* its arguments were passed on: names count no more */
};

#define TOOL_PYTHON_DEPTH 64
struct tool_python {
    char stack[TOOL_PYTHON_DEPTH]; /* the open brackets */
    uint32_t depth;
    uint8_t place; /* private to tool_python.c */
    char quote; /* of the string that is open */
    bool comma; /* an item came before: the next one needs a comma */
};
struct tool_tagged {
    bool in_value, is_string;
    bool is_first; /* nothing of the value was read yet */
    bool comma; /* an argument came before */
    bool in_quotes, is_escaped; /* of the strings in a value that is a list or an object */
    size_t first_close; /* the first tag of the end in such a value; 0: none yet */
    uint32_t n_lookups;
    struct quire_value properties; /* of the called function; empty: unknown */
};

struct tool_work {
    enum tool_state state;
    struct buffer held; /* not passed on yet */
    struct buffer blank; /* blanks before it, passed on if no call follows */
    struct buffer out; /* arguments in JSON */
    size_t at; /* held is read up to here */
    uint32_t n_calls;
    bool after_call, has_text, in_call, in_array;
    bool is_malformed; /* a call came back as text, and only blanks followed: its next tag is no other call */
    bool is_spoiled; /* a list or an object was no JSON: values end at their first tag from then on */
    struct tool_object object;
    struct tool_python *python; /* one of both; NULL: another notation */
    struct tool_tagged *tagged;
};

/* ---- the text; tool_work.c ---- */

bool tool_is_blank(char c);
size_t tool_skip_blank(const char *text, size_t n, size_t at);
/* Whether the word is at text + at. SOME: the text ends within it. */
enum tool_match { TOOL_MATCH_NONE, TOOL_MATCH_SOME, TOOL_MATCH_ALL };
enum tool_match tool_match(const char *text, size_t n, size_t at, const char *word);
/* Number of bytes at the end of the text that may begin the word. */
size_t tool_begun(const char *text, size_t n, const char *word);

/* ---- output; tool_work.c; each drops the first n held bytes ---- */

void tool_drop(struct tool_work *w, size_t n, enum tool_state state);
/* As text; n may be 0. */
void tool_give_text(struct tool_work *w, size_t n, enum tool_state state, const struct tool_sink *sink);
/* This is no call: n bytes are text. */
void tool_give_up(struct tool_parser *p, size_t n, const struct tool_sink *sink);
/* As arguments; n may be 0. */
void tool_give_arguments(struct tool_work *w, size_t n, enum tool_state state, const struct tool_sink *sink);

void tool_begin_call(struct tool_work *w, const struct tool_call *call, const struct tool_sink *sink);
/* w->out as arguments. */
void tool_flush_arguments(struct tool_work *w, const struct tool_sink *sink);
void tool_end_call(struct tool_work *w, const struct tool_sink *sink);

/* ---- steps: each returns whether the held text needs another step. over: no text follows ---- */

/* tool_json.c. From w->at: an object with a call; its arguments; what follows them in the object. */
bool tool_object_head(struct tool_parser *p, bool over, const struct tool_sink *sink);
bool tool_json_arguments(struct tool_parser *p, bool over, const struct tool_sink *sink);
bool tool_object_rest(struct tool_parser *p, bool over, const struct tool_sink *sink);
/* tool_named.c: a name behind a tag. */
bool tool_named_head(struct tool_parser *p, bool over, const struct tool_sink *sink);
/* tool_tagged.c. */
bool tool_tagged_head(struct tool_parser *p, bool over, const struct tool_sink *sink);
bool tool_tagged_arguments(struct tool_parser *p, bool over, const struct tool_sink *sink);
/* tool_python.c. head: of the first call, or behind a comma. */
bool tool_python_head(struct tool_parser *p, bool over, const struct tool_sink *sink);
bool tool_python_arguments(struct tool_parser *p, bool over, const struct tool_sink *sink);

#endif
