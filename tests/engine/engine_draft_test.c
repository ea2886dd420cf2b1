/* Rows that verify drafts: for any guess, right or wrong, every answer has the same bits. Guesses come from a watch,
 * which is called on the engine's thread between two steps, or from a request's prediction. */
#include "tests/engine/fixtures/step_options.h"
#include "engine/engine.h"
#include "tests/engine/fixtures/guesser.h"
#include "tests/engine/fixtures/tiny_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/sample_tests.h"

#define N_REQUESTS 12u
#define N_PROMPT 40u

static struct tiny_model model;

/* Nine tokens, a third of their pairs forbidden: what may be drawn depends on the token before, a draft often. The pairs
 * stand there again and again: a row of drafts that looks for them needs much room. */
static void forbid_pairs(struct request_spec *r)
{
    static uint32_t few[9], pairs[200 * 81];
    uint32_t n = 0;
    for (uint32_t i = 0; i < 9; i++)
        few[i] = 20 + i;
    while (n + 81 <= sizeof pairs / sizeof pairs[0])
        for (uint32_t a = 0; a < 9; a++)
            for (uint32_t b = a % 3; b < 9; b += 3, n += 3)
                pairs[n] = 2, pairs[n + 1] = few[a], pairs[n + 2] = few[b];
    r->allowed_token_ids = few;
    r->n_allowed_token_ids = 9;
    r->bad_words = pairs;
    r->n_bad_words = n;
}

static struct request_spec request_number(uint32_t i, const uint32_t *prompt, const uint32_t *stops)
{
    struct request_spec r = client_varied_request(i, prompt, N_PROMPT);
    if (i % 3 == 2)
        r.presence_penalty = 0.4f, r.frequency_penalty = 0.3f;
    if (i % 4 == 3)
        r.repetition_penalty = 1.4f;
    if (i % 4 == 1)
        forbid_pairs(&r);
    if (i % 2) {
        r.stop_token_ids = stops;
        r.n_stop_token_ids = 3;
    }
    return r;
}

static void ask_all(struct client *c, struct answer **answers)
{
    static const uint32_t stops[] = {3, 11, 40};
    static uint32_t prompts[2][N_PROMPT];
    for (uint32_t i = 0; i < 2; i++)
        client_random_prompt(prompts[i], N_PROMPT, TINY_VOCAB, 7 + i);
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        struct request_spec r = request_number(i, prompts[i % 2], stops);
        answers[i] = client_submit(c, &r);
    }
    for (uint32_t i = 0; i < N_REQUESTS; i++)
        client_wait(c, answers[i]);
}

static struct engine_options options(void)
{
    struct engine_options o = client_small_options(48); /* some must be preempted */
    o.steps->speculative.adaptive = false;
    return o;
}

static void assert_same(const struct answer *a, const struct answer *b)
{
    assert_int_equal(a->n_prompt_logprobs, b->n_prompt_logprobs);
    assert_int_equal(a->prompt_record.n, b->prompt_record.n);
    if (a->prompt_record.n)
        assert_memory_equal(a->prompt_record.bytes, b->prompt_record.bytes, a->prompt_record.n);
    for (uint32_t i = 0; i < a->n; i++) {
        const struct choice_answer *x = &a->choices[i], *y = &b->choices[i];
        assert_int_equal(x->n_tokens, y->n_tokens);
        assert_memory_equal(x->tokens, y->tokens, x->n_tokens * sizeof *x->tokens);
        assert_int_equal(x->record.n, y->record.n);
        assert_memory_equal(x->record.bytes, y->record.bytes, x->record.n);
        assert_int_equal(x->finish, y->finish);
        assert_int_equal(x->n_generated, y->n_generated);
        assert_int_equal(x->has_stop_token, y->has_stop_token);
        assert_int_equal(x->stop_token, y->stop_token);
    }
}

static void test_drafts_change_no_bit(void **state)
{
    (void)state;
    struct answer *plain[N_REQUESTS], *drafted[N_REQUESTS];
    struct engine_options o = options();
    struct client *first = client_open(model.dir, &o);
    ask_all(first, plain);
    client_stop_engine(first);
    uint64_t n_verified = 0, n_accepted = 0;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct guesser *g = guesser_new(plain, N_REQUESTS, TINY_VOCAB, GUESSES_MIXED, 0, seed);
        const struct engine_watch *watch = &g->watch;
        static struct engine_observers observers;
        observers = (struct engine_observers){.watches = &watch, .n_watches = 1};
        o.observers = &observers;
        struct client *second = client_open(model.dir, &o);
        ask_all(second, drafted);
        client_stop_engine(second);
        for (uint32_t i = 0; i < N_REQUESTS; i++)
            assert_same(plain[i], drafted[i]);
        n_verified += g->n_verified;
        n_accepted += g->n_accepted;
        client_close(second);
        free(g);
    }
    assert_true(n_accepted > 200 && n_verified > n_accepted + 200);
    client_close(first);
}

/* The prediction of the request: the answer itself, the answer cut short, and another request's answer. */
static void test_predictions_change_no_bit(void **state)
{
    (void)state;
    struct answer *plain[N_REQUESTS], *predicted[N_REQUESTS];
    struct engine_options o = options();
    uint32_t prompt[N_PROMPT];
    struct client *c = client_open(model.dir, &o);
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        client_random_prompt(prompt, N_PROMPT, TINY_VOCAB, 7 + i % 2);
        struct request_spec r = request_number(i, prompt, NULL);
        r.n_stop_token_ids = 0;
        plain[i] = client_submit(c, &r);
        client_wait(c, plain[i]);
        r.prediction = plain[i % 3 == 2 ? i - 1 : i]->choices[0].tokens;
        r.n_prediction = i % 3 == 1 ? 5 : 20;
        predicted[i] = client_submit(c, &r);
        client_wait(c, predicted[i]);
        assert_same(plain[i], predicted[i]);
    }
    struct engine_stats stats = client_idle_stats(c);
    assert_true(stats.n_accepted_tokens > 60 && stats.n_draft_tokens >= stats.n_accepted_tokens);
    client_stop_engine(c);
    client_close(c);
}

/* The same with predictions that come after the answer has begun; without a server method, and with one that has
 * paused by then. That method depends on step times, and next to other busy processes may decide that no draft pays
 * off. */
static void late_predictions(const char *speculative)
{
    struct engine_options o = options();
    uint32_t prompt[N_PROMPT];
    if (speculative)
        assert_int_equal(speculative_config_parse(speculative, strlen(speculative), &o.steps->speculative, NULL),
                         QUIRE_OK);
    struct client *c = client_open(model.dir, &o);
    uint64_t n_plain = 0;
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        client_random_prompt(prompt, N_PROMPT, TINY_VOCAB, 7 + i % 2);
        struct request_spec r = request_number(i, prompt, NULL);
        r.n_stop_token_ids = 0;
        struct answer *plain = client_ask(c, &r);
        n_plain += client_idle_stats(c).n_accepted_tokens;
        const struct choice_answer *said = &plain->choices[0];
        uint32_t wrong[5];
        for (uint32_t k = 0; k < 5; k++)
            wrong[k] = (said->tokens[0] + k + 1) % TINY_VOCAB;
        const bool lies = i % 3 == 2;
        assert_same(plain, client_ask_late(c, &r, lies ? wrong : said->tokens, lies ? 5 : said->n_tokens));
        n_plain -= client_idle_stats(c).n_accepted_tokens;
    }
    assert_true(speculative || 0 - n_plain > 60); /* so many more were right */
    client_stop_engine(c);
    client_close(c);
}

static void test_late_predictions_change_no_bit(void **state)
{
    (void)state;
    late_predictions(NULL);
    late_predictions("{\"method\": \"ngram\", \"num_speculative_tokens\": 4}");
}

/* Only one prediction counts: not a second one, nor one for a request that brought its own, that disables drafts, or
 * that is not live. */
static void test_one_prediction_is_taken(void **state)
{
    (void)state;
    struct engine_options o = options();
    uint32_t prompt[N_PROMPT], tokens[20], wrong[20];
    struct quire_error err;
    struct client *c = client_open(model.dir, &o);
    client_random_prompt(prompt, N_PROMPT, TINY_VOCAB, 7);
    struct request_spec r = client_request(prompt, N_PROMPT, 20);
    r.ignore_eos = true;
    const struct answer *plain = client_ask(c, &r);
    memcpy(tokens, plain->choices[0].tokens, sizeof tokens);
    for (uint32_t i = 0; i < 20; i++)
        wrong[i] = (tokens[i] + 1) % TINY_VOCAB;
    client_predict(c, plain, tokens, 20); /* over */
    client_pause(c);
    struct answer *a = client_submit(c, &r);
    client_wait_paused(c);
    client_predict(c, a, tokens, 20);
    client_predict(c, a, wrong, 20);
    uint32_t *bad = malloc(sizeof *bad);
    assert_non_null(bad);
    *bad = TINY_VOCAB;
    assert_int_equal(engine_predict(client_engine(c), a->id, bad, 1, &err), QUIRE_INVALID);
    assert_string_equal(err.parameter, "prediction");
    client_resume(c);
    client_wait(c, a);
    assert_same(plain, a);
    struct engine_stats stats = client_idle_stats(c);
    assert_true(stats.n_accepted_tokens >= 16 && stats.n_draft_tokens == stats.n_accepted_tokens);
    r.prediction = tokens;
    r.n_prediction = 20;
    assert_same(plain, client_ask_late(c, &r, wrong, 20));
    const struct engine_stats brought = client_idle_stats(c);
    assert_true(brought.n_draft_tokens == brought.n_accepted_tokens && brought.n_draft_tokens > stats.n_draft_tokens);
    r.n_prediction = 0;
    r.max_drafts = 0;
    assert_same(plain, client_ask_late(c, &r, tokens, 20));
    stats = client_idle_stats(c);
    assert_int_equal(stats.n_draft_tokens, brought.n_draft_tokens);
    client_pause(c);
    a = client_submit(c, &r);
    client_wait_paused(c);
    client_predict(c, a, tokens, 20);
    engine_cancel(client_engine(c), a->id); /* both at one boundary */
    client_resume(c);
    client_wait(c, a);
    client_pause(c);
    a = client_submit(c, &r);
    client_wait_paused(c);
    client_predict(c, a, tokens, 20); /* the engine ends before it looks */
    client_resume(c);
    client_stop_engine(c);
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
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drafts_change_no_bit), cmocka_unit_test(test_predictions_change_no_bit),
        cmocka_unit_test(test_late_predictions_change_no_bit), cmocka_unit_test(test_one_prediction_is_taken)};
    sample_overlap(tests, sizeof tests / sizeof *tests);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
