/* Sends spans to an OpenTelemetry collector: OTLP over HTTP in its JSON encoding.
 *
 * Its own thread takes added spans in batches and posts them with libcurl. It also resolves names and handles TLS, so
 * the loop never waits for a collector. Spans that the collector rejects, or that exceed the buffer while it is
 * unavailable, are dropped and counted. Nothing is sent twice.
 */
#ifndef QUIRE_FRONT_OTLP_H
#define QUIRE_FRONT_OTLP_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct otlp;

/* url: http or https; without a path it gets OTLP's own, /v1/traces. version: of the program. QUIRE_INVALID: not a
 * URL. */
int otlp_open(const char *url, const char *version, struct otlp **out, struct quire_error *err);
/* Sends the remaining spans for at most two seconds. NULL is allowed. */
void otlp_close(struct otlp *o);

/* n_spans span objects separated by commas, n_bytes of JSON. Copied; never waits. Any thread. */
void otlp_add(struct otlp *o, const char *json, size_t n_bytes, uint32_t n_spans);

struct otlp_counts {
    uint64_t n_exported, n_dropped; /* spans */
};
struct otlp_counts otlp_counts(struct otlp *o);

#endif
