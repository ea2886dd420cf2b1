#include "app/replay/replay.h"

#include "app/replay/streaming.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "engine/info.h"
#include "engine/model/describe.h"
#include "engine/record/digest.h"
#include "engine/record/seqs.h"
#include "engine/stats.h"
#include "kernels/kv.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_EVERY_NS UINT64_C(100000000)

struct replayed_choice {
    /* as recorded */
    uint32_t n_tokens, capacity;
    uint32_t *tokens;
    uint32_t n_prompt_logprobs;
    bool has_digest; /* the recording contains its end */
    bool cut;        /* cancelled, interrupted, or still running at the recording's end */
    enum engine_finish finish;
    struct key256 digest;
    /* as replayed */
    struct record_digest seen; /* the bytes to compare so far */
    bool done, differs, cancel_asked;
};

struct replayed_request {
    uint64_t request, id;
    uint64_t offset;
    uint32_t n_prompt, n, n_open;
    bool submitted;
    struct replayed_choice *choices; /* [n] */
};

struct replay {
    struct recording *recording;
    const struct engine_grammars *grammars; /* NULL: none */
    struct replayed_request *requests;
    size_t n_requests, capacity;
    uint64_t n_tokens;
    bool guesses; /* requests have drafts */

    struct engine *engine;
    pthread_mutex_t mutex; /* protects the rest, and the replayed choices */
    pthread_cond_t changed;
    size_t n_submitted, n_over;
    uint64_t n_seen;     /* tokens compared */
    bool to_cancel;      /* a choice has everything it is compared with, but continues */
    struct replay_report report;
};

static int no_memory(struct quire_error *err)
{
    return quire_fail(err, QUIRE_NO_MEMORY, "replay: out of memory");
}

/* ---- the recording --------------------------------------------------------------------------- */

static int load_submit(struct replay *p, struct recording_seqs *seqs, const struct recording_entry *e)
{
    const struct recording_submit *s = e->submit;
    if (p->n_requests == p->capacity) {
        size_t capacity = 2 * p->capacity + 64;
        struct replayed_request *requests = realloc(p->requests, capacity * sizeof *requests);
        if (!requests)
            return QUIRE_NO_MEMORY;
        p->requests = requests;
        p->capacity = capacity;
    }
    struct replayed_choice *choices = calloc(s->sched.n, sizeof *choices);
    if (!choices)
        return QUIRE_NO_MEMORY;
    for (uint32_t i = 0; i < s->sched.n; i++)
        choices[i].cut = true; /* until its end is read */
    p->requests[p->n_requests] = (struct replayed_request){.request = s->request,
                                                           .id = s->sched.id,
                                                           .offset = e->offset,
                                                           .n_prompt = s->sched.n_prompt,
                                                           .n = s->sched.n,
                                                           .n_open = s->sched.n,
                                                           .choices = choices};
    int status = QUIRE_OK;
    for (uint32_t i = 0; s->status == QUIRE_OK && i < s->sched.n && status == QUIRE_OK; i++)
        status = recording_seqs_set(seqs, s->seqs[i], p->n_requests, i);
    p->n_requests++;
    return status;
}

static int load_commit(struct replay *p, const struct recording_seqs *seqs, const struct recording_commit *c)
{
    for (uint32_t i = 0; i < c->n_results; i++) {
        const struct sched_result *result = &c->results[i];
        const struct recording_owner *owner = recording_seqs_owner(seqs, result->seq);
        if (!owner)
            continue;
        struct replayed_choice *o = &p->requests[owner->request].choices[owner->choice];
        uint32_t n = result->n_accepted + 1;
        if (o->capacity - o->n_tokens < n) {
            uint32_t capacity = 2 * (o->n_tokens + n) + 14;
            uint32_t *tokens = realloc(o->tokens, capacity * sizeof *tokens);
            if (!tokens)
                return QUIRE_NO_MEMORY;
            o->tokens = tokens;
            o->capacity = capacity;
        }
        memcpy(o->tokens + o->n_tokens, result->tokens, n * sizeof *o->tokens);
        o->n_tokens += n;
        p->n_tokens += n;
    }
    return QUIRE_OK;
}

/* The engine's ids increase. */
static struct replayed_request *request_named(const struct replay *p, uint64_t id)
{
    size_t low = 0, high = p->n_requests;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (p->requests[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < p->n_requests && p->requests[low].id == id ? &p->requests[low] : NULL;
}

static int load_finish(struct replay *p, const struct recording_entry *e, struct quire_error *err)
{
    struct replayed_request *r = request_named(p, e->finish.id);
    if (!r || r->n != e->finish.n)
        return quire_fail(err, QUIRE_INVALID, "recording: byte %llu: the end of an unknown request",
                          (unsigned long long)e->offset);
    for (uint32_t i = 0; i < r->n; i++) {
        const struct recording_choice *from = &e->finish.choices[i];
        struct replayed_choice *o = &r->choices[i];
        bool broke_off = from->finish == ENGINE_FINISH_ERROR && from->n_tokens != o->n_tokens;
        if (broke_off)
            continue; /* with a step that was never committed */
        if (from->n_tokens != o->n_tokens)
            return quire_fail(err, QUIRE_INVALID,
                              "recording: byte %llu: request %llu ended with %u tokens, but the recording has "
                              "%u",
                              (unsigned long long)e->offset, (unsigned long long)r->request, from->n_tokens,
                              o->n_tokens);
        o->n_prompt_logprobs = from->n_prompt_logprobs;
        o->finish = from->finish;
        o->digest = from->digest;
        o->has_digest = true;
        o->cut = from->finish != ENGINE_FINISH_STOP && from->finish != ENGINE_FINISH_LENGTH;
    }
    return QUIRE_OK;
}

static int load(struct replay *p, struct recording_seqs *seqs, struct quire_error *err)
{
    struct recording_entry e;
    int status;
    recording_rewind(p->recording);
    while ((status = recording_next(p->recording, &e, err)) == QUIRE_OK && e.kind != RECORDING_END) {
        if (e.kind == RECORDING_FINISH)
            status = load_finish(p, &e, err);
        else if ((e.kind == RECORDING_SUBMIT && load_submit(p, seqs, &e) != QUIRE_OK) ||
                 (e.kind == RECORDING_COMMIT && load_commit(p, seqs, &e.commit) != QUIRE_OK))
            status = no_memory(err);
        else if (e.kind == RECORDING_RETIRED)
            recording_seqs_drop(seqs, e.seq);
        if (status != QUIRE_OK)
            return status;
    }
    return status;
}

int replay_open(struct recording *r, struct replay **out, struct quire_error *err)
{
    struct recording_seqs seqs = {0};
    struct replay *p = calloc(1, sizeof *p);
    *out = NULL;
    if (!p)
        return no_memory(err);
    pthread_mutex_init(&p->mutex, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&p->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    p->recording = r;
    int status = load(p, &seqs, err);
    recording_seqs_free(&seqs);
    if (status != QUIRE_OK)
        replay_close(p);
    else
        *out = p;
    return status;
}

void replay_close(struct replay *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n_requests; i++) {
        for (uint32_t k = 0; k < p->requests[i].n; k++)
            free(p->requests[i].choices[k].tokens);
        free(p->requests[i].choices);
    }
    free(p->requests);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->mutex);
    free(p);
}

uint64_t replay_n_tokens(const struct replay *p)
{
    return p->n_tokens;
}

/* ---- comparing, on the engine's thread ------------------------------------------------------- */

/* Reports the first difference of a choice; later ones follow from it. */
static void differs(struct replay *p, const struct replayed_request *r, struct replayed_choice *o,
                    struct replay_difference d)
{
    if (o->differs)
        return;
    o->differs = true;
    d.request = r->request;
    d.choice = (uint32_t)(o - r->choices);
    p->report.n_different++;
    if (p->report.n_shown < REPLAY_MAX_SHOWN)
        p->report.shown[p->report.n_shown++] = d;
}

static bool has_all(const struct replayed_choice *o)
{
    return o->seen.n_tokens == o->n_tokens && o->seen.n_prompt_logprobs == o->n_prompt_logprobs;
}

static void on_token(struct replay *p, struct replayed_request *r, struct replayed_choice *o,
                     const struct engine_event *e)
{
    uint32_t at = o->seen.n_tokens;
    if (at == o->n_tokens) {
        if (!o->cut)
            differs(p, r, o,
                    (struct replay_difference){
                        .what = REPLAY_LENGTH, .position = r->n_prompt + at, .recorded = at, .replayed = at + 1});
        return;
    }
    if (e->token != o->tokens[at])
        differs(
            p, r, o,
            (struct replay_difference){
                .what = REPLAY_TOKEN, .position = r->n_prompt + at, .recorded = o->tokens[at], .replayed = e->token});
    record_digest_add(&o->seen, e);
    p->n_seen++;
}

static void on_done(struct replay *p, struct replayed_request *r, struct replayed_choice *o,
                    const struct engine_event *e)
{
    struct key256 digest = record_digest_now(&o->seen);
    if (o->seen.n_tokens < o->n_tokens)
        differs(p, r, o,
                (struct replay_difference){.what = REPLAY_LENGTH,
                                           .position = r->n_prompt + o->seen.n_tokens,
                                           .recorded = o->n_tokens,
                                           .replayed = o->seen.n_tokens});
    if (o->has_digest && memcmp(&digest, &o->digest, sizeof digest) != 0)
        differs(p, r, o, (struct replay_difference){.what = REPLAY_LOGPROB});
    if (!o->cut && e->finish != o->finish)
        differs(p, r, o,
                (struct replay_difference){.what = REPLAY_FINISH, .recorded = o->finish, .replayed = e->finish});
    o->done = true;
    r->n_open--;
    p->n_over += r->n_open == 0;
}

static void on_event(struct replay *p, const struct engine_event *e)
{
    struct replayed_request *r = &p->requests[e->request];
    struct replayed_choice *o = &r->choices[e->choice];
    if (e->kind == ENGINE_EVENT_TOKEN)
        on_token(p, r, o, e);
    else if (e->kind == ENGINE_EVENT_PROMPT_LOGPROB && o->seen.n_prompt_logprobs < o->n_prompt_logprobs)
        record_digest_add(&o->seen, e);
    else if (e->kind == ENGINE_EVENT_DONE)
        on_done(p, r, o, e);
    if (o->cut && !o->done && has_all(o))
        p->to_cancel = true;
}

static void on_events(void *context, const struct engine_event *events, size_t n)
{
    struct replay *p = context;
    pthread_mutex_lock(&p->mutex);
    for (size_t i = 0; i < n; i++)
        on_event(p, &events[i]);
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->mutex);
}

/* ---- asking again ---------------------------------------------------------------------------- */

static const char *form_option(enum k_gemm_form form)
{
    return form == K_FORM_LANE   ? "lane"
           : form == K_FORM_MMA  ? "mma"
           : form == K_FORM_INT8 ? "auto" /* int8 activations select this form */
                                 : "tile";
}

/* Options of the recorded engine that affect answers and memory. */
static int options_of(const struct recording_header *h, const char *model_dir, struct engine_options *o,
                      struct quire_error *err)
{
    struct model_config *config;
    struct sampling_defaults ignored;
    const int status = model_describe(model_dir, &config, &ignored, err);
    if (status != QUIRE_OK)
        return status;
    const struct replay_streaming streaming = replay_streaming_of(&h->config->kv, config);
    model_config_free(config);
    engine_options_default(o);
    o->attention_window = streaming.window;
    o->attention_sinks = streaming.sinks;
    o->model_dir = model_dir;
    o->device = h->engine->device;
    o->gemm_form = form_option(h->engine->gemm_form);
    o->activation_dtype = h->engine->gemm_form == K_FORM_TILE_BF16 ? "bfloat16"
                          : h->engine->gemm_form == K_FORM_INT8    ? "int8"
                                                                   : "float32";
    o->quantization = h->engine->quantization;
    o->ignore_unused_tensors = true; /* as was recorded: the weights' digest is compared */
    o->kv_cache_dtype = k_format_name(k_kv_format(h->engine->kv_dtype));
    o->max_model_len = h->config->max_model_len;
    o->max_num_seqs = h->config->max_num_seqs;
    o->max_num_batched_tokens = h->config->max_num_batched_tokens;
    o->block_size = h->config->kv.block_tokens;
    o->prefix_caching = h->config->kv.prefix_caching;
    for (uint32_t g = 0; g < h->config->kv.n_groups; g++)
        if (h->config->kv.groups[g].n_blocks > o->num_kv_blocks)
            o->num_kv_blocks = h->config->kv.groups[g].n_blocks;
    return QUIRE_OK;
}

/* False for a request that ended before its first token. */
static bool has_answer(const struct replayed_request *r)
{
    for (uint32_t i = 0; i < r->n; i++)
        if (!r->choices[i].cut || r->choices[i].n_tokens || r->choices[i].n_prompt_logprobs)
            return true;
    return false;
}

static void begin_choices(struct replay *p, struct replayed_request *r)
{
    bool is_cut = false;
    for (uint32_t i = 0; i < r->n; i++) {
        struct replayed_choice *o = &r->choices[i];
        record_digest_begin(&o->seen);
        is_cut |= o->cut;
    }
    p->report.n_compared++;
    p->report.n_cut += is_cut;
    p->report.n_choices += r->n;
}

/* The engine's thread may not be called from here, so requests are marked. Call with the mutex held. */
static void cancel_what_is_enough(struct replay *p)
{
    p->to_cancel = false;
    for (size_t i = 0; i < p->n_requests; i++) {
        struct replayed_request *r = &p->requests[i];
        for (uint32_t k = 0; r->submitted && r->n_open > 0 && k < r->n; k++) {
            struct replayed_choice *o = &r->choices[k];
            if (!o->cut || o->done || o->cancel_asked || !has_all(o))
                continue;
            o->cancel_asked = true;
            engine_cancel_choice(p->engine, i, k);
        }
    }
}

/* Sleeps until an event or a short time-out. Cancels requests that have been compared up to their cut. */
static void wait_a_little(struct replay *p, void (*progress)(void *, uint64_t), void *context)
{
    struct timespec until = quire_until_ns(quire_now_ns() + LOOK_EVERY_NS);
    pthread_mutex_lock(&p->mutex);
    if (!p->to_cancel && p->n_over < p->n_submitted)
        pthread_cond_timedwait(&p->changed, &p->mutex, &until);
    if (p->to_cancel)
        cancel_what_is_enough(p);
    uint64_t n_seen = p->n_seen;
    pthread_mutex_unlock(&p->mutex);
    if (progress)
        progress(context, n_seen);
}

static int submit(struct replay *p, size_t index, struct quire_error *err)
{
    struct recording_entry e;
    int status = recording_read_at(p->recording, p->requests[index].offset, &e, err);
    if (status != QUIRE_OK)
        return status;
    struct request_spec spec;
    status = request_spec_copy(&spec, e.submit->spec, err);
    if (status != QUIRE_OK)
        return status;
    /* The time and the tenant of a request are not repeated. */
    spec.priority = 0;
    spec.deadline_us = spec.pin_us = spec.keep_us = 0;
    spec.tenant = spec.class_index = spec.expected_tokens = 0;
    spec.background = false;
    spec.draft_method = DRAFT_NONE; /* this engine's method */
    spec.max_drafts = p->guesses ? UINT32_MAX : 0;
    memcpy(spec.cache_domain.bytes, e.submit->domain, sizeof e.submit->domain);
    return engine_submit(p->engine, index, &spec, NULL, err);
}

static int submit_all(struct replay *p, void (*progress)(void *, uint64_t), void *context, struct quire_error *err)
{
    for (size_t i = 0; i < p->n_requests; i++) {
        struct replayed_request *r = &p->requests[i];
        int status;
        if (!has_answer(r))
            continue;
        begin_choices(p, r);
        while ((status = submit(p, i, err)) == QUIRE_EXHAUSTED)
            wait_a_little(p, progress, context);
        if (status != QUIRE_OK)
            return status;
        pthread_mutex_lock(&p->mutex);
        p->n_submitted++;
        r->submitted = p->to_cancel = true; /* its cut may already have been reached */
        pthread_mutex_unlock(&p->mutex);
    }
    return QUIRE_OK;
}

/* Recordings of version 1 do not contain it. */
static bool has_other_identity(const struct replay *p)
{
    const struct recording_header *h = recording_header(p->recording);
    const struct key256 *ours = &engine_info(p->engine)->identity.digest;
    return h->version > 1 && memcmp(ours, &h->engine->identity, sizeof *ours) != 0;
}

void replay_use_grammars(struct replay *p, const struct engine_grammars *grammars)
{
    p->grammars = grammars;
}

int replay_run(struct replay *p, const char *model_dir, const struct speculative_config *speculative,
               void (*progress)(void *context, uint64_t n_tokens), void *context, struct replay_report *out,
               struct quire_error *err)
{
    struct engine_options options;
    struct step_options steps;
    if (recording_header(p->recording)->engine->not_invariant)
        return quire_fail(
            err, QUIRE_UNSUPPORTED,
            "the recording was made with --invariance off: its answers depended on other requests, so their bits "
            "cannot be recomputed; quire sim --trace repeats its decisions");
    if (recording_header(p->recording)->engine->numerics != K_NUMERICS_VERSION)
        return quire_fail(
            err, QUIRE_UNSUPPORTED,
            "the recording's answers were computed by version %u of docs/internals/numerics.md, but this program "
            "computes by version %d: their bits cannot be compared. Replay it with the release that made it; quire sim "
            "--trace repeats its decisions",
            recording_header(p->recording)->engine->numerics, K_NUMERICS_VERSION);
    int status = options_of(recording_header(p->recording), model_dir, &options, err);
    if (status != QUIRE_OK)
        return status;
    options.grammars = p->grammars;
    step_options_default(&steps);
    options.steps = &steps;
    if (speculative)
        steps.speculative = *speculative;
    p->guesses = speculative != NULL;
    status = engine_open(&options, on_events, p, &p->engine, err);
    if (status != QUIRE_OK)
        return status;
    p->report.other_identity = has_other_identity(p);
    status = submit_all(p, progress, context, err);
    for (bool over = false; status == QUIRE_OK && !over;) {
        wait_a_little(p, progress, context);
        pthread_mutex_lock(&p->mutex);
        over = p->n_over == p->n_submitted;
        pthread_mutex_unlock(&p->mutex);
    }
    struct engine_stats stats;
    engine_stats(p->engine, &stats);
    engine_close(p->engine);
    p->engine = NULL;
    p->report.n_draft_tokens = stats.n_draft_tokens;
    p->report.n_accepted_tokens = stats.n_accepted_tokens;
    p->report.n_requests = p->n_requests;
    p->report.n_without_answer = p->n_requests - p->report.n_compared;
    p->report.n_tokens = p->n_seen;
    *out = p->report;
    return status;
}
