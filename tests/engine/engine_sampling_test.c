/* The effect of each sampling parameter on an answer, through the whole engine. */
#include "tests/engine/fixtures/client.h"
#include "tests/engine/fixtures/tiny_model.h"
#include "tests/engine/fixtures/step_options.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/isolated_tests.h"

#define N_PROMPT 20u

static struct tiny_model model;
static struct client *client;
static uint32_t prompt[N_PROMPT];

static int set_up(void **state)
{
    (void)state;
    struct engine_options o = client_options(200);
    tiny_model_plain(1, &model);
    client = client_open(model.dir, &o);
    client_random_prompt(prompt, N_PROMPT, TINY_VOCAB, 5);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    client_close(client);
    tiny_model_remove(&model);
    return 0;
}

/* eos is ignored, so that answers have the length asked for. */
static struct request_spec ask_for(uint32_t max_tokens)
{
    struct request_spec r = client_request(prompt, N_PROMPT, max_tokens);
    r.ignore_eos = true;
    return r;
}

static const struct choice_answer *answer_to(struct request_spec *r)
{
    return &client_ask(client, r)->choices[0];
}

static bool same_tokens(const struct choice_answer *a, const struct choice_answer *b)
{
    return a->n_tokens == b->n_tokens && memcmp(a->tokens, b->tokens, a->n_tokens * sizeof *a->tokens) == 0;
}

static void length_ends(void **state)
{
    (void)state;
    struct request_spec r = ask_for(9);
    const struct choice_answer *a = answer_to(&r), *b = answer_to(&r);
    assert_int_equal(a->n_tokens, 9);
    assert_int_equal(a->finish, ENGINE_FINISH_LENGTH);
    assert_false(a->has_stop_token);
    assert_true(same_tokens(a, b));
}

static void no_tokens(void **state)
{
    (void)state;
    struct request_spec r = ask_for(0);
    const struct answer *a = client_ask(client, &r);
    assert_int_equal(a->choices[0].finish, ENGINE_FINISH_LENGTH);
    assert_int_equal(a->choices[0].n_tokens, 0);
    r.n = 3;
    r.n_prompt_logprobs = 2;
    a = client_ask(client, &r);
    assert_int_equal(a->n_prompt_logprobs, N_PROMPT - 1);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(a->choices[i].finish, ENGINE_FINISH_LENGTH);
    struct request_spec one = client_request(prompt, 1, 0);
    one.n_prompt_logprobs = 0;
    assert_int_equal(client_ask(client, &one)->n_prompt_logprobs, 0);
}

static void stop_ids(void **state)
{
    (void)state;
    struct request_spec r = ask_for(30);
    const struct choice_answer *free_running = answer_to(&r);
    uint32_t stops[2] = {150, free_running->tokens[4]}, first = 0;
    while (free_running->tokens[first] != stops[1] && free_running->tokens[first] != stops[0])
        first++;
    r.stop_token_ids = stops;
    r.n_stop_token_ids = 2;
    const struct choice_answer *a = answer_to(&r);
    assert_int_equal(a->finish, ENGINE_FINISH_STOP);
    assert_int_equal(a->n_tokens, first + 1);
    assert_true(a->has_stop_token);
    assert_int_equal(a->stop_token, a->tokens[first]);

    r.min_tokens = first + 3;
    a = answer_to(&r);
    assert_true(a->n_tokens >= first + 3);
    for (uint32_t i = 0; i < first + 3; i++)
        assert_true(a->tokens[i] != stops[0] && a->tokens[i] != stops[1]);
}

static void eos(void **state)
{
    (void)state;
    const struct request_bias to_eos = {TINY_EOS, 100};
    struct request_spec r = client_request(prompt, N_PROMPT, 8);
    r.biases = &to_eos;
    r.n_biases = 1;
    const struct choice_answer *a = answer_to(&r);
    assert_int_equal(a->n_tokens, 1);
    assert_int_equal(a->finish, ENGINE_FINISH_STOP);
    assert_true(a->has_stop_token && a->stop_token == TINY_EOS);

    r.min_tokens = 3;
    a = answer_to(&r);
    assert_int_equal(a->n_tokens, 4);
    for (uint32_t i = 0; i < 4; i++)
        assert_true((a->tokens[i] == TINY_EOS) == (i == 3));

    r.min_tokens = 0;
    r.ignore_eos = true;
    a = answer_to(&r);
    assert_int_equal(a->n_tokens, 8);
    assert_int_equal(a->finish, ENGINE_FINISH_LENGTH);
    assert_int_equal(a->tokens[7], TINY_EOS);
}

static void biases(void **state)
{
    (void)state;
    struct request_spec r = ask_for(6);
    r.n_logprobs = 0;
    const struct choice_answer *plain = answer_to(&r);
    struct request_bias bias = {plain->tokens[0], -100};
    r.biases = &bias;
    r.n_biases = 1;
    const struct choice_answer *without = answer_to(&r);
    for (uint32_t i = 0; i < 6; i++)
        assert_int_not_equal(without->tokens[i], bias.id);

    bias = (struct request_bias){77, 100};
    const struct choice_answer *only = answer_to(&r);
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(only->tokens[i], 77);

    /* Logprobs are of the raw logits: what the same token would have had as part of a prompt. */
    uint32_t longer[N_PROMPT + 1];
    memcpy(longer, prompt, sizeof prompt);
    longer[N_PROMPT] = 77;
    struct request_spec as_prompt = client_request(longer, N_PROMPT + 1, 0);
    as_prompt.n_prompt_logprobs = 0;
    float raw = client_ask(client, &as_prompt)->prompt_logprobs[N_PROMPT];
    assert_memory_equal(&raw, &only->logprobs[0], sizeof raw);
}

/* The chosen token is the best of the best twenty once the penalties are subtracted. */
static void check_penalised(const struct choice_answer *a, float presence, float frequency)
{
    for (uint32_t i = 0; i < a->n_tokens; i++) {
        struct recorded got = record_entry(&a->record, i, K_MAX_LOGPROBS);
        float best = -INFINITY, chosen = -INFINITY;
        for (uint32_t j = 0; j < K_MAX_LOGPROBS; j++) {
            uint32_t count = 0;
            for (uint32_t k = 0; k < i; k++)
                count += a->tokens[k] == got.ids[j];
            float z = got.logprobs[j] - (float)count * frequency - (count ? presence : 0);
            best = z > best ? z : best;
            if (got.ids[j] == got.token)
                chosen = z;
        }
        assert_true(best > got.logprobs[K_MAX_LOGPROBS - 1]); /* nothing below can have won */
        assert_true(chosen >= best - 1e-4f);
    }
}

static void penalties(void **state)
{
    (void)state;
    struct request_spec r = ask_for(25);
    r.n_logprobs = K_MAX_LOGPROBS;
    r.presence_penalty = 1.5f;
    const struct choice_answer *presence = answer_to(&r);
    check_penalised(presence, 1.5f, 0);
    r.frequency_penalty = 0.8f;
    check_penalised(answer_to(&r), 1.5f, 0.8f);
    r.presence_penalty = 0;
    r.frequency_penalty = 0.1f; /* little, so that tokens come back and counts matter */
    r.max_tokens = 80;
    check_penalised(answer_to(&r), 0, 0.1f);
    r.max_tokens = 25;
    r.frequency_penalty = 0;
    assert_false(same_tokens(answer_to(&r), presence));

    /* A strong repetition penalty holds back the prompt's tokens and every one generated. */
    r.repetition_penalty = 1000;
    const struct choice_answer *a = answer_to(&r);
    for (uint32_t i = 0; i < a->n_tokens; i++) {
        for (uint32_t k = 0; k < N_PROMPT; k++)
            assert_int_not_equal(a->tokens[i], prompt[k]);
        for (uint32_t k = 0; k < i; k++)
            assert_int_not_equal(a->tokens[i], a->tokens[k]);
    }
}

/* ---- allowed tokens and bad words ------------------------------------------------------------ */

static bool is_bad(const uint32_t *words, uint32_t n, const uint32_t *tokens, uint32_t n_tokens)
{
    for (uint32_t i = 0; i < n; i += 1 + words[i]) {
        uint32_t n_ids = words[i];
        if (n_ids <= n_tokens && memcmp(tokens + n_tokens - n_ids, words + i + 1, n_ids * sizeof *tokens) == 0)
            return true;
    }
    return false;
}

/* Every allowed token is tried as a prompt's last one: the likeliest is the greedy answer. */
static void check_allowed(struct request_spec *r)
{
    const struct request_spec *s = r;
    const struct choice_answer *a = answer_to(r);
    uint32_t longer[N_PROMPT + 16];
    memcpy(longer, prompt, sizeof prompt);
    assert_int_equal(a->n_tokens, r->max_tokens);
    for (uint32_t k = 0; k < a->n_tokens; k++) {
        struct answer *tried[16];
        float best = -INFINITY;
        uint32_t at = N_PROMPT + k, chosen = UINT32_MAX;
        for (uint32_t i = 0; i < s->n_allowed_token_ids; i++) {
            longer[at] = s->allowed_token_ids[i];
            struct request_spec one = client_request(longer, at + 1, 0);
            one.n_prompt_logprobs = 0;
            tried[i] = client_submit(client, &one);
        }
        for (uint32_t i = 0; i < s->n_allowed_token_ids; i++) {
            client_wait(client, tried[i]);
            if (tried[i]->prompt_logprobs[at] > best) {
                best = tried[i]->prompt_logprobs[at];
                chosen = s->allowed_token_ids[i];
            }
        }
        assert_int_equal(a->tokens[k], chosen);
        longer[at] = chosen;
    }
}

/* Each token is the best of the best twenty that completes no word. */
static void check_words(const struct request_spec *r, const struct choice_answer *a)
{
    for (uint32_t i = 0; i < a->n_tokens; i++) {
        struct recorded got = record_entry(&a->record, i, K_MAX_LOGPROBS);
        uint32_t tokens[16], j = 0;
        memcpy(tokens, a->tokens, i * sizeof *tokens);
        for (; j < K_MAX_LOGPROBS; j++) {
            tokens[i] = got.ids[j];
            if (!is_bad(r->bad_words, r->n_bad_words, tokens, i + 1))
                break;
        }
        assert_int_equal(a->tokens[i], got.ids[j]);
    }
}

static void allowed_tokens(void **state)
{
    (void)state;
    static const uint32_t few[] = {150, 7, 31, 31, 32, 64, 199, 0, 7};
    struct request_spec r = ask_for(8);
    r.allowed_token_ids = few;
    r.n_allowed_token_ids = 9;
    check_allowed(&r);
    r.n_allowed_token_ids = 1;
    const struct choice_answer *only = answer_to(&r);
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(only->tokens[i], 150);

    /* eos is drawn only where it is allowed, together with min_tokens and logit_bias. */
    static const uint32_t with_eos[] = {TINY_EOS, 60};
    static const struct request_bias to_eos[] = {{TINY_EOS, 100}, {5, 100}};
    r.ignore_eos = false;
    r.biases = to_eos;
    r.n_biases = 2;
    assert_int_equal(answer_to(&r)->finish, ENGINE_FINISH_LENGTH);
    r.allowed_token_ids = with_eos;
    r.n_allowed_token_ids = 2;
    assert_int_equal(answer_to(&r)->n_tokens, 1);
    r.min_tokens = 3;
    const struct choice_answer *a = answer_to(&r);
    assert_int_equal(a->n_tokens, 4);
    assert_true(a->tokens[0] == 60 && a->tokens[2] == 60 && a->stop_token == TINY_EOS);
}

static void bad_words(void **state)
{
    (void)state;
    struct request_spec r = ask_for(8);
    uint32_t words[40], n = 0;
    r.n_logprobs = K_MAX_LOGPROBS;
    r.bad_words = words;
    const struct choice_answer *plain = answer_to(&r), *a = plain;
    /* Again and again the answer is forbidden at another place, by words of one to four tokens. */
    for (uint32_t n_ids = 1; n_ids <= 4; n_ids++) {
        words[n++] = n_ids;
        memcpy(words + n, a->tokens + (n_ids == 1 ? 3 : 4 - n_ids), n_ids * sizeof *words);
        n += n_ids;
        r.n_bad_words = n;
        const struct choice_answer *next = answer_to(&r);
        assert_false(same_tokens(a, next));
        check_words(&r, next);
        a = next;
    }

    /* Tokens before the first generated one do not count. */
    words[0] = 2;
    words[1] = prompt[N_PROMPT - 1];
    words[2] = plain->tokens[0];
    r.n_bad_words = 3;
    r.max_tokens = 1;
    assert_int_equal(answer_to(&r)->tokens[0], words[2]);
}

static void drawn_within_limits(void **state)
{
    (void)state;
    static const uint32_t few[] = {10, 11, 12, 13, 14, 15};
    uint32_t words[36 * 3], n = 0;
    for (uint32_t a = 10; a < 16; a++)
        for (uint32_t b = 10; b < 16; b++)
            if ((a + 2 * b) % 3 == 0)
                words[n] = 2, words[n + 1] = a, words[n + 2] = b, n += 3;
    struct request_spec r = ask_for(20);
    r.n = 4;
    r.temperature = 1;
    r.has_seed = true;
    r.seed = 9;
    r.presence_penalty = 1;
    r.allowed_token_ids = few;
    r.n_allowed_token_ids = 6;
    r.bad_words = words;
    r.n_bad_words = n;
    const struct answer *a = client_ask(client, &r);
    for (uint32_t c = 0; c < 4; c++) {
        assert_int_equal(a->choices[c].n_tokens, 20);
        for (uint32_t i = 0; i < 20; i++) {
            uint32_t token = a->choices[c].tokens[i];
            assert_true(token >= 10 && token < 16);
            assert_true(i == 0 || (a->choices[c].tokens[i - 1] + 2 * token) % 3 != 0);
        }
    }
}

static void truncation_to_the_best(void **state)
{
    (void)state;
    struct request_spec r = ask_for(10);
    const struct choice_answer *greedy = answer_to(&r);
    r.temperature = 1;
    r.has_seed = true;
    r.seed = 3;
    assert_false(same_tokens(answer_to(&r), greedy));
    r.top_k = 1;
    assert_true(same_tokens(answer_to(&r), greedy));
    r.top_k = 0;
    r.top_p = 1e-6f;
    assert_true(same_tokens(answer_to(&r), greedy));
    r.top_p = 1;
    r.min_p = 1;
    assert_true(same_tokens(answer_to(&r), greedy));
}

static void choices_and_seeds(void **state)
{
    (void)state;
    struct request_spec r = ask_for(12);
    r.temperature = 1;
    r.has_seed = true;
    r.seed = 42;
    const struct choice_answer *one = answer_to(&r);
    assert_true(same_tokens(one, answer_to(&r)));
    r.n = 4;
    const struct answer *four = client_ask(client, &r);
    assert_true(same_tokens(one, &four->choices[0]));
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t j = 0; j < i; j++)
            assert_false(same_tokens(&four->choices[i], &four->choices[j]));
    r.n = 1;
    r.seed = 43;
    assert_false(same_tokens(one, answer_to(&r)));
    r.has_seed = false;
    const struct choice_answer *a = answer_to(&r);
    assert_false(same_tokens(a, answer_to(&r)));
}

static void engine_seed(void **state)
{
    (void)state;
    struct engine_options o = client_options(200);
    o.has_seed = true;
    o.seed = 7;
    struct client *first = client_open(model.dir, &o), *second = client_open(model.dir, &o);
    struct request_spec r = ask_for(12);
    r.temperature = 1;
    const struct answer *a[2] = {client_ask(first, &r), client_ask(first, &r)};
    const struct answer *b[2] = {client_ask(second, &r), client_ask(second, &r)};
    assert_true(answers_equal(a[0], b[0]) && answers_equal(a[1], b[1]));
    assert_false(answers_equal(a[0], a[1]));
    client_close(first);
    client_close(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(length_ends),
        cmocka_unit_test(no_tokens),
        cmocka_unit_test(stop_ids),
        cmocka_unit_test(eos),
        cmocka_unit_test(biases),
        cmocka_unit_test(penalties),
        cmocka_unit_test(allowed_tokens),
        cmocka_unit_test(bad_words),
        cmocka_unit_test(drawn_within_limits),
        cmocka_unit_test(truncation_to_the_best),
        cmocka_unit_test(choices_and_seeds),
        cmocka_unit_test(engine_seed),
    };
    return RUN_ISOLATED(tests, set_up, tear_down);
}
