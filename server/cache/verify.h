/* A share of the answers that are given is computed again in the background and compared, bit for bit, with what is kept.
 * Private to server/cache. Loop's thread. */
#ifndef QUIRE_CACHE_VERIFY_H
#define QUIRE_CACHE_VERIFY_H

#include "server/cache/memory_layer.h"
#include "server/link/completion_source.h"

struct verification;

struct verifier { /* zero but for what is said here */
    double share; /* of those given, evenly: 0.01 is each hundredth */
    double due;
    struct completion_source below;
    TAILQ_HEAD(, verification) running;
    uint32_t n_running;
    uint64_t n_verified, n_differing;
    /* What is kept is not what is computed. */
    void (*on_differing)(void *context, struct kept *k);
    void *context;
};

/* Whether the next that is given is one of them; who gives it without knowing the request then does not. */
bool verifier_is_due(const struct verifier *v);
/* k is given without being compared. */
void verifier_pass(struct verifier *v);
/* k is given to spec: the one or the other. */
void verifier_given(struct verifier *v, struct kept *k, const struct request_spec *spec);
/* What is below is there no more: nothing is cancelled there. */
void verifier_stop(struct verifier *v);

#endif
