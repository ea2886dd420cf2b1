/* Whether a request may begin, for whom, and what the client hears if it may not: admission.c and engine_error.c.
 * Loop's thread. A function that fails fills an api_error or has sent it. */
#ifndef QUIRE_SERVER_FRONT_API_ADMISSION_H
#define QUIRE_SERVER_FRONT_API_ADMISSION_H

#include "base/hash.h"
#include "server/front/api/api_error.h"

#include <stdbool.h>
#include <stdint.h>

struct front;
struct http_exchange;
struct request_spec;
struct served_model;
struct tenant;
struct wire_done;
struct wire_refuse;

/* ---- ../output/generation_end.c ---- */
/* Number of running requests, without background requests. */
uint64_t generation_n_live(const struct served_model *m);

/* ---- admission.c ---- */
/* Returns false with a 503 in e if requests cannot be accepted now. */
bool front_can_serve(const struct served_model *m, struct api_error *e);
/* The state in /health: ok, starting, draining, restarting, engine_unavailable or dead. */
const char *front_state(const struct served_model *m);
/* The tenant of the request's API key. NULL, with a 401 in e: no such key. */
struct tenant *front_tenant(const struct front *f, const struct http_exchange *x, struct api_error *e);
/* Returns whether the key is an admin's; without keys, whether the client is on this machine and no web page. */
bool front_is_admin(const struct front *f, const struct http_exchange *x);
/* The cache domain of a request, by its API key. */
struct key256 front_cache_domain(const struct front *f, const struct http_exchange *x);
/* Begins a request that uses the engine, after a check of the engine's state and the tenant's limits. NULL: an error
 * was already sent. Otherwise limits_end() must end it. */
struct tenant *front_begin(struct served_model *m, struct http_exchange *x);
/* The same for a request that may have a cached response: also succeeds while an engine that was ready before
 * restarts. A request without a cached response then ends with front_can_serve()'s error. */
struct tenant *front_begin_cached(struct served_model *m, struct http_exchange *x);
/* The error of a request that a source did not accept, or lost, with this status; e->why has details. For an engine
 * that is being restarted, it includes the time to retry. */
void front_failed_with(const struct served_model *m, int status, struct api_error *e);
/* Sends an error and ends the request that front_begin() began. Nothing else was done for it. */
void front_refuse(const struct front *f, struct http_exchange *x, struct tenant *tenant, const struct api_error *e);
/* The log's line for a request that was refused before it began; tenant NULL: unknown. */
void front_log_refused(const struct front *f, const struct http_exchange *x, const struct tenant *tenant,
                       const struct api_error *e);
/* Fills in the fields that charge the tenant. */
void front_bill(const struct tenant *tenant, struct request_spec *spec);

/* ---- engine_error.c ---- */
/* The client's error for a DONE with WIRE_FINISH_ERROR, and for a REFUSE. */
void front_failed(const struct wire_done *done, struct api_error *e);
void front_refused(const struct served_model *m, const struct wire_refuse *refuse, struct api_error *e);

#endif
