#include "base/encoding/json.h"
#include "files/gguf.h"
#include "files/gguf_made.h"
#include "files/model_files.h"
#include "tools/quantize/gguf/gguf_source.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE_BYTES ((size_t)256 << 20)
#define WHERE "tokenizer.json"

/* GGUF's kinds of tokens. */
enum { KIND_NORMAL = 1, KIND_CONTROL = 3, KIND_USER = 4, KIND_UNUSED = 5 };

struct vocabulary {
    uint32_t n;
    const char **text; /* [n], NULL: no such token */
    uint8_t *kind; /* [n] */
};

/* Returns QUIRE_NOT_FOUND with *out NULL if the file does not exist. */
static int read_json(const char *model, const char *name, json_t **out, struct quire_error *err)
{
    struct buffer text = {0};
    *out = NULL;
    int status = model_file_read(model, name, MAX_FILE_BYTES, &text, err);
    if (status == QUIRE_OK)
        status = quire_json_parse_python(text.data, text.n, name, out, err);
    buffer_free(&text);
    return status;
}

static int put_token(struct vocabulary *v, json_int_t id, const char *text, uint8_t kind, struct quire_error *err)
{
    if (id < 0 || id >= (json_int_t)v->n || !text)
        return quire_fail(err, QUIRE_INVALID, WHERE ": a token has the id %lld, but the embedding has %u rows",
                          (long long)id, v->n);
    v->text[id] = text;
    v->kind[id] = kind;
    return QUIRE_OK;
}

static int fill(const json_t *tokenizer, struct vocabulary *v, struct quire_error *err)
{
    const json_t *model = json_object_get(tokenizer, "model");
    json_t *vocab = json_object_get(model, "vocab"), *added = json_object_get(tokenizer, "added_tokens"), *one;
    const char *text;
    size_t i;
    int status = QUIRE_OK;
    json_object_foreach(vocab, text, one)
    {
        if (status == QUIRE_OK)
            status = put_token(v, json_is_integer(one) ? json_integer_value(one) : -1, text, KIND_NORMAL, err);
    }
    json_array_foreach(added, i, one)
    {
        if (status == QUIRE_OK)
            status = put_token(v, json_integer_value(json_object_get(one, "id")),
                               json_string_value(json_object_get(one, "content")),
                               json_is_true(json_object_get(one, "special")) ? KIND_CONTROL : KIND_USER, err);
    }
    return status;
}

static void put_tokens(const struct vocabulary *v, struct gguf_pairs *pairs)
{
    char hole[32];
    gguf_pairs_array(pairs, "tokenizer.ggml.tokens", GGUF_STRING, v->n);
    for (uint32_t i = 0; i < v->n; i++) {
        snprintf(hole, sizeof hole, "[PAD%u]", i);
        gguf_pairs_add_text(pairs, v->text[i] ? v->text[i] : hole, strlen(v->text[i] ? v->text[i] : hole));
    }
    gguf_pairs_array(pairs, "tokenizer.ggml.token_type", GGUF_I32, v->n);
    for (uint32_t i = 0; i < v->n; i++)
        gguf_pairs_add_i32(pairs, v->text[i] ? v->kind[i] : KIND_UNUSED);
}

/* Merges are "a b", or ["a", "b"]. */
static int put_merges(const json_t *merges, struct gguf_pairs *pairs, struct quire_error *err)
{
    json_t *one;
    size_t i;
    gguf_pairs_array(pairs, "tokenizer.ggml.merges", GGUF_STRING, json_array_size(merges));
    json_array_foreach(merges, i, one)
    {
        char *joined = NULL;
        const char *text = json_string_value(one), *left = json_string_value(json_array_get(one, 0)),
                   *right = json_string_value(json_array_get(one, 1));
        if (!text && left && right && asprintf(&joined, "%s %s", left, right) >= 0)
            text = joined;
        if (text)
            gguf_pairs_add_text(pairs, text, strlen(text));
        free(joined);
        if (!text)
            return quire_fail(err, QUIRE_INVALID, WHERE ": model: merges: entry %zu is no pair", i);
    }
    return QUIRE_OK;
}

static int find_pre(const json_t *tokenizer, const char **out, struct quire_error *err)
{
    const json_t *model = json_object_get(tokenizer, "model"), *normalizer = json_object_get(tokenizer, "normalizer");
    const char *type = json_string_value(json_object_get(model, "type")),
               *normal = json_string_value(json_object_get(normalizer, "type"));
    const bool nfc = normal && strcmp(normal, "NFC") == 0, has_other = normalizer && !json_is_null(normalizer) && !nfc;
    *out = NULL;
    if (type && strcmp(type, "BPE") == 0 && !has_other)
        *out = gguf_pre_name(json_object_get(tokenizer, "pre_tokenizer"), nfc,
                             json_is_true(json_object_get(model, "ignore_merges")));
    return *out ? QUIRE_OK
                : quire_fail(err, QUIRE_UNSUPPORTED,
                             WHERE ": this tokenizer has no name in GGUF that Quire knows: convert the model with "
                                   "llama.cpp's convert_hf_to_gguf.py, then quantize the GGUF file");
}

static int put_template(const char *model, struct gguf_pairs *pairs, struct quire_error *err)
{
    json_t *about;
    struct buffer text = {0};
    int status = model_file_read(model, "chat_template.jinja", MAX_FILE_BYTES, &text, err);
    if (status == QUIRE_OK)
        gguf_pairs_text(pairs, "tokenizer.chat_template", text.data, text.n);
    buffer_free(&text);
    if (status != QUIRE_NOT_FOUND)
        return status;
    status = read_json(model, "tokenizer_config.json", &about, err);
    const char *template = json_string_value(json_object_get(about, "chat_template"));
    if (template)
        gguf_pairs_text(pairs, "tokenizer.chat_template", template, strlen(template));
    json_decref(about);
    return status == QUIRE_NOT_FOUND ? QUIRE_OK : status;
}

int gguf_source_vocabulary(const char *model, uint32_t vocab_size, struct gguf_pairs *pairs, struct quire_error *err)
{
    json_t *tokenizer;
    const char *pre = NULL;
    struct vocabulary v = {.n = vocab_size, .text = calloc(vocab_size, sizeof *v.text), .kind = calloc(vocab_size, 1)};
    int status = v.text && v.kind ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    tokenizer = NULL;
    if (status == QUIRE_OK)
        status = read_json(model, WHERE, &tokenizer, err);
    if (status == QUIRE_OK)
        status = find_pre(tokenizer, &pre, err);
    if (status == QUIRE_OK)
        status = fill(tokenizer, &v, err);
    if (status == QUIRE_OK) {
        gguf_pairs_text(pairs, "tokenizer.ggml.model", "gpt2", 4);
        gguf_pairs_text(pairs, "tokenizer.ggml.pre", pre, strlen(pre));
        put_tokens(&v, pairs);
        status = put_merges(json_object_get(json_object_get(tokenizer, "model"), "merges"), pairs, err);
    }
    if (status == QUIRE_OK)
        status = put_template(model, pairs, err);
    json_decref(tokenizer);
    free(v.text);
    free(v.kind);
    return status;
}
