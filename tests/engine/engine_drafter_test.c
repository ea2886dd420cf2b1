/* The calls that the engine makes to a drafter: slots that begin and end, texts that grow, answers to learn from.
 * The test's own drafter replaces the server's method. It knows the answers and guesses right up to a given
 * position. The linker hands the engine this drafters_create() (--wrap). */
#include "tests/engine/fixtures/step_options.h"
#include "tests/engine/fixtures/client.h"
#include "engine/engine.h"
#include "request/spec.h"
#include "tests/engine/fixtures/tiny_model.h"

#include "engine/run/drafters.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_REQUESTS 16u
#define N_PROMPT 30u
#define N_SEQS 6u
#define MOST_TOKENS 60u

static struct tiny_model model;

struct told {
    struct drafter base;
    struct answer *const *answers; /* NULL: guesses wrong */
    uint32_t n_tokens[N_SEQS]; /* of the text at the last call; 0: the slot is free */
    uint32_t n_begins, n_ends, n_learned, n_asks;
    bool wrong; /* something was not as drafter.h has it */
};
static struct told *told; /* state of the open engine: owned by its thread until it is closed */

static void begin(struct drafter *d, uint32_t slot, const struct draft_text *text)
{
    struct told *t = (struct told *)d;
    t->wrong |= slot >= N_SEQS || t->n_tokens[slot] != 0 || text->n_prompt != N_PROMPT || text->n_tokens <= N_PROMPT;
    t->n_tokens[slot] = text->n_prompt;
    t->n_begins++;
}

/* The answer that the text is the beginning of. */
static const struct choice_answer *answer_of(const struct told *t, const struct draft_text *text, uint32_t n)
{
    for (uint32_t i = 0; t->answers && i < N_REQUESTS; i++)
        for (uint32_t k = 0; k < t->answers[i]->n; k++) {
            const struct choice_answer *c = &t->answers[i]->choices[k];
            if (c->n_tokens >= n && memcmp(c->tokens, text->tokens + N_PROMPT, n * sizeof *c->tokens) == 0)
                return c;
        }
    return NULL;
}

static int propose(struct drafter *d, struct draft_ask *asks, uint32_t n_asks, struct quire_error *err)
{
    struct told *t = (struct told *)d;
    (void)err;
    for (uint32_t i = 0; i < n_asks; i++) {
        struct draft_ask *a = &asks[i];
        uint32_t n = a->text.n_tokens - N_PROMPT;
        t->wrong |= a->slot >= N_SEQS || t->n_tokens[a->slot] == 0 || a->text.n_tokens <= t->n_tokens[a->slot];
        t->n_tokens[a->slot] = a->text.n_tokens;
        for (uint32_t k = 0; k < a->text.n_tokens; k++)
            t->wrong |= a->text.tokens[k] >= TINY_VOCAB;
        const struct choice_answer *c = answer_of(t, &a->text, n);
        for (; a->n < a->most && a->n < 5; a->n++)
            a->drafts[a->n] = c && n + a->n < c->n_tokens && a->n < t->n_asks % 6 ? c->tokens[n + a->n] : 1;
        t->n_asks++;
    }
    return QUIRE_OK;
}

static void end(struct drafter *d, uint32_t slot, const struct draft_text *text, bool is_answer)
{
    struct told *t = (struct told *)d;
    t->wrong |= slot >= N_SEQS || t->n_tokens[slot] == 0 || (text->n_tokens > 0) != is_answer;
    t->n_tokens[slot] = 0;
    t->n_ends++;
    if (!is_answer)
        return;
    const struct choice_answer *c = answer_of(t, text, text->n_tokens - N_PROMPT);
    t->wrong |= text->n_tokens <= N_PROMPT || (t->answers && (!c || c->n_tokens != text->n_tokens - N_PROMPT));
    t->n_learned++;
}

static void destroy(struct drafter *d)
{
    (void)d; /* the test looks at it afterwards */
}

static const struct drafter_ops ops = {
    .name = "told", .begin = begin, .propose = propose, .end = end, .destroy = destroy};

int __wrap_drafters_create(const struct speculative_config *config, const struct engine_plan *plan,
                           struct drafter *out[N_DRAFT_SOURCES], struct quire_error *err);
int __wrap_drafters_create(const struct speculative_config *config, const struct engine_plan *plan,
                           struct drafter *out[N_DRAFT_SOURCES], struct quire_error *err)
{
    (void)config;
    (void)plan;
    (void)err;
    out[FROM_METHOD] = told ? &told->base : NULL;
    return QUIRE_OK;
}

static struct client *open_told(struct told *t)
{
    struct engine_options o = client_small_options(36); /* some must be preempted */
    o.max_num_seqs = N_SEQS;
    o.steps->speculative.adaptive = false;
    told = t;
    return client_open(model.dir, &o);
}

static struct answer *submit(struct client *c, uint32_t i)
{
    static const uint32_t stops[] = {3, 11, 40, 77, 120};
    uint32_t prompt[N_PROMPT];
    client_random_prompt(prompt, N_PROMPT, TINY_VOCAB, i);
    struct request_spec r = client_request(prompt, N_PROMPT, 20 + i * 2);
    r.n = i % 4 == 1 ? 3 : 1;
    r.temperature = i % 3 ? 1.1f : 0;
    r.has_seed = true;
    r.seed = i;
    r.ignore_eos = true;
    r.n_logprobs = 1;
    r.repetition_penalty = i % 5 == 2 ? 1.3f : 1;
    r.stop_token_ids = stops;
    r.n_stop_token_ids = i % 2 ? 5 : 0;
    return client_submit(c, &r);
}

static void slots_and_texts(void **state)
{
    (void)state;
    struct answer *plain[N_REQUESTS], *drafted[N_REQUESTS];
    struct told t = {.base = {.ops = &ops}, .answers = plain};
    struct client *first = open_told(NULL), *second;
    for (uint32_t i = 0; i < N_REQUESTS; i++)
        client_wait(first, plain[i] = submit(first, i));
    client_stop_engine(first);
    second = open_told(&t);
    client_pause(second); /* so that all of them are there when the second step is planned, however slowly they come */
    drafted[0] = submit(second, 0);
    client_wait_paused(second);
    for (uint32_t i = 1; i < N_REQUESTS; i++)
        drafted[i] = submit(second, i);
    client_resume(second);
    uint32_t n_learned = 0;
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        client_wait(second, drafted[i]);
        assert_true(answers_equal(plain[i], drafted[i]));
        for (uint32_t k = 0; k < plain[i]->n; k++)
            n_learned += plain[i]->choices[k].n_tokens > 1; /* no draft is requested before the first token */
    }
    struct engine_stats stats = client_idle_stats(second);
    client_stop_engine(second);
    assert_false(t.wrong);
    assert_true(stats.n_preemptions > 0);
    assert_true(stats.n_accepted_tokens > 50 && stats.n_draft_tokens > stats.n_accepted_tokens + 50);
    assert_int_equal(t.n_learned, n_learned);
    assert_int_equal(t.n_begins, t.n_ends);
    assert_true(t.n_begins > n_learned); /* preempted sequences began again */
    client_close(first);
    client_close(second);
}

/* An answer that its client ended, as a stop string does, is learned as far as it came, and leaves its slot. */
static void cancelled_answers(void **state)
{
    (void)state;
    struct told t = {.base = {.ops = &ops}};
    struct client *c = open_told(&t);
    for (uint32_t i = 0; i < 6; i++) {
        struct answer *a = submit(c, 2 * i + 1);
        struct answer *b = submit(c, 2 * i + 2);
        client_wait_tokens(c, a, 2);
        if (i % 2)
            engine_cancel_choice(client_engine(c), a->id, 0);
        engine_cancel(client_engine(c), b->id);
        engine_cancel(client_engine(c), a->id);
        client_wait(c, a);
        client_wait(c, b);
    }
    client_idle_stats(c);
    uint32_t n_free = 0;
    client_stop_engine(c);
    for (uint32_t i = 0; i < N_SEQS; i++)
        n_free += t.n_tokens[i] == 0;
    assert_false(t.wrong);
    assert_int_equal(n_free, N_SEQS);
    assert_true(t.n_learned > 0);
    assert_int_equal(t.n_begins, t.n_ends);
    client_close(c);
}

static int set_up(void **state)
{
    (void)state;
    tiny_model_plain(5, &model);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tiny_model_remove(&model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(slots_and_texts), cmocka_unit_test(cancelled_answers)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
