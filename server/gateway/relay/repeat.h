/* Recognizes an event of a stream that differs from an earlier one in its text only. Most events of an answer do, and
 * reading each as JSON was four fifths of the gateway's time for a stream. One thread for each.
 *
 * An event that is recognized is as valid as the earlier one: it has the same bytes before and behind the text, and the
 * text is a valid part of a JSON string.
 */
#ifndef QUIRE_GATEWAY_REPEAT_H
#define QUIRE_GATEWAY_REPEAT_H

#include "base/buffer.h"
#include "server/gateway/relay/events.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct repeat { /* zeroed: at the beginning of a stream */
    struct buffer event;      /* the earlier one; empty: none */
    size_t text_at, text_end; /* its text, within the quotes */
    uint32_t n_misses;        /* in a row: a stream whose events differ elsewhere is not tried any more */
};

/* Remembers an event that has a token and nothing else, by its facts; any other is ignored. */
void repeat_learn(struct repeat *r, const char *data, size_t n, const struct events_facts *facts);
/* Whether an event is the same but for its text, which is not empty. It has no line breaks. */
bool repeat_is(struct repeat *r, const char *data, size_t n);
void repeat_free(struct repeat *r);

#endif
