/* Takes the body of Anthropic's POST /v1/messages/batches apart while it arrives: {"requests": [{...}, ...]} becomes one
 * line for each request. It only finds where values begin and end; each line is checked as JSON later. Pure; one thread
 * at a time.
 */
#ifndef QUIRE_BULK_SPLIT_H
#define QUIRE_BULK_SPLIT_H

#include "base/buffer.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

struct bulk_split;

int bulk_split_open(struct bulk_split **out, struct quire_error *err);
void bulk_split_close(struct bulk_split *s); /* NULL is allowed */
/* Appends whole and partial lines to out, each with its end. QUIRE_INVALID: the body cannot be such an object. */
int bulk_split_feed(struct bulk_split *s, const char *bytes, size_t n, struct buffer *out, struct quire_error *err);
/* After the last byte: whether the object is whole, and has requests. */
int bulk_split_end(const struct bulk_split *s, struct quire_error *err);

#endif
