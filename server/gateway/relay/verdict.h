/* What a target's reply means for the client: whether another target may help, and the error that the client gets. Pure.
 */
#ifndef QUIRE_GATEWAY_VERDICT_H
#define QUIRE_GATEWAY_VERDICT_H

#include "server/front/api/api_error.h"
#include "server/gateway/relay/attempt.h"
#include "server/gateway/relay/events.h"
#include "server/gateway/remote/remote.h"

struct verdict_reply {
    int status; /* 0: no head arrived */
    enum remote_end end;
    const char *why; /* of a call that did not end whole */
    const char *wrong; /* the first thing wrong with what arrived; "" */
    const char *retry_after; /* the header, or NULL */
    struct events_facts facts; /* of a body that was read; zeroed otherwise */
    const char *target; /* its name, for messages */
    bool is_full; /* the gateway had no room for it */
    bool is_engine; /* our own front end: its errors pass as they are */
};

/* Sets out->result, out->status, out->e and out->retry_ms. */
void verdict_of(const struct verdict_reply *r, struct attempt_end *out);

#endif
