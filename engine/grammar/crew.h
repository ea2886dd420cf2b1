/* Threads that do small pieces of work while their owner does something else.
 *
 * The owner starts a batch and joins it before the next. In the join the owner does what no thread has begun, so that a
 * crew without threads, or one whose threads got no CPU, also ends. Only the owner's thread calls these functions.
 */
#ifndef QUIRE_ENGINE_CREW_H
#define QUIRE_ENGINE_CREW_H

#include "base/status.h"

#include <stdint.h>

struct crew;

int crew_create(uint32_t n_threads, struct crew **out, struct quire_error *err);
void crew_destroy(struct crew *c); /* NULL is fine; no batch may be open */

/* Calls work(context, i) once for each i below n, from any of the threads, in no order. */
void crew_start(struct crew *c, void (*work)(void *context, uint32_t i), void *context, uint32_t n);
/* Returns when all of the batch is done. Without a batch it returns at once. */
void crew_join(struct crew *c);

#endif
