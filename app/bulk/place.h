/* Where the lines of a command run: a model in this process, or a server at a URL. Main thread; owns the event loop. */
#ifndef QUIRE_APP_BULK_PLACE_H
#define QUIRE_APP_BULK_PLACE_H

#include "base/buffer.h"
#include "base/status.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct place;
struct remote; /* server/gateway/remote/remote.h */

/* All borrowed until place_close(). */
struct place_options {
    const char *model; /* a checkpoint, or a downloaded model; with a url: the name that requests have */
    const char *name; /* that requests have; NULL: the model's */
    const char *const *options; /* [n_options]: of the model, as target_values_rows() has them */
    size_t n_options;
    const char *url; /* http[s]://HOST:PORT, with or without /v1; NULL: the model is loaded here */
    const char *api_key; /* for the url; NULL: none */
};

/* Loads the model: takes as long as quire serve. */
int place_open(const struct place_options *options, struct place **out, struct quire_error *err);
/* After the end of the model's engine the process may end here, as serving_death_leave() says. NULL is allowed. */
void place_close(struct place *p);

struct event_base *place_base(const struct place *p);
struct remote *place_remote(const struct place *p);
const char *place_socket(const struct place *p); /* NULL: place_url() is a host */
const char *place_url(const struct place *p);
const char *const *place_headers(const struct place *p, size_t *n);
/* Names everything that can change an answer, as far as it is known here. */
uint64_t place_identity(const struct place *p);
/* The requests that run at a time: wanted, or 0: as many as run best; fewer if the limit of descriptors is low. */
uint32_t place_concurrency(const struct place *p, uint32_t wanted);
/* Whether the model's engine has failed; the loop ends then. */
bool place_died(const struct place *p);

/* One request that this thread waits for: the reply's body is in reply, which is cleared first. method "GET": body NULL.
 * QUIRE_INVALID: a status of 4xx, with the server's message; QUIRE_IO: everything else. */
int place_call(struct place *p, const char *method, const char *path, const char *body, size_t n_body,
               struct buffer *reply, struct quire_error *err);

#endif
