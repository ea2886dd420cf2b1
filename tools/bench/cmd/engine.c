#include "tools/bench/cmd/engine.h"

#include "base/clock.h"
#include "engine/engine.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOOK_EVERY_NS 100000000

struct bench_engine {
    struct engine *engine;
    pthread_mutex_t mutex; /* protects the rest, which the engine's thread writes */
    pthread_cond_t changed;
    struct bench_run *run; /* NULL: no timed run */
    double began;
    uint64_t first_id; /* of the run's requests; ids of earlier runs are lower */
    uint64_t next_id;
    size_t n_first, n_over; /* requests with a first token; finished ones */
    bool failed;
    struct quire_error err;
};

/* ---- on the engine's thread ---- */

static void on_token(struct bench_engine *b, struct bench_result *r, double at)
{
    b->run->n_output++;
    if (r->n_output++ == 0) {
        r->ttft_s = at - r->start_s;
        b->n_first++;
    }
}

static void on_done(struct bench_engine *b, struct bench_result *r, const struct engine_event *e, double at)
{
    r->e2el_s = at - r->start_s;
    r->ok = e->finish == ENGINE_FINISH_LENGTH;
    if (!r->ok && !b->failed) {
        b->failed = true;
        quire_fail(&b->err, QUIRE_INTERNAL, "request %llu: %s", (unsigned long long)(e->request - b->first_id),
                   e->message ? e->message : "ended before its last token");
    }
    b->n_over++;
}

static void on_events(void *context, const struct engine_event *events, size_t n)
{
    struct bench_engine *b = context;
    double now = quire_now_s();
    pthread_mutex_lock(&b->mutex);
    struct bench_run *run = b->run;
    if (run) {
        double at = now - b->began;
        size_t n_first = b->n_first;
        for (size_t i = 0; i < n; i++) {
            if (events[i].request < b->first_id)
                continue;
            struct bench_result *r = &run->results[events[i].request - b->first_id];
            if (events[i].kind == ENGINE_EVENT_TOKEN)
                on_token(b, r, at);
            else if (events[i].kind == ENGINE_EVENT_DONE)
                on_done(b, r, &events[i], at);
        }
        if (b->n_first == run->n && n_first < run->n) {
            run->prefill_s = at;
            run->n_output_prefill = run->n_output;
        }
        if (b->n_over == run->n || b->failed) {
            run->elapsed_s = at;
            pthread_cond_signal(&b->changed);
        }
    }
    pthread_mutex_unlock(&b->mutex);
}

/* ---- on the caller's thread ---- */

int bench_engine_open(const struct engine_options *options, struct bench_engine **out, struct quire_error *err)
{
    pthread_condattr_t monotonic;
    *out = NULL;
    struct bench_engine *b = calloc(1, sizeof *b);
    if (!b)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    pthread_mutex_init(&b->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&b->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int status = engine_open(options, on_events, b, &b->engine, err);
    if (status != QUIRE_OK) {
        bench_engine_close(b);
        return status;
    }
    *out = b;
    return QUIRE_OK;
}

void bench_engine_close(struct bench_engine *b)
{
    if (!b)
        return;
    if (b->engine)
        engine_close(b->engine);
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->mutex);
    free(b);
}

const struct engine_info *bench_engine_info(const struct bench_engine *b)
{
    return engine_info(b->engine);
}

/* Draws progress until `until` (of quire_now_s()), until all requests are over, or until one failed: QUIRE_INTERNAL. */
static int look_on(struct bench_engine *b, double until, struct bench_progress *progress, struct quire_error *err)
{
    pthread_mutex_lock(&b->mutex);
    for (double left; b->n_over < b->run->n && !b->failed && (left = until - quire_now_s()) > 0;) {
        struct timespec t = quire_until_ns(quire_now_ns() +
                                           (left * 1e9 < LOOK_EVERY_NS ? (uint64_t)(left * 1e9) : LOOK_EVERY_NS));
        pthread_cond_timedwait(&b->changed, &b->mutex, &t);
        uint64_t n_output = b->run->n_output;
        pthread_mutex_unlock(&b->mutex); /* the engine must not wait for a terminal */
        if (progress)
            bench_progress_set(progress, n_output);
        pthread_mutex_lock(&b->mutex);
    }
    bool failed = b->failed;
    if (failed && err)
        *err = b->err;
    pthread_mutex_unlock(&b->mutex);
    return failed ? QUIRE_INTERNAL : QUIRE_OK;
}

static int submit(struct bench_engine *b, const struct bench_inputs *in, size_t i, uint32_t *ids,
                  struct quire_error *err)
{
    uint32_t retry_after_ms;
    struct request_spec spec, owned;
    request_spec_default(&spec);
    spec.prompt = ids;
    spec.n_prompt = in->items[i].n_prompt;
    spec.max_tokens = in->items[i].n_output;
    spec.temperature = 0;
    spec.ignore_eos = true;
    int status = request_spec_copy(&owned, &spec, err);
    if (status)
        return status;
    b->run->results[i].n_prompt = spec.n_prompt;
    b->run->results[i].start_s = quire_now_s() - b->began;
    b->run->n_prompt += spec.n_prompt;
    return engine_submit(b->engine, b->first_id + i, &owned, &retry_after_ms, err);
}

static int submit_all(struct bench_engine *b, const struct bench_inputs *in, const double *arrivals, uint32_t *ids,
                      struct bench_progress *progress, struct quire_error *err)
{
    int status = QUIRE_OK;
    for (size_t i = 0; i < in->n && status == QUIRE_OK; i++) {
        bench_inputs_ids(in, i, ids);
        if (arrivals)
            status = look_on(b, b->began + arrivals[i], progress, err);
        if (status == QUIRE_OK)
            status = submit(b, in, i, ids, err);
    }
    return status;
}

/* No event of this run may be reported afterwards, also if it failed half-way. */
static void end_run(struct bench_engine *b)
{
    pthread_mutex_lock(&b->mutex);
    size_t n = b->run->n;
    bool is_over = b->n_over == n;
    b->run = NULL;
    pthread_mutex_unlock(&b->mutex);
    for (size_t i = 0; !is_over && i < n; i++)
        engine_cancel(b->engine, b->first_id + i);
}

int bench_engine_run(struct bench_engine *b, const struct bench_inputs *in, const double *arrivals,
                     struct bench_progress *progress, struct bench_run *out, struct quire_error *err)
{
    uint32_t longest = 0;
    for (size_t i = 0; i < in->n; i++)
        if (in->items[i].n_prompt > longest)
            longest = in->items[i].n_prompt;
    *out = (struct bench_run){.n = in->n, .results = calloc(in->n, sizeof *out->results)};
    uint32_t *ids = malloc(longest * sizeof *ids);
    if (!out->results || !ids) {
        free(ids);
        bench_run_free(out);
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    }
    pthread_mutex_lock(&b->mutex);
    b->run = out;
    b->first_id = b->next_id;
    b->next_id += in->n;
    b->n_first = b->n_over = 0;
    b->failed = false;
    b->began = quire_now_s();
    pthread_mutex_unlock(&b->mutex);
    int status = submit_all(b, in, arrivals, ids, progress, err);
    engine_no_more(b->engine);
    if (status == QUIRE_OK)
        status = look_on(b, INFINITY, progress, err);
    end_run(b);
    free(ids);
    if (status != QUIRE_OK)
        bench_run_free(out);
    return status;
}

void bench_run_free(struct bench_run *run)
{
    bench_results_free(run->results, run->n);
    run->results = NULL;
}

int bench_engine_open_inputs(const struct bench_engine *b, const char *model_dir,
                             const struct bench_input_options *options, uint64_t seed, struct quire_text **text,
                             struct bench_inputs **in, struct quire_error *err)
{
    const struct engine_info *info = engine_info(b->engine);
    struct quire_error no_text;
    *text = NULL;
    if (strcmp(options->dataset, "sharegpt") == 0 && quire_text_open(model_dir, text, &no_text) != QUIRE_OK)
        *text = NULL; /* a CSV of lengths needs none; otherwise it is required */
    const struct bench_input_bounds bounds = {.vocab_size = info->desc->config->vocab_size,
                                              .max_model_len = info->plan->max_model_len,
                                              .seed = seed,
                                              .text = *text};
    return bench_inputs_open(options, &bounds, in, err);
}

int bench_engine_warm_up(struct bench_engine *b, struct quire_error *err)
{
    struct bench_input_options options;
    struct bench_inputs *in;
    struct bench_run run;
    bench_input_options_default(&options);
    options.num_prompts = 1;
    options.input_len = 8;
    options.output_len = 2;
    const struct bench_input_bounds bounds = {.vocab_size = engine_info(b->engine)->desc->config->vocab_size,
                                              .seed = UINT64_MAX};
    int status = bench_inputs_open(&options, &bounds, &in, err);
    if (status != QUIRE_OK)
        return status;
    status = bench_engine_run(b, in, NULL, NULL, &run, err);
    if (status == QUIRE_OK)
        bench_run_free(&run);
    bench_inputs_close(in);
    return status;
}
