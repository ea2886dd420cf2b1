/* The output items of a reply of /v1/responses: reasoning, message and function_call, in the order in which the model
 * wrote them.
 *
 * An item begins with the first text of its kind and ends with the first of another kind. Finished items are kept,
 * because the last event of a stream repeats them. Loop's thread.
 */
#ifndef QUIRE_FRONT_REPLY_ITEMS_H
#define QUIRE_FRONT_REPLY_ITEMS_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stdint.h>

struct choice;
struct gen_piece;
struct reply;

enum item_kind { ITEM_NONE, ITEM_REASONING, ITEM_MESSAGE, ITEM_CALL };

struct reply_items { /* zero at first */
    enum item_kind open;
    uint32_t n;          /* items that have begun */
    struct buffer done;  /* finished items, separated by commas */
    /* The open item's. */
    char id[32];
    struct buffer text, logprobs, name, call_id;
    struct buffer waiting; /* logprobs of tokens whose text has not come yet */
};
void reply_items_free(struct reply_items *items);
/* The bytes that they hold. */
uint64_t reply_items_bytes(const struct reply_items *items);

/* Adds a piece of the answer. A stream gets its events through r->event. Returns false if memory is out. */
bool reply_items_add(struct reply *r, struct choice *c, const struct gen_piece *piece);
/* The end of the answer, after c->finish is set: ends the open item. An answer without items gets an empty message. */
bool reply_items_end(struct reply *r, struct choice *c);

/* Begins a numbered event of this API. */
void responses_begin_event(struct reply *r, const char *type);

#endif
