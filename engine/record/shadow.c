#include "engine/record/shadow.h"

#include "base/log.h"
#include "scheduler/driver.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

const uint64_t shadow_bounds_us[SHADOW_N_BUCKETS] = {1000,     5000,     10000,    20000,   40000,   80000,
                                                     160000,   320000,   640000,   1250000, 2500000, 5000000,
                                                     10000000, 20000000, 40000000, 80000000};

/* Number of begins and ends of steps that one call of the engine may simulate. A shadow that falls behind catches up
 * in later calls, so it does not delay the engine. */
#define MOST_TURNS 128
#define PLACEHOLDER 0u
#define BUCKETS 1024u
#define NEW_SHARE 0.1 /* weight of a new step in the smoothed ratio of measured to predicted time */

/* One choice of a request that both schedulers hold. */
struct compared_choice {
    uint32_t shadow_seq;
    uint32_t *tokens;  /* owned: the live choice's tokens, once it has ended */
    uint32_t n_live;   /* tokens of the live choice so far */
    uint32_t n_shadow;
    bool live_over, shadow_over;
};

struct compared {
    uint64_t id;
    struct compared *next; /* in the same bucket */
    uint64_t arrival_us;
    uint64_t live_ttft_us, shadow_ttft_us; /* times of choice 0; 0: no token yet */
    uint64_t live_queue_us, shadow_queue_us;
    bool counted;
    uint32_t n, n_prompt, n_open; /* n_open: choices that one of the two schedulers still has */
    struct compared_choice choices[];
};

/* The choice to which a sequence number belongs. */
struct owner {
    struct compared *compared;
    uint32_t choice;
};

/* The shadow's cost model, and how well it fits the live steps. */
struct shadow_model {
    struct sched_cost cost, next;
    bool has_next;              /* the engine's model changed: from the next step on */
    double ratio;               /* measured / predicted time of live steps */
};

/* What other threads read. */
struct shadow_counts {
    pthread_mutex_t mutex;
    struct shadow_stats stats;  /* under the mutex */
};

struct shadow {
    struct engine_watch watch;
    const struct sched_policy *policy;
    struct sched *sched;        /* NULL: inactive, until there is a cost model */
    struct sched_driver *driver;
    struct sched_config *config; /* owned; of sched. Its cost and its tenants are the next ones */
    struct sched_tenant *tenants; /* owned; NULL: equal weights */
    struct shadow_model *model; /* owned */
    uint64_t done_us;           /* when the last live step ended */

    uint64_t now_us;            /* the shadow's own clock */
    uint64_t ends_us;           /* when the running step ends, if a step runs */

    struct compared *buckets[BUCKETS];
    struct owner *live, *shadow; /* [n_names] by sequence */
    uint32_t n_names;

    struct shadow_counts *counts; /* owned */
};

/* ---- requests in both schedulers ---- */

static struct compared **bucket_of(struct shadow *w, uint64_t id)
{
    return &w->buckets[id % BUCKETS];
}

static void forget(struct shadow *w, struct compared *t)
{
    struct compared **link = bucket_of(w, t->id);
    while (*link != t)
        link = &(*link)->next;
    *link = t->next;
    for (uint32_t i = 0; i < t->n; i++)
        free(t->choices[i].tokens);
    free(t);
}

static void add_time(struct shadow_times *times, uint64_t ttft_us, uint64_t queue_us)
{
    times->ttft_us += (double)ttft_us;
    times->queue_us += (double)queue_us;
    for (uint32_t i = 0; i < SHADOW_N_BUCKETS; i++)
        times->buckets[i] += ttft_us <= shadow_bounds_us[i];
}

static void compare(struct shadow *w, struct compared *t)
{
    if (t->counted || t->live_ttft_us == 0 || t->shadow_ttft_us == 0)
        return;
    t->counted = true;
    pthread_mutex_lock(&w->counts->mutex);
    w->counts->stats.n++;
    add_time(&w->counts->stats.live, t->live_ttft_us, t->live_queue_us);
    add_time(&w->counts->stats.shadow, t->shadow_ttft_us, t->shadow_queue_us);
    pthread_mutex_unlock(&w->counts->mutex);
}

/* Ends one side of a choice. Frees the entry after the last side of the last choice. */
static void end_side(struct shadow *w, struct compared *t, uint32_t choice, bool live)
{
    struct compared_choice *c = &t->choices[choice];
    bool *over = live ? &c->live_over : &c->shadow_over;
    if (*over)
        return;
    *over = true;
    if (c->live_over && c->shadow_over && --t->n_open == 0)
        forget(w, t);
}

/* ---- the shadow's own loop ---- */

static void on_shadow_retired(void *context, uint32_t seq)
{
    struct shadow *w = context;
    struct owner o = w->shadow[seq];
    w->shadow[seq].compared = NULL;
    if (o.compared)
        end_side(w, o.compared, o.choice, false);
}

/* Returns 0 if the shadow is behind and admitted the request before its arrival. */
static uint64_t queue_us(const struct sched *sched, uint32_t seq, const struct compared *t)
{
    uint64_t admitted_us = sched_account(sched, seq).admitted_us;
    return admitted_us > t->arrival_us ? admitted_us - t->arrival_us : 0;
}

/* The token at position n of a choice, if the live one has produced it. */
static uint32_t token_of(const struct compared_choice *c, uint32_t n)
{
    return c->tokens && n < c->n_live ? c->tokens[n] : PLACEHOLDER;
}

static struct sched_result result_of(struct shadow *w, const struct sched_row *row, struct compared *t, uint32_t *token)
{
    const struct owner *o = &w->shadow[row->seq];
    struct compared_choice *c = &t->choices[o->choice];
    struct sched_result out = sched_result_of(row, token);
    *token = token_of(c, c->n_shadow);
    c->n_shadow++;
    out.finished = c->live_over && c->n_shadow >= c->n_live;
    if (o->choice == 0 && t->shadow_ttft_us == 0) {
        t->shadow_ttft_us = w->now_us > t->arrival_us ? w->now_us - t->arrival_us : 1;
        t->shadow_queue_us = queue_us(w->sched, row->seq, t);
        compare(w, t);
    }
    return out;
}

static uint32_t on_shadow_take(void *context, const struct sched_step *step, struct sched_result *results,
                               uint32_t *tokens)
{
    struct shadow *w = context;
    uint32_t n = 0;
    for (uint32_t i = 0; i < step->plan->n_rows; i++) {
        const struct sched_row *row = &step->plan->rows[i];
        struct compared *t = w->shadow[row->seq].compared;
        if (!row->outputs.tokens || !t)
            continue;
        results[n] = result_of(w, row, t, &tokens[n]);
        n++;
    }
    return n;
}

static double predict_us(const struct sched_cost *cost, const struct sched_plan *plan)
{
    const struct sched_shape shape = sched_plan_shape(plan);
    return sched_cost_us(cost, &shape);
}

static int on_shadow_planned(void *context, uint64_t now_us, const struct sched_plan *plan, struct quire_error *err)
{
    struct shadow *w = context;
    (void)now_us;
    (void)err;
    if (plan->n_refused == 0)
        return QUIRE_OK;
    pthread_mutex_lock(&w->counts->mutex);
    for (uint32_t i = 0; i < plan->n_refused; i++)
        w->counts->stats.n_refused += w->shadow[plan->refused[i].seq].choice == 0;
    pthread_mutex_unlock(&w->counts->mutex);
    return QUIRE_OK;
}

static int on_shadow_launch(void *context, const struct sched_step *step, struct quire_error *err)
{
    struct shadow *w = context;
    (void)err;
    w->ends_us = w->now_us + (uint64_t)(predict_us(&w->model->cost, step->plan) * w->model->ratio) + 1;
    return QUIRE_OK;
}

static const struct sched_driver_calls shadow_steps = {
    .planned = on_shadow_planned, .launch = on_shadow_launch, .take = on_shadow_take, .retired = on_shadow_retired};

/* No step of the shadow is in flight. */
static void take_cost(struct shadow *w)
{
    if (!w->model->has_next)
        return;
    w->model->has_next = false;
    w->model->cost = w->model->next;
    w->model->ratio = 1;
    sched_set_cost(w->sched, &w->model->cost, NULL);
}

/* Begins the next step at the shadow's clock. Returns false if nothing can run now. */
static bool begin_step(struct shadow *w, uint64_t until_us)
{
    const struct sched_plan *plan;
    take_cost(w);
    if (sched_idle(w->sched) || sched_driver_plan(w->driver, w->now_us, &plan, NULL))
        return false;
    sched_driver_retire(w->driver); /* the refused sequences */
    if (plan->n_rows > 0)
        return true;
    if (plan->wake_us <= w->now_us || plan->wake_us > until_us)
        return false;
    w->now_us = plan->wake_us;
    return true;
}

/* Advances the shadow's clock to now_us. */
static void advance(struct shadow *w, uint64_t now_us)
{
    for (uint32_t i = 0; i < MOST_TURNS; i++) {
        if (sched_driver_in_flight(w->driver) > 0) {
            if (w->ends_us > now_us)
                return;
            w->now_us = w->ends_us;
            sched_driver_commit(w->driver, NULL);
            sched_driver_retire(w->driver);
        } else if (!begin_step(w, now_us)) {
            if (w->now_us < now_us)
                w->now_us = now_us;
            return;
        }
    }
}

/* ---- events of the engine ---- */

static void begin(struct shadow *w, const struct sched_cost *cost)
{
    struct quire_error err;
    const bool has_tenants = w->tenants || !w->config->policy_options.tenants;
    w->model->cost = *cost;
    w->config->cost = &w->model->cost;
    w->config->policy_options.tenants = w->tenants;
    if (w->live && w->shadow && has_tenants && sched_create(w->config, &w->sched, &err) == QUIRE_OK &&
        sched_driver_create(w->sched, &shadow_steps, w, &w->driver, &err) == QUIRE_OK)
        return;
    quire_log(QUIRE_LOG_WARN, "shadow", "sleeps: out of memory");
    sched_destroy(w->sched);
    w->sched = NULL;
}

static void copy_tenants(struct shadow *w, const struct sched_policy_options *o)
{
    if (!o->tenants)
        return;
    w->tenants = malloc(o->n_tenants * sizeof *w->tenants);
    if (w->tenants)
        memcpy(w->tenants, o->tenants, o->n_tenants * sizeof *w->tenants);
}

static void on_opened(void *context, const struct engine_info *info, const struct sched_config *config)
{
    struct shadow *w = context;
    (void)info;
    *w->config = *config;
    copy_tenants(w, &config->policy_options);
    w->config->policy = w->policy;
    w->config->overlap_depth = 0;
    w->n_names = config->max_queued_requests + (config->overlap_depth + 2) * config->max_num_seqs;
    w->live = calloc(w->n_names, sizeof *w->live);
    w->shadow = calloc(w->n_names, sizeof *w->shadow);
    if (config->cost)
        begin(w, config->cost);
    else
        quire_log(QUIRE_LOG_INFO, "shadow", "begins when the engine has fitted a cost model to its steps");
}

/* Requests from before the first model are not compared. */
static void on_cost_changed(void *context, uint64_t now_us, const struct sched_cost *cost)
{
    struct shadow *w = context;
    if (!w->sched && w->now_us == 0) {
        w->now_us = now_us;
        begin(w, cost);
        return;
    }
    w->model->next = *cost;
    w->model->has_next = w->sched != NULL;
}

static void on_submitted(void *context, const struct engine_watch_submit *s)
{
    struct shadow *w = context;
    const struct sched_request *r = s->sched;
    uint32_t seqs[128];
    if (!w->sched || s->status != QUIRE_OK || r->n > sizeof seqs / sizeof seqs[0])
        return;
    advance(w, r->arrival_us);
    struct compared *t = calloc(1, sizeof *t + r->n * sizeof t->choices[0]);
    if (!t)
        return;
    if (sched_submit(w->sched, r, seqs, NULL, NULL)) {
        free(t);
        pthread_mutex_lock(&w->counts->mutex);
        w->counts->stats.n_refused++;
        pthread_mutex_unlock(&w->counts->mutex);
        return;
    }
    *t = (struct compared){.id = r->id,
                           .next = *bucket_of(w, r->id),
                           .arrival_us = r->arrival_us,
                           .n = r->n,
                           .n_prompt = r->n_prompt,
                           .n_open = r->n};
    *bucket_of(w, r->id) = t;
    for (uint32_t i = 0; i < r->n; i++) {
        t->choices[i].shadow_seq = seqs[i];
        w->shadow[seqs[i]] = (struct owner){t, i};
        w->live[s->seqs[i]] = (struct owner){t, i};
    }
}

static void on_cancelled(void *context, uint64_t now_us, uint64_t id)
{
    struct shadow *w = context;
    if (!w->sched)
        return;
    advance(w, now_us);
    sched_cancel(w->sched, id);
    sched_driver_retire(w->driver);
}

static void on_cancelled_choice(void *context, uint64_t now_us, uint32_t seq)
{
    struct shadow *w = context;
    if (!w->sched || !w->live[seq].compared)
        return;
    advance(w, now_us);
    const struct owner *o = &w->live[seq];
    if (!o->compared->choices[o->choice].shadow_over)
        sched_cancel_seq(w->sched, o->compared->choices[o->choice].shadow_seq);
    sched_driver_retire(w->driver);
}

static void on_planned(void *context, uint64_t now_us, const struct sched_plan *plan, const struct sched *sched)
{
    struct shadow *w = context;
    (void)plan;
    (void)sched;
    if (w->sched)
        advance(w, now_us);
}

/* Keep the live choice's tokens when it ends: the shadow may reach them later. */
static void end_live(struct shadow *w, const struct sched *sched, uint32_t seq)
{
    struct compared *t = w->live[seq].compared;
    struct compared_choice *c = &t->choices[w->live[seq].choice];
    uint32_t n_known;
    const uint32_t *tokens = sched_tokens(sched, seq, &n_known);
    if (c->n_live > 0 && !c->shadow_over && n_known >= t->n_prompt + c->n_live) {
        c->tokens = malloc(c->n_live * sizeof *c->tokens);
        if (c->tokens)
            memcpy(c->tokens, tokens + t->n_prompt, c->n_live * sizeof *c->tokens);
    }
    /* A shadow that is ahead would decode further tokens that no comparison uses. */
    if (!c->shadow_over && c->n_shadow >= c->n_live && c->n_shadow > 0)
        sched_cancel_seq(w->sched, c->shadow_seq);
}

static void on_committed(void *context, const struct engine_watch_commit *c)
{
    struct shadow *w = context;
    if (!w->sched)
        return;
    double predicted = predict_us(&w->model->cost, c->plan);
    /* With an overlap, a step is launched while the previous one still runs. */
    uint64_t began_us = c->launched_us > w->done_us ? c->launched_us : w->done_us;
    w->done_us = c->done_us;
    if (predicted > 0 && c->done_us > began_us) {
        double ratio = (double)(c->done_us - began_us) / predicted;
        ratio = ratio < 0.1 ? 0.1 : ratio > 10 ? 10 : ratio;
        w->model->ratio += NEW_SHARE * (ratio - w->model->ratio);
    }
    for (uint32_t i = 0; i < c->n_results; i++) {
        const struct sched_result *r = &c->results[i];
        struct compared *t = w->live[r->seq].compared;
        uint32_t choice = w->live[r->seq].choice;
        if (!t)
            continue;
        t->choices[choice].n_live += r->n_accepted + 1;
        if (choice == 0 && t->live_ttft_us == 0) {
            t->live_ttft_us = c->done_us > t->arrival_us ? c->done_us - t->arrival_us : 1;
            t->live_queue_us = queue_us(c->sched, r->seq, t);
            compare(w, t);
        }
        if (r->finished)
            end_live(w, c->sched, r->seq);
    }
    sched_driver_retire(w->driver);
}

static void on_retired(void *context, uint32_t seq)
{
    struct shadow *w = context;
    if (!w->sched || !w->live[seq].compared)
        return;
    struct owner o = w->live[seq];
    w->live[seq].compared = NULL;
    end_side(w, o.compared, o.choice, true);
}

static void on_no_more(void *context, uint64_t now_us)
{
    struct shadow *w = context;
    if (!w->sched)
        return;
    advance(w, now_us);
    sched_no_more(w->sched);
}

static void on_unpinned(void *context, uint64_t now_us, uint32_t tenant)
{
    struct shadow *w = context;
    if (!w->sched)
        return;
    advance(w, now_us);
    sched_unpin(w->sched, tenant);
}

static void on_served(void *context, uint64_t now_us, const uint32_t *served, uint32_t n_served)
{
    struct shadow *w = context;
    if (!w->sched)
        return;
    advance(w, now_us);
    sched_served(w->sched, served, n_served);
}

static void free_parts(struct shadow *w)
{
    free(w->config);
    free(w->model);
    free(w->counts);
    free(w);
}

/* NULL: out of memory. */
static struct shadow *create(void)
{
    struct shadow *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->config = calloc(1, sizeof *w->config);
    w->model = calloc(1, sizeof *w->model);
    w->counts = calloc(1, sizeof *w->counts);
    if (w->config && w->model && w->counts && pthread_mutex_init(&w->counts->mutex, NULL) == 0)
        return w;
    free_parts(w);
    return NULL;
}

int shadow_create(const struct sched_policy *policy, struct shadow **out, struct quire_error *err)
{
    *out = NULL;
    struct shadow *w = create();
    if (!w)
        return quire_fail(err, QUIRE_NO_MEMORY, "shadow: out of memory");
    w->policy = policy;
    w->model->ratio = 1;
    w->counts->stats.policy = policy->name;
    w->watch = (struct engine_watch){.context = w,
                                     .opened = on_opened,
                                     .submitted = on_submitted,
                                     .cancelled = on_cancelled,
                                     .cancelled_choice = on_cancelled_choice,
                                     .no_more = on_no_more,
                                     .planned = on_planned,
                                     .committed = on_committed,
                                     .retired = on_retired,
                                     .cost_changed = on_cost_changed,
                                     .unpinned = on_unpinned,
                                     .served = on_served};
    *out = w;
    return QUIRE_OK;
}

const struct engine_watch *shadow_watch(struct shadow *w)
{
    return &w->watch;
}

void shadow_destroy(struct shadow *w)
{
    if (!w)
        return;
    for (uint32_t i = 0; i < BUCKETS; i++)
        while (w->buckets[i])
            forget(w, w->buckets[i]);
    sched_driver_destroy(w->driver);
    sched_destroy(w->sched);
    free(w->live);
    free(w->shadow);
    free(w->tenants);
    pthread_mutex_destroy(&w->counts->mutex);
    free_parts(w);
}

void shadow_stats(struct shadow *w, struct shadow_stats *out)
{
    pthread_mutex_lock(&w->counts->mutex);
    *out = w->counts->stats;
    pthread_mutex_unlock(&w->counts->mutex);
}
