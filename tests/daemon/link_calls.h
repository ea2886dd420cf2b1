/* Shorthand for the calls of a client's completion source. */
#ifndef QUIRE_TESTS_DAEMON_LINK_CALLS_H
#define QUIRE_TESTS_DAEMON_LINK_CALLS_H

#include "server/link/engine_client.h"

static inline int submit_to(struct engine_client *client, const struct request_spec *what,
                            const struct completion_events *events, void *context, uint64_t *id,
                            struct quire_error *err)
{
    const struct completion_source source = engine_client_source(client);
    return source.submit(source.self, what, NULL, events, context, id, err);
}

static inline void cancel_at(struct engine_client *client, uint64_t id, int64_t choice)
{
    const struct completion_source source = engine_client_source(client);
    source.cancel(source.self, id, choice);
}

#endif
