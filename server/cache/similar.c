#include "server/cache/similar.h"

#include "base/clock.h"
#include "base/log.h"
#include "server/similar/vector_index.h"
#include "server/similar/vector_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

const float similar_bands[SIMILAR_BANDS - 1] = {0.85f, 0.9f, 0.95f, 0.98f};

#define CLOSE_WAIT_MS 1000 /* for what was shared to be acknowledged */

struct similar {
    struct event_base *base;
    TAILQ_HEAD(, similar_ask) alone; /* whose owner is gone: their vectors are to be kept */
    enum similar_mode mode;
    float threshold;
    uint32_t max_entries;
    struct embedder embedder;
    struct key256 identity; /* of the embedder, and how many numbers its vectors have */
    uint32_t n_numbers;
    struct vector_index *index; /* NULL until the first vector says how many numbers it has */
    struct vector_log *log;     /* NULL: not configured, or it could not be opened */
    struct redis_url *shared; /* owned; NULL: not configured */
    struct vector_stream *stream; /* NULL: not configured, or the engine is not ready yet */
    struct cache_layer_stats looked; /* as in struct similar_stats */
    struct cache_latency embedding;
    uint64_t n_late;
    struct similar_band bands[SIMILAR_BANDS];
};

struct similar_ask {
    TAILQ_ENTRY(similar_ask) link; /* is_alone */
    struct similar *similar;
    bool keeps, is_alone;
    struct key256 answer; /* keeps: under which, and until when */
    int64_t expires_ms;
    struct key256 around;
    struct embedding *embedding; /* on its way */
    struct event *late;
    struct similar_times times;
    void (*done)(void *context, const struct similar_match *match);
    void *context;
    uint32_t n_numbers; /* 0: no vector */
    float *vector;
};

static int64_t wall_ms(void)
{
    return (int64_t)(quire_wall_ns() / 1000000u);
}

static void ask_free(struct similar_ask *a)
{
    if (a->is_alone)
        TAILQ_REMOVE(&a->similar->alone, a, link);
    if (a->embedding)
        a->similar->embedder.cancel(a->similar->embedder.self, a->embedding);
    if (a->late)
        event_free(a->late);
    free(a->vector);
    free(a);
}

/* ---- opening and closing -------------------------------------------------------------------- */

static void on_told(void *context, const struct key256 *around, const float *vector, const struct key256 *answer,
                    int64_t expires_ms)
{
    struct similar *s = context;
    if (!vector)
        vector_index_remove(s->index, answer);
    else if (expires_ms > wall_ms())
        (void)vector_index_add(s->index, around, vector, answer, expires_ms);
}

/* A file that is of no use is renamed, and a fresh one begun. Without a file all goes on in memory. */
static void open_log(struct similar *s, const char *path)
{
    char old[4096];
    struct quire_error err;
    for (int i = 0; i < 2; i++) {
        const int status = vector_log_open(path, &s->identity, s->n_numbers, s->max_entries, on_told, s, &s->log, &err);
        if (status == QUIRE_OK)
            return;
        s->log = NULL;
        vector_index_clear(s->index);
        const int n = snprintf(old, sizeof old, "%s.old-%lld", path, (long long)(wall_ms() / 1000));
        if (i > 0 || status != QUIRE_INVALID || n < 0 || (size_t)n >= sizeof old || rename(path, old) != 0)
            break;
        quire_log(QUIRE_LOG_WARN, "cache", "%s; it is now %s", err.text, old);
    }
    quire_log(QUIRE_LOG_WARN, "cache", "questions are kept in memory only: %s", err.text);
}

static void on_others_cleared(void *context)
{
    vector_index_clear(((struct similar *)context)->index);
}

void similar_answered_by(struct similar *s, const struct key256 *identity)
{
    const struct vector_stream_events events = {.told = on_told, .cleared = on_others_cleared, .context = s};
    struct quire_error err;
    if (!s->shared)
        return;
    vector_stream_close(s->stream, 0);
    if (vector_stream_open(s->base, s->shared, identity, &s->identity, s->n_numbers, s->max_entries, events, &s->stream,
                           &err) != QUIRE_OK)
        quire_log(QUIRE_LOG_ERROR, "cache", "questions are not shared: %s", err.text);
}

int similar_open(struct event_base *base, const struct similar_options *options, struct embedder embedder,
                 struct similar **out, struct quire_error *err)
{
    struct similar *s = *out = calloc(1, sizeof *s);
    if (!s)
        return quire_fail(err, QUIRE_NO_MEMORY, "the semantic cache: out of memory");
    s->base = base;
    TAILQ_INIT(&s->alone);
    s->mode = options->mode;
    s->threshold = options->threshold > 0 ? options->threshold : SIMILAR_THRESHOLD;
    s->max_entries = options->max_entries ? options->max_entries : SIMILAR_ENTRIES;
    s->identity = options->identity;
    s->n_numbers = options->n_numbers;
    s->embedder = embedder;
    if (!options->path && !options->shared)
        return QUIRE_OK;
    s->index = vector_index_create(s->n_numbers, s->max_entries);
    s->shared = options->shared ? malloc(sizeof *s->shared) : NULL;
    if (!s->index || (options->shared && !s->shared)) {
        similar_close(s);
        *out = NULL;
        return quire_fail(err, QUIRE_NO_MEMORY, "the semantic cache: out of memory");
    }
    if (options->path)
        open_log(s, options->path);
    if (s->shared)
        *s->shared = *options->shared;
    return QUIRE_OK;
}

void similar_close(struct similar *s)
{
    struct similar_ask *a;
    if (!s)
        return;
    while ((a = TAILQ_FIRST(&s->alone)))
        ask_free(a);
    vector_log_close(s->log);
    vector_stream_close(s->stream, CLOSE_WAIT_MS);
    vector_index_free(s->index);
    free(s->shared);
    free(s);
}

enum similar_mode similar_mode(const struct similar *s)
{
    return s->mode;
}

/* ---- asking --------------------------------------------------------------------------------- */

void similar_ask_free(struct similar_ask *a)
{
    if (a && a->embedding && a->keeps) {
        a->is_alone = true;
        TAILQ_INSERT_TAIL(&a->similar->alone, a, link);
    } else if (a) {
        ask_free(a);
    }
}

/* If memory is short, the question is not found later, with no other effect. */
static void add(struct similar *s, const struct similar_ask *a)
{
    if (!vector_index_add(s->index, &a->around, a->vector, &a->answer, a->expires_ms))
        return;
    if (s->log)
        vector_log_add(s->log, &a->around, a->vector, &a->answer, a->expires_ms);
    if (s->stream)
        vector_stream_add(s->stream, &a->around, a->vector, &a->answer, a->expires_ms);
}

/* There is no vector, or none in time. */
static void give_up(struct similar_ask *a)
{
    struct similar *s = a->similar;
    a->times.embedded_ns = quire_now_ns();
    s->looked.n_misses++;
    s->n_late++;
    if (a->is_alone)
        ask_free(a);
    else
        a->done(a->context, NULL);
}

static void on_late(evutil_socket_t fd, short what, void *context)
{
    struct similar_ask *a = context;
    (void)fd;
    (void)what;
    a->similar->embedder.cancel(a->similar->embedder.self, a->embedding);
    a->embedding = NULL;
    give_up(a);
}

/* The index is as wide as the model's vectors. */
static bool has_index(struct similar *s, uint32_t n_numbers)
{
    if (!s->index)
        s->index = vector_index_create(n_numbers, s->max_entries);
    return s->index && vector_index_width(s->index) == n_numbers;
}

static void on_vector(void *context, const float *vector, uint32_t n_numbers)
{
    struct similar_ask *a = context;
    struct similar *s = a->similar;
    struct similar_match match;
    a->embedding = NULL;
    evtimer_del(a->late);
    a->vector = vector && has_index(s, n_numbers) ? malloc(n_numbers * sizeof *vector) : NULL;
    if (!a->vector) {
        give_up(a);
        return;
    }
    memcpy(a->vector, vector, n_numbers * sizeof *vector);
    a->n_numbers = n_numbers;
    a->times.embedded_ns = quire_now_ns();
    cache_observe(&s->embedding, (double)(a->times.embedded_ns - a->times.begun_ns) * 1e-9);
    const bool found = vector_index_find(s->index, &a->around, a->vector, s->threshold, wall_ms(), &match.answer,
                                         &match.similarity);
    a->times.looked_ns = quire_now_ns();
    cache_observe(&s->looked.latency, (double)(a->times.looked_ns - a->times.embedded_ns) * 1e-9);
    if (a->keeps)
        add(s, a);
    *(found ? &s->looked.n_hits : &s->looked.n_misses) += 1;
    if (a->is_alone)
        ask_free(a);
    else
        a->done(a->context, found ? &match : NULL);
}

struct similar_ask *similar_ask(struct similar *s, const struct key256 *around, const char *question, size_t n,
                                uint32_t tenant, void (*done)(void *context, const struct similar_match *match),
                                void *context)
{
    const struct timeval wait = {.tv_sec = SIMILAR_WAIT_MS / 1000, .tv_usec = SIMILAR_WAIT_MS % 1000 * 1000};
    struct similar_ask *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    *a = (struct similar_ask){
        .similar = s, .around = *around, .times.begun_ns = quire_now_ns(), .done = done, .context = context};
    a->late = evtimer_new(s->base, on_late, a);
    if (a->late && evtimer_add(a->late, &wait) == 0)
        a->embedding = s->embedder.embed(s->embedder.self, question, n, tenant, on_vector, a);
    if (!a->embedding) {
        ask_free(a);
        return NULL;
    }
    s->looked.n_lookups++;
    return a;
}

struct similar_times similar_ask_times(const struct similar_ask *a)
{
    return a->times;
}

/* ---- what is kept --------------------------------------------------------------------------- */

void similar_keep(struct similar *s, struct similar_ask *a, const struct key256 *answer, int64_t expires_ms)
{
    a->keeps = true;
    a->answer = *answer;
    a->expires_ms = expires_ms;
    if (a->n_numbers > 0)
        add(s, a);
}

void similar_remove(struct similar *s, const struct key256 *answer)
{
    if (s->index)
        vector_index_remove(s->index, answer);
    if (s->log)
        vector_log_remove(s->log, answer);
    if (s->stream)
        vector_stream_remove(s->stream, answer);
}

void similar_clear(struct similar *s)
{
    struct similar_ask *a;
    while ((a = TAILQ_FIRST(&s->alone))) /* entries whose answers are gone */
        ask_free(a);
    if (s->index)
        vector_index_clear(s->index);
    if (s->log)
        vector_log_clear(s->log);
    if (s->stream)
        vector_stream_clear(s->stream);
}

/* ---- counting ------------------------------------------------------------------------------- */

void similar_drafted(struct similar *s, float similarity, uint32_t n_tried, uint32_t n_right)
{
    size_t band = 0;
    while (band < SIMILAR_BANDS - 1 && similarity >= similar_bands[band])
        band++;
    s->bands[band].n_drafts++;
    s->bands[band].n_tried += n_tried;
    s->bands[band].n_right += n_right;
}

void similar_stats(const struct similar *s, struct similar_stats *out)
{
    *out = (struct similar_stats){.mode = s->mode,
                                  .layer = {.name = "semantic", .stats = s->looked},
                                  .embedding = s->embedding,
                                  .n_late = s->n_late};
    memcpy(out->bands, s->bands, sizeof out->bands);
    if (!s->index)
        return;
    struct vector_index_stats index;
    vector_index_stats(s->index, &index);
    out->layer.n_entries = index.n_entries;
    out->layer.n_bytes = index.n_bytes;
    out->layer.n_evicted = index.n_evicted;
    out->is_shared = s->stream != NULL;
    if (s->stream)
        vector_stream_stats(s->stream, &out->shared);
    if (!s->log)
        return;
    struct vector_log_stats log;
    vector_log_stats(s->log, &log);
    out->n_file_bytes = log.n_bytes;
    out->n_dropped = log.n_dropped;
}
