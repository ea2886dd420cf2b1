#include "app/companion/companion.h"

#include "app/models/cache.h"
#include "app/serving/death.h"
#include "app/serving/identity.h"
#include "app/watch/loading.h"
#include "app/watch/watching.h"
#include "base/log.h"
#include "base/size.h"
#include "engine/engine.h"
#include "engine/info.h"
#include "engine/model/describe.h"
#include "engine/plan.h"
#include "files/model_files.h"
#include "server/daemon/daemon.h"

#include <stdlib.h>
#include <string.h>

#define MAX_PROMPTS_BYTES ((size_t)1 << 20)

struct companion {
    struct event_base *base;
    struct hub_model model;
    struct serving_identity identity;
    struct key256 vectors; /* identity of the vectors' bits: what they depend on */
    struct watching watching; /* watches for the engine's death */
    struct serving_death *death;
    struct quire_text *text;
    struct daemon *daemon;
    struct engine *engine;
    struct served_model *served;
    void (*gone)(void *context);
    void *context;
};

size_t companion_flags(struct companion_flags *flags, struct cli_option out[COMPANION_FLAGS_MAX])
{
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "Embedding model:", .kind = CLI_GROUP},
        {.names = "embedding-model", .kind = CLI_STRING, .target = &flags->model, .value = "MODEL",
         .common = true,
         .help = "Also serve embeddings, scores and ranks with this model. It runs in the same process "
                 "(docs/guides/embeddings.md)."},
        {.names = "embedding-batch-size", .kind = CLI_U32, .target = &flags->batch_size, .min = 1, .max = 65536, .value = "N",
         .help = "Collect texts for this model in fixed batches of N, as --batching dynamic does. Default: each step "
                 "takes the waiting texts."},
        {.names = "embedding-batch-wait-ms", .kind = CLI_F64, .target = &flags->batch_wait_ms, .max = 3600000, .value = "MS",
         .help = "Maximum time that such a batch waits to become full. Default 0."},
    };
    /* clang-format on */
    _Static_assert(sizeof rows / sizeof rows[0] <= COMPANION_FLAGS_MAX, "raise BESIDE_FLAGS_MAX");
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

int companion_check(const struct companion_flags *flags, struct quire_error *err)
{
    if (!flags->model && (flags->batch_size > 0 || flags->batch_wait_ms > 0))
        return quire_fail(err, QUIRE_INVALID, "%s needs --embedding-model MODEL",
                          flags->batch_size > 0 ? "--embedding-batch-size" : "--embedding-batch-wait-ms");
    if (flags->batch_wait_ms > 0 && flags->batch_size == 0)
        return quire_fail(err, QUIRE_INVALID, "--embedding-batch-wait-ms needs --embedding-batch-size N");
    return QUIRE_OK;
}

/* ---- end ---- */

static void on_died(void *context, const char *why)
{
    struct companion *b = context;
    (void)why; /* pending requests get the reason from the engine */
    if (b->served)
        upstream_fail(served_model_upstream(b->served), NULL);
}

static void on_lost(void *context, const char *what, const char *why)
{
    const struct companion *b = context;
    (void)what; /* the engine is unavailable */
    quire_log(QUIRE_LOG_ERROR, "server", "the engine of %s is unavailable: %s", b->model.name, why);
    b->gone(b->context);
}

/* ---- opening ---- */

struct engine_options companion_options(const struct companion_flags *flags, const char *model_dir,
                                        const struct engine_options *first, struct step_options *steps)
{
    struct engine_options o;
    engine_options_default(&o);
    step_options_default(steps);
    o.steps = steps;
    o.model_dir = model_dir;
    o.task = "embed";
    o.device = first->device;
    o.n_threads = first->n_threads;
    o.cpu_bind = first->cpu_bind;
    o.gpu_memory_utilization = first->gpu_memory_utilization;
    o.invariance = first->invariance;
    o.ignore_unused_tensors = first->ignore_unused_tensors;
    steps->policy_options = engine_step_options(first)->policy_options;
    if (flags->batch_size > 0) {
        steps->batching = "dynamic";
        steps->max_batch_size = flags->batch_size;
        steps->max_wait_ms = flags->batch_wait_ms;
    }
    return o;
}

static int open_engine(struct companion *b, struct engine_options *o, struct quire_error *err)
{
    const struct daemon_options options = {.identity_text = b->identity.text,
                                           .identity_config = b->identity.config,
                                           .identity_generation = b->identity.generation,
                                           .model = b->model.name};
    int status = daemon_create(b->base, &options, &b->daemon, err);
    if (status == QUIRE_OK)
        status = serving_death_begin(b->base, on_died, b, &b->death, err);
    if (status == QUIRE_OK)
        status = watching_add(&b->watching, o, serving_death_watch(b->death), err);
    if (status == QUIRE_OK)
        status = loading_engine_open(o, daemon_sink, b->daemon, &b->engine, err);
    if (status != QUIRE_OK)
        return status;
    daemon_set_engine(b->daemon, b->engine);
    const struct engine_info *info = engine_info(b->engine);
    quire_log(QUIRE_LOG_INFO, "engine", "embedding model %s: %s on %s, %s; vectors of %u numbers, texts of %u tokens",
              b->model.name, info->desc->config->architecture, info->device_why,
              quire_size(engine_plan_total_bytes(info->plan)).text, info->vector_size, info->max_model_len);
    return QUIRE_OK;
}

/* A question's vector depends on the engine (weights, pooling, normalization), on how the text becomes tokens, on where
 * a long one is cut, and on the prompts that the model's card puts before it. */
static int read_identity(struct companion *b, struct quire_error *err)
{
    static const char label[] = "quire embedder 1", prompts_file[] = "config_sentence_transformers.json";
    const struct engine_info *info = engine_info(b->engine);
    struct quire_sha256_state s;
    struct buffer prompts = {0};
    struct key256 text;
    int status = model_file_read(b->model.dir, prompts_file, MAX_PROMPTS_BYTES, &prompts, err);
    if (status == QUIRE_NOT_FOUND)
        status = QUIRE_OK;
    quire_text_digest(b->text, text.bytes);
    quire_sha256_begin(&s);
    quire_sha256_add(&s, label, sizeof label);
    quire_sha256_add(&s, info->identity.digest.bytes, sizeof info->identity.digest.bytes);
    quire_sha256_add(&s, text.bytes, sizeof text.bytes);
    quire_sha256_add(&s, &info->max_model_len, sizeof info->max_model_len);
    if (prompts.n > 0)
        quire_sha256_add(&s, prompts.data, prompts.n);
    b->vectors = quire_sha256_now(&s);
    buffer_free(&prompts);
    return status;
}

static int open_model(struct companion *b, struct engine_options *o, struct sampling_defaults *sampling,
                      struct quire_error *err)
{
    struct model_config *config;
    int status = model_describe(o->model_dir, &config, sampling, err);
    const uint32_t vocab_size = status == QUIRE_OK ? config->vocab_size : 0;
    model_config_free(config);
    if (status == QUIRE_OK)
        status = serving_identity_read(o->model_dir, &b->identity, err);
    if (status == QUIRE_OK)
        status = quire_text_open(o->model_dir, &b->text, err);
    if (status == QUIRE_OK && quire_text_n_ids(b->text) > vocab_size)
        status = quire_fail(err, QUIRE_INVALID, "the tokenizer has token id %u, but config.json: vocab_size is %u",
                            quire_text_n_ids(b->text) - 1, vocab_size);
    if (status == QUIRE_OK)
        status = open_engine(b, o, err);
    return status == QUIRE_OK ? read_identity(b, err) : status;
}

static int add_to_front(struct companion *b, struct front *front, const struct served_model_options *first,
                        const char *given, const struct sampling_defaults *sampling, struct quire_error *err)
{
    const char *const names[] = {b->model.name};
    const struct served_model_options o = {.names = names,
                                           .n_names = 1,
                                           .root = given,
                                           .text = b->text,
                                           .specials_in_messages = first->specials_in_messages,
                                           .keeps_billing_header = first->keeps_billing_header,
                                           .tool_call_parser = "none",
                                           .reasoning_parser = "none",
                                           .sampling = *sampling,
                                           .for_vectors = true};
    return front_add_model(front, &o, &b->served, err);
}

const char *companion_option(const struct companion_flags *flags)
{
    return flags->option ? flags->option : "--embedding-model";
}

int companion_open(struct event_base *base, const struct companion_flags *flags, const struct engine_options *options,
                   struct front *front, const struct served_model_options *first, void (*gone)(void *context),
                   void *context, struct companion **out, struct quire_error *err)
{
    struct companion *b = *out = calloc(1, sizeof *b);
    if (!b)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    b->base = base;
    b->gone = gone;
    b->context = context;
    int status = hub_model_find(flags->model, false, &b->model, err);
    struct step_options steps;
    struct engine_options own = companion_options(flags, b->model.dir, options, &steps);
    struct sampling_defaults sampling;
    for (size_t i = 0; status == QUIRE_OK && i < first->n_names; i++)
        if (strcmp(first->names[i], b->model.name) == 0)
            status = quire_fail(
                err, QUIRE_INVALID,
                "both models are called %s: set --served-model-name for the first, or rename a directory",
                b->model.name);
    if (status == QUIRE_OK)
        status = open_model(b, &own, &sampling, err);
    if (status == QUIRE_OK)
        status = add_to_front(b, front, first, flags->model, &sampling, err);
    if (status != QUIRE_OK)
        quire_error_prefix(err, "%s", companion_option(flags));
    return status;
}

struct served_model *companion_model(const struct companion *b)
{
    return b->served;
}

uint32_t companion_vectors(const struct companion *b, struct key256 *identity)
{
    *identity = b->vectors;
    return engine_info(b->engine)->vector_size;
}

int companion_connect(struct companion *b, struct quire_error *err)
{
    struct wire_stream *ends[2];
    int status = wire_stream_pair(b->base, ends, err);
    if (status != QUIRE_OK)
        return status;
    status = daemon_add_connection(b->daemon, ends[0], err);
    if (status != QUIRE_OK) {
        wire_stream_close(ends[1]);
        return status;
    }
    const struct upstream_identity identity = {.model = b->model.name,
                                               .text = b->identity.text,
                                               .config = b->identity.config,
                                               .generation = b->identity.generation,
                                               .arithmetic = b->identity.numerics};
    upstream_set_identity(served_model_upstream(b->served), &identity,
                          &(struct upstream_owner){.lost = on_lost, .context = b});
    return upstream_attach(served_model_upstream(b->served), ends[1], err);
}

bool companion_died(const struct companion *b)
{
    return b && serving_death_was(b->death);
}

void companion_close(struct companion *b)
{
    if (!b)
        return;
    engine_close(b->engine);
    daemon_close(b->daemon);
    serving_death_end(b->death);
    quire_text_close(b->text);
    free(b);
}
