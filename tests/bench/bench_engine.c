/* The engine thread's CPU time of a step in which every sequence decodes: planning, building the step's arrays, passing
 * them to the backend, taking tokens, committing, events. The sink does nothing. */
#include "engine/engine.h"
#include "engine/event.h"
#include "engine/options.h"
#include "tests/bench/host_bench.h"

#include <pthread.h>
#include <stdlib.h>

#define N_SEQS 256u
#define PROMPT 512u

struct run {
    double *samples, before;
    uint32_t n, n_wanted;
    uint64_t step, last_step;
    pthread_mutex_t mutex; /* held by the submitter until all requests are submitted */
    pthread_cond_t over;
    bool is_over;
};

static void tell_over(struct run *r)
{
    pthread_mutex_lock(&r->mutex);
    r->is_over = true;
    pthread_cond_signal(&r->over);
    pthread_mutex_unlock(&r->mutex);
}

/* There is one step between two calls if all sequences had a token in both. */
static void take_step(void *context, const struct engine_event *events, size_t n_events)
{
    struct run *r = context;
    double now = bench_seconds(CLOCK_THREAD_CPUTIME_ID);
    if (r->step++ == 0) {
        pthread_mutex_lock(&r->mutex);
        pthread_mutex_unlock(&r->mutex);
    }
    if (events[0].kind == ENGINE_EVENT_DONE && r->n < r->n_wanted)
        bench_die("engine: a request ended before all of them ran");
    if (n_events == N_SEQS && r->n < r->n_wanted) {
        if (r->last_step + 1 == r->step)
            r->samples[r->n++] = (now - r->before) * 1e6;
        r->last_step = r->step;
        if (r->n == r->n_wanted)
            tell_over(r);
    }
    r->before = bench_seconds(CLOCK_THREAD_CPUTIME_ID);
}

void bench_engine(const char *model_dir, bool quick)
{
    struct run r = {
        .n_wanted = quick ? 50 : 1000, .mutex = PTHREAD_MUTEX_INITIALIZER, .over = PTHREAD_COND_INITIALIZER};
    struct quire_error err;
    struct engine *e;
    struct engine_options options;
    engine_options_default(&options);
    options.model_dir = model_dir;
    options.device = "ref";
    options.n_threads = 1;
    options.max_num_seqs = N_SEQS;
    options.max_num_batched_tokens = 2048;
    uint32_t max_tokens = r.n_wanted + 256; /* more than the prompts' steps take */
    options.num_kv_blocks = N_SEQS * ((PROMPT + max_tokens) / 16 + 1);
    null_backend_pace(0);
    r.samples = calloc(r.n_wanted, sizeof *r.samples);
    if (!r.samples || engine_open(&options, take_step, &r, &e, &err))
        bench_die("engine: %s", r.samples ? err.text : "out of memory");
    uint32_t prompt[PROMPT];
    pthread_mutex_lock(&r.mutex);
    for (uint32_t i = 0; i < N_SEQS; i++) {
        for (uint32_t t = 0; t < PROMPT; t++)
            prompt[t] = (i * 7 + t) % 2000; /* begins differently: nothing is shared */
        struct request_spec spec, owned;
        request_spec_default(&spec);
        spec.prompt = prompt;
        spec.n_prompt = PROMPT - i % 16;
        spec.max_tokens = max_tokens;
        spec.ignore_eos = true;
        if (request_spec_copy(&owned, &spec, &err) || engine_submit(e, i + 1, &owned, NULL, &err))
            bench_die("engine: %s", err.text);
    }
    while (!r.is_over)
        pthread_cond_wait(&r.over, &r.mutex);
    pthread_mutex_unlock(&r.mutex);
    engine_close(e);
    bench_row("engine: host time of a step, 256 running", "us/step", r.samples, r.n);
    free(r.samples);
}
