/* Compiles the grammars of requests on threads of its own, so that neither the loop nor other requests' texts wait.
 *
 * Only this front end's answer to the client depends on it: the engine compiles the same normal text once more, or
 * finds it in the same cache. Results are cached: the normal text, or why a client's text was rejected. Requests with
 * the same text wait for one compilation.
 *
 * Tenants take turns, and while another tenant waits, a tenant has at most one compilation at once. A compilation ends
 * at its deadline, or when the last request that waits for it has gone. At its deadline, the thread is free again, although
 * the library may still compile (text/quire_grammar.h says how, and how many may). A compilation that no thread begins
 * in time is rejected with 503. Loop's thread, except for the work itself.
 */
#ifndef QUIRE_FRONT_GRAMMAR_POOL_H
#define QUIRE_FRONT_GRAMMAR_POOL_H

#include "server/front/grammar/grammar_request.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct grammar_counts;
struct grammar_pool;
struct grammar_wait; /* a request that waits */
struct quire_grammars;

#define GRAMMAR_DEADLINE_MS 5000
#define GRAMMAR_MAX_WAIT_MS 10000 /* until a thread begins */
/* Compilations that wait or run. More are rejected with 503. A tenant's are rejected with 429 above three fourths of
 * them, or above a fourth while other tenants have some. */
#define GRAMMAR_MAX_JOBS 128
#define GRAMMAR_MAX_JOB_BYTES ((size_t)32 << 20) /* of their texts */

/* Borrowed until the call that received it returns. */
struct grammar_result {
    bool ok;
    const char *normal; /* if ok; n bytes */
    size_t n;
    struct api_error error; /* if not ok: names no field yet */
};

int grammar_pool_open(struct event_base *base, uint32_t n_threads, struct grammar_pool **out, struct quire_error *err);
/* Cancels compilations, and leaves those that run. No request may wait any more. */
void grammar_pool_close(struct grammar_pool *pool); /* NULL is allowed */

/* Returns whether the result is known. */
bool grammar_pool_find(struct grammar_pool *pool, struct quire_grammars *grammars, const struct grammar_request *r,
                       struct grammar_counts *counts, struct grammar_result *out);
/* Begins to wait for the result, after grammar_pool_find() returned false. done() is called from the loop, once. NULL,
 * with an error in e: too many are waiting, or memory is out. grammars and counts outlive the pool's jobs. */
struct grammar_wait *grammar_pool_wait(struct grammar_pool *pool, struct quire_grammars *grammars,
                                       const struct grammar_request *r, uint32_t tenant, struct grammar_counts *counts,
                                       void (*done)(void *owner, const struct grammar_result *result), void *owner,
                                       struct api_error *e);
/* Before done() was called. */
void grammar_pool_leave(struct grammar_wait *wait);

#endif
