/* A completion source that answers by itself, as a cache would: it repeats each prompt, then sends the end token.
 * One thread. */
#ifndef QUIRE_TESTS_FRONT_FAKE_SOURCE_H
#define QUIRE_TESTS_FRONT_FAKE_SOURCE_H

#include "server/link/completion_source.h"

#include <event2/event.h>
#include <stdbool.h>

#define FAKE_SOURCE_REFUSES 1234 /* it rejects requests of this priority */

struct fake_source;

/* later: answers from the loop; otherwise within submit(). */
struct fake_source *fake_source_open(struct event_base *base, bool later, uint32_t eos);
void fake_source_close(struct fake_source *s); /* NULL is allowed */
struct completion_source fake_source_as_source(struct fake_source *s);

#endif
