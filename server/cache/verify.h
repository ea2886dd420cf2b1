/* A share of the answers that are given is computed again in the background and compared, bit for bit, with what is kept.
 * Private to server/cache. Loop's thread. */
#ifndef QUIRE_CACHE_VERIFY_H
#define QUIRE_CACHE_VERIFY_H

#include "request/spec.h"
#include "server/cache/memory_layer.h"
#include "server/link/completion_source.h"

struct verifier;

struct verifier_options {
    double share; /* share of served responses to verify, evenly spaced: 0.01 is every hundredth */
    const struct completion_source *below; /* borrowed; what it holds may change after verifier_stop() */
    /* Called if the cached response differs from the computed one. */
    void (*on_differing)(void *context, struct cached *k);
    void *context;
};
/* NULL: out of memory. */
struct verifier *verifier_new(const struct verifier_options *options);
/* Stops and frees it. NULL is allowed. */
void verifier_free(struct verifier *v);
void verifier_counts(const struct verifier *v, uint64_t *n_verified, uint64_t *n_differing);

/* Whether the next served response is due for verification. A caller that would serve it without the request must
 * then not do so. */
bool verifier_is_due(const struct verifier *v);
/* k is given without being compared. */
void verifier_pass(struct verifier *v);
/* k is given to spec: the one or the other. */
void verifier_served(struct verifier *v, struct cached *k, const struct request_spec *spec);
/* The source below no longer exists, so nothing is cancelled there. */
void verifier_stop(struct verifier *v);

#endif
