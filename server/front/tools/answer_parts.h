/* The parts of an answer that is not streamed, and what the APIs write of a call alike. Loop's thread. */
#ifndef QUIRE_FRONT_ANSWER_PARTS_H
#define QUIRE_FRONT_ANSWER_PARTS_H

#include "base/buffer.h"
#include "server/front/tools/answer_parser.h"

#include <stdint.h>

enum answer_kind { ANSWER_TEXT, ANSWER_REASONING, ANSWER_CALL };

struct answer_part {
    enum answer_kind kind;
    struct buffer text; /* of a call: its arguments */
    char *name; /* of a call */
    char *id; /* of a call, as the model wrote it; NULL: it wrote none (tool_call_id()) */
};
/* In the order in which they were written; neighbours are of different kinds, or calls. Zero at first. */
struct answer_parts {
    struct answer_part *items;
    uint32_t n, n_calls;
    uint64_t n_bytes; /* that they hold */
    bool failed; /* memory is out */
};
void answer_parts_free(struct answer_parts *parts);
/* A sink that adds to them. */
struct answer_sink answer_parts_sink(struct answer_parts *parts);

/* A new random id of a call that the model gave none: the prefix, of at most 6 characters, and 24 hex digits. With
 * TOOL_MISTRAL 9 hex digits: the templates of Mistral accept only ids of nine letters and digits. */
#define TOOL_CALL_ID_BYTES 31
void tool_call_id(enum tool_format format, const char *prefix, char out[TOOL_CALL_ID_BYTES]);

#endif
