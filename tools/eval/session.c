#include "tools/eval/session.h"

#include "app/models/cache.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "engine/options.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 512u

struct eval_session {
    char *given, *words; /* words: cut at commas */
    struct hub_model model;
    struct quire_text *text;
    struct engine *engine;
    eval_row *on_row;
    void *row_context;
    uint64_t next_id;

    pthread_mutex_t mutex; /* protects the rest, which the engine's thread writes */
    pthread_cond_t over;
    float *logprobs; /* of the request; NULL: an answer is wanted */
    uint32_t *ids;
    uint32_t n_ids, most;
    double first_s, last_s; /* of its tokens */
    bool is_over;
    int status;
    struct quire_error err;
};

/* ---- the engine's thread ---- */

static void on_logits(void *context, uint32_t position, int64_t forced, const float *row, uint32_t n_vocab)
{
    struct eval_session *s = context;
    if (forced >= 0 && s->on_row)
        s->on_row(s->row_context, position, (uint32_t)forced, row, n_vocab);
}

static void on_event(struct eval_session *s, const struct engine_event *event)
{
    switch (event->kind) {
    case ENGINE_EVENT_PROMPT_LOGPROB:
        if (s->logprobs && event->position < s->most)
            s->logprobs[event->position] = event->logprob.logprob;
        break;
    case ENGINE_EVENT_TOKEN:
        s->last_s = quire_now_s();
        s->first_s = s->n_ids == 0 ? s->last_s : s->first_s;
        if (s->ids && s->n_ids < s->most)
            s->ids[s->n_ids] = event->token;
        s->n_ids++;
        break;
    case ENGINE_EVENT_DONE:
        if (event->finish == ENGINE_FINISH_ERROR)
            s->status = quire_fail(&s->err, QUIRE_INTERNAL, "%s: %s", s->given,
                                   event->message ? event->message : "the request failed");
        s->is_over = true;
        pthread_cond_signal(&s->over);
        break;
    default: break;
    }
}

static void on_events(void *context, const struct engine_event *events, size_t n)
{
    struct eval_session *s = context;
    pthread_mutex_lock(&s->mutex);
    for (size_t i = 0; i < n; i++)
        on_event(s, &events[i]);
    pthread_mutex_unlock(&s->mutex);
}

/* ---- opening ---- */

/* The words after MODEL. They are borrowed from s->words. */
static int read_options(char *rest, struct engine_options *o, struct quire_error *err)
{
    const struct {
        const char *name;
        const char **to;
    } known[] = {{"quantization", &o->quantization},
                 {"kv-cache-dtype", &o->kv_cache_dtype},
                 {"dtype", &o->dtype},
                 {"activation-dtype", &o->activation_dtype}};
    for (char *word; (word = strsep(&rest, ",")) != NULL;) {
        char *value = strchr(word, '=');
        size_t i = 0;
        if (value)
            *value++ = '\0';
        while (i < 4 && strcmp(word, known[i].name) != 0)
            i++;
        if (i == 4 || !value)
            return quire_fail(err, QUIRE_INVALID,
                              "MODEL: \"%.60s\": write MODEL,OPTION=VALUE with the options quantization, "
                              "kv-cache-dtype, dtype and activation-dtype",
                              word);
        *known[i].to = value;
    }
    return QUIRE_OK;
}

static int open_all(struct eval_session *s, const struct eval_how *how, struct quire_error *err)
{
    struct engine_options o;
    const struct engine_observers observers = {.logits = s->on_row ? on_logits : NULL, .logits_context = s};
    char *rest = s->words;
    const char *name = strsep(&rest, ",");
    engine_options_default(&o);
    int status = rest ? read_options(rest, &o, err) : QUIRE_OK;
    if (status == QUIRE_OK)
        status = hub_model_find(name, false, &s->model, err);
    if (status == QUIRE_OK)
        status = quire_text_open(s->model.dir, &s->text, err);
    o.model_dir = s->model.dir;
    o.device = how->device ? how->device : "cpu";
    o.n_threads = how->n_threads;
    o.max_model_len = how->max_tokens;
    o.max_num_seqs = 1;
    o.max_num_batched_tokens = CHUNK;
    o.num_kv_blocks = (how->max_tokens + 15) / 16 + 1;
    o.prefix_caching = false;
    o.observers = &observers;
    if (status == QUIRE_OK && (status = engine_open(&o, on_events, s, &s->engine, err)) != QUIRE_OK)
        quire_error_prefix(err, "%.100s, for requests of %u tokens (--window or --lengths)", s->given, how->max_tokens);
    return status;
}

int eval_open(const char *given, const struct eval_how *how, eval_row *on_row, void *context, struct eval_session **out,
              struct quire_error *err)
{
    struct eval_session *s = *out = calloc(1, sizeof *s);
    if (!s)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->over, NULL);
    s->given = strdup(given);
    s->words = strdup(given);
    s->on_row = on_row;
    s->row_context = context;
    int status = s->given && s->words ? open_all(s, how, err) : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (status == QUIRE_OK && eval_info(s)->vector_size > 0)
        status = quire_fail(err, QUIRE_UNSUPPORTED, "%s: gives vectors, not tokens", given);
    if (status != QUIRE_OK) {
        eval_close(s);
        *out = NULL;
    }
    return status;
}

void eval_close(struct eval_session *s)
{
    if (!s)
        return;
    if (s->engine)
        engine_close(s->engine);
    if (s->text)
        quire_text_close(s->text);
    pthread_cond_destroy(&s->over);
    pthread_mutex_destroy(&s->mutex);
    free(s->given);
    free(s->words);
    free(s);
}

const char *eval_name(const struct eval_session *s)
{
    return s->given;
}

const char *eval_dir(const struct eval_session *s)
{
    return s->model.dir;
}

const struct quire_text *eval_text(const struct eval_session *s)
{
    return s->text;
}

const struct engine_info *eval_info(const struct eval_session *s)
{
    return engine_info(s->engine);
}

/* ---- requests ---- */

/* Runs one request to its end. *began_s: when it was submitted. */
static int run(struct eval_session *s, const struct request_spec *spec, double *began_s, struct quire_error *err)
{
    struct request_spec owned;
    uint32_t retry_after_ms;
    s->is_over = false;
    s->n_ids = 0;
    s->status = QUIRE_OK;
    int status = request_spec_copy(&owned, spec, err);
    *began_s = quire_now_s();
    if (status == QUIRE_OK)
        status = engine_submit(s->engine, ++s->next_id, &owned, &retry_after_ms, err);
    if (status != QUIRE_OK)
        return status;
    pthread_mutex_lock(&s->mutex);
    while (!s->is_over)
        pthread_cond_wait(&s->over, &s->mutex);
    status = s->status;
    if (status != QUIRE_OK)
        *err = s->err;
    pthread_mutex_unlock(&s->mutex);
    return status;
}

int eval_score(struct eval_session *s, const uint32_t *ids, uint32_t n, float *logprobs, struct quire_error *err)
{
    struct request_spec spec;
    double began_s;
    request_spec_default(&spec);
    spec.prompt = (uint32_t *)(uintptr_t)ids; /* borrowed: it is copied */
    spec.n_prompt = n;
    spec.max_tokens = 0;
    spec.n_prompt_logprobs = 0;
    logprobs[0] = 0;
    s->logprobs = logprobs;
    s->ids = NULL;
    s->most = n;
    return run(s, &spec, &began_s, err);
}

int eval_generate(struct eval_session *s, const uint32_t *prompt, uint32_t n_prompt, uint32_t most, uint32_t *ids,
                  struct eval_answer *out, struct quire_error *err)
{
    struct request_spec spec;
    double began_s;
    request_spec_default(&spec);
    spec.prompt = (uint32_t *)(uintptr_t)prompt;
    spec.n_prompt = n_prompt;
    spec.max_tokens = most;
    spec.temperature = 0;
    spec.ignore_eos = true;
    s->logprobs = NULL;
    s->ids = ids;
    s->most = most;
    const int status = run(s, &spec, &began_s, err);
    out->n = s->n_ids < most ? s->n_ids : most;
    out->prefill_s = s->first_s - began_s;
    out->decode_s = s->last_s - s->first_s;
    return status;
}
