#include "files/gguf_made.h"

#include "base/encoding/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* tokenizer.json and tokenizer_config.json, as the models' own are: text/ has one reader of tokenizers. Written piece by piece,
 * since a tree of 150,000 tokens would cost ten times their bytes. */

#define TOKENS "tokenizer.ggml.tokens"
#define MAX_TOKENS (1u << 22)
#define MAX_MERGES \
    (1u << 23) /* made of scores: Llama 2's 32,000 tokens have 61,249; a hostile file could have 127 a token */
#define MAX_PIECE_BYTES 128u /* longest token that a SentencePiece merge may make */

enum token_kind { TOKEN_NORMAL = 1, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER, TOKEN_UNUSED, TOKEN_BYTE };

struct tokens {
    const struct gguf *g;
    struct quire_error *err;
    struct gguf_text *text; /* [n] */
    uint32_t n;
    const uint8_t *kinds; /* i32 each, or NULL: all normal */
    const uint8_t *scores; /* f32 each, or NULL: of SentencePiece, since files of the other kind may have any here */
};

/* ---- how text is cut before merging, by tokenizer.ggml.pre ------------------------------------------ */

#define BYTES_PLAIN "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}"
#define BYTES_GPT2 "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}"
#define SPLIT(regex) \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex \
    "\"},\"behavior\":\"Isolated\",\"invert\":false}," BYTES_PLAIN "]}"
#define DIGITS_GPT2 \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":true}," BYTES_GPT2 "]}"
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define REST "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define QWEN2 SPLIT(CONTRACTIONS "|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}" REST)
#define LLAMA3 SPLIT(CONTRACTIONS "|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}" REST)
#define UPPER "[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]"
#define LOWER "[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]"
#define TEKKEN \
    SPLIT("[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?" UPPER "*" LOWER "+|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?" UPPER "+" LOWER \
          "*|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+")

struct pre {
    const char *name, *json;
    bool nfc, ignore_merges, adds_bos; /* adds_bos: the default if add_bos_token is absent */
};
static const struct pre pres[] = {
    {"qwen2", QWEN2, true, false, false},         {"deepseek-r1-qwen", QWEN2, false, false, true},
    {"llama-bpe", LLAMA3, false, true, true},     {"llama3", LLAMA3, false, true, true},
    {"llama-v3", LLAMA3, false, true, true},      {"dbrx", LLAMA3, false, false, false},
    {"smaug-bpe", LLAMA3, false, false, false},   {"tekken", TEKKEN, false, true, true},
    {"smollm", DIGITS_GPT2, false, false, false}, {"gpt-2", BYTES_GPT2, false, false, false},
    {"olmo", BYTES_GPT2, false, false, false},
};

static bool text_is(struct gguf_text text, const char *what)
{
    return text.n == strlen(what) && memcmp(text.data, what, text.n) == 0;
}

static void shown(struct gguf_text text, char out[48])
{
    size_t n = 0;
    for (; n < text.n && n < 47; n++)
        out[n] = text.data[n] >= 0x20 && text.data[n] < 0x7f ? text.data[n] : '?';
    out[n] = 0;
}

/* Removes what does not change how text is cut. */
static void simplify(json_t *pre)
{
    json_t *one, *list = json_object_get(pre, "pretokenizers");
    size_t i;
    json_object_del(pre, "trim_offsets");
    json_array_foreach(list, i, one) json_object_del(one, "trim_offsets");
}

const char *gguf_pre_name(const json_t *pre_tokenizer, bool nfc, bool ignore_merges)
{
    const char *name = NULL;
    json_t *wanted = json_deep_copy(pre_tokenizer);
    simplify(wanted);
    for (size_t i = 0; !name && i < sizeof pres / sizeof *pres; i++) {
        json_t *one = json_loads(pres[i].json, 0, NULL);
        simplify(one);
        if (one && pres[i].nfc == nfc && pres[i].ignore_merges == ignore_merges && json_equal(one, wanted))
            name = pres[i].name;
        json_decref(one);
    }
    json_decref(wanted);
    return name;
}

static int find_pre(const struct tokens *t, const struct pre **out)
{
    struct gguf_text name = {"", 0};
    char supported[256] = "", got[48];
    size_t at = 0;
    int status = gguf_string(t->g, "tokenizer.ggml.pre", &name, t->err);
    if (status != QUIRE_OK)
        return status;
    for (size_t i = 0; i < sizeof pres / sizeof *pres; i++) {
        if (text_is(name, pres[i].name)) {
            *out = &pres[i];
            return QUIRE_OK;
        }
        at += (size_t)snprintf(supported + at, sizeof supported - at, "%s%s", i ? ", " : "", pres[i].name);
    }
    shown(name, got);
    /* "default", or nothing: the file was made by a program that did not know, and any guess gives a model other tokens. */
    return quire_fail(
        t->err, QUIRE_UNSUPPORTED,
        "%s: tokenizer.ggml.pre: '%s' is not supported; supported: %s (a newer conversion of the model may "
        "say which)",
        gguf_name(t->g), got, supported);
}

/* ---- reading the lists ------------------------------------------------------------------------------ */

static bool is_utf8(struct gguf_text text)
{
    for (size_t i = 0, n; i < text.n; i += n)
        if (!(n = utf8_character((const uint8_t *)text.data + i, text.n - i)))
            return false;
    return true;
}

static int beside(const struct tokens *t, const char *key, enum gguf_kind kind, const uint8_t **out)
{
    struct gguf_value v = {.n = 0};
    int status = gguf_array(t->g, key, kind, &v, t->err);
    if (status != QUIRE_OK || !v.data)
        return status;
    if (v.n != t->n)
        return quire_fail(t->err, QUIRE_INVALID, "%s: %s: has %llu entries for %u tokens", gguf_name(t->g), key,
                          (unsigned long long)v.n, t->n);
    *out = v.data;
    return QUIRE_OK;
}

static int tokens_read(const struct gguf *g, struct tokens *t, struct quire_error *err)
{
    struct gguf_value v = {.n = 0};
    *t = (struct tokens){.g = g, .err = err};
    int status = gguf_array(g, TOKENS, GGUF_STRING, &v, err);
    if (status != QUIRE_OK)
        return status;
    if (v.n == 0 || v.n > MAX_TOKENS)
        return quire_fail(err, v.n ? QUIRE_INVALID : QUIRE_NOT_FOUND, "%s: " TOKENS ": has %llu tokens", gguf_name(g),
                          (unsigned long long)v.n);
    if (!(t->text = calloc(v.n, sizeof *t->text)))
        return quire_fail(err, QUIRE_NO_MEMORY, "%s: out of memory", gguf_name(g));
    const uint8_t *at = v.data;
    for (; t->n < v.n; t->n++) {
        t->text[t->n] = gguf_next_string(&at);
        if (!is_utf8(t->text[t->n]))
            return quire_fail(err, QUIRE_INVALID, "%s: " TOKENS "[%u]: is not UTF-8", gguf_name(g), t->n);
    }
    return beside(t, "tokenizer.ggml.token_type", GGUF_I32, &t->kinds);
}

static uint32_t kind_of(const struct tokens *t, uint32_t id)
{
    return t->kinds ? t->kinds[4 * (size_t)id] : TOKEN_NORMAL;
}

/* A part of text that is cut before all else. */
static bool is_added(const struct tokens *t, uint32_t id)
{
    return kind_of(t, id) == TOKEN_CONTROL || kind_of(t, id) == TOKEN_USER || kind_of(t, id) == TOKEN_UNKNOWN;
}

int gguf_token(const struct gguf *g, uint64_t id, struct gguf_text *out, struct quire_error *err)
{
    struct gguf_value v = {.n = 0};
    int status = gguf_array(g, TOKENS, GGUF_STRING, &v, err);
    if (status != QUIRE_OK)
        return status;
    const uint8_t *at = v.data;
    for (uint64_t i = 0; i < v.n; i++) {
        *out = gguf_next_string(&at);
        if (i == id && is_utf8(*out))
            return QUIRE_OK;
    }
    return quire_fail(err, QUIRE_INVALID, "%s: " TOKENS "[%llu]: is not a token", gguf_name(g), (unsigned long long)id);
}

/* ---- writing ---------------------------------------------------------------------------------------- */

static void put(struct buffer *b, const char *text)
{
    buffer_append(b, text, strlen(text));
}

static void put_number(struct buffer *b, uint64_t n)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)n);
    put(b, text);
}

/* As a JSON string; the bytes are UTF-8. */
static void put_string(struct buffer *b, const char *data, size_t n)
{
    put(b, "\"");
    for (size_t i = 0, run = 0; i <= n; i++) {
        unsigned char c = i < n ? (unsigned char)data[i] : '"';
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        buffer_append(b, data + run, i - run);
        run = i + 1;
        if (i < n) {
            char escaped[8];
            snprintf(escaped, sizeof escaped, "\\u%04x", c);
            put(b, escaped);
        }
    }
    put(b, "\"");
}

static void put_added(const struct tokens *t, struct buffer *b)
{
    bool first = true;
    put(b, "\"added_tokens\":[");
    for (uint32_t i = 0; i < t->n; i++) {
        if (!is_added(t, i) || t->text[i].n == 0)
            continue;
        put(b, first ? "{\"id\":" : ",{\"id\":");
        put_number(b, i);
        put(b, ",\"content\":");
        put_string(b, t->text[i].data, t->text[i].n);
        put(b, ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":");
        put(b, kind_of(t, i) == TOKEN_USER ? "false}" : "true}");
        first = false;
    }
    put(b, "],");
}

/* With the added ones, whose ids are looked up here. */
static void put_vocabulary(const struct tokens *t, struct buffer *b)
{
    bool first = true;
    put(b, "\"vocab\":{");
    for (uint32_t i = 0; i < t->n; i++) {
        if (kind_of(t, i) == TOKEN_UNUSED)
            continue;
        if (!first)
            put(b, ",");
        put_string(b, t->text[i].data, t->text[i].n);
        put(b, ":");
        put_number(b, i);
        first = false;
    }
    put(b, "},");
}

static int put_merges(const struct tokens *t, struct buffer *b)
{
    struct gguf_value v = {.n = 0};
    int status = gguf_array(t->g, "tokenizer.ggml.merges", GGUF_STRING, &v, t->err);
    const uint8_t *at = v.data;
    if (status == QUIRE_OK && !at)
        status = quire_fail(t->err, QUIRE_INVALID, "%s: tokenizer.ggml.merges: is missing", gguf_name(t->g));
    put(b, "\"merges\":[");
    for (uint64_t i = 0; status == QUIRE_OK && i < v.n; i++) {
        struct gguf_text merge = gguf_next_string(&at);
        if (!is_utf8(merge))
            return quire_fail(t->err, QUIRE_INVALID, "%s: tokenizer.ggml.merges[%llu]: is not UTF-8", gguf_name(t->g),
                              (unsigned long long)i);
        if (i)
            put(b, ",");
        put_string(b, merge.data, merge.n);
    }
    put(b, "]");
    return status;
}

/* ---- SentencePiece: merges from scores --------------------------------------------------------------- */

/* Tokens that text becomes by merging, in the order of their bytes, of equal ones the lower id first: a hash would let a file
 * choose tokens that collide. */
struct index {
    uint32_t *id;
    uint32_t n;
};

static int compare(const char *a, size_t n_a, const char *b, size_t n_b)
{
    const size_t n = n_a < n_b ? n_a : n_b;
    const int order = n ? memcmp(a, b, n) : 0;
    return order ? order : (n_a > n_b) - (n_a < n_b);
}

static int by_text(const void *a, const void *b, void *context)
{
    const struct tokens *t = context;
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    const int order = compare(t->text[x].data, t->text[x].n, t->text[y].data, t->text[y].n);
    return order ? order : (x > y) - (x < y);
}

/* Returns the lowest id, or UINT32_MAX if the token does not exist. */
static uint32_t find(const struct tokens *t, const struct index *index, const char *data, size_t n)
{
    uint32_t low = 0, high = index->n;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const struct gguf_text text = t->text[index->id[middle]];
        if (compare(text.data, text.n, data, n) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == index->n)
        return UINT32_MAX;
    const struct gguf_text text = t->text[index->id[low]];
    return compare(text.data, text.n, data, n) == 0 ? index->id[low] : UINT32_MAX;
}

static bool index_make(struct tokens *t, struct index *index)
{
    index->n = 0;
    if (!(index->id = calloc(t->n, sizeof *index->id)))
        return false;
    for (uint32_t i = 0; i < t->n; i++)
        if (kind_of(t, i) == TOKEN_USER || (!is_added(t, i) && kind_of(t, i) != TOKEN_UNUSED))
            index->id[index->n++] = i;
    qsort_r(index->id, index->n, sizeof *index->id, by_text, t);
    return true;
}

struct merge {
    float score;
    uint32_t id, left, right; /* tokens; id is made of both */
};

/* As transformers' converter has them: the better the score the earlier; of one piece the longer left part. */
static int by_score(const void *a, const void *b)
{
    const struct merge *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return x->left < y->left ? -1 : x->left > y->left;
}

/* Every way to make a token of two others. false: out of memory, or more than MAX_MERGES. */
static bool find_merges(const struct tokens *t, const struct index *index, struct buffer *merges)
{
    for (uint32_t i = 0; i < t->n && merges->n <= MAX_MERGES * sizeof(struct merge); i++) {
        const struct gguf_text text = t->text[i];
        /* Of the user's, too: Gemma's runs of spaces are such, and a text has them only after normalization. */
        if ((kind_of(t, i) != TOKEN_NORMAL && kind_of(t, i) != TOKEN_USER) || text.n > MAX_PIECE_BYTES)
            continue;
        for (size_t cut = 1; cut < text.n; cut++) {
            if (((unsigned char)text.data[cut] & 0xc0) == 0x80)
                continue; /* inside a character */
            struct merge m = {.id = i,
                              .left = find(t, index, text.data, cut),
                              .right = find(t, index, text.data + cut, text.n - cut)};
            memcpy(&m.score, t->scores + 4 * (size_t)i, sizeof m.score);
            if (m.left != UINT32_MAX && m.right != UINT32_MAX && m.score == m.score)
                buffer_append(merges, &m, sizeof m);
        }
    }
    return !merges->failed && merges->n <= MAX_MERGES * sizeof(struct merge);
}

static int put_merges_by_score(struct tokens *t, struct buffer *b)
{
    struct index index;
    struct buffer merges = {0};
    const int read = beside(t, "tokenizer.ggml.scores", GGUF_F32, &t->scores);
    if (read != QUIRE_OK)
        return read;
    if (!t->scores)
        return quire_fail(t->err, QUIRE_INVALID, "%s: tokenizer.ggml.scores: is missing", gguf_name(t->g));
    if (!index_make(t, &index))
        return quire_fail(t->err, QUIRE_NO_MEMORY, "%s: out of memory", gguf_name(t->g));
    bool ok = find_merges(t, &index, &merges);
    const size_t n = ok ? merges.n / sizeof(struct merge) : 0;
    struct merge *list = (struct merge *)(void *)merges.data;
    if (n)
        qsort(list, n, sizeof *list, by_score);
    put(b, "\"merges\":[");
    for (size_t i = 0; i < n; i++) {
        put(b, i ? ",[" : "[");
        put_string(b, t->text[list[i].left].data, t->text[list[i].left].n);
        put(b, ",");
        put_string(b, t->text[list[i].right].data, t->text[list[i].right].n);
        put(b, "]");
    }
    put(b, "]");
    const bool too_many = merges.n > MAX_MERGES * sizeof(struct merge);
    free(index.id);
    buffer_free(&merges);
    if (too_many)
        return quire_fail(t->err, QUIRE_INVALID, "%s: " TOKENS ": can be merged from each other in more than %u ways",
                          gguf_name(t->g), MAX_MERGES);
    return ok ? QUIRE_OK : quire_fail(t->err, QUIRE_NO_MEMORY, "%s: out of memory", gguf_name(t->g));
}

/* ---- tokens before and after a text --------------------------------------------------------------------- */

/* *out is UINT32_MAX where the file has no such token. */
static int token_id(const struct tokens *t, const char *key, uint32_t *out)
{
    int64_t id = -1;
    int status = gguf_i64(t->g, key, &id, t->err);
    *out = UINT32_MAX;
    if (status != QUIRE_OK || id < 0 || id >= UINT32_MAX) /* as −1 of any width some files write none */
        return status;
    if (id >= t->n)
        return quire_fail(t->err, QUIRE_INVALID, "%s: %s: %lld is not below the number of tokens, %u", gguf_name(t->g),
                          key, (long long)id, t->n);
    *out = (uint32_t)id;
    return QUIRE_OK;
}

static void put_special(const struct tokens *t, uint32_t id, struct buffer *b)
{
    put(b, "{\"SpecialToken\":{\"id\":");
    put_string(b, t->text[id].data, t->text[id].n);
    put(b, ",\"type_id\":0}}");
}

/* Adds tokens at the beginning and the end, according to add_bos_token and add_eos_token. */
static int put_template(const struct tokens *t, bool adds_bos, struct buffer *b)
{
    bool adds_eos = false;
    uint32_t ids[2];
    int status = gguf_bool(t->g, "tokenizer.ggml.add_bos_token", &adds_bos, t->err);
    if (status == QUIRE_OK)
        status = gguf_bool(t->g, "tokenizer.ggml.add_eos_token", &adds_eos, t->err);
    if (status == QUIRE_OK)
        status = token_id(t, "tokenizer.ggml.bos_token_id", &ids[0]);
    if (status == QUIRE_OK)
        status = token_id(t, "tokenizer.ggml.eos_token_id", &ids[1]);
    const bool adds[2] = {adds_bos && ids[0] != UINT32_MAX, adds_eos && ids[1] != UINT32_MAX};
    if (status != QUIRE_OK || (!adds[0] && !adds[1])) {
        put(b, "\"post_processor\":null,");
        return status;
    }
    put(b, "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[");
    if (adds[0]) {
        put_special(t, ids[0], b);
        put(b, ",");
    }
    put(b, "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}");
    if (adds[1]) {
        put(b, ",");
        put_special(t, ids[1], b);
    }
    put(b, "],\"pair\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}],"
           "\"special_tokens\":{");
    for (int i = 0, n = 0; i < 2; i++) {
        if (!adds[i] || (i == 1 && adds[0] && ids[0] == ids[1]))
            continue;
        const struct gguf_text text = t->text[ids[i]];
        put(b, n++ ? "," : "");
        put_string(b, text.data, text.n);
        put(b, ":{\"id\":");
        put_string(b, text.data, text.n);
        put(b, ",\"ids\":[");
        put_number(b, ids[i]);
        put(b, "],\"tokens\":[");
        put_string(b, text.data, text.n);
        put(b, "]}");
    }
    put(b, "}},");
    return QUIRE_OK;
}

/* ---- the two kinds ----------------------------------------------------------------------------------- */

static int put_bytes(const struct tokens *t, struct buffer *b)
{
    const struct pre *pre = NULL;
    int status = find_pre(t, &pre);
    if (status != QUIRE_OK)
        return status;
    put(b,
        pre->nfc ? "\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":" : "\"normalizer\":null,\"pre_tokenizer\":");
    put(b, pre->json);
    put(b, ",");
    if ((status = put_template(t, pre->adds_bos, b)) != QUIRE_OK)
        return status;
    put(b, "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},"
           "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,"
           "\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":");
    put(b, pre->ignore_merges ? "true," : "false,");
    put_vocabulary(t, b);
    return put_merges(t, b);
}

static int put_sentencepiece(struct tokens *t, struct buffer *b)
{
    bool prefix = true;
    uint32_t unknown;
    int status = gguf_bool(t->g, "tokenizer.ggml.add_space_prefix", &prefix, t->err);
    if (status == QUIRE_OK)
        status = token_id(t, "tokenizer.ggml.unknown_token_id", &unknown);
    if (status != QUIRE_OK)
        return status;
    put(b, "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
    put(b, prefix ? "{\"type\":\"Prepend\",\"prepend\":\"\u2581\"}," : "");
    put(b, "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\u2581\"}]},\"pre_tokenizer\":null,");
    if ((status = put_template(t, true, b)) != QUIRE_OK)
        return status;
    put(b, "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\u2581\"},"
           "\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}");
    put(b, prefix ? ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}" : "");
    put(b,
        "]},\"model\":{\"type\":\"BPE\",\"dropout\":null,\"continuing_subword_prefix\":null,"
        "\"end_of_word_suffix\":null,\"fuse_unk\":true,\"byte_fallback\":true,\"ignore_merges\":false,\"unk_token\":");
    if (unknown == UINT32_MAX)
        put(b, "null");
    else
        put_string(b, t->text[unknown].data, t->text[unknown].n);
    put(b, ",");
    put_vocabulary(t, b);
    return put_merges_by_score(t, b);
}

int gguf_make_tokenizer(const struct gguf *g, struct buffer *b, struct quire_error *err)
{
    struct tokens t;
    struct gguf_text model = {"", 0};
    char got[48];
    int status = tokens_read(g, &t, err);
    if (status == QUIRE_OK)
        status = gguf_string(g, "tokenizer.ggml.model", &model, err);
    if (status == QUIRE_OK) {
        put(b, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,");
        put_added(&t, b);
        shown(model, got);
        if (text_is(model, "gpt2"))
            status = put_bytes(&t, b);
        else if (text_is(model, "llama"))
            status = put_sentencepiece(&t, b);
        else
            status = quire_fail(err, QUIRE_UNSUPPORTED,
                                "%s: tokenizer.ggml.model: '%s' is not supported; supported: gpt2, llama", gguf_name(g),
                                got);
        put(b, "}}");
    }
    free(t.text);
    return status;
}

int gguf_make_tokenizer_config(const struct gguf *g, struct buffer *b, struct quire_error *err)
{
    static const char *const keys[][2] = {{"bos_token", "tokenizer.ggml.bos_token_id"},
                                          {"eos_token", "tokenizer.ggml.eos_token_id"},
                                          {"unk_token", "tokenizer.ggml.unknown_token_id"},
                                          {"pad_token", "tokenizer.ggml.padding_token_id"}};
    struct gguf_text chat = {NULL, 0}, token;
    put(b, "{");
    for (size_t i = 0; i < 4; i++) {
        int64_t id = -1;
        int status = gguf_i64(g, keys[i][1], &id, err);
        if (status != QUIRE_OK)
            return status;
        if (id < 0 || id >= UINT32_MAX)
            continue;
        if ((status = gguf_token(g, (uint64_t)id, &token, err)) != QUIRE_OK)
            return status;
        put(b, "\"");
        put(b, keys[i][0]);
        put(b, "\":");
        put_string(b, token.data, token.n);
        put(b, ",");
    }
    int status = gguf_string(g, "tokenizer.chat_template", &chat, err);
    if (status == QUIRE_OK && chat.data && !is_utf8(chat))
        status = quire_fail(err, QUIRE_INVALID, "%s: tokenizer.chat_template: is not UTF-8", gguf_name(g));
    put(b, "\"chat_template\":");
    if (status == QUIRE_OK && chat.data)
        put_string(b, chat.data, chat.n);
    else
        put(b, "null");
    put(b, "}");
    return status;
}
