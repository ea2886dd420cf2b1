/* The engine in the process of quire serve: without --engine and --restart. Owns the engine, its daemon and its
 * observers. Main thread, on the loop. */
#ifndef QUIRE_APP_SERVE_OWN_ENGINE_H
#define QUIRE_APP_SERVE_OWN_ENGINE_H

#include "app/serving/identity.h"
#include "app/watch/watching.h"
#include "engine/engine.h"
#include "engine/options.h"
#include "server/wire/stream.h"

#include <event2/event.h>

struct own_engine;

/* Borrowed until own_engine_close(). */
struct own_engine_options {
    const char *model; /* its name */
    const struct serving_identity *identity;
    struct engine_options *options;
    struct watching *watching; /* its observers are opened, and own_engine_close() closes them */
    const char *const *listen; /* [n_listen]: addresses for other front ends */
    size_t n_listen;
    const char *key_file;
    void (*died)(void *context, const char *why); /* on the loop, which then ends */
    void *context;
};

/* *out is set in any case and needs own_engine_close(). */
int own_engine_open(struct event_base *base, const struct own_engine_options *options, struct own_engine **out,
                    struct quire_error *err);
/* Logs the device, the sizes and, every ten seconds, the statistics. */
int own_engine_log(struct own_engine *e, bool with_statistics, struct quire_error *err);
/* Takes the stream. */
int own_engine_connect(struct own_engine *e, struct wire_stream *stream, struct quire_error *err);
const struct engine_info *own_engine_info(const struct own_engine *e);
/* Returns whether the model computes vectors only. */
bool own_engine_has_vectors(const struct own_engine *e);
/* serving_death_hangs(), serving_death_leave() and serving_death_was(). NULL is allowed, as below. */
const char *own_engine_hangs(const struct own_engine *e);
void own_engine_leave(const struct own_engine *e);
bool own_engine_died(const struct own_engine *e);
void own_engine_close(struct own_engine *e);

#endif
