/* What is done with a request's texts once its body has been read: the chat template, text → ids, ids → text, and the
 * replies that consist of these. On the pool's threads, a slice at a time.
 *
 * However long a text is, what is held of it is bounded: it is encoded in pieces, a prompt is given up when it no
 * longer fits the model's context, and what a client is to be told of ids or text has an end in bytes.
 */
#ifndef QUIRE_FRONT_TEXT_WORK_H
#define QUIRE_FRONT_TEXT_WORK_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>

/* Texts and ids that a reply is made of. A prompt of English prose of 16 MiB is 27 MB of ids. */
#define TEXT_MAX_REPLY_BYTES ((size_t)32 << 20)

struct quire_encoder;
struct quire_detok;
struct request_job;

struct text_work { /* zeroed: nothing is done yet */
    bool rendered;
    size_t n_items; /* done */
    size_t n_ids; /* of the item, or of its token strings: done */
    size_t n_chars; /* of the item's text: decoded */
    size_t capacity; /* ids that the item has room for */
    size_t n_reply_bytes;
    struct quire_encoder *encoder;
    struct quire_detok *detok;
    struct buffer text;
    bool has_strings, has_reply;
};

/* A slice; *more: there is another. False: j->error says why. */
bool text_work_some(struct request_job *j, bool *more);
/* What an unfinished one holds. */
void text_work_free(struct text_work *w);

#endif
