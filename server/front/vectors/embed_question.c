/* Computes the vector of this process' own text, by which the response cache compares questions. It uses the same path
 * as requests for vectors, but without the turns of tenants: if the engine's queue is full, the question is not
 * compared. */
#include "server/front/vectors/vectors.h"

#include <stdlib.h>
#include <string.h>

/* The question's text, and its ids once the pool has made them. It belongs to the pool while it is there. */
struct question_text {
    struct text_job job; /* first member, for the pool */
    struct embedding *owner;
    const struct quire_text *tokenizer;
    const struct model_facts *facts; /* facts about the engine at its arrival; holds a reference */
    char *text;
    size_t n_text;
    uint32_t *ids;
    size_t n_ids;
};

struct embedding {
    TAILQ_ENTRY(embedding) link;
    struct served_model *served;
    struct question_text *text;
    void (*done)(void *context, const float *vector, uint32_t n_numbers);
    void *context;
    struct prompt_batch batch;
    struct batch_prompt prompt;
    bool in_pool;
    float *values;
};

static void text_free(struct question_text *t)
{
    model_facts_release(t->facts);
    free(t->text);
    free(t->ids);
    free(t);
}

static void embedding_free(struct embedding *e)
{
    if (!e->in_pool)
        text_free(e->text);
    free(e->values);
    free(e);
}

static void finish(void *owner)
{
    struct embedding *e = owner;
    TAILQ_REMOVE(&e->served->embeddings, e, link);
    e->done(e->context, e->values, e->values ? e->text->facts->vector_size : 0);
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

static void on_vector(struct batch_prompt *p, const struct wire_vector *vector)
{
    struct embedding *e = p->batch->owner;
    if (!e->values)
        e->values = vectors_numbers(e->text->facts, vector);
}

/* ---- text → ids → the engine ---------------------------------------------------------------- */

static bool work(struct text_job *job)
{
    struct question_text *t = (struct question_text *)job;
    (void)vectors_encode(t->tokenizer, t->text, t->n_text, t->facts->max_model_len, &t->ids,
                         &t->n_ids); /* empty: it gets no vector */
    return false;
}

static int submit(struct batch_prompt *p, struct quire_error *err)
{
    const struct embedding *e = p->batch->owner;
    struct request_spec s;
    vectors_spec(&s, e->text->ids, e->text->n_ids);
    s.tenant = e->text->job.tenant;
    return prompt_batch_send(p, &s, NULL, err);
}

static const struct prompt_batch_calls batch_calls = {
    .prompt_bytes = sizeof(struct batch_prompt),
    .submit = submit,
    .on_vector = on_vector,
    .on_done = prompt_batch_ended_well,
    .complete = finish,
    .fail = fail,
};

static void on_text(struct text_job *job)
{
    const struct question_text *t = (struct question_text *)job;
    struct embedding *e = t->owner;
    struct api_error why;
    e->in_pool = false;
    if (t->n_ids == 0 || !front_can_serve(e->served, &why)) {
        finish(e);
        return;
    }
    e->prompt.n_tokens = (uint32_t)t->n_ids;
    prompt_batch_begin(&e->batch, e->served, &batch_calls, e, NULL, &e->prompt, 1, 1);
    prompt_batch_start(&e->batch);
}

static void release(struct text_job *job)
{
    text_free((struct question_text *)job);
}

static const struct text_job_calls text_calls = {.work = work, .done = on_text, .release = release};

/* ---- as an embedder ------------------------------------------------------------------------- */

static bool can_embed(const struct served_model *m)
{
    return !m->front->draining && upstream_is_connected(m->upstream) && m->facts->vector_size > 0;
}

static struct question_text *text_new(const struct served_model *m, const char *text, size_t n, uint32_t tenant)
{
    struct question_text *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    *t = (struct question_text){.job = {.calls = &text_calls, .tenant = tenant, .n_bytes = n},
                                .tokenizer = m->config->text,
                                .facts = model_facts_hold(m->facts),
                                .text = malloc(n + 1),
                                .n_text = n};
    if (!t->text) {
        text_free(t);
        return NULL;
    }
    memcpy(t->text, text, n);
    return t;
}

static struct embedding *embed(void *self, const char *text, size_t n, uint32_t tenant,
                               void (*done)(void *context, const float *vector, uint32_t n_numbers), void *context)
{
    struct served_model *m = self;
    struct embedding *e = can_embed(m) ? calloc(1, sizeof *e) : NULL;
    if (!e)
        return NULL;
    *e = (struct embedding){
        .served = m, .text = text_new(m, text, n, tenant), .done = done, .context = context, .in_pool = true};
    if (!e->text) {
        free(e);
        return NULL;
    }
    e->text->owner = e;
    TAILQ_INSERT_TAIL(&m->embeddings, e, link);
    text_pool_submit(m->front->pool, &e->text->job);
    return e;
}

static void cancel(void *self, struct embedding *e)
{
    struct served_model *m = self;
    TAILQ_REMOVE(&m->embeddings, e, link);
    if (e->in_pool)
        text_pool_cancel(m->front->pool, &e->text->job);
    else
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
