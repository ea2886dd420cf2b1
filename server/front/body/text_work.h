/* The work on a request's texts after its body has been read: the chat template, text → ids, ids → text, and the
 * replies that consist of these. On the pool's threads, a slice at a time.
 *
 * The memory for a text is bounded, however long it is. It is encoded in pieces. A prompt is given up when it no
 * longer fits the model's context, and ids or text in a reply have a limit in bytes.
 */
#ifndef QUIRE_FRONT_TEXT_WORK_H
#define QUIRE_FRONT_TEXT_WORK_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>

/* Texts and ids of a reply. A prompt of English prose of 16 MiB is 27 MB of ids. */
#define TEXT_MAX_REPLY_BYTES ((size_t)32 << 20)

struct quire_encoder;
struct quire_detok;
struct request_job;

struct text_work { /* all zero: not started */
    bool rendered;
    size_t n_items; /* finished items */
    size_t n_ids; /* finished ids of the item, or of its token strings */
    size_t n_chars; /* decoded characters of the item's text */
    size_t capacity; /* ids that fit the item */
    size_t n_reply_bytes;
    struct quire_encoder *encoder;
    struct quire_detok *detok;
    struct buffer text;
    bool has_strings, has_reply;
};

/* Works for one slice; *more: another is needed. Returns false with an error in j->error. */
bool text_work_some(struct request_job *j, bool *more);
/* Frees the state of an unfinished job. */
void text_work_free(struct text_work *w);

#endif
