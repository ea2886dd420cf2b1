/* The blocks of content of a Messages reply: thinking, text and tool_use, in the order in which the model wrote them.
 *
 * A block begins with the first text of its kind and ends with the first of another kind. Anthropic's clients fail on a
 * tool_use block whose input is not a JSON object. So a call is held back until it is complete, and becomes a block of
 * text if its arguments are not an object. A stream whose calls a grammar forces, or whose client chose it
 * (eager_input_streaming), passes the arguments on as they come. Loop's thread.
 */
#ifndef QUIRE_FRONT_REPLY_BLOCKS_H
#define QUIRE_FRONT_REPLY_BLOCKS_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stdint.h>

struct choice;
struct reply;

enum block_kind { BLOCK_NONE, BLOCK_TEXT, BLOCK_THINKING, BLOCK_CALL };

struct reply_blocks { /* zero at first */
    enum block_kind open;
    uint32_t n, n_calls;        /* blocks that have begun; those of calls */
    uint32_t n_malformed;       /* calls that became text */
    struct buffer text;         /* the open block's, for a whole reply */
    struct buffer name, arguments; /* those of a held-back call */
};
void reply_blocks_free(struct reply_blocks *b);
/* The bytes that it holds. */
uint64_t reply_blocks_bytes(const struct reply_blocks *b);

/* Context of the functions below, and where blocks go. */
struct blocks_writer {
    struct reply *r;
    struct choice *c;
    struct buffer *whole; /* an array of blocks without its brackets; NULL: a stream, through r->event */
};

void blocks_text(struct blocks_writer *w, const char *text, size_t n);
void blocks_thinking(struct blocks_writer *w, const char *text, size_t n);
void blocks_call_begin(struct blocks_writer *w, const char *name, size_t n);
void blocks_call_arguments(struct blocks_writer *w, const char *text, size_t n);
void blocks_call_end(struct blocks_writer *w);
/* The end of the answer: ends the open block. An answer without blocks gets one of text. */
void blocks_end(struct blocks_writer *w);

#endif
