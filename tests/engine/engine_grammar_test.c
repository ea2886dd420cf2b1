/* Requests with a grammar: answers follow it, alone and in any company, with the same bits however the engine gets
 * there; and grammars that fail end their own request only. */
#include "tests/engine/fixtures/step_options.h"
#include "tests/engine/fixtures/client.h"
#include "engine/engine.h"
#include "tests/engine/fixtures/tiny_model.h"
#include "tests/engine/fixtures/toy_grammar.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_PROMPT 20u
#define N_TOKENS 60u

/* Free, forced and branching parts: 5 forced, one of 100, 3 forced, a loop of three kinds of token, then the end. */
static const char mixed[] = "10-10>1;11-11>2;12-12>3;13-13>4;14-14>5;20-119>6;15-15>7;16-16>8;17-17>9;"
                            "20-29>9,30-39>10,40-40>11;50-59>9;18-18>12;!";
/* May end at any time, or go on for ever. */
static const char endless[] = "!20-180>0";

static struct tiny_model model;
static struct toy_grammars toys = {.n_vocab = TINY_VOCAB, .eos = TINY_EOS};
static struct engine_grammars grammars, one_by_one; /* one_by_one: the same, without forced drafts */

static struct engine_options options(void)
{
    struct engine_options o = client_small_options(64);
    o.grammars = &grammars;
    return o;
}

static struct request_spec request(const char *grammar, uint64_t seed, float temperature, uint32_t *prompt)
{
    client_random_prompt(prompt, N_PROMPT, TINY_VOCAB, seed);
    struct request_spec r = client_request(prompt, N_PROMPT, N_TOKENS);
    r.temperature = temperature;
    r.has_seed = true;
    r.seed = seed;
    r.n_logprobs = 3;
    r.grammar = (const uint8_t *)grammar;
    r.n_grammar = grammar ? (uint32_t)strlen(grammar) : 0;
    return r;
}

static struct answer *submit(struct client *c, const char *grammar, uint64_t seed, float temperature, uint32_t n)
{
    uint32_t prompt[N_PROMPT];
    struct request_spec r = request(grammar, seed, temperature, prompt);
    r.n = n;
    return client_submit(c, &r);
}

static void check_follows(const struct answer *a, const char *grammar)
{
    for (uint32_t i = 0; i < a->n; i++) {
        const struct choice_answer *c = &a->choices[i];
        assert_true(c->finish == ENGINE_FINISH_STOP || c->n_tokens == N_TOKENS);
        assert_true(c->finish != ENGINE_FINISH_STOP || toy_accepts(&toys, grammar, c->tokens, c->n_tokens));
    }
}

/* The answers of one way to run the engine: alone or all at once. Its engine is closed again: a small GPU has room for
 * two. */
static struct engine_stats run(const struct engine_options *o, bool at_once, struct client **client,
                               struct answer *answers[8])
{
    *client = client_open(model.dir, o);
    if (at_once) /* all of them are there when the engine goes on, however slowly they come */
        client_pause(*client);
    for (uint64_t i = 0; i < 8; i++) {
        answers[i] = submit(*client, i == 7 ? NULL : i % 3 == 2 ? endless : mixed, i, i % 2 ? 1.2f : 0, i == 4 ? 3 : 1);
        if (!at_once)
            client_wait(*client, answers[i]);
    }
    if (at_once)
        client_resume(*client);
    for (uint64_t i = 0; i < 8; i++)
        client_wait(*client, answers[i]);
    for (uint64_t i = 0; i < 7; i++)
        check_follows(answers[i], i % 3 == 2 ? endless : mixed);
    const struct engine_stats stats = client_idle_stats(*client);
    client_stop_engine(*client);
    return stats;
}

enum { FORCED, PLAIN, NGRAM, STARVED, THREADS, N_WAYS };

static struct engine_options options_of(int way)
{
    static const char ngram[] = "{\"method\":\"ngram\",\"num_speculative_tokens\":4,\"adaptive\":false,"
                                "\"prompt_lookup_min\":1,\"prompt_lookup_max\":2}";
    struct engine_options o = options();
    struct quire_error err;
    if (way == PLAIN)
        o.grammars = &one_by_one;
    if (way == NGRAM)
        assert_int_equal(speculative_config_parse(ngram, strlen(ngram), &o.steps->speculative, &err), QUIRE_OK);
    if (way == STARVED) { /* preempted again and again */
        o.num_kv_blocks = 18;
        o.max_num_batched_tokens = 16;
    }
    if (way == THREADS)
        o.n_threads = 2;
    return o;
}

static void bits_do_not_depend_on_the_way(void **state)
{
    (void)state;
    struct client *clients[N_WAYS];
    struct answer *answers[N_WAYS][8];
    struct engine_stats stats[N_WAYS];
    for (int way = 0; way < N_WAYS; way++) {
        const struct engine_options o = options_of(way);
        stats[way] = run(&o, way >= NGRAM, &clients[way], answers[way]);
        for (int i = 0; way > 0 && i < 8; i++)
            assert_true(answers_equal(answers[0][i], answers[way][i]));
    }
    assert_true(stats[FORCED].n_steps < stats[PLAIN].n_steps);
    /* The three choices of a request share steps. */
    assert_true(stats[FORCED].n_forced_tokens >= stats[PLAIN].n_steps - stats[FORCED].n_steps);
    assert_int_equal(stats[PLAIN].n_forced_tokens, 0);
    assert_int_equal(stats[FORCED].n_drafts, 0);
    assert_true(stats[FORCED].n_masks >= stats[FORCED].n_forced_tokens);
    assert_true(stats[NGRAM].n_accepted_tokens > 0);
    assert_true(stats[STARVED].n_preemptions > 0);
    for (int way = 0; way < N_WAYS; way++)
        client_close(clients[way]);
    assert_int_equal(toys.n_live, 0);
}

/* Forced tokens cost no step: five, then one that is free, three more, ... */
static void forced_tokens_share_a_step(void **state)
{
    (void)state;
    static const char line[] = "10-10>1;11-11>2;12-12>3;13-13>4;14-14>5;15-15>6;16-16>7;17-17>8;!";
    struct engine_options o = options();
    struct client *c = client_open(model.dir, &o);
    struct answer *a = submit(c, line, 1, 0, 1);
    client_wait(c, a);
    assert_int_equal(a->choices[0].n_tokens, 8);
    assert_int_equal(a->choices[0].finish, ENGINE_FINISH_STOP);
    assert_false(a->choices[0].has_stop_token);
    /* The prompt's step draws the first; the second step verifies the other seven, and draws nothing after them. */
    assert_int_equal(client_idle_stats(c).n_steps, 2);
    client_close(c);
}

static void errors_end_their_own_request(void **state)
{
    (void)state;
    struct engine_options o = options();
    struct client *c = client_open(model.dir, &o);
    struct answer *good = submit(c, mixed, 1, 0, 1), *bad = submit(c, "bad", 2, 0, 2),
                  *weak = submit(c, "weak:20-180>0", 3, 0, 1);
    client_wait(c, good);
    client_wait(c, bad);
    client_wait(c, weak);
    check_follows(good, mixed);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(bad->choices[i].finish, ENGINE_FINISH_ERROR);
        assert_int_equal(bad->choices[i].status, QUIRE_INVALID);
        assert_string_equal(bad->choices[i].parameter, "structured_outputs");
        assert_non_null(strstr(bad->choices[i].message, "line 1"));
    }
    assert_int_equal(weak->choices[0].finish, ENGINE_FINISH_ERROR);
    assert_int_equal(weak->choices[0].status, QUIRE_INVALID);
    assert_non_null(strstr(weak->choices[0].message, "too complex"));
    client_close(c);
    assert_int_equal(toys.n_live, 0);
}

/* What a request gets before it fails does not depend on drafts either. */
static void errors_come_at_the_same_token(void **state)
{
    (void)state;
    static const char weak[] = "weak:20-180>1;10-10>2;11-11>3;12-12>4;13-13>5;!";
    static const struct request_bias forbidden[] = {{.id = 13, .bias = -__builtin_inff()}};
    struct client *clients[2];
    struct answer *answers[2][2];
    for (int forced = 0; forced < 2; forced++) {
        struct engine_options o = options();
        uint32_t prompt[N_PROMPT];
        o.grammars = forced ? &grammars : &one_by_one;
        clients[forced] = client_open(model.dir, &o);
        struct request_spec r = request(weak, 9, 0, prompt);
        answers[forced][0] = client_ask(clients[forced], &r);
        r = request(mixed, 9, 0, prompt);
        r.biases = forbidden;
        r.n_biases = 1;
        answers[forced][1] = client_ask(clients[forced], &r);
        client_stop_engine(clients[forced]);
    }
    for (int i = 0; i < 2; i++) {
        assert_true(answers_equal(answers[0][i], answers[1][i]));
        assert_int_equal(answers[0][i]->choices[0].finish, ENGINE_FINISH_ERROR);
        assert_int_equal(answers[0][i]->choices[0].n_tokens, 3);
        assert_string_equal(answers[0][i]->choices[0].message, answers[1][i]->choices[0].message);
    }
    for (int i = 0; i < 2; i++)
        client_close(clients[i]);
}

/* logit_bias and allowed_token_ids hold within the grammar; what leaves no token is the request's error. */
static void other_rules_hold(void **state)
{
    (void)state;
    static const uint32_t allowed[] = {10, 11, 12, 13, 14, 15, 16, 17, 18, 25, 40};
    static const struct request_bias forbidden[] = {{.id = 13, .bias = -__builtin_inff()}};
    struct engine_options o = options();
    struct client *c = client_open(model.dir, &o);
    uint32_t prompt[N_PROMPT];
    struct request_spec r = request(mixed, 5, 0, prompt);
    r.allowed_token_ids = allowed;
    r.n_allowed_token_ids = sizeof allowed / sizeof allowed[0];
    struct answer *a = client_ask(c, &r);
    for (uint32_t i = 0; i < a->choices[0].n_tokens; i++)
        assert_true(a->choices[0].tokens[i] <= 25 || a->choices[0].tokens[i] == 40);
    assert_true(a->choices[0].tokens[5] == 25 || a->choices[0].tokens[5] == 40);
    r = request(mixed, 5, 0, prompt);
    r.biases = forbidden;
    r.n_biases = 1;
    a = client_ask(c, &r);
    assert_int_equal(a->choices[0].finish, ENGINE_FINISH_ERROR);
    assert_int_equal(a->choices[0].n_tokens, 3);
    assert_int_equal(a->choices[0].status, QUIRE_INVALID);
    assert_string_equal(a->choices[0].parameter, "structured_outputs");
    client_close(c);
}

/* While a grammar is compiled other requests run, and a cancel counts. */
static void compiling_holds_nobody(void **state)
{
    (void)state;
    static const char held[] = "held:!20-180>0";
    struct engine_options o = options();
    struct client *c = client_open(model.dir, &o);
    atomic_store(&toys.hold, true);
    struct answer *waits = submit(c, held, 1, 0, 1), *cancelled = submit(c, held, 2, 0, 2),
                  *plain = submit(c, NULL, 3, 0, 1);
    engine_cancel(client_engine(c), cancelled->id);
    client_wait(c, cancelled);
    client_wait(c, plain);
    assert_false(waits->over);
    assert_int_equal(cancelled->choices[1].finish, ENGINE_FINISH_CANCELLED);
    atomic_store(&toys.hold, false);
    client_wait(c, waits);
    check_follows(waits, endless);
    /* An engine that is closed meanwhile ends them, and does not wait for the compilation. */
    atomic_store(&toys.hold, true);
    waits = submit(c, "held:!20-181>0", 1, 0, 1);
    submit(c, "held:!20-182>0", 1, 0, 1);
    client_stop_engine(c);
    assert_int_equal(waits->choices[0].finish, ENGINE_FINISH_CANCELLED);
    client_close(c);
    atomic_store(&toys.hold, false);
    assert_int_equal(toys.n_live, 0);
}

static void engine_without_grammars_says_so(void **state)
{
    (void)state;
    struct engine_options o = options();
    struct quire_error err;
    uint32_t prompt[N_PROMPT];
    int status = QUIRE_OK;
    o.grammars = NULL;
    struct client *c = client_open(model.dir, &o);
    struct request_spec r = request(mixed, 5, 0, prompt);
    assert_null(client_try(c, &r, &status, NULL, &err));
    assert_int_equal(status, QUIRE_UNSUPPORTED);
    assert_string_equal(err.parameter, "structured_outputs");
    client_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_do_not_depend_on_the_way),
        cmocka_unit_test(forced_tokens_share_a_step),
        cmocka_unit_test(errors_end_their_own_request),
        cmocka_unit_test(errors_come_at_the_same_token),
        cmocka_unit_test(other_rules_hold),
        cmocka_unit_test(compiling_holds_nobody),
        cmocka_unit_test(engine_without_grammars_says_so),
    };
    const struct tiny_spec spec = {.seed = 7, .nan_token = -1, .prefix = "model."};
    grammars = toy_grammars(&toys);
    grammars.n_threads = 2;
    one_by_one = grammars;
    one_by_one.one_by_one = true;
    tiny_model_write(&spec, &model);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tiny_model_remove(&model);
    return failed;
}
