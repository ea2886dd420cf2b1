#include "tools/cache/embedder.h"

#include "engine/engine.h"
#include "engine/event.h"
#include "engine/info.h"
#include "engine/options.h"
#include "text/quire_text.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct embedder {
    struct cache_client *client; /* NULL: the model is opened here */
    struct quire_text *text;
    struct engine *engine;
    uint64_t next_id; /* of requests */
    size_t size;      /* of a vector; 0: no text was embedded yet */

    pthread_mutex_t mutex; /* protects the rest, which the engine's thread writes */
    pthread_cond_t over;
    float *vectors; /* of the run; [n][size] */
    uint64_t first_id;
    size_t n, n_over;
    int status;
    struct quire_error err;
};

/* ---- by a server ---- */

static int take_vector(struct embedder *e, const json_t *item, size_t i, size_t n, float **vectors,
                       struct quire_error *err)
{
    const json_t *values = json_object_get(item, "embedding");
    size_t size = json_array_size(values);
    if (size == 0 || (e->size && size != e->size) ||
        json_integer_value(json_object_get(item, "index")) != (json_int_t)i)
        return quire_fail(err, QUIRE_IO, "the server's reply has no vector for text %zu", i);
    if (!*vectors)
        *vectors = calloc(n * size, sizeof **vectors);
    if (!*vectors)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    e->size = size;
    for (size_t k = 0; k < size; k++)
        (*vectors)[i * size + k] = (float)json_number_value(json_array_get(values, k));
    return QUIRE_OK;
}

static int ask_server(struct embedder *e, const char *const *texts, size_t n, float **vectors, struct quire_error *err)
{
    json_t *input = json_array(), *reply = NULL;
    for (size_t i = 0; i < n; i++)
        json_array_append_new(input, json_string(texts[i]));
    json_t *body = json_pack("{s:o,s:s}", "input", input, "encoding_format", "float");
    if (!body || json_array_size(input) != n) {
        json_decref(body);
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    }
    int status = cache_client_call(e->client, "POST", "/v1/embeddings", body, &reply, err);
    const json_t *data = json_object_get(reply, "data");
    if (status == QUIRE_OK && json_array_size(data) != n)
        status = quire_fail(err, QUIRE_IO, "the server's reply has fewer vectors than texts");
    for (size_t i = 0; i < n && status == QUIRE_OK; i++)
        status = take_vector(e, json_array_get(data, i), i, n, vectors, err);
    json_decref(reply);
    json_decref(body);
    return status;
}

/* ---- by a model of our own ---- */

static void on_event(struct embedder *e, const struct engine_event *event)
{
    if (event->request < e->first_id || event->request - e->first_id >= e->n)
        return; /* of a failed run */
    size_t i = (size_t)(event->request - e->first_id);
    if (event->kind == ENGINE_EVENT_VECTOR && event->n_vector == e->size)
        memcpy(e->vectors + i * e->size, event->vector, e->size * sizeof *e->vectors);
    if (event->kind != ENGINE_EVENT_DONE)
        return;
    e->n_over++;
    if (event->finish == ENGINE_FINISH_ERROR && e->status == QUIRE_OK)
        e->status = quire_fail(&e->err, QUIRE_INTERNAL, "text %zu: %s", i,
                               event->message ? event->message : "no vector was computed");
}

static void on_events(void *context, const struct engine_event *events, size_t n)
{
    struct embedder *e = context;
    pthread_mutex_lock(&e->mutex);
    for (size_t i = 0; i < n; i++)
        on_event(e, &events[i]);
    pthread_cond_signal(&e->over);
    pthread_mutex_unlock(&e->mutex);
}

static int submit(struct embedder *e, uint64_t id, const char *text, struct quire_error *err)
{
    uint32_t *ids = NULL, retry_after_ms, most = engine_info(e->engine)->max_model_len;
    size_t n_ids = 0;
    struct request_spec spec, owned;
    int status = quire_text_encode(e->text, text, strlen(text), true, &ids, &n_ids, err);
    if (status != QUIRE_OK)
        return status;
    request_spec_default(&spec);
    spec.prompt = ids;
    spec.n_prompt = (uint32_t)n_ids;
    spec.max_tokens = 0;
    spec.wants_vector = true;
    if (n_ids > most)
        status = quire_fail(err, QUIRE_INVALID,
                            "\"%.40s...\" has %zu tokens, but the model reads only %" PRIu32
                            "; a server truncates it: --url",
                            text, n_ids, most);
    if (status == QUIRE_OK)
        status = request_spec_copy(&owned, &spec, err);
    if (status == QUIRE_OK)
        status = engine_submit(e->engine, id, &owned, &retry_after_ms, err);
    free(ids);
    return status;
}

static int ask_engine(struct embedder *e, const char *const *texts, size_t n, float **vectors, struct quire_error *err)
{
    int status = QUIRE_OK;
    *vectors = calloc(n * e->size, sizeof **vectors);
    if (!*vectors)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    pthread_mutex_lock(&e->mutex);
    e->vectors = *vectors;
    e->first_id = e->next_id;
    e->n = n;
    e->n_over = 0;
    e->status = QUIRE_OK;
    pthread_mutex_unlock(&e->mutex);
    e->next_id += n;
    size_t n_in = 0;
    while (n_in < n && (status = submit(e, e->first_id + n_in, texts[n_in], err)) == QUIRE_OK)
        n_in++;
    pthread_mutex_lock(&e->mutex);
    while (e->n_over < n_in)
        pthread_cond_wait(&e->over, &e->mutex);
    if (status == QUIRE_OK && e->status != QUIRE_OK) {
        status = e->status;
        *err = e->err;
    }
    e->n = 0;
    pthread_mutex_unlock(&e->mutex);
    return status;
}

/* ---- public functions ---- */

static struct embedder *make(void)
{
    struct embedder *e = calloc(1, sizeof *e);
    if (e) {
        pthread_mutex_init(&e->mutex, NULL);
        pthread_cond_init(&e->over, NULL);
    }
    return e;
}

int embedder_of_server(struct cache_client *client, struct embedder **out, struct quire_error *err)
{
    *out = make();
    if (!*out)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    (*out)->client = client;
    return QUIRE_OK;
}

int embedder_of_model(const char *model_dir, bool ignore_unused, struct embedder **out, struct quire_error *err)
{
    struct engine_options options;
    engine_options_default(&options);
    options.model_dir = model_dir;
    options.task = "embed";
    options.ignore_unused_tensors = ignore_unused;
    struct embedder *e = *out = make();
    if (!e)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    int status = quire_text_open(model_dir, &e->text, err);
    if (status == QUIRE_OK)
        status = engine_open(&options, on_events, e, &e->engine, err);
    const struct engine_info *info = status == QUIRE_OK ? engine_info(e->engine) : NULL;
    if (info && (info->vector_size == 0 || info->vector_is_scores))
        status = quire_fail(err, QUIRE_UNSUPPORTED, "%s: is not an embedding model", model_dir);
    if (status != QUIRE_OK) {
        embedder_close(e);
        *out = NULL;
        return status;
    }
    e->size = info->vector_size;
    return QUIRE_OK;
}

void embedder_close(struct embedder *e)
{
    if (!e)
        return;
    if (e->engine)
        engine_close(e->engine);
    if (e->text)
        quire_text_close(e->text);
    pthread_cond_destroy(&e->over);
    pthread_mutex_destroy(&e->mutex);
    free(e);
}

int embedder_run(struct embedder *e, const char *const *texts, size_t n, float **vectors, size_t *size,
                 struct quire_error *err)
{
    *vectors = NULL;
    int status = e->client ? ask_server(e, texts, n, vectors, err) : ask_engine(e, texts, n, vectors, err);
    if (status != QUIRE_OK) {
        free(*vectors);
        *vectors = NULL;
    }
    *size = e->size;
    return status;
}
