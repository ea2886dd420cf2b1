/* The load: requests to an OpenAI-compatible server over HTTP, each at its time, streamed and timed event by event.
 *
 * One thread, with libcurl's multi interface. The server is not trusted: its data is bounded, and control characters in
 * its messages are replaced.
 */
#ifndef QUIRE_TOOLS_BENCH_CLIENT_H
#define QUIRE_TOOLS_BENCH_CLIENT_H

#include "tools/bench/lib/inputs.h"
#include "tools/bench/lib/metrics.h"
#include "app/command/progress.h"

struct bench_client;

struct bench_client_options { /* strings are borrowed until the client is closed */
    const char *url;      /* "http://127.0.0.1:8000", with or without "/v1" */
    const char *endpoint; /* "/v1/completions", or ".../chat/completions", which gets text */
    const char *api_key;  /* NULL: none */
    const char *model;    /* NULL: the server's first model */
    bool ignore_eos;
};
int bench_client_open(const struct bench_client_options *options, struct bench_client **out, struct quire_error *err);
void bench_client_close(struct bench_client *c); /* NULL is allowed */

/* Gets the model's name, unless it was given, and its context, if present, from /v1/models. A server without this route
 * is an error only if no model was given. */
int bench_client_find_model(struct bench_client *c, struct quire_error *err);
const char *bench_client_model(const struct bench_client *c);
uint32_t bench_client_max_model_len(const struct bench_client *c); /* 0: not known */
/* The speculation counters of the server's /metrics now; unknown if it has none. */
struct bench_drafts bench_client_drafts(const struct bench_client *c);

/* Sends request i of `in` at arrivals[i] seconds, at most max_concurrency at a time (0: no limit), and waits for all.
 * results[in->n], zeroed by the caller. A failed request is a result, not an error. */
int bench_client_run(struct bench_client *c, const struct bench_inputs *in, const double *arrivals,
                     uint32_t max_concurrency, struct bench_progress *progress, struct bench_result *results,
                     double *duration_s, struct quire_error *err);

#endif
