/* Runs the lines of one batch: each is one HTTP request to this process's own front door, over its private socket, so that
 * a line gets the bits, the checks and the errors that a client would get. Loop's thread.
 *
 * A line is sent again after 429 and 503, when the reply's Retry-After says so, and after a lost connection: an engine
 * that restarts delays a batch and fails no line. Requests carry "background": true in the header of server/bulk
 * (private to the process), so that live requests go first.
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

struct bulk_run;
struct remote; /* server/gateway/remote/remote.h */

/* All borrowed until bulk_run_free(). */
struct bulk_run_options {
    struct event_base *base;
    struct remote *remote;
    const char *socket; /* remote_request.socket */
    const char *const *headers; /* [n_headers]: of each request: who asks */
    size_t n_headers;
    enum bulk_dialect dialect;
    const char *url; /* of all lines */
    const char *id; /* of the batch: ids of its requests begin with it */
    const struct bulk_input *input;
    struct bulk_results *results;
    uint32_t max_concurrent; /* requests at a time */
    uint32_t per_minute; /* requests begun; 0: no limit */
    bool ordered; /* bulk_input_order(); false: the input's order */
    void (*on_result)(void *context); /* after each result; may be NULL */
    void (*on_end)(void *context); /* every line has a result; from the loop, once */
    void *context;
};

int bulk_run_begin(const struct bulk_run_options *options, struct bulk_run **out, struct quire_error *err);
/* No further line is begun. The lines without a result get outcome (BULK_CANCELLED, BULK_EXPIRED), those that run are
 * cancelled; on_end follows. */
void bulk_run_end(struct bulk_run *run, enum bulk_outcome outcome);
/* Cancels what runs, without results: the batch is resumed later. NULL is allowed. */
void bulk_run_free(struct bulk_run *run);
uint32_t bulk_run_running(const struct bulk_run *run);

#endif
