/* The work on a request's texts: the chat template, text → ids, ids → text. On the pool's threads, a slice at a time.
 *
 * This knows nothing of requests. Its caller describes the work by a text_task and finds the results there.
 *
 * The memory for a text is bounded, however long it is. It is encoded in pieces. A prompt is given up when it no
 * longer fits the model's context, and ids or text in a reply have a limit in bytes.
 */
#ifndef QUIRE_FRONT_TEXT_WORK_H
#define QUIRE_FRONT_TEXT_WORK_H

#include "server/front/api/api_error.h"
#include "text/quire_chat.h"
#include "text/quire_text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Texts and ids of a reply. A prompt of English prose of 16 MiB is 27 MB of ids. */
#define TEXT_MAX_REPLY_BYTES ((size_t)32 << 20)

struct text_work;

struct request_item {
    char *text; /* malloc'd, not NUL-terminated; NULL: not set (yet) */
    size_t n_text;
    uint32_t *ids; /* malloc'd; NULL: not set (yet) */
    uint32_t *places; /* n_ids numbers, malloc'd: characters of text before each id; NULL unless want_places */
    size_t n_ids;
};

/* Input of the chat template. JSON texts, malloc'd. */
struct text_chat {
    char *messages, *tools, *kwargs; /* messages NULL: not a chat */
    bool add_generation_prompt, continue_final;
    enum quire_specials specials; /* in messages */
};

struct text_task {
    const struct quire_text *tokenizer;
    struct text_chat chat; /* first rendered into items[0].text, and then freed */
    size_t n_items;
    struct request_item *items;
    /* the expected answer to the only prompt, one item more. Its ids are cut to the model's context */
    struct request_item prediction;
    const char *name; /* the field that holds the items, for errors; static */

    bool add_special; /* for encoding */
    bool skip_special; /* for decoding */
    bool want_text; /* decode items that have only ids */
    bool want_places; /* with want_text */
    bool want_strings; /* token_strings: tokens of items[0], JSON strings with commas between */
    bool want_pieces; /* with want_strings: objects of an id and a piece, a string or the bytes of a part of one */
    bool shows_chat; /* the rendered chat goes into a reply, where text has no marks: a message must not spell tokens */
    bool counts_only; /* only n_ids is needed of a text */
    bool is_reply; /* the items go into a reply; otherwise they are prompts, and must fit the model's context */
    bool truncates, truncate_end; /* prompts that do not fit will be truncated: at their end, or at their beginning */
    uint32_t max_tokens; /* the model's context */

    char *token_strings;
    size_t n_token_strings;
    struct text_work *work; /* private to text_work.c: state between two slices */
};

/* Allocates n items. Returns false with an error in e. */
bool text_task_items(struct text_task *t, size_t n, struct api_error *e);
/* Frees everything that it owns. */
void text_task_free(struct text_task *t);
/* Keeps only n of its ids, starting at from. */
void request_item_keep(struct request_item *item, size_t from, size_t n);
void request_item_free(struct request_item *item);

/* Works until about this time of quire_now_us(); *more: another call is needed. Returns false with an error in e. */
bool text_work_some(struct text_task *t, uint64_t until_us, bool *more, struct api_error *e);

#endif
