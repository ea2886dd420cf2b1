#include "tests/daemon/fake_engine.h"
#include "engine/plan.h"
#include "engine/engine.h"
#include "engine/info.h"

#include "engine/record/shadow_stats.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <time.h>

#define MAX_CHOICES 128
#define BATCH 512

struct fake_choice {
    uint32_t n_generated;
    bool over, cancelled;
};

struct fake_request {
    struct fake_request *next;
    uint64_t id;
    struct request_spec r; /* owned */
    struct fake_choice *choices;
    uint32_t n_prompt_told; /* positions whose logprobs were sent */
    struct engine_account account;
    float *vector; /* [vector_size], once it was sent */
    bool cancelled;
    uint32_t n_predicted; /* tokens of late predictions */
};

struct engine {
    struct fake_engine_options options;
    engine_sink sink;
    void *sink_context;
    pthread_t thread;
    pthread_mutex_t mutex;
    atomic_uint n_wanting; /* other threads that are about to lock it */
    pthread_cond_t changed;
    /* locked */
    struct fake_request *live;
    bool closing, draining, held;
    uint64_t orders_given, orders_done;
    struct engine_stats stats;
    uint32_t n_cancelled;
    uint64_t sum_served; /* of the words of all hit reports */
    struct engine_tenant_stats tenants[FAKE_ENGINE_TENANTS];
    uint64_t last_request;
    uint32_t last_tenant;

    /* the engine's thread */
    struct engine_event events[BATCH];
    struct fake_logprob logprobs[BATCH];
    size_t n_events, n_since_rest;

    struct model_config config;
    struct model_desc desc; /* of it */
    struct sampling_defaults sampling;
    struct engine_plan plan;
    struct engine_info info;
};

void fake_engine_options_default(struct fake_engine_options *options)
{
    *options = (struct fake_engine_options){
        .mode = FAKE_ENGINE_ECHO,
        .vocab_size = 1000,
        .max_model_len = 4096,
        .eos = 2,
        .tokens_per_step = 1,
        .max_live = 1024,
        .retry_after_ms = 1500,
        .fail_token = UINT32_MAX,
    };
}

void engine_options_default(struct engine_options *options)
{
    *options = (struct engine_options){.model_dir = "", .device = "auto"};
}

void step_options_default(struct step_options *options)
{
    *options = (struct step_options){.scheduling_policy = "fcfs"};
}

const struct step_options *engine_step_options(const struct engine_options *options)
{
    return options->steps;
}

void fake_engine_logprob(uint32_t token, uint32_t i, uint32_t vocab_size, struct fake_logprob *out)
{
    out->logprob = -(float)((token * 7 + i) % 64 + 1) / 33.0f;
    out->rank = 1 + token % 5;
    for (uint32_t k = 0; k < 20; k++) {
        out->top_ids[k] = (token + k) % vocab_size;
        out->top_logprobs[k] = out->logprob - (float)k / 7.0f;
    }
}

/* ---- events ---- */

static void flush_events(struct engine *e)
{
    e->n_since_rest += e->n_events;
    if (e->n_events)
        e->sink(e->sink_context, e->events, e->n_events);
    e->n_events = 0;
}

static struct engine_event *new_event(struct engine *e, const struct fake_request *q, enum engine_event_kind kind,
                                      uint32_t choice)
{
    if (e->n_events == BATCH)
        flush_events(e);
    struct engine_event *event = &e->events[e->n_events++];
    *event = (struct engine_event){.kind = kind, .request = q->id, .choice = choice};
    return event;
}

static void add_logprob(struct engine *e, struct engine_event *event, uint32_t i, int32_t n_top)
{
    if (n_top < 0)
        return;
    struct fake_logprob *l = &e->logprobs[event - e->events];
    fake_engine_logprob(event->token, i, e->options.vocab_size, l);
    event->has_logprob = true;
    event->logprob = (struct engine_logprob){
        .logprob = l->logprob,
        .rank = l->rank,
        .n_top = (uint32_t)n_top,
        .top_ids = l->top_ids,
        .top_logprobs = l->top_logprobs,
    };
}

/* ---- steps ---- */

static uint32_t next_token(const struct engine *e, const struct fake_request *q, uint32_t choice)
{
    uint32_t i = q->choices[choice].n_generated, n = q->r.n_prompt;
    if (e->options.mode == FAKE_ENGINE_COUNT)
        return (uint32_t)(((uint64_t)q->r.prompt[n - 1] + 1 + choice + i) % e->options.vocab_size);
    if (i < n || q->r.ignore_eos)
        return q->r.prompt[i % n];
    return e->options.eos;
}

static bool is_stop(const struct engine *e, const struct fake_request *q, uint32_t token, uint32_t n_generated)
{
    const struct request_spec *s = &q->r;
    if (n_generated < s->min_tokens)
        return false;
    for (uint32_t i = 0; i < s->n_stop_token_ids; i++) {
        if (s->stop_token_ids[i] == token)
            return true;
    }
    return token == e->options.eos && !s->ignore_eos;
}

static bool all_over(const struct fake_request *q)
{
    for (uint32_t c = 0; c < q->r.n; c++) {
        if (!q->choices[c].over)
            return false;
    }
    return true;
}

static void finish(struct engine *e, struct fake_request *q, uint32_t choice, enum engine_finish why,
                   const uint32_t *stop_token)
{
    q->choices[choice].over = true;
    struct engine_event *event = new_event(e, q, ENGINE_EVENT_DONE, choice);
    event->finish = why;
    event->has_stop_token = stop_token != NULL;
    event->token = stop_token ? *stop_token : 0;
    event->last = all_over(q);
    event->n_prompt = q->r.n_prompt;
    event->n_generated = q->choices[choice].n_generated;
    event->n_predicted = q->n_predicted;
    event->message = why == ENGINE_FINISH_ERROR ? "the fake engine was told to fail here" : NULL;
    event->parameter = why == ENGINE_FINISH_ERROR ? "fail_token" : NULL;
    event->account = &q->account;
    if (why == ENGINE_FINISH_REFUSED)
        event->retry_after_ms = e->options.retry_after_ms;
    else if (choice == 0)
        event->n_cache_created = q->r.n_prompt / e->plan.block_tokens * e->plan.block_tokens;
}

const uint32_t engine_step_bounds[ENGINE_N_STEP_BUCKETS] = {1,   8,    16,   32,   64,   128,  256,
                                                            512, 1024, 2048, 4096, 8192, 16384};

static void step_choice(struct engine *e, struct fake_request *q, uint32_t choice)
{
    struct fake_choice *c = &q->choices[choice];
    uint32_t token = next_token(e, q, choice);
    if (token == e->options.fail_token) {
        finish(e, q, choice, ENGINE_FINISH_ERROR, NULL);
        return;
    }
    struct engine_event *event = new_event(e, q, ENGINE_EVENT_TOKEN, choice);
    event->token = token;
    event->position = q->r.n_prompt + c->n_generated;
    add_logprob(e, event, c->n_generated, q->r.n_logprobs);
    c->n_generated++;
    e->stats.n_generation_tokens++;
    e->tenants[q->r.tenant].n_generated_tokens++;
    if (is_stop(e, q, token, c->n_generated))
        finish(e, q, choice, ENGINE_FINISH_STOP, &token);
    else if (c->n_generated >= q->r.max_tokens || q->r.n_prompt + c->n_generated >= e->options.max_model_len)
        finish(e, q, choice, ENGINE_FINISH_LENGTH, NULL);
}

/* The second text of a pair counts twice. */
static void give_vector(struct engine *e, struct fake_request *q)
{
    if (!q->vector && !(q->vector = malloc(e->options.vector_size * sizeof(float))))
        abort();
    for (uint32_t k = 0; k < e->options.vector_size; k++) {
        q->vector[k] = 0;
        for (uint32_t i = 0; i < q->r.n_prompt; i++) {
            float weight = q->r.segment_from > 0 && i >= q->r.segment_from ? 2 : 1;
            q->vector[k] += weight * (float)((q->r.prompt[i] + i) % (k + 3));
        }
        if (e->options.vector_is_scores)
            q->vector[k] = q->vector[k] / 16 - 2;
    }
    struct engine_event *event = new_event(e, q, ENGINE_EVENT_VECTOR, 0);
    event->vector = q->vector;
    event->n_vector = e->options.vector_size;
}

static void step_request(struct engine *e, struct fake_request *q)
{
    for (uint32_t c = 0; c < q->r.n; c++) {
        if (!q->choices[c].over && (q->cancelled || q->choices[c].cancelled || e->closing))
            finish(e, q, c, ENGINE_FINISH_CANCELLED, NULL);
        if (!q->choices[c].over && q->r.deadline_us > 0 && q->r.deadline_us < e->options.refuse_below_us)
            finish(e, q, c, ENGINE_FINISH_REFUSED, NULL);
    }
    for (; q->r.n_prompt_logprobs >= 0 && q->n_prompt_told + 1 < q->r.n_prompt && !all_over(q); q->n_prompt_told++) {
        struct engine_event *event = new_event(e, q, ENGINE_EVENT_PROMPT_LOGPROB, 0);
        event->position = q->n_prompt_told + 1;
        event->token = q->r.prompt[event->position];
        add_logprob(e, event, event->position, q->r.n_prompt_logprobs);
    }
    if (q->r.wants_vector && !all_over(q))
        give_vector(e, q);
    for (uint32_t c = 0; c < q->r.n; c++) {
        if (q->r.max_tokens == 0 && !q->choices[c].over) /* only the prompt is computed */
            finish(e, q, c, ENGINE_FINISH_LENGTH, NULL);
        for (uint32_t i = 0; i < e->options.tokens_per_step && !q->choices[c].over; i++)
            step_choice(e, q, c);
    }
}

static void request_free(struct fake_request *q)
{
    request_spec_free(&q->r);
    free(q->choices);
    free(q->vector);
    free(q);
}

/* Locked. */
static void carry_out_orders(struct engine *e)
{
    if (e->orders_done == e->orders_given)
        return;
    e->stats.n_pins = 0;
    e->orders_done = e->orders_given;
    const struct engine_event event = {.kind = ENGINE_EVENT_ORDER, .order = e->orders_done};
    e->sink(e->sink_context, &event, 1);
}

/* Locked. One step of every request. Frees finished requests after the sink has received their end. */
static void step(struct engine *e)
{
    struct fake_request *over = NULL;
    carry_out_orders(e);
    e->stats.n_steps++;
    e->stats.n_step_tokens += e->stats.n_running; /* one token of each */
    for (uint32_t i = 0; i < ENGINE_N_STEP_BUCKETS; i++)
        e->stats.step_buckets[i] += e->stats.n_running <= engine_step_bounds[i];
    for (struct fake_request **at = &e->live; *at;) {
        struct fake_request *q = *at;
        step_request(e, q);
        if (all_over(q)) {
            e->n_cancelled += q->cancelled;
            *at = q->next;
            q->next = over;
            over = q;
            e->stats.n_running--;
            e->tenants[q->r.tenant].n_running--;
        } else {
            at = &q->next;
        }
    }
    flush_events(e);
    while (over) {
        struct fake_request *q = over;
        over = q->next;
        request_free(q);
    }
}

static void pause_locked(struct engine *e)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    uint64_t ns = (uint64_t)until.tv_nsec + (uint64_t)e->options.interval_us * 1000;
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    while (!e->closing && pthread_cond_timedwait(&e->changed, &e->mutex, &until) == 0) {
    }
}

/* Locks for every thread but the engine's own. The engine's thread unlocks only for a moment between steps, and
 * waits for the threads that want the mutex: on a busy machine they would otherwise find it locked whenever they
 * wake up, for seconds. */
static void lock(struct engine *e)
{
    atomic_fetch_add(&e->n_wanting, 1);
    pthread_mutex_lock(&e->mutex);
    atomic_fetch_sub(&e->n_wanting, 1);
}

/* No engine makes millions of tokens a second: on a busy machine, readers would fall behind for good. */
#define REST_EVENTS 512u
#define REST_US 3000u
static void rest(struct engine *e)
{
    if (e->n_since_rest < REST_EVENTS)
        return;
    e->n_since_rest = 0;
    usleep(REST_US);
}

static void *run(void *context)
{
    struct engine *e = context;
    pthread_mutex_lock(&e->mutex);
    while (!e->closing || e->live) {
        if (!e->closing && (e->held || (!e->live && e->orders_done == e->orders_given))) {
            pthread_cond_wait(&e->changed, &e->mutex);
            continue;
        }
        step(e);
        if (e->options.interval_us && !e->closing) {
            pause_locked(e);
        } else {
            /* Threads that wait for the mutex get it between two steps. */
            pthread_mutex_unlock(&e->mutex);
            rest(e);
            while (atomic_load(&e->n_wanting) > 0)
                sched_yield(); /* not at every step: on a busy machine each call takes milliseconds */
            pthread_mutex_lock(&e->mutex);
        }
    }
    pthread_mutex_unlock(&e->mutex);
    return NULL;
}

/* ---- engine.h ---- */

int fake_engine_open(const struct fake_engine_options *options, engine_sink sink, void *sink_context,
                     struct engine **out, struct quire_error *err)
{
    struct engine *e = calloc(1, sizeof *e);
    *out = NULL;
    if (!e)
        return quire_fail(err, QUIRE_NO_MEMORY, "fake engine: out of memory");
    e->options = *options;
    e->held = options->hold;
    e->sink = sink;
    e->sink_context = sink_context;
    e->desc.config = &e->config;
    e->config.vocab_size = options->vocab_size;
    e->config.max_position = options->max_model_len;
    e->config.tokens.n_eos = 1;
    e->config.tokens.eos[0] = options->eos;
    e->config.tokens.bos = -1;
    static const struct k_planner planner = {.name = "fake"};
    e->plan.planner = &planner;
    e->plan.max_model_len = options->max_model_len;
    e->plan.max_num_seqs = 256;
    e->plan.block_tokens = 16;
    e->plan.n_kv_groups = 1;
    e->plan.groups[0].n_blocks = 1024;
    e->stats.policy = "fcfs";
    e->info = (struct engine_info){
        .desc = &e->desc,
        .sampling = &e->sampling,
        .plan = &e->plan,
        .vocab_size = e->config.vocab_size,
        .n_eos = e->config.tokens.n_eos,
        .eos = e->config.tokens.eos,
        .max_model_len = e->plan.max_model_len,
        .max_num_seqs = e->plan.max_num_seqs,
        .vector_size = options->vector_size,
        .vector_is_scores = options->vector_is_scores,
        .block_tokens = e->plan.block_tokens,
        .n_blocks = e->plan.groups[0].n_blocks,
        .device_why = "fake: a test's engine",
        .placement = "nowhere",
        .prefix_caching = true,
        .cache_dtype = "float16",
        .identity = {.text = "law=1\nweights=none\n"},
    };
    if (options->has_other_weights)
        strcpy(e->info.identity.text, "law=1\nweights=others\n");
    if (options->not_invariant)
        strcat(e->info.identity.text, "invariance=off\n");
    if (options->tells_no_arithmetic)
        e->info.identity.text[0] = '\0';
    e->info.identity.digest = quire_sha256(e->info.identity.text, strlen(e->info.identity.text));
    pthread_mutex_init(&e->mutex, NULL);
    pthread_cond_init(&e->changed, NULL);
    if (pthread_create(&e->thread, NULL, run, e) != 0) {
        free(e);
        return quire_fail(err, QUIRE_INTERNAL, "fake engine: no thread");
    }
    *out = e;
    return QUIRE_OK;
}

int engine_open(const struct engine_options *options, engine_sink sink, void *sink_context, struct engine **out,
                struct quire_error *err)
{
    struct fake_engine_options defaults;
    (void)options;
    fake_engine_options_default(&defaults);
    return fake_engine_open(&defaults, sink, sink_context, out, err);
}

void engine_close(struct engine *e)
{
    if (!e)
        return;
    lock(e);
    e->closing = true;
    pthread_cond_signal(&e->changed);
    pthread_mutex_unlock(&e->mutex);
    pthread_join(e->thread, NULL);
    pthread_mutex_destroy(&e->mutex);
    pthread_cond_destroy(&e->changed);
    free(e);
}

static int check(const struct engine *e, const struct request_spec *r, struct quire_error *err)
{
    if (r->n_prompt == 0)
        return quire_fail_for(err, QUIRE_INVALID, "prompt", "must not be empty");
    if (r->n_prompt + (r->max_tokens > 0) > e->options.max_model_len)
        return quire_fail_for(err, QUIRE_INVALID, "prompt", "%u tokens, but the longest request has %u", r->n_prompt,
                              e->options.max_model_len);
    for (uint32_t i = 0; i < r->n_prompt; i++) {
        if (r->prompt[i] >= e->options.vocab_size)
            return quire_fail_for(err, QUIRE_INVALID, "prompt", "token %u is not in the vocabulary", r->prompt[i]);
    }
    if (r->tenant >= FAKE_ENGINE_TENANTS)
        return quire_fail(err, QUIRE_INVALID, "tenant: %u is not known here", r->tenant);
    if (r->n < 1 || r->n > MAX_CHOICES)
        return quire_fail_for(err, QUIRE_INVALID, "n", "must be 1 to %d, got %u", MAX_CHOICES, r->n);
    if (!(r->temperature >= 0.0f) || isinf(r->temperature))
        return quire_fail_for(err, QUIRE_INVALID, "temperature", "must be at least 0");
    if (r->n_logprobs < -1 || r->n_logprobs > 20)
        return quire_fail_for(err, QUIRE_INVALID, "logprobs", "must be 0 to 20");
    if (r->n_prompt_logprobs < -1 || r->n_prompt_logprobs > 20)
        return quire_fail_for(err, QUIRE_INVALID, "prompt_logprobs", "must be 0 to 20");
    return QUIRE_OK;
}

static struct fake_request *request_make(uint64_t id, struct request_spec *spec)
{
    struct fake_request *q = calloc(1, sizeof *q);
    if (!q)
        return NULL;
    q->id = id;
    q->r = request_spec_move(spec);
    q->choices = calloc(q->r.n, sizeof *q->choices);
    if (q->choices)
        return q;
    request_free(q);
    return NULL;
}

/* Locked. */
static void account_begin(struct engine *e, struct fake_request *q)
{
    struct engine_tenant_stats *tenant = &e->tenants[q->r.tenant];
    q->account = (struct engine_account){
        .queue_budget_us = FAKE_ENGINE_BUDGET_US,
        .queue_blocks_us = FAKE_ENGINE_BLOCKS_US,
        .blocker = e->last_request,
        .blocker_tenant = e->last_tenant,
        .n_chunks = 1,
        .n_preemptions = 4,
        .n_loaded = 5,
        .n_recomputed = 6,
    };
    e->last_request = q->id;
    e->last_tenant = q->r.tenant;
    e->stats.n_running++;
    e->stats.n_prompt_tokens += q->r.n_prompt;
    e->stats.n_pins += q->r.pin_us > 0;
    /* These values have no other visible effect. */
    e->stats.n_waiting_tokens += q->r.background ? q->r.n_prompt : 0;
    e->stats.n_host_hits += q->r.class_index;
    e->stats.n_recomputed += q->r.expected_tokens;
    tenant->n_running++;
    tenant->n_prompt_tokens += q->r.n_prompt;
    tenant->n_prefix_queries += q->r.n_prompt;
}

int engine_submit(struct engine *e, uint64_t id, struct request_spec *spec, uint32_t *retry_after_ms,
                  struct quire_error *err)
{
    int status = check(e, spec, err);
    struct fake_request *q = status ? NULL : request_make(id, spec);
    request_spec_free(spec);
    if (status)
        return status;
    if (!q)
        return quire_fail(err, QUIRE_NO_MEMORY, "fake engine: out of memory");
    lock(e);
    bool full = e->draining || e->stats.n_running >= e->options.max_live;
    if (!full) {
        struct fake_request **at = &e->live;
        while (*at)
            at = &(*at)->next;
        *at = q;
        account_begin(e, q);
        pthread_cond_signal(&e->changed);
    }
    pthread_mutex_unlock(&e->mutex);
    if (!full)
        return QUIRE_OK;
    request_free(q);
    *retry_after_ms = e->options.retry_after_ms;
    return quire_fail(err, QUIRE_EXHAUSTED, "the queue is full");
}

static void cancel(struct engine *e, uint64_t id, int64_t choice)
{
    lock(e);
    for (struct fake_request *q = e->live; q; q = q->next) {
        if (q->id != id)
            continue;
        if (choice < 0)
            q->cancelled = true;
        else if (choice < q->r.n)
            q->choices[choice].cancelled = true;
    }
    pthread_mutex_unlock(&e->mutex);
}

void engine_cancel(struct engine *e, uint64_t request)
{
    cancel(e, request, -1);
}

int engine_predict(struct engine *e, uint64_t request, uint32_t *tokens, uint32_t n, struct quire_error *err)
{
    int status = QUIRE_OK;
    for (uint32_t i = 0; i < n && status == QUIRE_OK; i++)
        if (tokens[i] >= e->options.vocab_size)
            status = quire_fail(err, QUIRE_INVALID, "%u is not below the vocabulary's %u", tokens[i],
                                e->options.vocab_size);
    lock(e);
    for (struct fake_request *q = e->live; q && status == QUIRE_OK; q = q->next)
        if (q->id == request && q->n_predicted == 0)
            q->n_predicted = n;
    pthread_mutex_unlock(&e->mutex);
    free(tokens);
    return status;
}

void engine_cancel_choice(struct engine *e, uint64_t request, uint32_t choice)
{
    cancel(e, request, choice);
}

void engine_drain(struct engine *e)
{
    lock(e);
    e->draining = true;
    e->stats.draining = true;
    pthread_mutex_unlock(&e->mutex);
}

const struct engine_info *engine_info(const struct engine *e)
{
    return &e->info;
}

void engine_stats(const struct engine *e, struct engine_stats *out)
{
    struct engine *locked = (struct engine *)(uintptr_t)e;
    lock(locked);
    *out = e->stats;
    pthread_mutex_unlock(&locked->mutex);
    out->kv_usage = (double)out->n_running / e->plan.max_num_seqs;
}

void fake_engine_set_stats(struct engine *e, const struct engine_stats *stats)
{
    lock(e);
    e->stats = *stats;
    pthread_mutex_unlock(&e->mutex);
}

int engine_set_policy(struct engine *e, const char *name, const struct engine_policy_options *options, uint64_t *order,
                      struct quire_error *err)
{
    static const char *const names[] = {"fcfs", "priority", "fair"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], name) != 0)
            continue;
        lock(e);
        *order = ++e->orders_given;
        pthread_cond_broadcast(&e->changed);
        e->stats.policy = names[i];
        e->stats.policy_figure_name = options ? "ageing_us" : NULL;
        e->stats.policy_figure = options ? (double)options->ageing_us : 0;
        pthread_mutex_unlock(&e->mutex);
        return QUIRE_OK;
    }
    return quire_fail(err, QUIRE_INVALID, "there is no policy \"%s\"", name);
}

void engine_report_hits(struct engine *e, const uint32_t *served, uint32_t n_served)
{
    lock(e);
    for (uint32_t i = 0; i < 3 * n_served; i++)
        e->sum_served += served[i];
    pthread_mutex_unlock(&e->mutex);
}

uint64_t fake_engine_sum_served(struct engine *e)
{
    lock(e);
    const uint64_t sum = e->sum_served;
    pthread_mutex_unlock(&e->mutex);
    return sum;
}

uint64_t engine_unpin(struct engine *e, uint32_t tenant)
{
    if (tenant >= FAKE_ENGINE_TENANTS)
        return 0;
    lock(e);
    uint64_t order = ++e->orders_given;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->mutex);
    return order;
}

int engine_tenant_stats(const struct engine *e, uint32_t tenant, struct engine_tenant_stats *out)
{
    struct engine *locked = (struct engine *)(uintptr_t)e;
    if (tenant >= FAKE_ENGINE_TENANTS)
        return QUIRE_INVALID;
    lock(locked);
    *out = e->tenants[tenant];
    pthread_mutex_unlock(&locked->mutex);
    return QUIRE_OK;
}

/* ---- shadow.h ---- */

const uint64_t shadow_bounds_us[SHADOW_N_BUCKETS] = {1000,     2000,     5000,     10000,    20000,   50000,
                                                     100000,   200000,   500000,   1000000,  2000000, 5000000,
                                                     10000000, 20000000, 50000000, 100000000};

struct shadow *fake_engine_shadow(void)
{
    static char one;
    return (struct shadow *)(void *)&one;
}

void shadow_stats(struct shadow *shadow, struct shadow_stats *out)
{
    (void)shadow;
    *out = (struct shadow_stats){
        .policy = "sjf",
        .n = 16,
        .n_refused = 3,
        .live = {.ttft_us = 4e6, .queue_us = 2.5e6},
        .shadow = {.ttft_us = 2e6, .queue_us = 1.5e6},
    };
    for (uint32_t i = 0; i < SHADOW_N_BUCKETS; i++) {
        out->live.buckets[i] = i;
        out->shadow.buckets[i] = i + 1;
    }
}

void fake_engine_release(struct engine *e)
{
    lock(e);
    e->held = false;
    pthread_cond_signal(&e->changed);
    pthread_mutex_unlock(&e->mutex);
}

uint32_t fake_engine_n_live(struct engine *e)
{
    lock(e);
    uint32_t n = e->stats.n_running;
    pthread_mutex_unlock(&e->mutex);
    return n;
}

uint32_t fake_engine_n_cancelled(struct engine *e)
{
    lock(e);
    uint32_t n = e->n_cancelled;
    pthread_mutex_unlock(&e->mutex);
    return n;
}
