/* Model directories that are wrong: one clear line naming the file, never more. */
#include "text/quire_chat.h"
#include "text/quire_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[64];
static char path[128];

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/quire-text-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                                        "chat_template.jinja"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        if (unlink(path) != 0)
            rmdir(path);
    }
    return rmdir(dir);
}

static const char *in_dir(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void write_file(const char *name, const char *bytes, size_t n)
{
    FILE *f = fopen(in_dir(name), "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void write_tokenizer(const char *json)
{
    write_file("tokenizer.json", json, strlen(json));
}

/* Opening fails with the status, and the message is one line with every expected word in it. */
static void expect(int status, const char *a, const char *b)
{
    struct quire_text *text = NULL;
    struct quire_error err;
    memset(&err, 'x', sizeof err);
    assert_int_equal(quire_text_open(dir, &text, &err), status);
    assert_null(text);
    assert_non_null(memchr(err.text, 0, sizeof err.text));
    assert_null(strpbrk(err.text, "\n\r\t"));
    if (!strstr(err.text, a) || !strstr(err.text, b))
        fail_msg("\"%s\" lacks \"%s\" or \"%s\"", err.text, a, b);
}

static void missing_files(void **state)
{
    (void)state;
    expect(QUIRE_NOT_FOUND, dir, "no tokenizer.json");
    struct quire_text *text;
    struct quire_error err;
    assert_int_equal(quire_text_open("/nonexistent/model", &text, &err), QUIRE_NOT_FOUND);
    assert_int_equal(quire_text_open(NULL, &text, &err), QUIRE_INVALID);
    assert_int_equal(quire_text_open(dir, &text, NULL), QUIRE_NOT_FOUND);
}

static void not_a_file(void **state)
{
    (void)state;
    assert_int_equal(mkdir(in_dir("tokenizer.json"), 0700), 0);
    expect(QUIRE_INVALID, "tokenizer.json", "not a regular file");
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(mkfifo(in_dir("tokenizer.json"), 0600), 0);
    expect(QUIRE_INVALID, "tokenizer.json", "not a regular file");
}

static void too_large(void **state)
{
    (void)state;
    write_tokenizer("{}");
    /* Sparse: the size is refused before anything is read. */
    assert_int_equal(truncate(in_dir("tokenizer.json"), (off_t)1 << 40), 0);
    expect(QUIRE_INVALID, "tokenizer.json", "the limit is");
}

static void not_utf8(void **state)
{
    (void)state;
    write_file("tokenizer.json", "{\"\xff\": 1}", 8);
    expect(QUIRE_INVALID, "tokenizer.json", "not UTF-8 at byte 2");
}

#define MODEL(more) "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}" more "}"

static void wrong_tokenizers(void **state)
{
    (void)state;
    static const struct {
        const char *json, *field;
    } cases[] = {
        {"", "EOF"},
        {"[1, 2", "tokenizer.json"},
        {"null", "tokenizer.json"},
        {"{\"model\": {\"type\": \"BPE\"", "EOF"},
        {"{}", "model: missing"},
        {"{\"model\": null}", "model: "},
        {"{\"model\": 3}", "model: "},
        {"{\"model\": {}}", "model: "},
        {"{\"version\": \"7\", \"model\": {}}", "version: "},
        {"{\"version\": 7, \"model\": {}}", "invalid type"},
        {"{\"model\": {\"type\": \"GPT\"}}", "model: "},
        {"{\"model\": {\"type\": \"BPE\"}}", "model: missing field `vocab`"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {}, \"merges\": []}}", "no tokens"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": [], \"merges\": []}}", "a map from token"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": -1}, \"merges\": []}}", "model: "},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 4294967295}, \"merges\": []}}", "too large"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 1e99}, \"merges\": []}}", "model: "},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a\"]}}", "merge"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a a a\"]}}", "merge"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [[\"a\"]]}}", "merge"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a b\"]}}", "`b`"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"é\": 1},"
         "\"continuing_subword_prefix\": \"x\", \"merges\": [\"a é\"]}}",
         "continuing_subword_prefix"},
        {"{\"model\": {\"type\": \"Unigram\", \"unk_id\": 5, \"vocab\": [[\"a\", 0.0]]}}", "model: "},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"c\": 0}, \"merges\": []}}",
         "model: vocab: \"a\" and \"c\" have the same id 0"},
        {"{\"model\": {\"type\": \"WordLevel\", \"vocab\": {\"a\": 3, \"?\": 3}, \"unk_token\": \"?\"}}",
         "\"?\" and \"a\" have the same id 3"},
        {"{\"model\": {\"type\": \"WordLevel\", \"vocab\": {}, \"unk_token\": \"?\"}}", "no tokens"},
        {MODEL(", \"decoder\": 3"), "decoder"},
        {MODEL(", \"decoder\": {\"type\": \"Nonsense\"}"), "decoder: "},
        {MODEL(", \"normalizer\": {\"type\": \"Replace\"}"), "normalizer: "},
        {MODEL(", \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"(\"},"
               "\"behavior\": \"Isolated\", \"invert\": false}"),
         "pre_tokenizer: "},
        {MODEL(", \"post_processor\": []"), "post_processor: "},
        {MODEL(", \"added_tokens\": {}"), "added_tokens: "},
        {MODEL(", \"added_tokens\": [{\"id\": 7}]"), "added_tokens: "},
        {MODEL(", \"decoder\": null, \"decoder\": 3"), "decoder"},
        {MODEL(", \"decoder\": NaN"), "decoder: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_tokenizer(cases[i].json);
        expect(QUIRE_INVALID, "tokenizer.json: ", cases[i].field);
    }
}

static void deep_nesting(void **state)
{
    (void)state;
    size_t n = 1 << 20;
    char *json = malloc(n + 1);
    assert_non_null(json);
    memset(json, '[', n);
    json[n] = 0;
    write_tokenizer(json);
    expect(QUIRE_INVALID, "tokenizer.json: ", "");
    memcpy(json, "{\"model\":", 9);
    write_tokenizer(json);
    expect(QUIRE_INVALID, "tokenizer.json: ", "");
    free(json);
}

/* JSON that Python writes and reads, in unused and in used fields. */
static void as_python_writes_it(void **state)
{
    (void)state;
    static const char config[] =
        "{\"model_max_length\":1000000000000000019884624838656,\"x\":[NaN,-Infinity,1e400],\"bos_token\":1,"
        "\"bos_token\":{\"content\":\"a\",\"content\":\"b\"},\"z\":\"\\ud800\\u0000\"}";
    struct quire_text *text = NULL;
    struct quire_error err;
    write_tokenizer(MODEL(", \"x\": NaN, \"y\": [Infinity, -1e400, 123456789012345678901234567890], \"version\": 3,"
                          "\"version\": \"1.0\", \"decoder\": 3, \"decoder\": {\"type\": 7, \"type\": \"Fuse\"},"
                          "\"added_tokens\": [{\"id\": 3, \"id\": 3, \"content\": \"?\", \"content\": \"<s>\","
                          "\"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false,"
                          "\"special\": true}]"));
    write_file("tokenizer_config.json", config, strlen(config));
    if (quire_text_open(dir, &text, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    assert_int_equal(quire_text_token_id(text, "<s>"), 3);
    quire_text_close(text);
    assert_int_equal(unlink(in_dir("tokenizer_config.json")), 0);
}

static void wrong_side_files(void **state)
{
    (void)state;
    static const struct {
        const char *file, *bytes, *words;
    } cases[] = {
        {"tokenizer_config.json", "{", "tokenizer_config.json: "},
        {"tokenizer_config.json", "[]", "must be a JSON object"},
        {"tokenizer_config.json", "{\"bos_token\": 1}", "tokenizer_config.json: bos_token"},
        {"tokenizer_config.json", "{\"chat_template\": {}}", "tokenizer_config.json: chat_template"},
        {"special_tokens_map.json", "3", "special_tokens_map.json: "},
        {"chat_template.jinja", "\xff", "chat_template.jinja: not UTF-8"},
    };
    write_tokenizer(MODEL(""));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_file(cases[i].file, cases[i].bytes, strlen(cases[i].bytes));
        expect(QUIRE_INVALID, cases[i].file, cases[i].words);
        unlink(in_dir(cases[i].file));
    }
}

/* A directory with tokenizer.json alone works, and has no chat. */
static void tokenizer_alone(void **state)
{
    (void)state;
    write_tokenizer(MODEL(""));
    struct quire_text *text;
    struct quire_error err;
    assert_int_equal(quire_text_open(dir, &text, &err), QUIRE_OK);
    assert_false(quire_text_has_chat(text));
    assert_int_equal(quire_text_n_ids(text), 3);
    struct quire_chat chat = {.messages_json = "[{}]"};
    char *out;
    size_t n;
    assert_int_equal(quire_text_chat(text, &chat, &out, &n, NULL, &err), QUIRE_UNSUPPORTED);
    quire_text_close(text);
}

/* A template that does not compile does not keep the model from completing text. */
static void broken_template(void **state)
{
    (void)state;
    write_tokenizer(MODEL(""));
    write_file("chat_template.jinja", "{% for %}", 9);
    struct quire_text *text;
    struct quire_error err;
    assert_int_equal(quire_text_open(dir, &text, &err), QUIRE_OK);
    assert_true(quire_text_has_chat(text));
    struct quire_chat chat = {.messages_json = "[{}]"};
    char *out;
    size_t n;
    assert_int_equal(quire_text_chat(text, &chat, &out, &n, NULL, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "does not compile"));
    quire_text_close(text);
}

/* A long message is cut at a character. */
static void long_message(void **state)
{
    (void)state;
    write_tokenizer(MODEL(""));
    static const char source[] = "{{ raise_exception('x' ~ 'é' * 1000) }}";
    write_file("chat_template.jinja", source, strlen(source));
    struct quire_text *text;
    struct quire_error err;
    assert_int_equal(quire_text_open(dir, &text, &err), QUIRE_OK);
    struct quire_chat chat = {.messages_json = "[{}]"};
    char *out;
    size_t n;
    assert_int_equal(quire_text_chat(text, &chat, &out, &n, NULL, &err), QUIRE_INVALID);
    assert_int_equal(strlen(err.text), QUIRE_ERROR_BYTES - 1);
    assert_memory_equal(err.text + QUIRE_ERROR_BYTES - 3, "é", 3);
    quire_text_close(text);
}

int main(void)
{
#define HOSTILE(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)
    const struct CMUnitTest tests[] = {
        HOSTILE(missing_files),    HOSTILE(not_a_file),      HOSTILE(too_large),           HOSTILE(not_utf8),
        HOSTILE(wrong_tokenizers), HOSTILE(deep_nesting),    HOSTILE(as_python_writes_it), HOSTILE(wrong_side_files),
        HOSTILE(tokenizer_alone),  HOSTILE(broken_template), HOSTILE(long_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
