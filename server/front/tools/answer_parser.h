/* A model's text becomes an answer: reasoning, text and tool calls, in the order in which they were written.
 *
 * The reasoning parser runs first; only the text after the reasoning is parsed for calls. Shared by all APIs. Loop's
 * thread.
 */
#ifndef QUIRE_FRONT_ANSWER_PARSER_H
#define QUIRE_FRONT_ANSWER_PARSER_H

#include "base/buffer.h"
#include "server/front/tools/reasoning_parser.h"
#include "server/front/tools/tool_parser.h"

/* As struct tool_sink, and reasoning. */
struct answer_sink {
    void (*reasoning)(void *context, const char *text, size_t n);
    struct tool_sink tools; /* its context is that of reasoning, too */
};

struct answer_parser { /* zero at first, except these */
    struct reasoning_parser reasoning; /* format REASONING_NONE: all is text */
    struct tool_parser tools; /* format TOOL_NONE: no calls */
    bool one_call; /* further calls are left out */
    uint32_t n_calls; /* passed on so far */
    bool skips; /* private: in a call that is left out */
    struct buffer ids; /* private: the model's own ids so far. One that it repeats is not passed on */
};
void answer_parser_free(struct answer_parser *p);
/* Whether there is something to parse. If not, push is not needed: all is text. */
bool answer_parser_is_needed(const struct answer_parser *p);
/* Both return false if memory is out. finish: once, at the end of the text. */
bool answer_parser_push(struct answer_parser *p, const char *text, size_t n, const struct answer_sink *sink);
bool answer_parser_finish(struct answer_parser *p, const struct answer_sink *sink);

#endif
