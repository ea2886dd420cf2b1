/* The fields of a list in a request's query: limit, after, order, purpose; after_id and before_id of Anthropic's API. Loop's
 * thread. */
#ifndef QUIRE_BULK_PAGE_H
#define QUIRE_BULK_PAGE_H

#include <stdbool.h>
#include <stdint.h>

struct bulk_call;
struct http_exchange;

/* Fills in c->page; its dialect is set. False: an error was sent, and c is freed. most: of limit. */
bool page_read(struct http_exchange *x, struct bulk_call *c, uint32_t usual, uint32_t most);

#endif
