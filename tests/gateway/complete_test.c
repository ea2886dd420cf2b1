/* The pure parts of POST /complete and GET /stream: sentences, cached answers, questions. */
#include "server/gateway/complete/answer_cache.h"
#include "server/gateway/complete/question.h"
#include "server/gateway/complete/sentences.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/isolated_tests.h"

/* ---- sentences ------------------------------------------------------------------------------ */

/* The sentences of a text that arrives in pieces of `step` bytes, each with a "|" behind it. */
static void check_sentences(const char *text, size_t step, const char *expected)
{
    struct sentences s = {0};
    struct buffer out = {0};
    const char *sentence;
    size_t n;
    for (size_t at = 0; at <= strlen(text); at += step) {
        const size_t left = strlen(text) - at;
        char *piece = strndup(text + at, left < step ? left : step);
        assert_int_equal(sentences_add(&s, piece, strlen(piece)), QUIRE_OK);
        free(piece);
        while (sentences_next(&s, false, &sentence, &n)) {
            buffer_append(&out, sentence, n);
            buffer_append(&out, "|", 1);
        }
    }
    while (sentences_next(&s, true, &sentence, &n)) {
        buffer_append(&out, sentence, n);
        buffer_append(&out, "|", 1);
    }
    assert_string_equal(buffer_text(&out), expected);
    buffer_free(&out);
    sentences_free(&s);
}

static void sentences_are_whole(void **state)
{
    static const char *const rows[][2] = {
        {"", ""},
        {"Hello", "Hello|"},
        {"One. Two! Three? Four", "One. |Two! |Three? |Four|"},
        {"One.\nTwo!\nThree?\n", "One.\n|Two!\n|Three?\n|"},
        {"3.14 is pi. e.g. this", "3.14 is pi. |e.g. |this|"},
        {"What?! Yes... no.", "What?! |Yes... |no.|"},
        {". . ", ". |. |"},
        {"\xc3\x84h. \xf0\x9f\x99\x82! x", "\xc3\x84h. |\xf0\x9f\x99\x82! |x|"},
        {"a.  b", "a. | b|"},
        {"end.\r\nnext", "end.\r\nnext|"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t step = 1; step <= strlen(rows[i][0]) + 1; step++)
            check_sentences(rows[i][0], step, rows[i][1]);
}

static void a_text_without_an_end_is_cut(void **state)
{
    static char piece[10000];
    struct sentences s = {0};
    const char *text;
    size_t n, cut = 0;
    (void)state;
    memset(piece, 'x', sizeof piece);
    for (int i = 0; i < 14; i++) {
        assert_int_equal(sentences_add(&s, piece, sizeof piece), QUIRE_OK);
        while (sentences_next(&s, false, &text, &n))
            cut += n;
        assert_true(s.text.n <= SENTENCES_MAX_BYTES + sizeof piece);
    }
    assert_int_equal(cut, 140000);
    sentences_free(&s);
}

/* ---- answers -------------------------------------------------------------------------------- */

static struct key256 key_of(unsigned i)
{
    return quire_sha256(&i, sizeof i);
}

static void put(struct answer_cache *a, unsigned i, size_t n, uint64_t now_ms)
{
    const struct key256 key = key_of(i);
    char *text = calloc(1, n + 1);
    memset(text, 'a' + (int)(i % 26), n);
    const struct cached_completion answer = {
        .text = text, .n = n, .model = "small", .cost = i, .input = 2, .output = 3};
    answer_cache_add(a, &key, &answer, now_ms);
    free(text);
}

static bool has(struct answer_cache *a, unsigned i, uint64_t now_ms)
{
    const struct key256 key = key_of(i);
    const struct cached_completion *answer = answer_cache_find(a, &key, now_ms);
    if (answer) {
        assert_int_equal(answer->cost, i);
        assert_string_equal(answer->model, "small");
        assert_int_equal(answer->text[0], 'a' + (int)(i % 26));
    }
    return answer != NULL;
}

static void answers_live_for_their_time(void **state)
{
    struct answer_cache *a;
    (void)state;
    assert_int_equal(answer_cache_open(0, 0, 1000, &a, NULL), QUIRE_OK);
    assert_false(has(a, 1, 0));
    put(a, 1, 10, 0);
    put(a, 2, 10, 0);
    assert_true(has(a, 1, 999)); /* renewed: until 1,999 */
    assert_true(has(a, 1, 1998));
    assert_false(has(a, 2, 1000));
    const struct answer_cache_stats s = answer_cache_stats(a, 1000);
    assert_int_equal(s.n_entries, 2);
    assert_int_equal(s.n_expired, 1);
    assert_false(has(a, 1, 2998));
    assert_int_equal(answer_cache_clear(a), 2);
    assert_int_equal(answer_cache_stats(a, 0).n_entries, 0);
    assert_int_equal(answer_cache_stats(a, 0).n_bytes, 0);
    answer_cache_close(a);
}

static void the_least_recently_used_answer_is_dropped(void **state)
{
    struct answer_cache *a;
    (void)state;
    assert_int_equal(answer_cache_open(3, 0, 0, &a, NULL), QUIRE_OK);
    for (unsigned i = 1; i <= 3; i++)
        put(a, i, 10, 0);
    assert_true(has(a, 1, 1));
    put(a, 4, 10, 1);
    assert_true(has(a, 1, 1) && !has(a, 2, 1) && has(a, 3, 1) && has(a, 4, 1));
    put(a, 3, 20, 1); /* replaced */
    assert_int_equal(answer_cache_stats(a, 1).n_entries, 3);
    assert_int_equal(answer_cache_stats(a, 1).n_evicted, 1);
    answer_cache_close(a);
}

static void answers_are_bounded(void **state)
{
    struct answer_cache *a;
    (void)state;
    assert_int_equal(answer_cache_open(0, 10000, 0, &a, NULL), QUIRE_OK);
    put(a, 1, 2501, 0);
    assert_false(has(a, 1, 0)); /* more than a quarter */
    srand(1);
    for (unsigned i = 0; i < 2000; i++) {
        put(a, (unsigned)rand() % 100, (size_t)(rand() % 2500), i);
        assert_true(answer_cache_stats(a, i).n_bytes <= 10000);
        assert_true(has(a, (unsigned)rand() % 100, i) || true);
    }
    answer_cache_close(a);
}

/* ---- questions ------------------------------------------------------------------------------ */

static void bodies_are_read(void **state)
{
    static const struct {
        const char *in, *expected; /* the chat's body, or the words of the error */
        bool use_cache, is_stream;
    } rows[] = {
        {"{\"prompt\":\"a\\\"b\"}", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\\\"b\"}]}", true, false},
        {"{\"prompt\":\"\",\"model\":\"small\",\"use_cache\":false}",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"\"}],\"model\":\"small\"}", false, false},
        {"{\"stream\":true,\"model\":null,\"prompt\":\"a\",\"more\":1}",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"stream\":true}", true, true},
        {"{}", "prompt: is missing", false, false},
        {"{\"prompt\":null}", "prompt: is missing", false, false},
        {"{\"prompt\":[\"a\"]}", "prompt: must be a string", false, false},
        {"{\"prompt\":\"a\",\"model\":3}", "model: must be a string", false, false},
        {"{\"prompt\":\"a\",\"use_cache\":\"yes\"}", "use_cache: must be true or false", false, false},
        {"{\"prompt\":\"a\",\"stream\":null}", "stream: must be true or false", false, false},
        {"[]", "the body must be a JSON object", false, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct question q;
        struct buffer o = {0};
        struct api_error e = {0};
        const bool ok = question_read(&q, rows[i].in, strlen(rows[i].in), &e);
        if (ok)
            question_put_body(&q, &o);
        assert_string_equal(ok ? buffer_text(&o) : e.why.text, rows[i].expected);
        assert_true(ok || e.status == 400);
        assert_true(!ok || (q.use_cache == rows[i].use_cache && q.is_stream == rows[i].is_stream));
        question_free(&q);
        buffer_free(&o);
    }
}

static void queries_are_read(void **state)
{
    static const struct {
        const char *in, *expected; /* the prompt and the model, or the words of the error */
        bool in_sentences;
    } rows[] = {
        {"prompt=a+b%21&model=small", "a b!/small", false},
        {"sentences=1&prompt=a", "a/", true},
        {"sentences=0&prompt=", "/", false},
        {"", "prompt: is missing: GET /stream?prompt=TEXT", false},
        {"prompt=a&sentences=yes", "sentences: must be 0 or 1", false},
        {"prompt=%zz", "prompt: is not UTF-8 with valid escapes", false},
        {"prompt=%ff", "prompt: is not UTF-8 with valid escapes", false},
        {"prompt=a&sentence=1", "the query may have prompt, model and sentences only", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct question q;
        struct api_error e = {0};
        char text[100];
        const bool ok = question_query(&q, rows[i].in, &e);
        snprintf(text, sizeof text, "%s/%s", ok ? q.prompt : "", ok && q.model ? q.model : "");
        assert_string_equal(ok ? text : e.why.text, rows[i].expected);
        assert_int_equal(ok && q.in_sentences, rows[i].in_sentences);
        question_free(&q);
    }
}

/* Computed with Python: hashlib.sha256(json.dumps({...}, sort_keys=True)). */
static void keys_are_those_of_sorted_json(void **state)
{
    char prompt[] = "What is 1+1?", model[] = "small", hex[65];
    struct question q = {.prompt = prompt, .n_prompt = strlen(prompt), .model = model};
    struct key256 key, other;
    (void)state;
    assert_int_equal(question_key(&q, "default", &key), QUIRE_OK);
    quire_key256_hex(&key, hex);
    assert_string_equal(hex, "97e3da19465a7e70a66017fd727c11c8cbb70515a2e6c0becb3139ded0172456");
    q.model = NULL;
    assert_int_equal(question_key(&q, "default", &key), QUIRE_OK);
    quire_key256_hex(&key, hex);
    assert_string_equal(hex, "617c245a4e8b017a9998f05f4b9a437354f342f5024f7b0d712860b8b3fb40e8");
    assert_int_equal(question_key(&q, "other", &other), QUIRE_OK);
    assert_memory_not_equal(&key, &other, sizeof key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sentences_are_whole),
        cmocka_unit_test(a_text_without_an_end_is_cut),
        cmocka_unit_test(answers_live_for_their_time),
        cmocka_unit_test(the_least_recently_used_answer_is_dropped),
        cmocka_unit_test(answers_are_bounded),
        cmocka_unit_test(bodies_are_read),
        cmocka_unit_test(queries_are_read),
        cmocka_unit_test(keys_are_those_of_sorted_json),
    };
    return quire_hash_init() ? 1 : RUN_ISOLATED(tests, NULL, NULL);
}
