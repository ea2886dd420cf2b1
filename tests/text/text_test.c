/* The library through its C header, on the small tokenizers of tests/text/data. */
#include "text/quire_chat.h"
#include "text/quire_text.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define DATA QUIRE_SOURCE_DIR "/tests/text/data/"

static struct quire_text *open_data(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, DATA "%s", name);
    struct quire_text *text = NULL;
    struct quire_error err = {.text = "no message"};
    if (quire_text_open(path, &text, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    return text;
}

/* Decodes ids by a stream and compares with the whole decode, which it returns. */
static char *decode_both_ways(struct quire_text *text, const uint32_t *ids, size_t n)
{
    struct quire_error err;
    char *whole;
    size_t n_whole;
    assert_int_equal(quire_text_decode(text, ids, n, false, &whole, &n_whole, &err), QUIRE_OK);
    assert_int_equal(strlen(whole), n_whole);

    char *streamed = calloc(1, n_whole + 64);
    struct quire_detok *detok;
    assert_int_equal(quire_detok_open(text, NULL, 0, false, &detok, &err), QUIRE_OK);
    for (size_t i = 0; i <= n; i++) {
        const char *piece;
        size_t n_bytes;
        int status = i < n ? quire_detok_push(detok, ids[i], &piece, &n_bytes, &err)
                           : quire_detok_finish(detok, &piece, &n_bytes, &err);
        assert_int_equal(status, QUIRE_OK);
        assert_int_equal(piece[n_bytes], 0);
        assert_true(strlen(streamed) + n_bytes <= n_whole);
        strcat(streamed, piece);
    }
    quire_detok_close(detok);
    assert_string_equal(streamed, whole);
    free(streamed);
    return whole;
}

static void round_trip(void **state)
{
    (void)state;
    static const char *const names[] = {"bytelevel", "fallback"};
    static const char input[] = "The tide — naïve 今日は 😀\n\tin";
    for (size_t i = 0; i < 2; i++) {
        struct quire_text *text = open_data(names[i]);
        struct quire_error err;
        uint32_t *ids;
        size_t n;
        assert_int_equal(quire_text_encode(text, input, strlen(input), false, &ids, &n, &err), 0);
        assert_true(n > 10);
        for (size_t k = 0; k < n; k++)
            assert_true(ids[k] < quire_text_n_ids(text));
        char *output = decode_both_ways(text, ids, n);
        assert_string_equal(output, input);
        free(output);
        free(ids);
        quire_text_close(text);
    }
}

static void special_tokens(void **state)
{
    (void)state;
    struct quire_text *text = open_data("bytelevel");
    int64_t start = quire_text_token_id(text, "<|im_start|>");
    assert_true(start > 0);
    assert_int_equal(quire_text_token_id(text, "<|no_such_token|>"), -1);
    assert_int_equal(quire_text_token_id(text, "\xff"), -1);
    assert_int_equal(quire_text_token_id(text, NULL), -1);

    struct quire_error err;
    uint32_t *ids;
    size_t n;
    assert_int_equal(quire_text_encode(text, "<|im_start|>a", 13, false, &ids, &n, &err), 0);
    assert_int_equal(n, 2);
    assert_int_equal(ids[0], start);

    char *out;
    size_t n_bytes;
    assert_int_equal(quire_text_decode(text, ids, n, true, &out, &n_bytes, &err), QUIRE_OK);
    assert_string_equal(out, "a");
    free(out);

    uint8_t *bytes;
    assert_int_equal(quire_text_token_bytes(text, ids[0], &bytes, &n_bytes, &err), QUIRE_OK);
    assert_int_equal(n_bytes, 12);
    assert_memory_equal(bytes, "<|im_start|>", 12);
    free(bytes);
    free(ids);

    uint32_t past[3] = {quire_text_n_ids(text), UINT32_MAX, 5000000};
    assert_int_equal(quire_text_decode(text, past, 3, false, &out, &n_bytes, &err), QUIRE_OK);
    assert_int_equal(n_bytes, 0);
    free(out);
    quire_text_close(text);
}

static void empty_and_wrong_text(void **state)
{
    (void)state;
    struct quire_text *text = open_data("fallback");
    struct quire_error err;
    uint32_t *ids;
    size_t n;
    assert_int_equal(quire_text_encode(text, NULL, 0, false, &ids, &n, &err), QUIRE_OK);
    assert_int_equal(n, 0);
    free(ids);
    assert_int_equal(quire_text_encode(text, "", 0, true, &ids, &n, &err), QUIRE_OK);
    assert_int_equal(n, 1);
    free(ids);
    assert_int_equal(quire_text_encode(text, "ab\xc3(", 4, true, &ids, &n, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "not UTF-8 at byte 2"));
    assert_int_equal(quire_text_encode(text, "\xff", 1, true, &ids, &n, NULL), QUIRE_INVALID);
    quire_text_close(text);
}

/* A continued text keeps the space that a text of its own would lose. */
static void prompt_context(void **state)
{
    (void)state;
    struct quire_text *text = open_data("fallback");
    struct quire_error err;
    static const char *const tokens[] = {"<s>", "▁a", "▁t"};
    uint32_t ids[3];
    for (size_t i = 0; i < 3; i++) {
        int64_t id = quire_text_token_id(text, tokens[i]);
        assert_true(id >= 0);
        ids[i] = (uint32_t)id;
    }
    struct quire_detok *detok;
    const char *piece;
    size_t n_bytes;
    assert_int_equal(quire_detok_open(text, ids, 2, true, &detok, &err), QUIRE_OK);
    assert_int_equal(quire_detok_push(detok, ids[2], &piece, &n_bytes, &err), QUIRE_OK);
    assert_string_equal(piece, " t");
    quire_detok_close(detok);
    assert_int_equal(quire_detok_open(text, ids, 1, true, &detok, &err), QUIRE_OK);
    assert_int_equal(quire_detok_push(detok, ids[2], &piece, &n_bytes, &err), QUIRE_OK);
    assert_string_equal(piece, "t");
    assert_int_equal(quire_detok_finish(detok, &piece, &n_bytes, &err), QUIRE_OK);
    assert_int_equal(quire_detok_push(detok, ids[2], &piece, &n_bytes, &err), QUIRE_INVALID);
    quire_detok_close(detok);
    quire_detok_close(NULL);
    quire_text_close(text);
}

/* A model directory with a tokenizer and the given files. */
static void make_model(char *dir, const char *const files[][2], size_t n)
{
    strcpy(dir, "/tmp/quire-text-XXXXXX");
    assert_non_null(mkdtemp(dir));
    char path[256];
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    assert_int_equal(symlink(DATA "fallback/tokenizer.json", path), 0);
    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[i][0]);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(files[i][1], f);
        fclose(f);
    }
}

static void remove_model(const char *dir, const char *const files[][2], size_t n)
{
    char path[256];
    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[i][0]);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    unlink(path);
    assert_int_equal(rmdir(dir), 0);
}

static void chat(void **state)
{
    (void)state;
    static const char *const files[][2] = {
        {"tokenizer_config.json", "{\"bos_token\": \"<s>\", \"chat_template\": \"from the config\"}"},
        {"chat_template.jinja", "{{ bos_token }}{% for m in messages %}"
                                "{% if m.role == 'wizard' %}{{ raise_exception('no\\nwizards, pleaſe') }}{% endif %}"
                                "[{{ m.role }}|{{ m.content }}]{% endfor %}{{ tools | tojson }}{{ mood }}"
                                "{% if add_generation_prompt %}[assistant|{% endif %}\n"},
    };
    char dir[64];
    make_model(dir, files, 2);
    struct quire_text *text;
    struct quire_error err;
    assert_int_equal(quire_text_open(dir, &text, &err), QUIRE_OK);
    assert_true(quire_text_has_chat(text));
    char *out;
    size_t n;

    struct quire_chat request = {
        .messages_json = "[{\"role\": \"user\", \"content\": \"Hé\"}]",
        .tools_json = "[{\"type\": \"function\"}]",
        .kwargs_json = "{\"mood\": 1.0}",
        .add_generation_prompt = true,
    };
    assert_int_equal(quire_text_chat(text, &request, &out, &n, NULL, &err), QUIRE_OK);
    assert_string_equal(out, "<s>[user|Hé][{\"type\": \"function\"}]1.0[assistant|");
    assert_int_equal(n, strlen(out));
    free(out);

    request = (struct quire_chat){
        .messages_json = "[{\"role\": \"assistant\", \"content\": \"Well, \"}]",
        .continue_final = true,
    };
    assert_int_equal(quire_text_chat(text, &request, &out, &n, NULL, &err), QUIRE_OK);
    assert_string_equal(out, "<s>[assistant|Well, ");
    free(out);

    request.messages_json = "[{\"role\": \"wizard\"}]";
    request.continue_final = false;
    assert_int_equal(quire_text_chat(text, &request, &out, &n, NULL, &err), QUIRE_INVALID);
    assert_string_equal(err.text, "no wizards, pleaſe");
    request.messages_json = "[{\"role\": \"\xff\"}]";
    assert_int_equal(quire_text_chat(text, &request, &out, &n, NULL, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "messages: not UTF-8"));
    request.messages_json = "[{}]";
    request.template_name = "rag";
    assert_int_equal(quire_text_chat(text, &request, &out, &n, NULL, &err), QUIRE_NOT_FOUND);
    quire_text_close(text);
    remove_model(dir, files, 2);
}

/* Two openings agree; a change of any file that matters is seen. */
static void identity(void **state)
{
    (void)state;
    static const char *const one[][2] = {{"tokenizer_config.json", "{}"}};
    static const char *const two[][2] = {{"tokenizer_config.json", "{ }"}};
    static const char *const three[][2] = {{"chat_template.jinja", "{}"}};
    const char *const(*sets[])[2] = {one, one, two, three};
    uint8_t ids[5][32];
    for (size_t i = 0; i < 4; i++) {
        char dir[64];
        make_model(dir, sets[i], 1);
        struct quire_text *text;
        struct quire_error err;
        assert_int_equal(quire_text_open(dir, &text, &err), QUIRE_OK);
        assert_int_equal(quire_text_has_chat(text), i == 3);
        assert_int_equal(quire_text_identity(dir, ids[i], &err), QUIRE_OK);
        quire_text_close(text);
        remove_model(dir, sets[i], 1);
    }
    struct quire_error err;
    assert_int_equal(quire_text_identity(DATA "bytelevel", ids[4], &err), QUIRE_OK);
    assert_int_equal(quire_text_identity("/nowhere", ids[3], &err), QUIRE_NOT_FOUND);
    assert_memory_equal(ids[0], ids[1], 32);
    assert_memory_not_equal(ids[1], ids[2], 32);
    assert_memory_not_equal(ids[4], ids[0], 32);
}

/* The local time of the C library. */
static void strftime_now(void **state)
{
    (void)state;
    static const char *const files[][2] = {
        {"chat_template.jinja", "{{ strftime_now('%Y-%m-%d %H:%M') }}"},
    };
    char dir[64];
    make_model(dir, files, 1);
    struct quire_text *text;
    struct quire_error err;
    assert_int_equal(quire_text_open(dir, &text, &err), QUIRE_OK);
    struct quire_chat request = {.messages_json = "[{}]"};
    char before[64], after[64], *out;
    size_t n;
    time_t t = time(NULL);
    strftime(before, sizeof before, "%Y-%m-%d %H:%M", localtime(&t));
    assert_int_equal(quire_text_chat(text, &request, &out, &n, NULL, &err), QUIRE_OK);
    t = time(NULL);
    strftime(after, sizeof after, "%Y-%m-%d %H:%M", localtime(&t));
    assert_true(strcmp(out, before) == 0 || strcmp(out, after) == 0);
    free(out);
    quire_text_close(text);
    remove_model(dir, files, 1);
}

static void *encode_and_decode(void *arg)
{
    struct quire_text *text = arg;
    static const char input[] = "The tide comes in twice a day 😀";
    for (int i = 0; i < 200; i++) {
        struct quire_error err;
        uint32_t *ids;
        size_t n;
        char *out;
        size_t n_bytes;
        if (quire_text_encode(text, input, strlen(input), false, &ids, &n, &err) != QUIRE_OK)
            return arg;
        if (quire_text_decode(text, ids, n, false, &out, &n_bytes, &err) != QUIRE_OK)
            return arg;
        int same = strcmp(out, input);
        free(ids);
        free(out);
        if (same != 0)
            return arg;
    }
    return NULL;
}

static void many_threads(void **state)
{
    (void)state;
    struct quire_text *text = open_data("bytelevel");
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, encode_and_decode, text), 0);
    for (size_t i = 0; i < 4; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    quire_text_close(text);
}

/* A stream outlives the text it was opened on. */
static void close_order(void **state)
{
    (void)state;
    struct quire_text *text = open_data("bytelevel");
    struct quire_error err;
    struct quire_detok *detok;
    assert_int_equal(quire_detok_open(text, NULL, 0, false, &detok, &err), QUIRE_OK);
    uint32_t id = (uint32_t)quire_text_token_id(text, "<tool_call>");
    quire_text_close(text);
    const char *piece;
    size_t n;
    assert_int_equal(quire_detok_push(detok, id, &piece, &n, &err), QUIRE_OK);
    assert_string_equal(piece, "<tool_call>");
    quire_detok_close(detok);
    quire_text_close(NULL);
}

/* The ids of the pieces equal the ids of the whole text, and no piece is large. */
static void in_pieces(void **state)
{
    (void)state;
    struct quire_text *text = open_data("bytelevel"), *bounded = open_data("fallback");
    struct quire_error err;
    struct quire_encoder *encoder;
    const size_t n_bytes = 300000;
    char *input = malloc(n_bytes);
    for (size_t i = 0; i < n_bytes; i++)
        input[i] = "the tide, a lamp "[i % 17];
    uint32_t *whole;
    const uint32_t *ids;
    size_t n_whole, n, at = 0, n_pieces = 0;
    assert_int_equal(quire_text_encode(text, input, n_bytes, true, &whole, &n_whole, &err), QUIRE_OK);
    assert_int_equal(quire_text_least_tokens(text, input, n_bytes), 0);
    assert_true(quire_text_least_tokens(bounded, input, n_bytes) > n_bytes / 100);
    assert_int_equal(quire_encoder_open(text, input, n_bytes, true, &encoder, &err), QUIRE_OK);
    while (quire_encoder_next(encoder, &ids, &n, &err) == QUIRE_OK && ids) {
        assert_true(n <= n_whole - at && n < 20000);
        assert_memory_equal(ids, whole + at, n * sizeof *ids);
        at += n;
        n_pieces++;
    }
    assert_int_equal(at, n_whole);
    assert_in_range(n_pieces, 15, 20);
    assert_int_equal(quire_encoder_next(encoder, &ids, &n, &err), QUIRE_OK);
    assert_null(ids);
    quire_encoder_close(encoder);
    quire_encoder_close(NULL);
    free(whole);

    memset(input, 'a', n_bytes);
    assert_int_equal(quire_text_encode(text, input, n_bytes, true, &whole, &n_whole, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "256 KiB"));
    assert_int_equal(quire_encoder_open(text, "ab\xc3(", 4, true, &encoder, &err), QUIRE_INVALID);
    assert_int_equal(quire_text_least_tokens(bounded, "ab\xc3(", 4), 0);
    free(input);
    quire_text_close(text);
    quire_text_close(bounded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_pieces),      cmocka_unit_test(round_trip),
        cmocka_unit_test(special_tokens), cmocka_unit_test(empty_and_wrong_text),
        cmocka_unit_test(prompt_context), cmocka_unit_test(chat),
        cmocka_unit_test(identity),       cmocka_unit_test(strftime_now),
        cmocka_unit_test(many_threads),   cmocka_unit_test(close_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
