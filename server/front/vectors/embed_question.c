/* Computes the vector of this process' own text, by which the response cache compares questions. It uses the same path
 * as requests for vectors, but without the turns of tenants: if the engine's queue is full, the question is not
 * compared. */
#include "server/front/vectors/vectors.h"

#include <stdlib.h>
#include <string.h>

struct embedding {
    struct text_job job; /* first member, for the pool */
    TAILQ_ENTRY(embedding) link;
    struct served_model *served;
    const struct model_facts *facts; /* facts about the engine at its arrival; holds a reference */
    char *text;
    size_t n_text;
    uint32_t *ids;
    size_t n_ids;
    uint32_t tenant;
    void (*done)(void *context, const float *vector, uint32_t n_numbers);
    void *context;
    struct prompt_batch batch;
    struct batch_prompt prompt;
    bool in_pool, is_over;
    float *values;
};

static void embedding_free(struct embedding *e)
{
    free(e->text);
    free(e->ids);
    free(e->values);
    model_facts_release(e->facts);
    free(e);
}

static void finish(void *owner)
{
    struct embedding *e = owner;
    TAILQ_REMOVE(&e->served->embeddings, e, link);
    e->done(e->context, e->values, e->values ? e->facts->vector_size : 0);
    embedding_free(e);
}

/* The caller then gets no vector. */
static void fail(void *owner, const struct api_error *why)
{
    struct embedding *e = owner;
    (void)why;
    free(e->values);
    e->values = NULL;
    finish(e);
}

/* ---- events of the engine ---- */

static void on_accepted(struct batch_prompt *p, uint64_t engine_id)
{
    (void)p;
    (void)engine_id;
}

static void on_vector(void *context, const struct wire_vector *vector)
{
    struct embedding *e = ((struct batch_prompt *)context)->batch->owner;
    if (!e->values)
        e->values = vectors_numbers(e->facts, vector);
}

static void on_done(void *context, const struct wire_done *done)
{
    struct batch_prompt *p = context;
    struct embedding *e = p->batch->owner;
    prompt_batch_over(p);
    if (!prompt_batch_ended_well(p, done))
        return;
    e->is_over = true;
    prompt_batch_settle(&e->batch);
}

static const struct completion_events events = {
    .on_accepted = prompt_batch_on_accepted,
    .on_refused = prompt_batch_on_refused,
    .on_token = prompt_batch_no_token,
    .on_prompt_logprob = prompt_batch_no_token,
    .on_vector = on_vector,
    .on_done = on_done,
    .on_lost = prompt_batch_on_lost,
};

/* ---- text → ids → the engine ---------------------------------------------------------------- */

static bool work(struct text_job *job)
{
    struct embedding *e = (struct embedding *)job;
    (void)vectors_encode(e->served->config->text, e->text, e->n_text, e->facts->max_model_len, &e->ids,
                         &e->n_ids); /* empty: it gets no vector */
    return false;
}

static int submit(struct batch_prompt *p, struct quire_error *err)
{
    const struct embedding *e = p->batch->owner;
    struct request_spec s;
    request_spec_default(&s);
    s.prompt = e->ids;
    s.n_prompt = (uint32_t)e->n_ids;
    s.temperature = 0;
    s.wants_vector = true;
    s.tenant = e->tenant;
    return prompt_batch_send(p, &s, NULL, err);
}

static struct batch_prompt *prompt_at(void *owner, size_t i)
{
    (void)i;
    return &((struct embedding *)owner)->prompt;
}

static uint32_t n_tokens(const struct batch_prompt *p)
{
    return (uint32_t)((const struct embedding *)p->batch->owner)->n_ids;
}

static bool is_over(const void *owner)
{
    return ((const struct embedding *)owner)->is_over;
}

static const struct prompt_batch_calls batch_calls = {
    .events = &events,
    .prompt = prompt_at,
    .n_tokens = n_tokens,
    .submit = submit,
    .on_accepted = on_accepted,
    .is_over = is_over,
    .complete = finish,
    .fail = fail,
};

static void on_text(struct text_job *job)
{
    struct embedding *e = (struct embedding *)job;
    struct api_error why;
    e->in_pool = false;
    if (e->n_ids == 0 || !front_can_serve(e->served, &why)) {
        finish(e);
        return;
    }
    prompt_batch_begin(&e->batch, e->served, &batch_calls, e, NULL, 1, 1, true);
    prompt_batch_start(&e->batch);
}

static void release(struct text_job *job)
{
    embedding_free((struct embedding *)job);
}

/* ---- as an embedder ------------------------------------------------------------------------- */

static bool can_embed(const struct served_model *m)
{
    return !m->front->draining && upstream_is_connected(m->upstream) && m->facts->vector_size > 0;
}

static struct embedding *embed(void *self, const char *text, size_t n, uint32_t tenant,
                               void (*done)(void *context, const float *vector, uint32_t n_numbers), void *context)
{
    struct served_model *m = self;
    struct embedding *e = can_embed(m) ? calloc(1, sizeof *e) : NULL;
    if (!e)
        return NULL;
    *e = (struct embedding){.served = m,
                            .facts = model_facts_hold(m->facts),
                            .n_text = n,
                            .tenant = tenant,
                            .done = done,
                            .context = context};
    e->text = malloc(n + 1);
    if (!e->text) {
        embedding_free(e);
        return NULL;
    }
    memcpy(e->text, text, n);
    e->job = (struct text_job){.work = work, .done = on_text, .release = release, .tenant = tenant, .n_bytes = n};
    e->in_pool = true;
    TAILQ_INSERT_TAIL(&m->embeddings, e, link);
    text_pool_submit(m->front->pool, &e->job);
    return e;
}

static void cancel(void *self, struct embedding *e)
{
    struct served_model *m = self;
    TAILQ_REMOVE(&m->embeddings, e, link);
    if (e->in_pool) {
        text_pool_cancel(m->front->pool, &e->job);
        return;
    }
    prompt_batch_end(&e->batch);
    embedding_free(e);
}

struct embedder served_model_embedder(struct served_model *m)
{
    return (struct embedder){.self = m, .embed = embed, .cancel = cancel};
}

void embeddings_end(struct served_model *m)
{
    struct embedding *e;
    while ((e = TAILQ_FIRST(&m->embeddings))) {
        const struct embedding was = *e;
        cancel(m, e);
        was.done(was.context, NULL, 0);
    }
}
