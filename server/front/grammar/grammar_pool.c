#include "server/front/grammar/grammar_pool.h"

#include "base/clock.h"
#include "server/front/grammar/grammar_cache.h"
#include "server/front/observe/metrics.h"
#include "server/front/text/text_pool.h"
#include "text/quire_grammar.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WATCH_MS 100 /* how often deadlines are checked */

struct grammar_wait {
    TAILQ_ENTRY(grammar_wait) link;
    struct compile *job;
    void (*done)(void *owner, const struct grammar_result *result);
    void *owner;
};

/* One compilation. It owns its data, because its requests may be gone before its thread is done. */
struct compile {
    struct text_job job; /* first member, for the pool */
    TAILQ_ENTRY(compile) link;
    struct grammar_pool *pool;
    struct quire_grammars *grammars;
    struct quire_grammar_source source;
    struct quire_grammar_reasoning reasoning; /* the source's, whose texts are static */
    struct key256 key;
    struct grammar_counts *counts;
    TAILQ_HEAD(, grammar_wait) waits;
    bool is_over; /* its requests receive the result, or have gone */
    atomic_bool cancel;
    uint64_t submitted_us;
    _Atomic uint64_t started_us; /* 0: not yet */
    /* The result; until then, only the thread uses it. */
    int status;
    char *normal;
    size_t n_normal;
    struct quire_error err;
};

struct grammar_pool {
    struct text_pool *threads;
    struct event *watch;
    struct grammar_cache cache;
    atomic_bool is_closing;
    TAILQ_HEAD(, compile) jobs; /* with requests that wait */
    uint32_t n_jobs;
    uint32_t n_jobs_of[TENANTS_MAX];
    size_t n_bytes;
};

/* ---- on a thread of the pool ---------------------------------------------------------------- */

static bool work(struct text_job *job)
{
    struct compile *c = (struct compile *)job;
    struct quire_grammar *grammar = NULL;
    atomic_store(&c->started_us, quire_now_us());
    if (atomic_load(&c->cancel))
        return false;
    c->status = quire_grammar_normal(&c->source, &c->normal, &c->n_normal, &c->err);
    const struct quire_grammar_caller caller = {
        .cancel = &c->cancel, .leave = &c->pool->is_closing, .owner = c->job.tenant};
    if (c->status == QUIRE_OK)
        c->status = quire_grammar_compile(c->grammars, c->normal, c->n_normal, &caller, &grammar, &c->err);
    quire_grammar_release(grammar);
    return false;
}

/* ---- results -------------------------------------------------------------------------------- */

/* text: the normal text, or the reason of a rejection. */
static void result_of(int status, const char *text, size_t n, struct grammar_result *out)
{
    *out = (struct grammar_result){.ok = status == QUIRE_OK, .normal = text, .n = n};
    if (out->ok)
        return;
    api_fail_status(&out->error, status == QUIRE_EXHAUSTED ? QUIRE_INVALID : status, NULL);
    if (status == QUIRE_EXHAUSTED)
        snprintf(out->error.why.text, sizeof out->error.why.text, "compiling it took longer than %d s: make it smaller",
                 GRAMMAR_DEADLINE_MS / 1000);
    else
        snprintf(out->error.why.text, sizeof out->error.why.text, "%.*s", (int)n, text);
    if (status == QUIRE_UNAVAILABLE)
        out->error.retry_ms = 1000;
}

static void count_rejection(struct grammar_counts *counts, int status)
{
    if (status == QUIRE_EXHAUSTED)
        counts->rejected[GRAMMAR_TIMED_OUT]++;
    else if (status == QUIRE_INVALID || status == QUIRE_UNSUPPORTED)
        counts->rejected[status == QUIRE_INVALID ? GRAMMAR_INVALID : GRAMMAR_UNSUPPORTED]++;
    else if (status != QUIRE_OK)
        counts->rejected[GRAMMAR_BUSY]++;
}

/* ---- the end of a compilation --------------------------------------------------------------- */

/* It is not found any more. */
static void forget(struct compile *c)
{
    struct grammar_pool *pool = c->pool;
    c->is_over = true;
    TAILQ_REMOVE(&pool->jobs, c, link);
    pool->n_jobs--;
    pool->n_jobs_of[c->job.tenant]--;
    pool->n_bytes -= c->source.n_bytes;
    if (pool->n_jobs == 0)
        event_del(pool->watch);
}

/* A request that receives its result may end others that wait for the same one. */
static void conclude(struct compile *c, int status, const char *text, size_t n)
{
    struct grammar_result result;
    struct grammar_wait *wait;
    forget(c);
    result_of(status, text, n, &result);
    while ((wait = TAILQ_FIRST(&c->waits))) {
        TAILQ_REMOVE(&c->waits, wait, link);
        count_rejection(c->counts, status);
        wait->done(wait->owner, &result);
        free(wait);
    }
}

static void compile_free(struct compile *c)
{
    free(c->normal);
    free((char *)(uintptr_t)c->source.text);
    free(c);
}

static void release(struct text_job *job)
{
    compile_free((struct compile *)job);
}

static void done(struct text_job *job)
{
    struct compile *c = (struct compile *)job;
    const char *text = c->status == QUIRE_OK ? c->normal : c->err.text;
    const size_t n = c->status == QUIRE_OK ? c->n_normal : strlen(c->err.text);
    histogram_observe(&c->counts->compile, (double)(quire_now_us() - atomic_load(&c->started_us)) * 1e-6);
    if (c->status == QUIRE_OK || c->status == QUIRE_INVALID || c->status == QUIRE_UNSUPPORTED)
        grammar_cache_add(&c->pool->cache, &c->key, c->status, text, n);
    conclude(c, c->status, text, n);
    compile_free(c);
}

static const struct text_job_calls compile_calls = {.work = work, .done = done, .release = release};

/* The thread notices the flag after the current phase, or at the library's deadline; then the compilation is freed. */
static void cancel(struct compile *c)
{
    atomic_store(&c->cancel, true);
    text_pool_cancel(c->pool->threads, &c->job);
}

static struct compile *find_late(const struct grammar_pool *pool)
{
    const uint64_t now = quire_now_us();
    struct compile *c;
    TAILQ_FOREACH(c, &pool->jobs, link)
    {
        const uint64_t started = atomic_load(&c->started_us);
        if (started > 0 ? now > started + (uint64_t)GRAMMAR_DEADLINE_MS * 1000
                        : now > c->submitted_us + (uint64_t)GRAMMAR_MAX_WAIT_MS * 1000)
            return c;
    }
    return NULL;
}

/* The time that a request waits also counts the normal text and the wait for another compilation. */
static void on_watch(evutil_socket_t fd, short what, void *context)
{
    struct compile *c;
    (void)fd;
    (void)what;
    static const char busy[] = "the server is compiling other grammars: try again soon";
    while ((c = find_late(context))) {
        const bool has_begun = atomic_load(&c->started_us) > 0;
        if (has_begun)
            histogram_observe(&c->counts->compile, GRAMMAR_DEADLINE_MS * 1e-3);
        conclude(c, has_begun ? QUIRE_EXHAUSTED : QUIRE_UNAVAILABLE, busy, has_begun ? 0 : strlen(busy));
        cancel(c);
    }
}

/* ---- public functions ----------------------------------------------------------------------- */

int grammar_pool_open(struct event_base *base, uint32_t n_threads, struct grammar_pool **out, struct quire_error *err)
{
    struct grammar_pool *pool = *out = calloc(1, sizeof *pool);
    if (!pool)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    TAILQ_INIT(&pool->jobs);
    grammar_cache_init(&pool->cache);
    pool->watch = event_new(base, -1, EV_PERSIST, on_watch, pool);
    if (!pool->watch)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    const int status = text_pool_open(base, n_threads, &pool->threads, err);
    if (status == QUIRE_OK)
        text_pool_prefer_idle(pool->threads);
    return status;
}

void grammar_pool_close(struct grammar_pool *pool)
{
    struct compile *c;
    if (!pool)
        return;
    while ((c = TAILQ_FIRST(&pool->jobs))) {
        forget(c);
        cancel(c);
    }
    atomic_store(&pool->is_closing, true);
    text_pool_close(pool->threads);
    if (pool->watch)
        event_free(pool->watch);
    grammar_cache_free(&pool->cache);
    free(pool);
}

static struct key256 key_of(const struct quire_grammars *grammars, const struct grammar_request *r)
{
    struct quire_sha256_state s;
    quire_sha256_begin(&s);
    quire_sha256_add(&s, &grammars, sizeof grammars);
    quire_sha256_add(&s, r->digest.bytes, sizeof r->digest.bytes);
    return quire_sha256_now(&s);
}

bool grammar_pool_find(struct grammar_pool *pool, struct quire_grammars *grammars, const struct grammar_request *r,
                       struct grammar_counts *counts, struct grammar_result *out)
{
    const struct key256 key = key_of(grammars, r);
    const struct grammar_entry *entry = grammar_cache_find(&pool->cache, &key);
    if (!entry) {
        counts->n_misses++;
        return false;
    }
    counts->n_hits++;
    count_rejection(counts, entry->status);
    result_of(entry->status, entry->text, entry->n, out);
    return true;
}

static struct compile *find_job(const struct grammar_pool *pool, const struct key256 *key)
{
    struct compile *c;
    TAILQ_FOREACH(c, &pool->jobs, link)
    {
        if (memcmp(&c->key, key, sizeof *key) == 0)
            return c;
    }
    return NULL;
}

/* A tenant that is alone leaves room for others; beside others it has a fourth. */
static uint32_t share_of(const struct grammar_pool *pool, uint32_t tenant)
{
    const bool is_alone = pool->n_jobs == pool->n_jobs_of[tenant];
    return is_alone ? GRAMMAR_MAX_JOBS / 4 * 3 : GRAMMAR_MAX_JOBS / 4;
}

static bool may_begin(const struct grammar_pool *pool, uint32_t tenant, size_t n_bytes, struct api_error *e)
{
    if (pool->n_jobs_of[tenant] >= share_of(pool, tenant))
        api_fail(e, 429, NULL, "rate_limit_exceeded", "%u grammars of this key are being compiled: try again soon",
                 pool->n_jobs_of[tenant]);
    else if (pool->n_jobs >= GRAMMAR_MAX_JOBS || pool->n_bytes + n_bytes > GRAMMAR_MAX_JOB_BYTES)
        api_fail(e, 503, NULL, "server_overloaded", "%u grammars are being compiled: try again soon", pool->n_jobs);
    else
        return true;
    e->retry_ms = 1000;
    return false;
}

static struct compile *begin(struct grammar_pool *pool, struct quire_grammars *grammars,
                             const struct grammar_request *r, uint32_t tenant, struct grammar_counts *counts)
{
    struct compile *c = calloc(1, sizeof *c);
    char *text = malloc(r->source.n_bytes + 1);
    if (!c || !text) {
        free(c);
        free(text);
        return NULL;
    }
    memcpy(text, r->text, r->source.n_bytes);
    c->job = (struct text_job){.calls = &compile_calls, .tenant = tenant};
    c->pool = pool;
    c->grammars = grammars;
    c->source = r->source;
    c->source.text = text;
    c->reasoning = r->reasoning;
    if (r->source.reasoning)
        c->source.reasoning = &c->reasoning;
    c->key = key_of(grammars, r);
    c->counts = counts;
    c->submitted_us = quire_now_us();
    TAILQ_INIT(&c->waits);
    TAILQ_INSERT_TAIL(&pool->jobs, c, link);
    pool->n_jobs_of[tenant]++;
    pool->n_bytes += r->source.n_bytes;
    if (pool->n_jobs++ == 0)
        event_add(pool->watch, &(struct timeval){.tv_usec = WATCH_MS * 1000});
    text_pool_submit(pool->threads, &c->job);
    return c;
}

struct grammar_wait *grammar_pool_wait(struct grammar_pool *pool, struct quire_grammars *grammars,
                                       const struct grammar_request *r, uint32_t tenant, struct grammar_counts *counts,
                                       void (*done_)(void *owner, const struct grammar_result *result), void *owner,
                                       struct api_error *e)
{
    const struct key256 key = key_of(grammars, r);
    struct compile *c = find_job(pool, &key);
    if (!c && !may_begin(pool, tenant, r->source.n_bytes, e)) {
        counts->rejected[GRAMMAR_BUSY]++;
        return NULL;
    }
    struct grammar_wait *wait = calloc(1, sizeof *wait);
    if (wait && !c)
        c = begin(pool, grammars, r, tenant, counts);
    if (!wait || !c) {
        free(wait);
        api_no_memory(e);
        return NULL;
    }
    wait->job = c;
    wait->done = done_;
    wait->owner = owner;
    TAILQ_INSERT_TAIL(&c->waits, wait, link);
    return wait;
}

void grammar_pool_leave(struct grammar_wait *wait)
{
    struct compile *c = wait->job;
    TAILQ_REMOVE(&c->waits, wait, link);
    free(wait);
    if (!TAILQ_EMPTY(&c->waits) || c->is_over)
        return;
    forget(c);
    cancel(c);
}
