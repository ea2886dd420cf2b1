/* Separates a model's reasoning from its answer.
 *
 * The caller adds text as it is generated, in pieces of whole characters and of any size. Reasoning and text come out
 * in the order in which they were written. The tags between them are omitted, with the blanks beside them; a tag in
 * another place is text. The parser holds back a tag, a header of a message (REASONING_MAX_HEADER bytes), or blanks.
 * Loop's thread.
 */
#ifndef QUIRE_FRONT_REASONING_PARSER_H
#define QUIRE_FRONT_REASONING_PARSER_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>

#define REASONING_MAX_HEADER 1024

/* The names are vLLM's. */
enum reasoning_format {
    REASONING_NONE,
    REASONING_DEEPSEEK_R1, /* <think>...</think>; the answer begins inside, unless the prompt ends with </think> */
    REASONING_QWEN3, /* <think>...</think> at the beginning of the answer, or opened by the prompt */
    REASONING_GLM45, /* as QWEN3 */
    REASONING_OPENAI_GPTOSS, /* channels; a message to a tool is passed on with its header, for TOOL_OPENAI */
    N_REASONING_FORMATS
};
bool reasoning_format_find(const char *name, enum reasoning_format *out);
const char *reasoning_format_name(enum reasoning_format format);
/* The i-th tag that may be a special token of the tokenizer; NULL after the last one. The first one identifies the
 * format in a chat template. */
const char *reasoning_format_special(enum reasoning_format format, size_t i);
/* Where an answer to a prompt with this end begins. BEFORE: the answer may have a reasoning. */
enum reasoning_place { REASONING_IS_BEFORE, REASONING_IS_OPEN, REASONING_IS_OVER };
enum reasoning_place reasoning_place(enum reasoning_format format, const char *prompt_end, size_t n);

struct reasoning_sink {
    void (*reasoning)(void *context, const char *text, size_t n);
    void (*text)(void *context, const char *text, size_t n);
    void *context;
    /* Optional: a message with text is over. The next text is another one, even if a call in this one is not complete. */
    void (*message_over)(void *context);
};

/* REASONING_CALL: in a message to a tool, whose text is passed on as written. */
enum reasoning_state { REASONING_START, REASONING_INSIDE, REASONING_TEXT, REASONING_HEADER, REASONING_CALL };

struct reasoning_parser { /* zero at first, except format, state and has_form */
    enum reasoning_format format; /* not REASONING_NONE */
    enum reasoning_state state; /* REASONING_INSIDE if it begins inside */
    bool has_form; /* the answer has a grammar, which allows blanks before it, as behind a reasoning: they are left out
                      where there is no reasoning, too */
    struct buffer held, blank; /* private, as all that follows: not passed on yet; blanks before it */
    bool has_begun; /* something came behind the last tag: blanks no longer belong to it */
};
void reasoning_parser_free(struct reasoning_parser *p);
/* Adds text. Returns false if memory is out. */
bool reasoning_parser_push(struct reasoning_parser *p, const char *text, size_t n, const struct reasoning_sink *sink);
/* The text is over. Call it once. */
bool reasoning_parser_finish(struct reasoning_parser *p, const struct reasoning_sink *sink);
/* Whether the last text belongs to the reasoning, as far as is known. */
bool reasoning_parser_is_inside(const struct reasoning_parser *p);

#endif
