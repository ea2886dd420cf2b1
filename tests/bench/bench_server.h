/* A whole server in this process, except for the kernels: front end, daemon, engine over null_backend.c, on one loop.
 */
#ifndef QUIRE_TESTS_BENCH_SERVER_H
#define QUIRE_TESTS_BENCH_SERVER_H

#include "engine/event.h"
#include "engine/options.h"
#include "server/daemon/daemon.h"
#include "server/front/front.h"

struct bench_server {
    struct event_base *base;
    struct quire_text *text;
    struct tenants *tenants;
    struct daemon *daemon;
    struct engine *engine;
    struct front *front;
    double tokenizer_mib; /* resident after it is open */
};

/* s->base is the caller's. sink passes on to daemon_sink(). on_ready: requests may arrive. Exits on an error. */
void bench_server_open(struct bench_server *s, const struct engine_options *options, engine_sink sink,
                       void (*on_ready)(void *context, bool is_first), void *context);
void bench_server_close(struct bench_server *s);

/* Resident memory not backed by files. The arenas of an engine without kernels are hardly touched, and its weights are
 * a file's, so this is the host's own memory. */
double bench_anonymous_mib(void);

#endif
