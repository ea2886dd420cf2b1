/* Runs the lines of one batch: each is one HTTP request, mostly to this process's own front door over its private socket, so that
 * a line gets the bits, the checks and the errors that a client would get. Loop's thread.
 *
 * A line waits and is sent again after 429 and 503 with Retry-After, without limit: an engine that restarts delays a batch
 * and fails no line. After 429, 502, 503 and 504 without it, and after a lost connection, it is sent up to four times more.
 */
#ifndef QUIRE_BULK_RUN_H
#define QUIRE_BULK_RUN_H

#include "base/status.h"
#include "server/bulk/run/input.h"
#include "server/bulk/run/line.h"
#include "server/bulk/run/results.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

#define BULK_RUN_MAX_CONCURRENT 4096
#define BULK_RUN_MAX_HEADERS 6
#define BULK_RUN_MAX_ID 80 /* bytes */
#define BULK_RUN_MAX_BASE_URL 1024

struct bulk_run;
struct remote; /* server/gateway/remote/remote.h */

/* All borrowed until bulk_run_free(). */
struct bulk_run_options {
    struct event_base *base;
    struct remote *remote;
    const char *socket; /* remote_request.socket */
    const char *base_url; /* "http://HOST:PORT", before each line's url; NULL: the server at socket */
    const char *const *headers; /* [n_headers]: of each request: who asks, and that the request is background work */
    size_t n_headers;
    enum bulk_dialect dialect;
    const char *id; /* id of the batch: ids of its requests are "id-1", "id-2", ... by line */
    const struct bulk_input *input;
    struct bulk_results *results;
    uint32_t max_concurrent; /* requests at a time, 1 to BULK_RUN_MAX_CONCURRENT */
    uint32_t per_minute; /* requests begun; 0: no limit */
    bool ordered; /* bulk_input_order(); false: the input's order */
    void (*on_result)(void *context); /* after each result; may be NULL */
    void (*on_end)(void *context); /* every line has a result; from the loop, once. It may free the run */
    void *context;
};

int bulk_run_begin(const struct bulk_run_options *options, struct bulk_run **out, struct quire_error *err);
/* Changes max_concurrent: 0 to its value at the beginning. If more run now, no further line begins until fewer do. */
void bulk_run_limit(struct bulk_run *run, uint32_t max_concurrent);
/* No further line is begun. The lines without a result get outcome (BULK_CANCELLED, BULK_EXPIRED), those that run are
 * cancelled; on_end follows. */
void bulk_run_end(struct bulk_run *run, enum bulk_outcome outcome);
/* Cancels what runs, without results: the batch is resumed later. NULL is allowed. */
void bulk_run_free(struct bulk_run *run);
/* Lines that were begun and have no result yet, those that wait for another attempt included. */
uint32_t bulk_run_running(const struct bulk_run *run);

#endif
