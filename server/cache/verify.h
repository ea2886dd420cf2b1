/* A share of the answers that are given is computed again in the background and compared, bit for bit, with what is kept.
 * Private to server/cache. Loop's thread. */
#ifndef QUIRE_CACHE_VERIFY_H
#define QUIRE_CACHE_VERIFY_H

#include "request/spec.h"
#include "server/cache/memory_layer.h"
#include "server/link/completion_source.h"

struct verification;

struct verifier { /* zero except for the fields named here */
    double share; /* share of served responses to verify, evenly spaced: 0.01 is every hundredth */
    double due;
    struct completion_source below;
    TAILQ_HEAD(, verification) running;
    uint32_t n_running;
    uint64_t n_verified, n_differing;
    /* Called if the cached response differs from the computed one. */
    void (*on_differing)(void *context, struct cached *k);
    void *context;
};

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
