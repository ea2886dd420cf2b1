#include "tools/bench/steps/steps.h"

#include "base/clock.h"
#include "tools/bench/lib/random.h"
#include "engine/engine.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct answers { /* of the requests of a scene with drafts */
    uint32_t n, context, each;
    uint32_t *tokens; /* [n][each] */
};

struct bench_steps {
    struct engine *engine;
    struct engine_watch watch;
    uint64_t seed, n_fresh; /* tokens that no prompt had before */
    uint64_t next_id;
    uint32_t *ids; /* a prompt, [max_model_len] */
    struct answers *answers; /* [n_answers] */
    uint32_t n_answers;

    pthread_mutex_t mutex; /* what follows */
    pthread_cond_t changed;
    uint32_t n_requests, n_over, n_tokens; /* of the scene */
    const struct answers *learns; /* receives the tokens of the requests from learns_from on; NULL: not stored */
    uint64_t learns_from;
    uint32_t *learned; /* [n_requests] tokens of each */
    uint32_t hold_at; /* the engine is held after this many tokens; 0: no more */
    bool held, failed;
    struct quire_error err;
    struct bench_step_times *times;
};

/* ---- on the engine's thread ---- */

static void fail(struct bench_steps *b, const char *text)
{
    if (!b->failed)
        quire_fail(&b->err, QUIRE_INTERNAL, "%s", text);
    b->failed = true;
    pthread_cond_broadcast(&b->changed);
}

static void on_planned(void *context, uint64_t now_us, const struct sched_plan *plan, const struct sched *sched)
{
    struct bench_steps *b = context;
    struct quire_error err;
    (void)sched;
    pthread_mutex_lock(&b->mutex);
    if (bench_step_times_planned(b->times, now_us, plan, &err) != QUIRE_OK)
        fail(b, err.text);
    pthread_mutex_unlock(&b->mutex);
}

static void on_committed(void *context, const struct engine_watch_commit *commit)
{
    struct bench_steps *b = context;
    struct quire_error err;
    pthread_mutex_lock(&b->mutex);
    if (bench_step_times_committed(b->times, commit, &err) != QUIRE_OK)
        fail(b, err.text);
    pthread_mutex_unlock(&b->mutex);
}

/* Between two steps. If the engine is held, it sleeps here: the next wave is not in the mailbox yet. */
static void on_events(void *context, const struct engine_event *events, size_t n)
{
    struct bench_steps *b = context;
    pthread_mutex_lock(&b->mutex);
    for (size_t i = 0; i < n; i++) {
        const struct engine_event *e = &events[i];
        b->n_tokens += e->kind == ENGINE_EVENT_TOKEN;
        b->n_over += e->kind == ENGINE_EVENT_DONE;
        if (b->learns && e->kind == ENGINE_EVENT_TOKEN) {
            uint64_t place = e->request - b->learns_from;
            b->learns->tokens[place * b->learns->each + b->learned[place]++] = e->token;
        }
        if (e->kind == ENGINE_EVENT_DONE && e->finish != ENGINE_FINISH_LENGTH)
            fail(b, e->message ? e->message : "a request ended before its last token");
    }
    if (b->hold_at > 0 && b->n_tokens >= b->hold_at) {
        b->held = true;
        bench_step_times_disturb(b->times);
        pthread_cond_broadcast(&b->changed);
        while (b->held)
            pthread_cond_wait(&b->changed, &b->mutex);
    }
    if (b->n_over == b->n_requests)
        pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->mutex);
}

/* ---- on the caller's thread ---- */

int bench_steps_open(const struct engine_options *options, uint64_t seed, struct bench_steps **out,
                     struct quire_error *err)
{
    *out = NULL;
    struct bench_steps *b = calloc(1, sizeof *b);
    if (!b || !(b->times = bench_step_times_new())) {
        free(b);
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    }
    pthread_mutex_init(&b->mutex, NULL);
    pthread_cond_init(&b->changed, NULL);
    b->seed = seed;
    b->watch = (struct engine_watch){.context = b, .planned = on_planned, .committed = on_committed};
    const struct engine_watch *watches[] = {&b->watch};
    struct engine_options with = *options;
    const struct engine_observers observers = {.watches = watches, .n_watches = 1};
    struct step_options steps = *engine_step_options(options);
    with.observers = &observers;
    with.steps = &steps;
    steps.speculative.adaptive = false;
    steps.speculative.num_speculative_tokens = BENCH_MAX_DRAFTS;
    int status = engine_open(&with, on_events, b, &b->engine, err);
    if (status == QUIRE_OK) {
        bench_step_times_overlap(b->times, engine_plan_overlap_depth(engine_info(b->engine)->plan) > 0);
        b->ids = malloc(engine_info(b->engine)->plan->max_model_len * sizeof *b->ids);
        if (!b->ids)
            status = quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    }
    if (status == QUIRE_OK)
        *out = b;
    else
        bench_steps_close(b);
    return status;
}

void bench_steps_close(struct bench_steps *b)
{
    if (!b)
        return;
    if (b->engine)
        engine_close(b->engine);
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->mutex);
    for (uint32_t i = 0; i < b->n_answers; i++)
        free(b->answers[i].tokens);
    free(b->answers);
    bench_step_times_free(b->times);
    free(b->ids);
    free(b);
}

const struct engine_info *bench_steps_info(const struct bench_steps *b)
{
    return engine_info(b->engine);
}

/* Prefix i's first `context` tokens, then n_own that no other prompt has, and an answer of max_tokens. With an expected
 * answer, n_drafts of it at a time; the own tokens are then the same every time. */
static int submit(struct bench_steps *b, uint32_t i, uint32_t context, uint32_t n_own, uint32_t max_tokens,
                  const uint32_t *expected, uint32_t n_drafts, struct quire_error *err)
{
    uint32_t vocab_size = engine_info(b->engine)->desc->config->vocab_size, retry_after_ms;
    uint64_t prefix = bench_stream(b->seed, 1, i);
    uint64_t own = expected ? bench_stream(b->seed, 3, i) : bench_stream(b->seed, 2, b->n_fresh++);
    for (uint32_t k = 0; k < context + n_own; k++)
        b->ids[k] = (uint32_t)(bench_random(k < context ? &prefix : &own) % vocab_size);
    struct request_spec spec, owned;
    request_spec_default(&spec);
    spec.prompt = b->ids;
    spec.n_prompt = context + n_own;
    spec.max_tokens = max_tokens;
    spec.temperature = 0;
    spec.ignore_eos = true;
    spec.max_drafts = n_drafts;
    spec.prediction = expected;
    spec.n_prediction = n_drafts > 0 ? max_tokens : 0;
    int status = request_spec_copy(&owned, &spec, err);
    return status ? status : engine_submit(b->engine, b->next_id++, &owned, &retry_after_ms, err);
}

static void begin(struct bench_steps *b, uint32_t n_requests, uint32_t hold_at)
{
    pthread_mutex_lock(&b->mutex);
    b->n_requests = n_requests;
    b->n_tokens = b->n_over = 0;
    b->hold_at = hold_at;
    bench_step_times_forget(b->times);
    pthread_mutex_unlock(&b->mutex);
}

static int wait_until_held(struct bench_steps *b, struct quire_error *err)
{
    pthread_mutex_lock(&b->mutex);
    while (!b->held && !b->failed)
        pthread_cond_wait(&b->changed, &b->mutex);
    bool failed = b->failed;
    if (failed && err)
        *err = b->err;
    pthread_mutex_unlock(&b->mutex);
    return failed ? QUIRE_INTERNAL : QUIRE_OK;
}

static void release_engine(struct bench_steps *b, uint32_t hold_at)
{
    pthread_mutex_lock(&b->mutex);
    b->hold_at = hold_at;
    b->held = false;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->mutex);
}

static int wait_until_over(struct bench_steps *b, struct quire_error *err)
{
    pthread_mutex_lock(&b->mutex);
    while (b->n_over < b->n_requests && !b->failed)
        pthread_cond_wait(&b->changed, &b->mutex);
    bool failed = b->failed;
    if (failed && err)
        *err = b->err;
    bench_step_times_stop(b->times);
    pthread_mutex_unlock(&b->mutex);
    return failed ? QUIRE_INTERNAL : QUIRE_OK;
}

int bench_steps_fill(struct bench_steps *b, uint32_t i, uint32_t n_tokens, double *seconds, struct quire_error *err)
{
    double began = quire_now_s();
    begin(b, 1, 0);
    int status = submit(b, i, n_tokens, 1, 1, NULL, 0, err);
    if (status == QUIRE_OK)
        status = wait_until_over(b, err);
    *seconds = quire_now_s() - began;
    return status;
}

/* ---- a scene ---- */

static int submit_decoding(struct bench_steps *b, const struct bench_scene *scene, uint32_t max_tokens,
                           const struct answers *answers, uint32_t n_drafts, struct quire_error *err)
{
    int status = QUIRE_OK;
    for (uint32_t i = 0; i < scene->n_decode && status == QUIRE_OK; i++)
        status = submit(b, i, scene->decode_context, 1, max_tokens,
                        answers ? answers->tokens + (size_t)i * answers->each : NULL, n_drafts, err);
    return status;
}

/* Without decoding requests, a second token, so that the step of the prompt is not the last. */
static int submit_prompts(struct bench_steps *b, const struct bench_scene *scene, struct quire_error *err)
{
    int status = QUIRE_OK;
    for (uint32_t i = 0; i < scene->n_prompts && status == QUIRE_OK; i++)
        status = submit(b, scene->n_decode + i, scene->prompt_context, scene->prompt_len, scene->n_decode ? 1 : 2, NULL,
                        0, err);
    return status;
}

static uint32_t answer_tokens(const struct bench_steps *b, const struct bench_scene *scene)
{
    uint32_t budget = engine_info(b->engine)->plan->max_num_batched_tokens;
    uint32_t left = budget > scene->n_decode ? budget - scene->n_decode : 1;
    return scene->n_steps * (1 + scene->n_drafts) + 1 + (scene->n_prompts * scene->prompt_len + left - 1) / left;
}

/* The answers of a scene's requests, at least this long; otherwise space for them. */
static struct answers *answers_of(struct bench_steps *b, const struct bench_scene *scene, uint32_t each)
{
    for (uint32_t i = 0; i < b->n_answers; i++)
        if (b->answers[i].n == scene->n_decode && b->answers[i].context == scene->decode_context &&
            b->answers[i].each >= each)
            return &b->answers[i];
    struct answers *grown = realloc(b->answers, (b->n_answers + 1) * sizeof *grown);
    if (!grown)
        return NULL;
    b->answers = grown;
    grown += b->n_answers++;
    *grown = (struct answers){.n = scene->n_decode, .context = scene->decode_context, .each = each};
    return grown;
}

/* Sets where the tokens of the next requests are stored. */
static void set_learner(struct bench_steps *b, const struct answers *answers, uint32_t *learned)
{
    pthread_mutex_lock(&b->mutex);
    b->learns = answers;
    b->learned = learned;
    b->learns_from = b->next_id;
    pthread_mutex_unlock(&b->mutex);
}

/* Learns the answers of a scene's requests with drafts. They do not depend on other requests or drafts. A longer answer
 * begins like a shorter one, so of scenes that differ in their drafts, the one with most should be first. */
static int learn(struct bench_steps *b, const struct bench_scene *scene, const struct answers **out,
                 struct quire_error *err)
{
    uint32_t each = answer_tokens(b, scene);
    struct answers *a = answers_of(b, scene, each);
    *out = a;
    if (a && a->tokens)
        return QUIRE_OK;
    uint32_t *learned = calloc(scene->n_decode, sizeof *learned);
    if (a)
        a->tokens = calloc((size_t)scene->n_decode * each, sizeof *a->tokens);
    if (!a || !learned || !a->tokens) {
        free(learned);
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    }
    begin(b, scene->n_decode, 0);
    set_learner(b, a, learned);
    int status = submit_decoding(b, scene, each, a, 0, err);
    if (status == QUIRE_OK)
        status = wait_until_over(b, err);
    set_learner(b, NULL, NULL);
    free(learned);
    return status;
}

/* A first request of one token holds the engine at its end while the scene's first wave is submitted. */
int bench_steps_run(struct bench_steps *b, uint32_t index, const struct bench_scene *scene, struct quire_error *err)
{
    bool two_waves = scene->n_decode > 0 && scene->n_prompts > 0;
    const struct answers *answers = NULL;
    int status = scene->n_drafts > 0 ? learn(b, scene, &answers, err) : QUIRE_OK;
    if (status != QUIRE_OK)
        return status;
    begin(b, 1 + scene->n_decode + scene->n_prompts, 1);
    status = submit(b, 0, 0, 1, 1, NULL, 0, err);
    if (status == QUIRE_OK)
        status = wait_until_held(b, err);
    if (status != QUIRE_OK)
        return status;
    bench_step_times_record(b->times, index); /* the engine is held, so its thread reports nothing */
    status = scene->n_decode ? submit_decoding(b, scene, answer_tokens(b, scene), answers, scene->n_drafts, err)
                             : submit_prompts(b, scene, err);
    release_engine(b, two_waves && status == QUIRE_OK ? 1 + scene->n_decode * scene->n_steps : 0);
    if (two_waves && status == QUIRE_OK) {
        status = wait_until_held(b, err);
        if (status == QUIRE_OK)
            status = submit_prompts(b, scene, err);
        release_engine(b, 0);
    }
    return status == QUIRE_OK ? wait_until_over(b, err) : status;
}

int bench_steps_medians(const struct bench_steps *b, struct bench_step **out, size_t *n, struct quire_error *err)
{
    return bench_step_times_medians(b->times, out, n, err);
}
