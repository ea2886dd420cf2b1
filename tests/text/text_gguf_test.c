/* Tokenizers of GGUF files, made here from the tokens of tokenizer.json: byte-level ones give tokenizer.json's ids,
 * SentencePiece's those of its own rule, written again below. */
#include "text/quire_text.h"

#include "base/buffer.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define DATA QUIRE_SOURCE_DIR "/tests/text/data/"
#define DEMO QUIRE_SOURCE_DIR "/tools/demo_model/model"
#define MAX_TOKENS 2048

static const char *const texts[] = {" ",
                                    "  ",
                                    "\n\n \t\r\n",
                                    "a",
                                    "The tide comes in.",
                                    " leading",
                                    "trailing ",
                                    "two  s",
                                    "wasn't IT'S",
                                    "1234567",
                                    "naïve façade",
                                    "Привет, мир",
                                    "今日は",
                                    "😀 smile 👩‍🚀",
                                    "<0x41>",
                                    "▁under▁score",
                                    "Ġtrick Ċ",
                                    "e\u0301 A\u030a",
                                    "\u200bzero width",
                                    "ﬁ ligature",
                                    "x <s> y </s>",
                                    "a\n\nb ",
                                    "<|im_start|>user\nHi<|im_end|>",
                                    "\u00a0\u3000 wide",
                                    "#####!!!\n\n\n",
                                    "½ ٣ Ⅷ 3.14"};

static char path[] = "/tmp/quire-gguf-XXXXXX";

/* ---- writing GGUF ----------------------------------------------------------------------------------- */

static void put_u32(struct buffer *b, uint32_t v)
{
    buffer_append(b, &v, sizeof v);
}

static void put_text(struct buffer *b, const char *text)
{
    const uint64_t n = strlen(text);
    buffer_append(b, &n, sizeof n);
    buffer_append(b, text, n);
}

static void put_string(struct buffer *b, const char *key, const char *value)
{
    put_text(b, key);
    put_u32(b, 8);
    put_text(b, value);
}

static void put_list(struct buffer *b, const char *key, uint32_t kind, uint64_t n)
{
    put_text(b, key);
    put_u32(b, 9);
    put_u32(b, kind);
    buffer_append(b, &n, sizeof n);
}

struct tokens {
    json_t *json; /* tokenizer.json: owns the texts */
    uint32_t n;
    const char *text[MAX_TOKENS];
    uint32_t kind[MAX_TOKENS]; /* 1 normal, 2 unknown, 3 control, 4 of the user, 5 unused, 6 a byte */
    float score[MAX_TOKENS];
};

static void read_tokens(const char *dir, struct tokens *t)
{
    char name[512];
    const char *text;
    json_t *id, *added;
    size_t i;
    memset(t, 0, sizeof *t);
    snprintf(name, sizeof name, "%s/tokenizer.json", dir);
    t->json = json_load_file(name, 0, NULL);
    assert_non_null(t->json);
    json_object_foreach(json_object_get(json_object_get(t->json, "model"), "vocab"), text, id)
    {
        const uint32_t k = (uint32_t)json_integer_value(id);
        assert_true(k < MAX_TOKENS);
        t->text[k] = text;
        t->kind[k] = strlen(text) == 6 && strncmp(text, "<0x", 3) == 0 ? 6 : 1;
        t->score[k] = -(float)k;
        t->n = k + 1 > t->n ? k + 1 : t->n;
    }
    json_array_foreach(json_object_get(t->json, "added_tokens"), i, added)
    {
        const uint32_t k = (uint32_t)json_integer_value(json_object_get(added, "id"));
        const bool special = json_is_true(json_object_get(added, "special"));
        assert_true(k < MAX_TOKENS);
        t->text[k] = json_string_value(json_object_get(added, "content"));
        t->kind[k] = strcmp(t->text[k], "<unk>") == 0 ? 2 : special ? 3 : 4;
        if (json_is_true(json_object_get(added, "lstrip")))
            t->kind[k] = 5; /* a kind that GGUF cannot express */
        t->n = k + 1 > t->n ? k + 1 : t->n;
    }
}

static void put_merges(struct buffer *b, const json_t *merges)
{
    json_t *merge;
    size_t i;
    put_list(b, "tokenizer.ggml.merges", 8, json_array_size(merges));
    json_array_foreach(merges, i, merge)
    {
        char both[256];
        if (json_is_array(merge))
            snprintf(both, sizeof both, "%s %s", json_string_value(json_array_get(merge, 0)),
                     json_string_value(json_array_get(merge, 1)));
        put_text(b, json_is_array(merge) ? both : json_string_value(merge));
    }
}

static uint32_t n_scores, kind_of_scores; /* 0: as many as tokens, f32 */

static void write_gguf(const struct tokens *t, const char *model, const char *pre)
{
    const uint64_t counts[2] = {0, 6};
    struct buffer b = {0};
    buffer_append(&b, "GGUF\3\0\0\0", 8);
    buffer_append(&b, counts, sizeof counts);
    put_string(&b, "tokenizer.ggml.model", model);
    put_string(&b, "tokenizer.ggml.pre", pre);
    put_list(&b, "tokenizer.ggml.tokens", 8, t->n);
    for (uint32_t i = 0; i < t->n; i++)
        put_text(&b, t->text[i]);
    put_list(&b, "tokenizer.ggml.token_type", 5, t->n);
    buffer_append(&b, t->kind, sizeof *t->kind * t->n);
    const uint32_t n = n_scores ? n_scores : t->n;
    put_list(&b, "tokenizer.ggml.scores", n_scores ? kind_of_scores : 6, n);
    buffer_append(&b, t->score, sizeof *t->score * n);
    put_merges(&b, json_object_get(json_object_get(t->json, "model"), "merges"));
    FILE *f = fopen(path, "w");
    assert_true(f && !b.failed && fwrite(b.data, 1, b.n, f) == b.n && fclose(f) == 0);
    buffer_free(&b);
}

static struct quire_text *open_text(const char *model)
{
    struct quire_text *text = NULL;
    struct quire_error err = {.text = "no message"};
    if (quire_text_open(model, &text, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    return text;
}

static size_t encode(struct quire_text *text, const char *input, uint32_t **ids)
{
    struct quire_error err;
    size_t n;
    assert_int_equal(quire_text_encode(text, input, strlen(input), false, ids, &n, &err), QUIRE_OK);
    return n;
}

/* ---- the tests -------------------------------------------------------------------------------------- */

static void check_bytes(const char *dir, const char *pre)
{
    static struct tokens t;
    read_tokens(dir, &t);
    write_gguf(&t, "gpt2", pre);
    struct quire_text *theirs = open_text(dir), *ours = open_text(path);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        uint32_t *want, *got;
        const size_t n = encode(theirs, texts[i], &want);
        if (encode(ours, texts[i], &got) != n || memcmp(got, want, n * sizeof *got) != 0)
            fail_msg("%s: other ids of '%s'", pre, texts[i]);
        free(want);
        free(got);
    }
    quire_text_close(theirs);
    quire_text_close(ours);
    json_decref(t.json);
}

static void byte_level(void **state)
{
    (void)state;
    check_bytes(DATA "bytelevel", "gpt-2");
    check_bytes(DEMO, "qwen2");
}

/* Where numbers are cut, with tokens that would join them: at every digit, at every third, nowhere. */
static void names_cut_differently(void **state)
{
    (void)state;
    static const struct {
        const char *pre;
        uint32_t n;
    } cuts[] = {{"qwen2", 4}, {"tekken", 4}, {"smollm", 4}, {"deepseek-r1-qwen", 4}, {"llama-bpe", 2}, {"llama3", 2},
                {"dbrx", 2},  {"gpt-2", 1},  {"olmo", 1}};
    static const char *const joined[] = {"12", "123", "1234"}, *const merges[] = {"1 2", "12 3", "123 4"};
    static struct tokens t;
    uint32_t *ids;
    read_tokens(DATA "bytelevel", &t);
    for (uint32_t i = 0; i < 3; i++) {
        t.text[t.n] = joined[i];
        t.kind[t.n++] = 1;
        json_array_append_new(json_object_get(json_object_get(t.json, "model"), "merges"), json_string(merges[i]));
    }
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        write_gguf(&t, "gpt2", cuts[i].pre);
        struct quire_text *text = open_text(path);
        if (encode(text, "1234", &ids) != cuts[i].n)
            fail_msg("%s cuts numbers elsewhere", cuts[i].pre);
        free(ids);
        quire_text_close(text);
    }
    json_decref(t.json);
}

static void unknown_names(void **state)
{
    (void)state;
    static struct tokens t;
    read_tokens(DATA "bytelevel", &t);
    write_gguf(&t, "gpt2", "no-such-cut");
    struct quire_text *text = NULL;
    struct quire_error err;
    assert_int_equal(quire_text_open(path, &text, &err), QUIRE_UNSUPPORTED);
    assert_non_null(strstr(err.text, "tokenizer.ggml.pre: 'no-such-cut' is not supported; supported: qwen2"));
    assert_null(strchr(err.text, '\n'));
    write_gguf(&t, "bert", "gpt-2");
    assert_int_equal(quire_text_open(path, &text, &err), QUIRE_UNSUPPORTED);
    assert_non_null(strstr(err.text, "tokenizer.ggml.model: 'bert' is not supported"));
    json_decref(t.json);
}

static uint32_t find(const struct tokens *t, const char *piece)
{
    for (uint32_t i = 0; i < t->n; i++)
        if ((t->kind[i] == 1 || t->kind[i] == 6) && strcmp(t->text[i], piece) == 0)
            return i;
    return UINT32_MAX;
}

/* Merges the best pair of neighbours that form a token, the leftmost of equal ones; the rest becomes byte tokens. */
static size_t sentencepiece(const struct tokens *t, const char *input, uint32_t *ids)
{
    char pieces[64][48] = {"▁"}, joined[96];
    size_t n = 1, n_ids = 0;
    for (const char *c = input; *c; n++) {
        size_t k = strcspn(c, " ") == 0 ? 0 : 1;
        while (k && ((unsigned char)c[k] & 0xc0) == 0x80)
            k++;
        snprintf(pieces[n], sizeof pieces[n], "%.*s", k ? (int)k : 3, k ? c : "▁");
        c += k ? k : 1;
    }
    for (;;) {
        size_t best = n;
        float score = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            snprintf(joined, sizeof joined, "%s%s", pieces[i], pieces[i + 1]);
            const uint32_t id = find(t, joined);
            if (id != UINT32_MAX && (best == n || t->score[id] > score)) {
                best = i;
                score = t->score[id];
            }
        }
        if (best == n)
            break;
        snprintf(joined, sizeof joined, "%s%s", pieces[best], pieces[best + 1]);
        strcpy(pieces[best], joined);
        memmove(pieces[best + 1], pieces[best + 2], (n - best - 2) * sizeof pieces[0]);
        n--;
    }
    for (size_t i = 0; i < n; i++) {
        const uint32_t id = find(t, pieces[i]);
        if (id != UINT32_MAX) {
            ids[n_ids++] = id;
            continue;
        }
        for (const char *c = pieces[i]; *c; c++) {
            snprintf(joined, sizeof joined, "<0x%02X>", (unsigned char)*c);
            ids[n_ids++] = find(t, joined);
        }
    }
    return n_ids;
}

static void scores(void **state)
{
    (void)state;
    static struct tokens t;
    uint32_t want[256], *got;
    read_tokens(DATA "fallback", &t);
    write_gguf(&t, "llama", "default");
    struct quire_text *text = open_text(path);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (strstr(texts[i], "<s>") || strstr(texts[i], "<0x"))
            continue; /* tokens of the file, cut out before all else */
        const size_t n = sentencepiece(&t, texts[i], want);
        const size_t n_got = encode(text, texts[i], &got);
        if (n_got != n || memcmp(got, want, n * sizeof *got) != 0)
            fail_msg("other ids of '%s': %zu, and %zu by the rule", texts[i], n_got, n);
        free(got);
    }
    quire_text_close(text);
    json_decref(t.json);
}

/* Text of the references for a GGUF file as llama.cpp's converter writes it, made of the same SentencePiece model. */
static void check_goldens(const char *name, const json_t *golden)
{
    char file[256];
    json_t *one;
    size_t i, n;
    struct quire_error err;
    snprintf(file, sizeof file, DATA "sentencepiece/%s.gguf", name);
    struct quire_text *text = open_text(file);
    json_array_foreach(json_object_get(golden, "encode"), i, one)
    {
        const char *input = json_string_value(json_object_get(one, "text"));
        const json_t *want = json_object_get(one, "ids");
        uint32_t *got;
        if (json_is_true(json_object_get(one, "special")))
            continue;
        n = encode(text, input, &got);
        bool same = n == json_array_size(want);
        for (size_t k = 0; same && k < n; k++)
            same = got[k] == json_integer_value(json_array_get(want, k));
        if (!same)
            fail_msg("%s: other ids of '%s'", name, input);
        free(got);
    }
    json_array_foreach(json_object_get(golden, "decode"), i, one)
    {
        const json_t *list = json_object_get(one, "ids");
        uint32_t ids[256];
        char *got;
        if (json_is_true(json_object_get(one, "skip")) || json_array_size(list) > 256)
            continue;
        for (size_t k = 0; k < json_array_size(list); k++)
            ids[k] = (uint32_t)json_integer_value(json_array_get(list, k));
        assert_int_equal(quire_text_decode(text, ids, json_array_size(list), false, &got, &n, &err), QUIRE_OK);
        assert_string_equal(got, json_string_value(json_object_get(one, "text")));
        free(got);
    }
    quire_text_close(text);
}

static void references(void **state)
{
    (void)state;
    json_t *goldens = json_load_file(DATA "sentencepiece/goldens.json", JSON_ALLOW_NUL, NULL);
    assert_non_null(goldens);
    check_goldens("llama", json_object_get(goldens, "llama"));
    check_goldens("gemma", json_object_get(goldens, "gemma"));
    json_decref(goldens);
}

/* Scores that nothing reads: of another number and of another kind. */
static void unused_scores(void **state)
{
    (void)state;
    static struct tokens t;
    read_tokens(DATA "bytelevel", &t);
    for (uint32_t kind = 5; kind <= 6; kind++) { /* i32, f32 */
        n_scores = kind == 5 ? t.n : 3;
        kind_of_scores = kind;
        write_gguf(&t, "gpt2", "gpt-2");
        quire_text_close(open_text(path));
    }
    struct quire_text *text = NULL;
    struct quire_error err;
    write_gguf(&t, "llama", "default");
    assert_int_equal(quire_text_open(path, &text, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "tokenizer.ggml.scores: has 3 entries for "));
    n_scores = 0;
    json_decref(t.json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(byte_level),    cmocka_unit_test(names_cut_differently),
        cmocka_unit_test(unknown_names), cmocka_unit_test(scores),
        cmocka_unit_test(references),    cmocka_unit_test(unused_scores),
    };
    int fd = mkstemp(path);
    if (fd < 0)
        return 1;
    close(fd);
    const int failed = cmocka_run_group_tests_name("text_gguf", tests, NULL, NULL);
    unlink(path);
    return failed;
}
