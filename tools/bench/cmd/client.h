/* The load: requests to an OpenAI-compatible server over HTTP, each at its time, streamed and timed event by event.
 *
 * One thread, by libcurl's multi interface. The server is not trusted: what it sends is bounded, and its words are
 * shown with control characters replaced.
 */
#ifndef QUIRE_TOOLS_BENCH_CLIENT_H
#define QUIRE_TOOLS_BENCH_CLIENT_H

#include "tools/bench/lib/inputs.h"
#include "tools/bench/lib/metrics.h"
#include "tools/bench/lib/progress.h"

struct bench_client;

struct bench_client_options { /* strings are borrowed until the client is closed */
    const char *url;      /* "http://127.0.0.1:8000"; a "/v1" at its end is not counted */
    const char *endpoint; /* "/v1/completions", or ".../chat/completions", which is sent text */
    const char *api_key;  /* NULL: none */
    const char *model;    /* NULL: the server's first */
    bool ignore_eos;
};
int bench_client_open(const struct bench_client_options *options, struct bench_client **out, struct quire_error *err);
void bench_client_close(struct bench_client *c); /* NULL is fine */

/* Asks /v1/models for the model's name, unless it was given, and its context, where the server says it. A server that
 * has no such route is an error only when no model was given. */
int bench_client_find_model(struct bench_client *c, struct quire_error *err);
const char *bench_client_model(const struct bench_client *c);
uint32_t bench_client_max_model_len(const struct bench_client *c); /* 0: not known */
/* What the server's /metrics says of speculation at this moment; nothing is known where it has none. */
struct bench_drafts bench_client_drafts(const struct bench_client *c);

/* Sends request i of `in` at arrivals[i] seconds, at most max_concurrency at a time (0: no bound), and waits for all.
 * results[in->n], zeroed by the caller. A failed request is a result and no failure here. */
int bench_client_run(struct bench_client *c, const struct bench_inputs *in, const double *arrivals,
                     uint32_t max_concurrency, struct bench_progress *progress, struct bench_result *results,
                     double *duration_s, struct quire_error *err);

#endif
