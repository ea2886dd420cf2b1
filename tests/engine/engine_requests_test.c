/* The life of requests: refused, queued, cancelled, broken, cut short by drain and close. */
#include "tests/engine/fixtures/client.h"
#include "engine/engine.h"
#include "kernels/args/gemm.h"
#include "tests/engine/fixtures/tiny_model.h"
#include "tests/engine/fixtures/step_options.h"

#include "engine/run/state.h"

#include <math.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "tests/isolated_tests.h"

#include "tests/sample_tests.h"

#define N_PROMPT 24u
#define NAN_TOKEN 7u
#define MAX_LEN 256u

static struct tiny_model model;
static uint32_t prompt[MAX_LEN + 1];

static int set_up(void **state)
{
    (void)state;
    tiny_model_write(&(struct tiny_spec){.seed = 2, .nan_token = NAN_TOKEN, .prefix = "model."}, &model);
    client_random_prompt(prompt, MAX_LEN + 1, TINY_VOCAB, 9);
    for (uint32_t i = 0; i <= MAX_LEN; i++)
        if (prompt[i] == NAN_TOKEN)
            prompt[i]++;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tiny_model_remove(&model);
    return 0;
}

static const struct request_bias no_nan = {NAN_TOKEN, -INFINITY};

/* Greedy, eos ignored, and never the token whose embedding is NaN. */
static struct request_spec ask_for(uint32_t max_tokens)
{
    struct request_spec r = client_request(prompt, N_PROMPT, max_tokens);
    r.ignore_eos = true;
    r.biases = &no_nan;
    r.n_biases = 1;
    r.n_logprobs = 1;
    return r;
}

/* ---- what is refused ------------------------------------------------------------------------- */

static const struct request_bias twice[] = {{3, 1}, {4, 1}, {3, 2}};
static const struct request_bias outside = {TINY_VOCAB, 1};
static const struct request_bias nan_bias = {3, NAN};
static const uint32_t stop_outside = TINY_VOCAB;
static const uint32_t prompt_outside[] = {1, 2, TINY_VOCAB};
static const uint32_t allowed[] = {3, 4, 3}, allowed_words[] = {1, 4, 1, 3};
static const uint32_t word_outside[] = {2, 5, TINY_VOCAB}, word_empty[] = {1, 5, 0}, word_cut[] = {1, 5, 2, 6};
static const uint32_t many[REQUEST_MAX_BAD_WORDS + 1] = {REQUEST_MAX_BAD_WORDS};

enum wrong {
    EMPTY,
    OUTSIDE,
    TOO_LONG,
    FAR_TOO_LONG,
    NO_CHOICE,
    MANY_CHOICES,
    TEMPERATURE,
    TEMPERATURE_NAN,
    TOP_P,
    TOP_P_NAN,
    MIN_P,
    REPETITION,
    REPETITION_INF,
    PRESENCE,
    FREQUENCY,
    LOGPROBS,
    PROMPT_LOGPROBS,
    MIN_TOKENS,
    STOP_OUTSIDE,
    BIAS_OUTSIDE,
    BIAS_NAN,
    BIAS_TWICE,
    ALLOWED_OUTSIDE,
    ALLOWED_MANY,
    ALLOWED_ALL_BAD,
    WORD_OUTSIDE,
    WORD_EMPTY,
    WORD_CUT,
    WORDS_MANY,
    N_WRONG
};
static const char *const named[N_WRONG] = {
    "prompt:",
    "prompt:",
    "max_tokens:",
    "max_tokens:",
    "n:",
    "n:",
    "temperature:",
    "temperature:",
    "top_p:",
    "top_p:",
    "min_p:",
    "repetition_penalty:",
    "repetition_penalty:",
    "presence_penalty:",
    "frequency_penalty:",
    "logprobs:",
    "prompt_logprobs:",
    "min_tokens:",
    "stop_token_ids:",
    "logit_bias:",
    "logit_bias:",
    "logit_bias:",
    "allowed_token_ids:",
    "allowed_token_ids:",
    "allowed_token_ids:",
    "bad_words:",
    "bad_words:",
    "bad_words:",
    "bad_words:",
};

static void make_wrong(struct request_spec *r, enum wrong what)
{
    struct request_spec *s = r;
    switch (what) {
    case EMPTY: r->n_prompt = 0; break;
    case OUTSIDE: r->prompt = prompt_outside, r->n_prompt = 3; break;
    case TOO_LONG: r->n_prompt = MAX_LEN; break;
    case FAR_TOO_LONG: r->max_tokens = UINT32_MAX; break;
    case NO_CHOICE: r->n = 0; break;
    case MANY_CHOICES: r->n = 129; break;
    case TEMPERATURE: s->temperature = -0.1f; break;
    case TEMPERATURE_NAN: s->temperature = NAN; break;
    case TOP_P: s->top_p = 0; break;
    case TOP_P_NAN: s->top_p = NAN; break;
    case MIN_P: s->min_p = 1.5f; break;
    case REPETITION: s->repetition_penalty = 0; break;
    case REPETITION_INF: s->repetition_penalty = INFINITY; break;
    case PRESENCE: s->presence_penalty = 2.5f; break;
    case FREQUENCY: s->frequency_penalty = -INFINITY; break;
    case LOGPROBS: s->n_logprobs = 21; break;
    case PROMPT_LOGPROBS: s->n_prompt_logprobs = -2; break;
    case MIN_TOKENS: s->min_tokens = 6; break;
    case STOP_OUTSIDE: s->stop_token_ids = &stop_outside, s->n_stop_token_ids = 1; break;
    case BIAS_OUTSIDE: s->biases = &outside; break;
    case BIAS_NAN: s->biases = &nan_bias; break;
    case BIAS_TWICE: s->biases = twice, s->n_biases = 3; break;
    case ALLOWED_OUTSIDE: s->allowed_token_ids = prompt_outside, s->n_allowed_token_ids = 3; break;
    case ALLOWED_MANY: s->allowed_token_ids = many, s->n_allowed_token_ids = TINY_VOCAB + 1; break;
    case ALLOWED_ALL_BAD:
        s->allowed_token_ids = allowed, s->n_allowed_token_ids = 3;
        s->bad_words = allowed_words, s->n_bad_words = 4;
        break;
    case WORD_OUTSIDE: s->bad_words = word_outside, s->n_bad_words = 3; break;
    case WORD_EMPTY: s->bad_words = word_empty, s->n_bad_words = 3; break;
    case WORD_CUT: s->bad_words = word_cut, s->n_bad_words = 4; break;
    case WORDS_MANY: s->bad_words = many, s->n_bad_words = REQUEST_MAX_BAD_WORDS + 1; break;
    case N_WRONG: break;
    }
}

static void bad_parameters(void **state)
{
    (void)state;
    struct engine_options o = client_options(64);
    struct client *c = client_open(model.dir, &o);
    for (int what = 0; what < N_WRONG; what++) {
        struct request_spec r = ask_for(5);
        struct quire_error err;
        int status;
        make_wrong(&r, (enum wrong)what);
        assert_null(client_try(c, &r, &status, NULL, &err));
        assert_int_equal(status, QUIRE_INVALID);
        if (strncmp(err.text, named[what], strlen(named[what])) != 0)
            fail_msg("case %d: \"%s\" does not begin with %s", what, err.text, named[what]);
        assert_non_null(err.parameter);
        assert_int_equal(strlen(err.parameter), strlen(named[what]) - 1);
        assert_memory_equal(err.parameter, named[what], strlen(err.parameter));
        struct request_spec good = ask_for(2);
        assert_int_equal(client_ask(c, &good)->choices[0].n_tokens, 2);
    }
    client_close(c);
}

static void ids_are_unique_while_live(void **state)
{
    (void)state;
    struct engine_options o = client_options(64);
    struct client *c = client_open(model.dir, &o);
    struct request_spec r = ask_for(20);
    struct quire_error err;
    client_pause(c);
    struct answer *a = client_submit(c, &r);
    client_wait_paused(c);
    struct request_spec second;
    assert_int_equal(request_spec_copy(&second, &r, &err), QUIRE_OK);
    assert_int_equal(engine_submit(client_engine(c), a->id, &second, NULL, &err), QUIRE_INVALID);
    assert_null(second.prompt);
    client_resume(c);
    client_wait(c, a);
    client_close(c);
}

/* ---- the queue ------------------------------------------------------------------------------- */

static void queue_is_bounded(void **state)
{
    (void)state;
    struct engine_options o = client_options(64);
    o.max_num_seqs = 1;
    o.max_queued_requests = 3;
    struct client *c = client_open(model.dir, &o);
    struct request_spec r = ask_for(20);
    struct quire_error err;
    struct answer *a[3];
    uint32_t retry = 0;
    int status;
    client_pause(c);
    a[0] = client_submit(c, &r);
    client_wait_paused(c); /* it runs; the queue is empty */
    r.n = 2;
    a[1] = client_submit(c, &r);
    assert_null(client_try(c, &r, &status, &retry, &err)); /* 2 + 2 choices are one too many */
    assert_int_equal(status, QUIRE_EXHAUSTED);
    assert_in_range(retry, 500, 60000);
    r.n = 1;
    a[2] = client_submit(c, &r);
    assert_null(client_try(c, &r, &status, &retry, &err));
    struct engine_stats stats;
    engine_stats(client_engine(c), &stats);
    assert_int_equal(stats.n_running, 1);
    assert_int_equal(stats.n_waiting, 3);
    assert_int_equal(stats.n_waiting_tokens, 2 * N_PROMPT);
    client_resume(c);
    for (int i = 0; i < 3; i++)
        client_wait(c, a[i]);
    assert_true(client_ask(c, &r)->over);
    client_close(c);
}

static void queued_tokens_are_bounded(void **state)
{
    (void)state;
    struct engine_options o = client_options(64);
    o.max_num_seqs = 1;
    o.max_queued_tokens = 30;
    struct client *c = client_open(model.dir, &o);
    struct request_spec r = ask_for(20);
    struct quire_error err;
    int status;
    uint32_t retry = 0;
    client_pause(c);
    struct answer *running = client_submit(c, &r);
    client_wait_paused(c);
    r.n_prompt = 40; /* alone in the queue it is taken, though longer than the bound */
    struct answer *waiting = client_submit(c, &r);
    r.n_prompt = 1;
    assert_null(client_try(c, &r, &status, &retry, &err));
    assert_int_equal(status, QUIRE_EXHAUSTED);
    assert_in_range(retry, 500, 60000);
    client_resume(c);
    client_wait(c, running);
    client_wait(c, waiting);
    client_close(c);
}

static void a_lone_request_passes_a_short_queue(void **state)
{
    (void)state;
    struct engine_options o = client_options(64);
    o.max_queued_requests = 1;
    o.max_num_seqs = 4;
    struct client *c = client_open(model.dir, &o);
    struct request_spec r = ask_for(3);
    r.n = 128;
    const struct answer *a = client_ask(c, &r);
    for (uint32_t i = 0; i < 128; i++)
        assert_int_equal(a->choices[i].n_tokens, 3);
    client_close(c);
}

/* A request that is being computed does not count as waiting, however long its step takes. */
static const struct k_backend_ops *whole_ops;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static int gated_embed(struct k_backend *b, const struct k_embed_args *a, struct quire_error *err)
{
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    return whole_ops->embed(b, a, err);
}

static void a_long_step_leaves_the_queue_free(void **state)
{
    (void)state;
    struct engine_options o = client_options(64);
    o.max_queued_requests = 1;
    o.max_num_seqs = 1;
    struct client *c = client_open(model.dir, &o);
    struct k_backend *backend = client_engine(c)->backend;
    whole_ops = backend->ops;
    struct k_backend_ops gated = *whole_ops;
    gated.embed = gated_embed;
    backend->ops = &gated; /* the engine thread sleeps until the first submit */
    struct request_spec r = ask_for(2);
    struct engine_stats stats = {0};
    pthread_mutex_lock(&gate);
    struct answer *a = client_submit(c, &r);
    for (int tries = 0; tries < 60000 && stats.n_running == 0; tries++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        engine_stats(client_engine(c), &stats);
    }
    assert_int_equal(stats.n_running, 1);
    assert_int_equal(stats.n_waiting, 0);
    struct answer *b = client_submit(c, &r);
    pthread_mutex_unlock(&gate);
    client_wait(c, a);
    client_wait(c, b);
    client_close(c);
}

/* ---- cancels --------------------------------------------------------------------------------- */

static void cancel_storm(void **state)
{
    (void)state;
    struct engine_options o = client_options(64);
    o.max_num_seqs = 8;
    o.max_num_batched_tokens = 32;
    struct client *c = client_open(model.dir, &o);
    struct request_spec probe = ask_for(30), r = ask_for(40);
    const struct answer *alone = client_ask(c, &probe);
    struct answer *a[200], *during = NULL;
    for (uint32_t i = 0; i < 200; i++) {
        r.n = 1 + i % 3;
        r.n_prompt = 1 + i * 7 % 150;
        a[i] = client_submit(c, &r);
        if (i == 60)
            during = client_submit(c, &probe);
        if (i % 2)
            engine_cancel_choice(client_engine(c), a[i / 2]->id, i % 3);
        if (i % 5)
            engine_cancel(client_engine(c), a[i]->id);
        if (i % 10 == 9)
            client_wait_tokens(c, a[i / 10 * 10], 3);
    }
    engine_cancel(client_engine(c), 12345678); /* unknown: nothing happens */
    uint32_t n_cancelled = 0, n_finished = 0;
    for (uint32_t i = 0; i < 200; i++) {
        client_wait(c, a[i]);
        for (uint32_t j = 0; j < a[i]->n; j++) {
            n_cancelled += a[i]->choices[j].finish == ENGINE_FINISH_CANCELLED;
            n_finished += a[i]->choices[j].finish == ENGINE_FINISH_LENGTH;
        }
    }
    client_wait(c, during);
    assert_true(answers_equal(alone, during));
    assert_true(n_cancelled > 100 && n_finished > 10);
    assert_true(answers_equal(alone, client_ask(c, &probe)));
    struct engine_stats stats = client_idle_stats(c);
    assert_int_equal(stats.n_blocks_leaked, 0);
    assert_true(stats.kv_usage == 0);
    client_close(c);
}

/* Counts steps on the engine's thread, and cancels there after one of them, so that no clock influences the result.
 * The engine holds no lock while a watch is called. */
struct stepper {
    struct engine *engine;
    uint64_t victim, cancel_after; /* a request, and a number of steps */
    uint32_t seqs[3], n_seqs; /* the victim's */
    uint32_t n_rows_after; /* rows of the victim in steps planned after the cancel */
    uint64_t n_committed, n_retired, n_retired_by;
};

static bool is_victims(const struct stepper *s, uint32_t seq)
{
    for (uint32_t i = 0; i < s->n_seqs; i++)
        if (s->seqs[i] == seq)
            return true;
    return false;
}

static void step_submitted(void *context, const struct engine_watch_submit *submit)
{
    struct stepper *s = context;
    if (submit->request != s->victim || submit->status != QUIRE_OK)
        return;
    s->n_seqs = submit->sched->n;
    memcpy(s->seqs, submit->seqs, s->n_seqs * sizeof *s->seqs);
}

static void step_planned(void *context, uint64_t now_us, const struct sched_plan *plan, const struct sched *sched)
{
    struct stepper *s = context;
    (void)now_us;
    (void)sched;
    for (uint32_t i = 0; s->n_committed >= s->cancel_after && i < plan->n_rows; i++)
        s->n_rows_after += is_victims(s, plan->rows[i].seq);
}

static void step_committed(void *context, const struct engine_watch_commit *commit)
{
    struct stepper *s = context;
    (void)commit;
    if (++s->n_committed == s->cancel_after)
        engine_cancel(s->engine, s->victim);
}

static void step_retired(void *context, uint32_t seq)
{
    struct stepper *s = context;
    if (!is_victims(s, seq))
        return;
    s->n_retired++;
    s->n_retired_by = s->n_committed;
}

/* A client that goes away is a cancel here, however it went: its blocks are free two steps later, whatever it was in. */
static void a_cancel_frees_within_two_steps(void **state)
{
    static const struct {
        const char *in;
        uint32_t n, n_prompt;
        uint64_t cancel_after;
        bool behind; /* another, which is all that may run */
    } cases[] = {
        {"prefill", 1, 200, 2, false},       {"prefill, n = 3", 3, 200, 2, false},
        {"decode", 1, N_PROMPT, 9, false},   {"decode, n = 3", 3, N_PROMPT, 9, false},
        {"the queue", 1, N_PROMPT, 3, true}, {"the queue, n = 3", 3, 200, 3, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct stepper s = {.victim = UINT64_MAX, .cancel_after = cases[i].cancel_after};
        const struct engine_watch watch = {.context = &s,
                                           .submitted = step_submitted,
                                           .planned = step_planned,
                                           .committed = step_committed,
                                           .retired = step_retired};
        const struct engine_watch *watches[] = {&watch};
        struct engine_options o = client_options(64);
        static struct engine_observers observers;
        observers = (struct engine_observers){.watches = watches, .n_watches = 1};
        o.observers = &observers;
        o.max_num_batched_tokens = 32;
        o.max_num_seqs = cases[i].behind ? 1 : 4;
        struct client *c = client_open(model.dir, &o);
        s.engine = client_engine(c);
        struct request_spec first = ask_for(40), r = ask_for(40);
        r.n = cases[i].n;
        r.n_prompt = cases[i].n_prompt;
        /* The engine is held in the sink, or has nothing to do yet, while the victim gets its id. */
        s.victim = cases[i].behind ? 1001 : 1000; /* as client.c counts */
        if (cases[i].behind)
            client_pause(c);
        struct answer *before = cases[i].behind ? client_submit(c, &first) : NULL;
        if (before)
            client_wait_paused(c);
        struct answer *a = client_submit(c, &r);
        assert_true(a->id == s.victim);
        client_resume(c);
        client_wait(c, a);
        if (before)
            client_wait(c, before);
        struct engine_stats stats = client_idle_stats(c);
        for (uint32_t j = 0; j < r.n; j++)
            assert_int_equal(a->choices[j].finish, ENGINE_FINISH_CANCELLED);
        if (s.n_rows_after > r.n || s.n_retired != r.n || s.n_retired_by > s.cancel_after + 2)
            fail_msg("in %s: %u rows planned after the cancel, %u of %u retired, the last after step %u of %u",
                     cases[i].in, s.n_rows_after, (unsigned)s.n_retired, r.n, (unsigned)s.n_retired_by,
                     (unsigned)s.cancel_after);
        assert_true(stats.kv_usage == 0);
        assert_int_equal(stats.n_blocks_leaked, 0);
        client_close(c);
    }
}

/* Stops the engine's thread when a sequence has left, so that the following submissions and cancels arrive in one
 * drain. */
struct gate {
    sem_t left, go;
};

static void gate_retired(void *context, uint32_t seq)
{
    struct gate *g = context;
    (void)seq;
    sem_post(&g->left);
    sem_wait(&g->go);
}

static void wait_at_gate(struct gate *g)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 120;
    if (sem_timedwait(&g->left, &until) != 0)
        fail_msg("nobody left the scheduler in two minutes");
}

/* Each is cancelled before anything of it is planned, many in a row: the engine lives on. */
static void cancelled_before_they_run(void **state)
{
    (void)state;
    struct gate g;
    const struct engine_watch watch = {.context = &g, .retired = gate_retired};
    const struct engine_watch *watches[] = {&watch};
    struct engine_options o = client_options(64);
    static struct engine_observers observers;
    observers = (struct engine_observers){.watches = watches, .n_watches = 1};
    o.observers = &observers;
    assert_int_equal(sem_init(&g.left, 0, 0), 0);
    assert_int_equal(sem_init(&g.go, 0, 0), 0);
    struct client *c = client_open(model.dir, &o);
    struct request_spec r = ask_for(4);
    client_submit(c, &r);
    for (uint32_t i = 0; i < 40; i++) {
        wait_at_gate(&g);
        engine_cancel(client_engine(c), client_submit(c, &r)->id);
        sem_post(&g.go);
    }
    sem_post(&g.go); /* for the last one, and for the next one */
    sem_post(&g.go);
    assert_int_equal(client_ask(c, &r)->choices[0].finish, ENGINE_FINISH_LENGTH);
    struct engine_stats stats = client_idle_stats(c);
    assert_false(stats.dead);
    assert_int_equal(stats.n_steps, 8); /* steps of the first and the last request */
    client_close(c);
    sem_destroy(&g.left);
    sem_destroy(&g.go);
}

static void one_choice_is_cancelled(void **state)
{
    (void)state;
    struct engine_options o = client_options(64);
    struct client *c = client_open(model.dir, &o);
    struct request_spec r = ask_for(60);
    r.n = 3;
    client_pause(c);
    struct answer *a = client_submit(c, &r);
    client_wait_paused(c);
    engine_cancel_choice(client_engine(c), a->id, 1);
    engine_cancel_choice(client_engine(c), a->id, 3); /* the choice does not exist: no effect */
    client_resume(c);
    client_wait(c, a);
    assert_int_equal(a->choices[0].finish, ENGINE_FINISH_LENGTH);
    assert_int_equal(a->choices[1].finish, ENGINE_FINISH_CANCELLED);
    assert_int_equal(a->choices[2].finish, ENGINE_FINISH_LENGTH);
    client_close(c);
}

/* They are choice 0's: none come after its end, though choice 1 goes on with the prompt. */
static void prompt_logprobs_end_with_choice_0(void **state)
{
    (void)state;
    struct engine_options o = client_options(64);
    o.max_num_batched_tokens = 16;
    struct client *c = client_open(model.dir, &o);
    struct request_spec r = ask_for(4);
    r.n_prompt = 100;
    r.n = 2;
    r.n_prompt_logprobs = 1;
    const struct answer *alone = client_ask(c, &r);
    client_pause(c);
    struct answer *a = client_submit(c, &r);
    client_wait_paused(c);
    engine_cancel_choice(client_engine(c), a->id, 0);
    client_resume(c);
    client_wait(c, a);
    assert_int_equal(a->choices[0].finish, ENGINE_FINISH_CANCELLED);
    assert_int_equal(a->choices[1].finish, ENGINE_FINISH_LENGTH);
    assert_true(a->n_prompt_logprobs < alone->n_prompt_logprobs);
    assert_true(records_equal(&a->choices[1].record, &alone->choices[1].record));
    client_close(c);
}

/* ---- one request's fault --------------------------------------------------------------------- */

/* cache: NULL, or a dtype whose blocks are reused, so that the values of a NaN request lie next to other requests'
 * tokens. */
static void check_nan(const struct tiny_model *of, const char *cache)
{
    struct engine_options o = client_options(64);
    if (cache) {
        o.kv_cache_dtype = cache;
        o.num_kv_blocks = 18;
        o.prefix_caching = false;
    }
    struct client *c = client_open(of->dir, &o);
    struct request_spec good = ask_for(20), bad = ask_for(20), later = ask_for(20);
    const struct answer *alone = client_ask(c, &good);

    uint32_t poisoned[N_PROMPT];
    memcpy(poisoned, prompt, sizeof poisoned);
    poisoned[10] = NAN_TOKEN;
    bad.prompt = poisoned;
    bad.n = 2;
    const struct request_bias force = {NAN_TOKEN, 100};
    later.biases = &force; /* draws the token, then cannot go on */
    client_pause(c);
    struct answer *first = client_submit(c, &good);
    client_wait_paused(c);
    struct answer *b = client_submit(c, &bad), *l = client_submit(c, &later);
    struct answer *beside = client_submit(c, &good);
    client_resume(c);
    struct answer *all[] = {first, b, l, beside};
    for (int i = 0; i < 4; i++)
        client_wait(c, all[i]);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(b->choices[i].finish, ENGINE_FINISH_ERROR);
        assert_int_equal(b->choices[i].n_tokens, 0);
        assert_int_equal(b->choices[i].status, QUIRE_INTERNAL);
        assert_non_null(strstr(b->choices[i].message, "logits"));
    }
    assert_int_equal(l->choices[0].finish, ENGINE_FINISH_ERROR);
    assert_int_equal(l->choices[0].n_tokens, 1);
    assert_true(answers_equal(alone, first));
    assert_true(answers_equal(alone, beside));
    for (uint32_t i = 0; i < (cache ? 8 : 1); i++)
        assert_true(answers_equal(alone, client_ask(c, &good)));
    assert_int_equal(client_idle_stats(c).n_blocks_leaked, 0);
    client_close(c);
}

static void nan_ends_its_own_request(void **state)
{
    (void)state;
    check_nan(&model, NULL);
#ifndef TEST_DEVICE
    check_nan(&model, "float16");
    check_nan(&model, "int8");
    check_nan(&model, "fp8_e5m2");
#endif
}

#ifndef TEST_DEVICE
/* The router's logits are NaN, too, and its token then has the first experts, which others use in the same step. */
static void nan_in_a_router_ends_its_own_request(void **state)
{
    struct tiny_model experts;
    (void)state;
    tiny_model_write(&(struct tiny_spec){.seed = 3, .nan_token = NAN_TOKEN, .prefix = "model.", .n_experts = 5},
                     &experts);
    check_nan(&experts, NULL);
    tiny_model_remove(&experts);
}
#endif

static void everything_forbidden(void **state)
{
    (void)state;
    struct engine_options o = client_options(64);
    struct client *c = client_open(model.dir, &o);
    uint32_t all[TINY_VOCAB];
    for (uint32_t i = 0; i < TINY_VOCAB; i++)
        all[i] = i;
    struct request_spec r = ask_for(4);
    r.stop_token_ids = all;
    r.n_stop_token_ids = TINY_VOCAB;
    r.min_tokens = 1;
    struct quire_error err;
    int status;
    assert_null(client_try(c, &r, &status, NULL, &err));
    assert_int_equal(status, QUIRE_INVALID);
    assert_memory_equal(err.text, "min_tokens:", 11);
    assert_string_equal(err.parameter, "min_tokens");
    r.min_tokens = 0;
    assert_int_equal(client_ask(c, &r)->choices[0].finish, ENGINE_FINISH_STOP);
    client_close(c);
}

/* Only bad words can forbid every token in the middle of an answer. The request then ends with an error that names
 * its own parameters. */
static void everything_forbidden_later(void **state)
{
    (void)state;
    static const uint32_t words[] = {2, 3, 3, 2, 3, 4, 2, 4, 3, 2, 4, 4};
    struct engine_options o = client_options(64);
    struct client *c = client_open(model.dir, &o);
    struct request_spec r = ask_for(4), good = ask_for(9);
    const struct answer *alone = client_ask(c, &good);
    r.n = 2;
    r.allowed_token_ids = allowed;
    r.n_allowed_token_ids = 3;
    r.bad_words = words;
    r.n_bad_words = sizeof words / sizeof *words;
    struct answer *beside = client_submit(c, &good), *a = client_submit(c, &r);
    client_wait(c, a);
    client_wait(c, beside);
    assert_true(answers_equal(alone, beside));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(a->choices[i].finish, ENGINE_FINISH_ERROR);
        assert_int_equal(a->choices[i].status, QUIRE_INVALID);
        assert_string_equal(a->choices[i].parameter, "bad_words");
        assert_non_null(strstr(a->choices[i].message, "bad_words"));
    }
    assert_int_equal(a->choices[0].n_tokens, 1);
    assert_int_equal(client_idle_stats(c).n_blocks_leaked, 0);
    client_close(c);
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void close_during_work(void **state)
{
    (void)state;
    struct engine_options o = client_options(64);
    o.max_num_seqs = 4;
    struct client *c = client_open(model.dir, &o);
    struct request_spec r = ask_for(200);
    r.n_prompt = 30;
    struct answer *a[12];
    client_pause(c);
    for (int i = 0; i < 12; i++)
        a[i] = client_submit(c, &r);
    client_wait_paused(c);
    mailbox_close(client_engine(c)->mailbox); /* as engine_close() begins */
    client_resume(c);
    client_stop_engine(c);
    for (int i = 0; i < 12; i++) {
        assert_true(a[i]->over);
        assert_int_equal(a[i]->choices[0].finish, ENGINE_FINISH_CANCELLED);
    }
    client_close(c);
}

static void drain_finishes_what_runs(void **state)
{
    (void)state;
    struct engine_options o = client_options(64);
    struct client *c = client_open(model.dir, &o);
    struct request_spec r = ask_for(50);
    struct quire_error err;
    struct engine_stats stats;
    int status;
    uint32_t retry = 0;
    client_pause(c);
    struct answer *a = client_submit(c, &r), *b = client_submit(c, &r);
    client_wait_paused(c);
    engine_drain(client_engine(c));
    assert_null(client_try(c, &r, &status, &retry, &err));
    assert_int_equal(status, QUIRE_EXHAUSTED);
    assert_in_range(retry, 500, 60000);
    engine_stats(client_engine(c), &stats);
    assert_true(stats.draining);
    client_resume(c);
    client_wait(c, a);
    client_wait(c, b);
    assert_int_equal(b->choices[0].n_tokens, 50);
    client_close(c);
}

/* A backend that breaks in the middle of a step. */
static int n_gemms_left;

static int breaking_gemm(struct k_backend *b, const struct k_gemm_args *a, struct quire_error *err)
{
    if (n_gemms_left-- <= 0)
        return quire_fail(err, QUIRE_INTERNAL, "the device has gone");
    return whole_ops->gemm(b, a, err);
}

static void a_dead_backend_tells_everybody(void **state)
{
    (void)state;
    struct engine_options o = client_options(64);
    o.max_num_seqs = 2;
    o.enforce_eager = true; /* a recorded step asks for no operation any more */
    struct client *c = client_open(model.dir, &o);
    struct k_backend *backend = client_engine(c)->backend;
    whole_ops = backend->ops;
    struct k_backend_ops breaking = *whole_ops;
    breaking.gemm = breaking_gemm;
    n_gemms_left = 100;
    backend->ops = &breaking; /* the engine thread sleeps until the first submit */

    struct request_spec r = ask_for(100);
    struct answer *a[5];
    r.n = 2;
    client_pause(c);
    for (int i = 0; i < 5; i++)
        a[i] = client_submit(c, &r);
    client_wait_paused(c);
    client_resume(c);
    for (int i = 0; i < 5; i++) {
        client_wait(c, a[i]);
        for (uint32_t j = 0; j < 2; j++) {
            assert_int_equal(a[i]->choices[j].finish, ENGINE_FINISH_ERROR);
            assert_int_equal(a[i]->choices[j].status, QUIRE_UNAVAILABLE);
            assert_non_null(strstr(a[i]->choices[j].message, "the device has gone"));
        }
    }
    struct quire_error err;
    struct engine_stats stats;
    int status;
    assert_null(client_try(c, &r, &status, NULL, &err));
    assert_int_equal(status, QUIRE_UNAVAILABLE);
    engine_stats(client_engine(c), &stats);
    assert_true(stats.dead);
    client_close(c);
}

static void counters(void **state)
{
    (void)state;
    struct engine_options o = client_options(64);
    struct client *c = client_open(model.dir, &o);
    struct request_spec r = ask_for(10);
    r.n = 2;
    r.n_prompt = 40;
    client_ask(c, &r);
    const struct answer *again = client_ask(c, &r);
    assert_int_equal(again->choices[0].n_cached, 32); /* two blocks */
    struct engine_stats stats = client_idle_stats(c);
    assert_int_equal(stats.n_prompt_tokens, 80);
    assert_int_equal(stats.n_generation_tokens, 40);
    assert_true(stats.n_steps >= 20 && stats.n_prefix_hits >= 32);
    assert_false(stats.dead || stats.draining);
    client_close(c);
}

int main(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_parameters),
        cmocka_unit_test(ids_are_unique_while_live),
        cmocka_unit_test(queue_is_bounded),
        cmocka_unit_test(queued_tokens_are_bounded),
        cmocka_unit_test(a_lone_request_passes_a_short_queue),
        cmocka_unit_test(a_long_step_leaves_the_queue_free),
        cmocka_unit_test(cancel_storm),
        cmocka_unit_test(a_cancel_frees_within_two_steps),
        cmocka_unit_test(cancelled_before_they_run),
        cmocka_unit_test(one_choice_is_cancelled),
        cmocka_unit_test(prompt_logprobs_end_with_choice_0),
        cmocka_unit_test(nan_ends_its_own_request),
#ifndef TEST_DEVICE
        cmocka_unit_test(nan_in_a_router_ends_its_own_request),
#endif
        cmocka_unit_test(everything_forbidden),
        cmocka_unit_test(everything_forbidden_later),
        cmocka_unit_test(close_during_work),
        cmocka_unit_test(drain_finishes_what_runs),
        cmocka_unit_test(a_dead_backend_tells_everybody),
        cmocka_unit_test(counters),
    };
#ifdef TEST_EMULATED /* they run completely as engine_requests_test and its emulated copy */
    sample_tests(tests, sizeof tests / sizeof *tests, 2);
#endif
    sample_overlap(tests, sizeof tests / sizeof *tests);
    return RUN_ISOLATED(tests, set_up, tear_down);
}
