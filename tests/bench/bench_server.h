/* A whole server in this process, of which only the kernels are missing: front end, daemon, engine
 * over null_backend.c, on one loop. */
#ifndef QUIRE_TESTS_BENCH_SERVER_H
#define QUIRE_TESTS_BENCH_SERVER_H

#include "engine/engine.h"
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
    double tokenizer_mib; /* resident once it is open */
};

/* s->base is the caller's. sink hands on to daemon_sink(). on_ready: requests may come. Dies where
 * something cannot be had. */
void bench_server_open(struct bench_server *s, const struct engine_options *options, engine_sink sink,
                       void (*on_ready)(void *context, bool is_first), void *context);
void bench_server_close(struct bench_server *s);

/* Resident memory that is no file's. The arenas of an engine whose kernels do nothing are planned
 * and hardly touched, and its weights are a file's: what is left is the host's own. */
double bench_anonymous_mib(void);

#endif
