#include "app/serve/own_engine.h"

#include "app/serving/death.h"
#include "app/watch/loading.h"
#include "app/watch/log_stats.h"
#include "base/log.h"
#include "base/size.h"
#include "engine/plan.h"
#include "server/daemon/daemon.h"

#include <stdlib.h>
#include <string.h>

struct own_engine {
    struct event_base *base;
    struct daemon *daemon;
    struct engine *engine;
    struct watching *watching;
    struct log_stats *log_stats;
    struct serving_death *death;
};

static int open_engine(struct own_engine *e, const struct own_engine_options *o, struct quire_error *err)
{
    const struct daemon_options options = {.identity_text = o->identity->text,
                                           .identity_config = o->identity->config,
                                           .identity_generation = o->identity->generation,
                                           .model = o->model};
    const struct recorder_about about = {.model = o->model, .config_sha256 = o->identity->config};
    int status = daemon_create(e->base, &options, &e->daemon, err);
    if (status == QUIRE_OK)
        status = watching_begin(e->watching, &about, o->options, err);
    if (status == QUIRE_OK)
        status = serving_death_begin(e->base, o->died, o->context, &e->death, err);
    if (status == QUIRE_OK)
        status = watching_add(e->watching, o->options, serving_death_watch(e->death), err);
    if (status == QUIRE_OK)
        status = loading_engine_open(o->options, daemon_sink, e->daemon, &e->engine, err);
    if (status == QUIRE_OK)
        status = serving_death_mind(e->death, e->engine, err);
    return status;
}

int own_engine_open(struct event_base *base, const struct own_engine_options *o, struct own_engine **out,
                    struct quire_error *err)
{
    struct own_engine *e = *out = calloc(1, sizeof *e);
    if (!e)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    e->base = base;
    e->watching = o->watching;
    int status = open_engine(e, o, err);
    if (status == QUIRE_OK && e->watching->recorder && own_engine_has_vectors(e))
        status = quire_fail(err, QUIRE_UNSUPPORTED,
                            "--record: vectors are not recorded, and this model computes only vectors");
    if (status != QUIRE_OK)
        return status;
    daemon_set_engine(e->daemon, e->engine);
    daemon_set_shadow(e->daemon, e->watching->shadow);
    for (size_t i = 0; status == QUIRE_OK && i < o->n_listen; i++)
        status = daemon_listen(e->daemon, o->listen[i], o->key_file, err);
    return status;
}

int own_engine_log(struct own_engine *e, bool with_statistics, struct quire_error *err)
{
    int status = with_statistics ? log_stats_begin(e->base, e->engine, LOG_STATS_EVERY_MS, &e->log_stats, err)
                                 : (int)QUIRE_OK;
    if (status != QUIRE_OK)
        return status;
    const struct engine_info *info = engine_info(e->engine);
    const struct engine_plan *plan = info->plan;
    quire_log(QUIRE_LOG_DEBUG, "engine", "device %s; GEMM form: %s; %s", info->device_why, info->gemms,
              info->placement);
    if (info->desc->config->multimodal[0])
        quire_log(QUIRE_LOG_INFO, "engine", "the text part of %s: images and audio are not supported",
                  info->desc->config->multimodal);
    const char *why = strchr(info->device_why, ':');
    const int n_device = why ? (int)(why - info->device_why) : (int)strlen(info->device_why);
    quire_log(QUIRE_LOG_INFO, "engine", "quire %s: %s on %.*s (%s), %u thread%s", QUIRE_VERSION,
              info->desc->config->architecture, n_device, info->device_why, why && why[1] ? why + 2 : "requested",
              plan->n_threads, plan->n_threads == 1 ? "" : "s");
    quire_log(QUIRE_LOG_INFO, "engine",
              "memory: weights and buffers %s, KV cache %s for %llu tokens; context %u, at most %u sequences at once",
              quire_size(engine_plan_total_bytes(plan) - plan->bytes[PLAN_KV]).text,
              quire_size(plan->bytes[PLAN_KV]).text, (unsigned long long)info->n_blocks * info->block_tokens,
              plan->max_model_len, plan->max_num_seqs);
    return QUIRE_OK;
}

int own_engine_connect(struct own_engine *e, struct wire_stream *stream, struct quire_error *err)
{
    return daemon_add_connection(e->daemon, stream, err);
}

const struct engine_info *own_engine_info(const struct own_engine *e)
{
    return engine_info(e->engine);
}

bool own_engine_has_vectors(const struct own_engine *e)
{
    return engine_info(e->engine)->vector_size > 0;
}

const char *own_engine_hangs(const struct own_engine *e)
{
    return e ? serving_death_hangs(e->death) : NULL;
}

void own_engine_leave(const struct own_engine *e)
{
    if (e)
        serving_death_leave(e->death);
}

bool own_engine_died(const struct own_engine *e)
{
    return e && serving_death_was(e->death);
}

void own_engine_close(struct own_engine *e)
{
    if (!e)
        return;
    log_stats_end(e->log_stats);
    engine_close(e->engine);
    watching_end(e->watching);
    daemon_close(e->daemon);
    serving_death_end(e->death);
    free(e);
}
