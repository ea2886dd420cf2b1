/* Sends spans to an OpenTelemetry collector: OTLP over HTTP in its JSON encoding.
 *
 * A thread of its own takes what was added, in batches, and posts it with libcurl: names are resolved and TLS is spoken
 * there, so the loop never waits for a collector. What one does not take, or cannot be held while it is away, is dropped
 * and counted; nothing is sent twice.
 */
#ifndef QUIRE_FRONT_OTLP_H
#define QUIRE_FRONT_OTLP_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct otlp;

/* url: http or https; one without a path gets OTLP's own, /v1/traces. version: of the program. QUIRE_INVALID: no URL. */
int otlp_open(const char *url, const char *version, struct otlp **out, struct quire_error *err);
/* What is left gets two seconds to be sent. NULL is fine. */
void otlp_close(struct otlp *o);

/* n_spans span objects with commas between them, n_bytes of JSON. Copied; never waits. Any thread. */
void otlp_add(struct otlp *o, const char *json, size_t n_bytes, uint32_t n_spans);

struct otlp_counts {
    uint64_t n_exported, n_dropped; /* spans */
};
struct otlp_counts otlp_counts(struct otlp *o);

#endif
