#include "server/front/body/params.h"
#include "server/front/body/alias.h"
#include "server/front/body/spec_json.h"
#include "tests/front/front_unit_test.h"

#include <string.h>

static const struct sampling_defaults no_defaults;
static const struct params_model model = {1000, 512, &no_defaults, false};

static struct quire_doc *open_body(const char *text)
{
    struct quire_error err;
    struct quire_doc *body;
    if (quire_doc_open(text, strlen(text), 64, text, &body, &err) != QUIRE_OK)
        print_error("%s\n", err.text);
    assert_non_null(body);
    return body;
}

static bool added_special; /* of the body that was read last */

/* Reads a body. Returns "" if it is accepted, otherwise the rejected parameter. */
static const char *read_it(const char *text, bool chat, struct params *p, struct api_error *e)
{
    struct quire_doc *body = open_body(text);
    struct params_body once;
    bool ok = params_read(p, &once, body, chat, &model, e);
    added_special = once.add_special;
    quire_doc_close(body);
    return ok ? "" : e->param;
}

struct row {
    const char *body, *param; /* param NULL: accepted */
};

static void check_rows(const struct row *rows, size_t n, bool chat)
{
    for (size_t i = 0; i < n; i++) {
        struct params p;
        struct api_error e;
        const char *got = read_it(rows[i].body, chat, &p, &e);
        const char *expected = rows[i].param ? rows[i].param : "";
        if (strcmp(got, expected) != 0)
            print_error("%s: %s\n", rows[i].body, *got ? e.why.text : "accepted");
        assert_string_equal(got, expected);
        if (*got) {
            assert_int_equal(e.status, 400);
            assert_non_null(strstr(e.why.text, expected));
            assert_non_null(e.code);
        }
        params_free(&p);
    }
}

static void both_routes(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"{}", NULL},
        {"{\"temperature\":0}", NULL},
        {"{\"temperature\":2}", NULL},
        {"{\"temperature\":2.01}", "temperature"},
        {"{\"temperature\":-0.01}", "temperature"},
        {"{\"temperature\":\"1\"}", "temperature"},
        {"{\"temperature\":true}", "temperature"},
        {"{\"top_p\":1e-300}", NULL}, /* 0 in the fp32 that is sent: greedy */
        {"{\"top_p\":0}", NULL},
        {"{\"top_p\":-0.1}", "top_p"},
        {"{\"n\":2.0}", NULL},
        {"{\"n\":2e0}", NULL},
        {"{\"n\":2.5}", "n"},
        {"{\"top_p\":1}", NULL},
        {"{\"top_p\":1.1}", "top_p"},
        {"{\"top_k\":-1}", NULL},
        {"{\"top_k\":0}", NULL},
        {"{\"top_k\":-2}", "top_k"},
        {"{\"top_k\":1.5}", "top_k"},
        {"{\"min_p\":1.5}", "min_p"},
        {"{\"repetition_penalty\":0}", "repetition_penalty"},
        {"{\"repetition_penalty\":1e-38}", "repetition_penalty"}, /* would turn logits into infinities */
        {"{\"repetition_penalty\":0.0009999}", "repetition_penalty"},
        {"{\"repetition_penalty\":0.001}", NULL},
        {"{\"presence_penalty\":-2.5}", "presence_penalty"},
        {"{\"frequency_penalty\":2.5}", "frequency_penalty"},
        {"{\"n\":0}", "n"},
        {"{\"n\":128}", NULL},
        {"{\"n\":129}", "n"},
        {"{\"n\":2,\"best_of\":2}", NULL},
        {"{\"n\":2,\"best_of\":3}", "best_of"},
        {"{\"seed\":-9223372036854775808}", NULL},
        {"{\"seed\":18446744073709551615}", NULL},
        {"{\"seed\":-9223372036854775809}", "seed"},
        {"{\"seed\":18446744073709551616}", "seed"},
        {"{\"seed\":1e3}", NULL},
        {"{\"n\":123456789012345678901234567890}", "n"},
        {"{\"n\":-0}", "n"},
        {"{\"temperature\":1e400}", "temperature"},
        {"{\"temperature\":1e-400}", NULL},
        {"{\"x\":[1e400,{\"maximum\":18446744073709551616}],\"y\":123456789012345678901234567890}", NULL},
        {"{\"seed\":1.5}", "seed"},
        {"{\"priority\":2147483648}", "priority"},
        {"{\"max_tokens\":0}", "max_tokens"},
        {"{\"max_tokens\":-1}", "max_tokens"},
        {"{\"max_tokens\":1e3}", NULL},
        {"{\"min_tokens\":-1}", "min_tokens"},
        {"{\"stop\":\"x\"}", NULL},
        {"{\"stop\":[\"x\",\"y\"]}", NULL},
        {"{\"stop\":[]}", NULL},
        {"{\"stop\":\"\"}", "stop"},
        {"{\"stop\":[\"x\",\"\"]}", "stop"},
        {"{\"stop\":[1]}", "stop"},
        {"{\"stop\":{}}", "stop"},
        {"{\"stop_token_ids\":[0,999]}", NULL},
        {"{\"stop_token_ids\":[1000]}", "stop_token_ids"},
        {"{\"stop_token_ids\":[-1]}", "stop_token_ids"},
        {"{\"stop_token_ids\":7}", "stop_token_ids"},
        {"{\"logit_bias\":{\"5\":-100,\"999\":100.0,\"0\":0}}", NULL},
        {"{\"logit_bias\":{\"1000\":1}}", "logit_bias"},
        {"{\"logit_bias\":{\"05\":1}}", "logit_bias"},
        {"{\"logit_bias\":{\"\":1}}", "logit_bias"},
        {"{\"logit_bias\":{\"-1\":1}}", "logit_bias"},
        {"{\"logit_bias\":{\"99999999999999999999\":1}}", "logit_bias"},
        {"{\"logit_bias\":{\"5\":100.1}}", "logit_bias"},
        {"{\"logit_bias\":{\"5\":null}}", "logit_bias"},
        {"{\"logit_bias\":[1]}", "logit_bias"},
        {"{\"allowed_token_ids\":[1,999,1],\"bad_words\":[\"x\",\" y z\"]}", NULL},
        {"{\"allowed_token_ids\":null,\"bad_words\":[]}", NULL},
        {"{\"allowed_token_ids\":[]}", "allowed_token_ids"},
        {"{\"allowed_token_ids\":1}", "allowed_token_ids"},
        {"{\"allowed_token_ids\":[1000]}", "allowed_token_ids"},
        {"{\"allowed_token_ids\":[-1]}", "allowed_token_ids"},
        {"{\"allowed_token_ids\":[\"1\"]}", "allowed_token_ids"},
        {"{\"bad_words\":\"x\"}", "bad_words"},
        {"{\"bad_words\":[1]}", "bad_words"},
        {"{\"bad_words\":[\"x\",\"\"]}", "bad_words"},
        {"{\"stream\":1}", "stream"},
        {"{\"stream_options\":{}}", "stream_options"},
        {"{\"stream\":true,\"stream_options\":{\"include_usage\":true,"
         "\"include_obfuscation\":true}}",
         NULL},
        {"{\"stream\":true,\"stream_options\":{\"include_usage\":3}}", "stream_options"},
        {"{\"stream\":true,\"stream_options\":3}", "stream_options"},
        {"{\"prompt_logprobs\":20}", NULL},
        {"{\"prompt_logprobs\":21}", "prompt_logprobs"},
        {"{\"prompt_logprobs\":1,\"stream\":true}", "prompt_logprobs"},
        {"{\"truncate_prompt_tokens\":-1}", NULL},
        {"{\"truncate_prompt_tokens\":0}", "truncate_prompt_tokens"},
        {"{\"truncation_side\":\"right\"}", NULL},
        {"{\"truncation_side\":\"top\"}", "truncation_side"},
        {"{\"stream_interval\":7}", NULL},
        {"{\"stream_interval\":0}", "stream_interval"},
        {"{\"stream_interval\":1.5}", "stream_interval"},
        {"{\"truncate_prompt_tokens\":513}", "truncate_prompt_tokens"},
        {"{\"response_format\":{\"type\":\"text\"}}", NULL},
        {"{\"response_format\":{\"type\":\"json_object\"}}", NULL},
        {"{\"response_format\":{\"type\":\"poem\"}}", "response_format"},
        {"{\"response_format\":\"text\"}", "response_format"},
        {"{\"request_id\":\"abc-1\"}", NULL},
        {"{\"request_id\":\"a b\"}", "request_id"},
        {"{\"request_id\":\"\"}", "request_id"},
        {"{\"model\":7}", "model"},
        {"{\"use_beam_search\":false,\"bad_words\":[],\"guided_json\":null}", NULL},
        {"{\"use_beam_search\":true}", "use_beam_search"},
        {"{\"guided_json\":{\"a\":1}}", NULL},
        {"{\"guided_json\":1}", "guided_json"},
        {"{\"structured_outputs\":{\"regex\":\"a\"}}", NULL},
        {"{\"logits_processors\":[\"x\"]}", "logits_processors"},
        {"{\"user\":\"me\",\"store\":true,\"metadata\":{\"a\":\"b\"},\"never_heard_of\":[1]}", NULL},
        {"{\"temperature\":null,\"n\":null,\"stop\":null,\"seed\":null,\"logit_bias\":null,"
         "\"stream\":null,\"stream_options\":null,\"max_tokens\":null,\"top_k\":null,"
         "\"stop_token_ids\":null,\"model\":null,\"response_format\":null,\"logprobs\":null,"
         "\"request_id\":null,\"prompt_logprobs\":null}",
         NULL},
    };
    check_rows(rows, sizeof rows / sizeof *rows, false);
    check_rows(rows, sizeof rows / sizeof *rows, true);
}

static void chat_only(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"{\"logprobs\":true,\"top_logprobs\":20}", NULL},
        {"{\"logprobs\":true,\"top_logprobs\":21}", "top_logprobs"},
        {"{\"top_logprobs\":3}", "top_logprobs"},
        {"{\"logprobs\":1}", "logprobs"},
        {"{\"max_completion_tokens\":0}", "max_completion_tokens"},
        {"{\"max_tokens\":0,\"max_completion_tokens\":7}", NULL},
        {"{\"functions\":[{}]}", "functions"},
        {"{\"modalities\":[\"text\"]}", NULL},
        {"{\"modalities\":[\"text\",\"audio\"]}", "modalities"},
        {"{\"suffix\":\"x\"}", NULL},
    };
    check_rows(rows, sizeof rows / sizeof *rows, true);
}

static void completions_only(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"{\"logprobs\":0}", NULL},
        {"{\"logprobs\":20}", NULL},
        {"{\"logprobs\":21}", "logprobs"},
        {"{\"logprobs\":true}", "logprobs"},
        {"{\"echo\":true,\"max_tokens\":0}", NULL},
        {"{\"echo\":1}", "echo"},
        {"{\"suffix\":\"x\"}", "suffix"},
        {"{\"functions\":[{}]}", NULL},
    };
    check_rows(rows, sizeof rows / sizeof *rows, false);
}

static void values_and_defaults(void **state)
{
    struct params p;
    struct api_error e;
    (void)state;
    assert_string_equal(read_it("{}", true, &p, &e), "");
    assert_true(p.spec->temperature == 1 && p.spec->top_p == 1 && p.spec->top_k == 0);
    assert_true(p.spec->min_p == 0 && p.spec->repetition_penalty == 1 && p.spec->n == 1);
    assert_int_equal(p.spec->n_logprobs, -1);
    assert_int_equal(p.spec->n_prompt_logprobs, -1);
    assert_true(p.skip_special && !added_special && !p.has_max_tokens && !p.spec->has_seed);
    params_free(&p);

    assert_string_equal(read_it("{}", false, &p, &e), "");
    assert_true(added_special && !p.has_max_tokens && p.max_tokens == 16);
    params_free(&p);

    static const char many[] =
        "{\"max_tokens\":3,\"max_completion_tokens\":7,\"logprobs\":true,\"seed\":-1,\"top_k\":-1,"
        "\"temperature\":0.5,\"priority\":-4,\"stop\":[\"ab\",\"c\"]}";
    assert_string_equal(read_it(many, true, &p, &e), "");
    assert_true(p.has_max_tokens && p.max_tokens == 7 && p.spec->n_logprobs == 0);
    assert_true(p.spec->has_seed && p.spec->seed == UINT64_MAX && p.spec->top_k == 0);
    assert_true(p.spec->temperature == 0.5f && p.spec->priority == -4);
    assert_true(p.stops->n == 2 && p.stops->longest == 2);
    params_free(&p);

    static const struct sampling_defaults own = {
        .has_temperature = true,
        .temperature = 0.7,
        .has_top_k = true,
        .top_k = 20,
        .has_top_p = true,
        .top_p = 0.8,
        .has_repetition_penalty = true,
        .repetition_penalty = 1.1,
    };
    const struct params_model with_own = {1000, 512, &own, false};
    struct params_body once;
    struct quire_doc *body = open_body("{\"top_k\":0,\"top_p\":null}");
    assert_true(params_read(&p, &once, body, true, &with_own, &e));
    assert_true(p.spec->temperature == 0.7f && p.spec->top_k == 0 && p.spec->top_p == 0.8f);
    assert_true(p.spec->repetition_penalty == 1.1f);
    params_free(&p);
    quire_doc_close(body);

    assert_string_equal(read_it("{\"seed\":18446744073709551615}", false, &p, &e), "");
    assert_true(p.spec->has_seed && p.spec->seed == UINT64_MAX);
    params_free(&p);
    assert_string_equal(read_it("{\"seed\":9223372036854775808}", false, &p, &e), "");
    assert_true(p.spec->seed == (uint64_t)1 << 63);
    params_free(&p);
}

static void speculative(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        uint32_t max_drafts, method;
    } rows[] = {
        {"{}", UINT32_MAX, 0},
        {"{\"speculative\":null}", UINT32_MAX, 0},
        {"{\"speculative\":true}", UINT32_MAX, 0},
        {"{\"speculative\":false}", 0, 0},
        {"{\"speculative\":{}}", UINT32_MAX, 0},
        {"{\"speculative\":{\"method\":null,\"num_speculative_tokens\":null}}", UINT32_MAX, 0},
        {"{\"speculative\":{\"method\":\"none\"}}", 0, 0},
        {"{\"speculative\":{\"method\":\"none\",\"num_speculative_tokens\":4}}", 0, 0},
        {"{\"speculative\":{\"num_speculative_tokens\":4,\"method\":\"none\"}}", 0, 0},
        {"{\"speculative\":{\"method\":\"ngram\",\"num_speculative_tokens\":0}}", 0, 1},
        {"{\"speculative\":{\"method\":\"suffix\",\"num_speculative_tokens\":64}}", 64, 2},
        {"{\"speculative\":{\"method\":\"draft_model\"}}", UINT32_MAX, 3},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct params p;
        struct api_error e;
        assert_string_equal(read_it(rows[i].body, true, &p, &e), "");
        assert_int_equal(p.spec->max_drafts, rows[i].max_drafts);
        assert_int_equal(p.spec->draft_method, rows[i].method);
        params_free(&p);
    }
}

static void tools(void **state)
{
    static const struct row rows[] = {
        {"{}", NULL},
        {"{\"tools\":[]}", NULL},
        {"{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}", NULL},
        {"{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],"
         "\"tool_choice\":\"none\"}",
         NULL},
        {"{\"tools\":{}}", "tools"},
        {"{\"tools\":[1]}", "tools"},
        {"{\"tools\":[{\"type\":\"function\"}]}", "tools"},
        {"{\"tool_choice\":\"required\"}", NULL}, /* tool_grammar_read() checks the rest */
        {"{\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}}}", NULL},
        {"{\"tool_choice\":\"maybe\"}", "tool_choice"},
        {"{\"tool_choice\":3}", "tool_choice"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct api_error e;
        struct quire_value found;
        struct quire_doc *body = open_body(rows[i].body);
        bool ok = params_tools(body, &found, &e);
        assert_int_equal(ok, rows[i].param == NULL);
        if (!ok)
            assert_string_equal(e.param, rows[i].param);
        else
            assert_int_equal(found.n > 0, i == 2); /* "none" omits them */
        quire_doc_close(body);
    }
}

/* ---- bodies with equal text ---- */

static bool alias_of(const char *text, size_t n, struct key256 *out)
{
    struct quire_sha256_state s;
    quire_sha256_begin(&s);
    const bool ok = alias_add_body(&s, text, n);
    *out = quire_sha256_now(&s);
    return ok;
}

static void assert_alias(const char *a, const char *b, bool same)
{
    struct key256 x, y;
    assert_true(alias_of(a, strlen(a), &x));
    assert_true(alias_of(b, strlen(b), &y));
    assert_int_equal(memcmp(&x, &y, sizeof x) == 0, same);
}

static void aliases(void **state)
{
    static const struct {
        const char *a, *b;
        bool same;
    } pairs[] = {
        {"{\"a\":1,\"b\":[1,{\"x\":2,\"y\":3}]}", "{ \"b\" : [1, {\"y\":3, \"x\":2}] , \"a\":1}", true},
        {"{\"a\":1}", "{\"a\":1,\"b\":null,\"user\":\"me\"}", true},
        {"{\"a\":1}", "{\"a\":1.0}", false}, /* the same question, found only by parsing */
        {"{\"a\":\"\u00e9\"}", "{\"a\":\"e\u0301\"}", false},
        {"{\"a\":[1,2]}", "{\"a\":[2,1]}", false},
        {"{\"a\":[1,[2]]}", "{\"a\":[[1],2]}", false},
        {"{\"a\":\"b\",\"c\":\"d\"}", "{\"a\":\"d\",\"c\":\"b\"}", false},
        {"{\"a\":\"1\"}", "{\"a\":1}", false},
        {"{\"a\":{}}", "{\"a\":[]}", false},
        {"{\"a\":\"b,c\"}", "{\"a\":\"b\",\"c\":1}", false},
    };
    static const char *const own[] = {
        "{\"cache\":{}}", "{\"use_cache\":false}", "{\"\\u0061\":1}", "{\"a\":1,\"a\":1}", "[", ""};
    struct key256 key;
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        assert_alias(pairs[i].a, pairs[i].b, pairs[i].same);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        assert_false(alias_of(own[i], strlen(own[i]), &key));
}

/* Each byte counts with its position, whatever the length of the bytes before it. */
static void aliases_of_every_length(void **state)
{
    static char a[4096], b[4096];
    (void)state;
    for (size_t n = 980; n < 2100; n += n < 1060 ? 1 : 97) {
        struct key256 x, y;
        memset(a, 'x', sizeof a);
        memcpy(a, "{\"p\":\"", 6);
        memcpy(a + 6 + n, "\",\"q\":[1,2]}", 12);
        memcpy(b, a, sizeof b);
        assert_true(alias_of(a, 6 + n + 12, &x));
        for (size_t at = 6; at < 6 + n; at += n - 1) {
            b[at] = 'y';
            assert_true(alias_of(b, 6 + n + 12, &y));
            assert_memory_not_equal(&x, &y, sizeof x);
            b[at] = 'x';
        }
        b[6 + n + 9] = '3';
        assert_true(alias_of(b, 6 + n + 12, &y));
        assert_memory_not_equal(&x, &y, sizeof x);
    }
}

/* ---- a field of a later program: a member and a row ------------------------------------------ */

struct later {
    struct request_spec spec;
    const char *grammar;
    uint32_t n_grammar;
    double cost_us;
};
#define LATER(kind_, member_, tag_) \
    .member = #member_, .name = #member_, .tag = tag_, .kind = kind_, .flags = REQUEST_MUST | REQUEST_IN_BODY, \
    .at = offsetof(struct later, member_)
static const struct request_field later_rows[] = {
    {LATER(REQUEST_BYTES, grammar, 500), .has_at = offsetof(struct later, n_grammar), .range = {.most = 8}},
    {LATER(REQUEST_F64, cost_us, 501), .range = {.low = 0, .high = 1e9}},
};
static const struct later later_defaults = {.cost_us = 1};
static const struct request_layout later_layout = {later_rows, 2, &later_defaults, sizeof later_defaults};

static void a_later_field_is_a_row(void **state)
{
    static const struct {
        const char *body, *wrong; /* wrong NULL: accepted */
    } cases[] = {
        {"{}", NULL},
        {"{\"grammar\":\"[a-z]\\u00e9\",\"cost_us\":0.1}", NULL},
        {"{\"grammar\":\"\",\"cost_us\":null}", NULL},
        {"{\"grammar\":\"123456789\"}", "grammar: at most 8 bytes, got 9"},
        {"{\"grammar\":[1]}", "grammar: must be a string"},
        {"{\"cost_us\":-1}", "cost_us: must be between 0 and 1e+09"},
        {"{\"cost_us\":\"1\"}", "cost_us: must be a number"},
        {"{\"grammar\":\"a\",\"cost_us\":1e10}", "cost_us: must be between 0 and 1e+09"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct later got = later_defaults;
        struct api_error e;
        struct quire_doc *body = open_body(cases[i].body);
        const bool ok = spec_json_read_rows(&later_layout, &got, body, 1000, &e);
        quire_doc_close(body);
        assert_int_equal(ok, cases[i].wrong == NULL);
        if (!ok && !strstr(e.why.text, cases[i].wrong))
            fail_msg("%s: %s", cases[i].body, e.why.text);
        if (i == 1) {
            assert_true(got.cost_us == 0.1 && got.n_grammar == 7);
            assert_memory_equal(got.grammar, "[a-z]\xc3\xa9", 7);
        }
        request_layout_free(&later_layout, &got);
        assert_true(got.n_grammar == 0 && got.cost_us == 1);
    }
}

int run_params_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_routes),
        cmocka_unit_test(chat_only),
        cmocka_unit_test(completions_only),
        cmocka_unit_test(values_and_defaults),
        cmocka_unit_test(tools),
        cmocka_unit_test(speculative),
        cmocka_unit_test(aliases),
        cmocka_unit_test(aliases_of_every_length),
        cmocka_unit_test(a_later_field_is_a_row),
    };
    return cmocka_run_group_tests_name("params", tests, NULL, NULL);
}
