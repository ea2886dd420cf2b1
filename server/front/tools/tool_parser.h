/* Finds tool calls in the text that a model writes.
 *
 * The caller adds text as it is generated, in pieces of whole characters and of any size. Text and calls come out in
 * the order in which they were written; the pieces of the input change nothing but the pieces of the output. Text that
 * may become a call is held back until this is decided.
 *
 * A call begins when its name is complete and its arguments have begun. From then on its arguments are passed on as
 * they come, in whole characters, and stay a call: text that the model cut or spoiled later is part of the arguments,
 * or comes back as text after the call. Everything that resembles a call and does not begin comes back as text,
 * unchanged. Arguments that the model wrote as JSON are not checked; those of other notations are written as JSON.
 * Blanks before a call are omitted, and also those after it, if no text follows or no text came before.
 *
 * Time is linear in the text. The parser holds back one incomplete name (TOOL_MAX_HEAD bytes), or an incomplete value
 * that must be complete to be written (TOOL_MAX_HELD bytes), or blanks. Loop's thread.
 */
#ifndef QUIRE_FRONT_TOOL_PARSER_H
#define QUIRE_FRONT_TOOL_PARSER_H

#include "text/quire_json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOOL_MAX_HEAD 1024
#define TOOL_MAX_HELD ((size_t)4 << 20)

/* The names are vLLM's. tool_forms.c has the notation of each. */
enum tool_format {
    TOOL_NONE,
    TOOL_HERMES,
    TOOL_LLAMA3_JSON,
    TOOL_LLAMA4_PYTHONIC,
    TOOL_PYTHONIC,
    TOOL_MISTRAL,
    TOOL_QWEN3_CODER,
    TOOL_DEEPSEEK_V3,
    TOOL_DEEPSEEK_V31,
    TOOL_GLM45,
    TOOL_KIMI_K2,
    TOOL_OPENAI, /* also "harmony"; behind a reasoning parser of REASONING_OPENAI_GPTOSS only */
    N_TOOL_FORMATS
};
/* Finds a format by its name. Returns false for an unknown name. */
bool tool_format_find(const char *name, enum tool_format *out);
/* The name of a format, for lists. */
const char *tool_format_name(enum tool_format format);
/* The text that begins a call and that models of other formats do not write; NULL for TOOL_NONE. */
const char *tool_format_tag(enum tool_format format);
/* The i-th tag that may be a special token of the tokenizer; NULL after the last one. */
const char *tool_format_special(enum tool_format format, size_t i);

/* A call that begins. The strings are borrowed until the call returns. */
struct tool_call {
    uint32_t index; /* in the answer */
    const char *name, *id; /* id: as the model wrote it; NULL: it wrote none */
    size_t n_name, n_id;
};
/* Called in this order: text, or call_begin, any number of call_arguments, and call_end. No text is empty. */
struct tool_sink {
    void (*text)(void *context, const char *text, size_t n);
    void (*call_begin)(void *context, const struct tool_call *call);
    void (*call_arguments)(void *context, const char *text, size_t n);
    void (*call_end)(void *context);
    void *context;
};

struct tool_work;
struct tool_parser { /* zero at first, except format and tools */
    enum tool_format format; /* not TOOL_NONE */
    /* The request's tools, borrowed: the types of arguments, for formats that do not write them. Empty: unknown. */
    struct quire_value tools;
    uint32_t n_malformed; /* texts so far that began as a call and came back as text */
    struct tool_work *work; /* private */
};
void tool_parser_free(struct tool_parser *p);

/* Adds text. Returns false if memory is out. */
bool tool_parser_push(struct tool_parser *p, const char *text, size_t n, const struct tool_sink *sink);
/* The text so far ends here: passes on the held text, except blanks, and ends an open call. More text may follow. */
bool tool_parser_interrupt(struct tool_parser *p, const struct tool_sink *sink);
/* The text is over: passes on the held text and ends an open call. Call it once. */
bool tool_parser_finish(struct tool_parser *p, const struct tool_sink *sink);

#endif
