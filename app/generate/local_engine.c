#include "app/generate/local_engine.h"

#include "app/serving/identity.h"
#include "app/serving/text_load.h"
#include "app/watch/loading.h"
#include "engine/info.h"
#include "server/daemon/daemon.h"
#include "server/link/engine_client.h"
#include "server/wire/frame.h"

#include <stdlib.h>
#include <string.h>

struct local_engine {
    struct event_base *base;
    struct quire_text *text;
    struct daemon *daemon;
    struct engine *engine;
    struct engine_client *client;
    struct completion_source source; /* the client */
    struct serving_identity identity;
    void (*closed)(void *context, const char *why);
    void *context;
    bool is_ready;
    struct quire_error *err; /* of local_engine_open() while it runs */
};

static void on_ready(void *context, const struct wire_hello *hello)
{
    struct local_engine *l = context;
    (void)hello;
    l->is_ready = true;
    event_base_loopbreak(l->base);
}

static void on_closed(void *context, const char *why)
{
    struct local_engine *l = context;
    if (l->is_ready) {
        l->closed(l->context, why);
        return;
    }
    quire_fail(l->err, QUIRE_INTERNAL, "the engine closed the connection: %s", why);
    event_base_loopbreak(l->base);
}

static void on_stats(void *context, const struct wire_stats *stats)
{
    (void)context;
    (void)stats;
}

static void on_control(void *context, const struct wire_refuse *refuse)
{
    (void)context;
    (void)refuse;
}

static void on_drain(void *context)
{
    (void)context;
}

static int connect_engine(struct local_engine *l, struct quire_error *err)
{
    static const struct engine_client_events events = {.on_ready = on_ready,
                                                       .on_stats = on_stats,
                                                       .on_control = on_control,
                                                       .on_drain = on_drain,
                                                       .on_closed = on_closed};
    struct wire_stream *pair[2];
    int status = wire_stream_pair(l->base, pair, err);
    if (status != QUIRE_OK)
        return status;
    status = daemon_add_connection(l->daemon, pair[0], err);
    if (status != QUIRE_OK) {
        wire_stream_close(pair[1]);
        return status;
    }
    const struct wire_hello ours = {.version = WIRE_VERSION,
                                    .identity_text = l->identity.text,
                                    .identity_config = l->identity.config,
                                    .identity_generation = l->identity.generation,
                                    .arithmetic = l->identity.numerics,
                                    .n_arithmetic = strlen(l->identity.numerics)};
    status = engine_client_open(l->base, pair[1], &ours, NULL, &events, l, &l->client, err);
    l->source = engine_client_source(l->client);
    if (status != QUIRE_OK)
        return status;
    l->err = err;
    event_base_dispatch(l->base);
    l->err = NULL;
    return l->is_ready ? QUIRE_OK : QUIRE_INTERNAL;
}

/* Opens the weights and the tokenizer in parallel. */
static int open_model(struct local_engine *l, const struct engine_options *options, struct quire_error *err)
{
    struct serving_text_load *load;
    int status = serving_identity_read(options->model_dir, &l->identity, err);
    if (status == QUIRE_OK)
        status = serving_text_begin(options->model_dir, &load, err);
    if (status != QUIRE_OK)
        return status;
    struct quire_error engine_err;
    const struct daemon_options daemon_options = {.identity_text = l->identity.text,
                                                  .identity_config = l->identity.config,
                                                  .identity_generation = l->identity.generation,
                                                  .model = "model"};
    status = daemon_create(l->base, &daemon_options, &l->daemon, &engine_err);
    if (status == QUIRE_OK)
        status = loading_engine_open(options, daemon_sink, l->daemon, &l->engine, &engine_err);
    int text_status = serving_text_join(load, &l->text, err);
    if (status != QUIRE_OK) {
        *err = engine_err;
        return status;
    }
    if (text_status != QUIRE_OK)
        return text_status;
    uint32_t vocab = engine_info(l->engine)->vocab_size;
    if (quire_text_n_ids(l->text) > vocab)
        return quire_fail(err, QUIRE_INVALID, "the tokenizer has token id %u, but config.json: vocab_size is %u",
                          quire_text_n_ids(l->text) - 1, vocab);
    daemon_set_engine(l->daemon, l->engine);
    return QUIRE_OK;
}

int local_engine_open(struct event_base *base, const struct engine_options *options,
                      void (*closed)(void *context, const char *why), void *context, struct local_engine **out,
                      struct quire_error *err)
{
    struct local_engine *l = *out = calloc(1, sizeof *l);
    if (!l)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    l->base = base;
    l->closed = closed;
    l->context = context;
    int status = open_model(l, options, err);
    return status == QUIRE_OK ? connect_engine(l, err) : status;
}

void local_engine_close(struct local_engine *l)
{
    if (!l)
        return;
    engine_client_close(l->client);
    engine_close(l->engine);
    daemon_close(l->daemon);
    quire_text_close(l->text);
    free(l);
}

const struct completion_source *local_engine_source(const struct local_engine *l)
{
    return &l->source;
}

const struct engine_info *local_engine_info(const struct local_engine *l)
{
    return engine_info(l->engine);
}

struct quire_text *local_engine_text(const struct local_engine *l)
{
    return l->text;
}
