/* Reports to a completion source how often cached responses were served. The source ranks their KV blocks by it (pins,
 * scheduling.md). Private to server/cache. Loop's thread. */
#ifndef QUIRE_CACHE_HIT_REPORT_H
#define QUIRE_CACHE_HIT_REPORT_H

#include "base/hash.h"
#include "server/link/completion_source.h"

#include <event2/event.h>

struct hit_report;

/* below: borrowed; what it holds may change. NULL: out of memory. */
struct hit_report *hit_report_new(struct event_base *base, const struct completion_source *below);
void hit_report_free(struct hit_report *r); /* NULL is allowed */

/* The name by which the source below knows the answer. Keys are hashes, so 8 bytes identify them. */
uint64_t hit_report_name(const struct key256 *key);
/* Adds to the report: the answer was served n_hits times. A zero key removes all answers, and goes out at once. Other
 * reports go out when all entries are used, and otherwise a fifth of a second later. */
void hit_report_add(struct hit_report *r, const struct key256 *key, uint64_t n_hits);
/* Sends what waits, so that the source below ranks the next request by it. If that is not possible now, it waits. */
void hit_report_send(struct hit_report *r);
/* Drops what waits. */
void hit_report_drop(struct hit_report *r);

#endif
