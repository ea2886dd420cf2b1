#include "server/gateway/batcher/joined.h"

#include "server/front/output/json_out.h"
#include "server/gateway/upstream_json.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 128 /* the relay has checked the body */

static const struct {
    const char *input, *list;
} names[] = {[JOINED_COMPLETIONS] = {"prompt", "choices"}, [JOINED_EMBEDDINGS] = {"input", "data"}};

/* ---- bodies --------------------------------------------------------------------------------- */

/* Absent, null, or 1. */
static bool is_one(struct quire_value v)
{
    bool is_negative;
    uint64_t n;
    return v.n == 0 || quire_value_kind(v) == QUIRE_NULL ||
           (quire_value_integer(v, &is_negative, &n) == QUIRE_INTEGER && !is_negative && n == 1);
}

bool joined_read(enum joined_kind kind, const char *text, size_t n, struct joined_body *out)
{
    struct quire_doc *doc;
    if (quire_doc_open(text, n, MAX_DEPTH, "body", &doc, NULL) != QUIRE_OK)
        return false;
    const struct quire_value input = quire_doc_field(doc, names[kind].input), stream = quire_doc_field(doc, "stream");
    const bool ok = quire_value_kind(input) == QUIRE_STRING && !(stream.n > 0 && stream.text[0] == 't') &&
                    is_one(quire_doc_field(doc, "n")) && is_one(quire_doc_field(doc, "best_of"));
    if (ok)
        *out = (struct joined_body){.text = text, .n = n, .at = (size_t)(input.text - text), .n_value = input.n};
    quire_doc_close(doc);
    return ok;
}

struct key256 joined_key(const struct joined_body *body, const char *where)
{
    const size_t end = body->at + body->n_value;
    struct quire_sha256_state s;
    quire_sha256_begin(&s);
    quire_sha256_add(&s, where, strlen(where) + 1);
    quire_sha256_add(&s, &body->at, sizeof body->at);
    quire_sha256_add(&s, body->text, body->at);
    quire_sha256_add(&s, body->text + end, body->n - end);
    return quire_sha256_now(&s);
}

void joined_write(const struct joined_body *bodies, size_t n, struct buffer *out)
{
    const size_t end = bodies->at + bodies->n_value;
    buffer_append(out, bodies->text, bodies->at);
    for (size_t i = 0; i < n; i++) {
        buffer_append(out, i > 0 ? "," : "[", 1);
        buffer_append(out, bodies[i].text + bodies[i].at, bodies[i].n_value);
    }
    buffer_append(out, "]", 1);
    buffer_append(out, bodies->text + end, bodies->n - end);
}

/* ---- the reply ------------------------------------------------------------------------------ */

struct split {
    enum joined_kind kind;
    const struct joined_body *bodies;
    size_t n;
    struct quire_value root, *items; /* [n] */
    uint64_t input, cached, output;  /* tokens of all */
    uint64_t inputs, outputs;        /* bytes of all */
};

static uint64_t count(struct quire_value object, const char *key)
{
    bool is_negative;
    uint64_t n;
    if (quire_value_integer(quire_value_member(object, key), &is_negative, &n) != QUIRE_INTEGER || is_negative)
        return 0;
    return n < UINT32_MAX ? n : UINT32_MAX;
}

/* Finds the item of each body by its index. */
static bool find_items(struct split *s)
{
    const struct quire_value list = quire_value_member(s->root, names[s->kind].list);
    struct quire_value rest = list, item;
    size_t n = 0;
    if (quire_value_kind(list) != QUIRE_ARRAY)
        return false;
    for (; quire_value_next(&rest, NULL, &item); n++) {
        bool is_negative;
        uint64_t index;
        if (quire_value_integer(quire_value_member(item, "index"), &is_negative, &index) != QUIRE_INTEGER ||
            is_negative || index >= s->n || s->items[index].n > 0)
            return false;
        s->items[index] = item;
    }
    return n == s->n;
}

/* The bytes of an answer that tokens are divided by; an empty answer has a share too. */
static uint64_t weight_of(const struct split *s, size_t i)
{
    return quire_value_member(s->items[i], "text").n + 1;
}

static void read_usage(struct split *s)
{
    const struct quire_value usage = quire_value_member(s->root, "usage");
    s->input = count(usage, "prompt_tokens");
    s->output = count(usage, "completion_tokens");
    s->cached = count(quire_value_member(usage, "prompt_tokens_details"), "cached_tokens");
    if (s->cached > s->input)
        s->cached = s->input;
    for (size_t i = 0; i < s->n; i++) {
        s->inputs += s->bodies[i].n_value;
        s->outputs += weight_of(s, i);
    }
}

/* floor(total × at ÷ all): the parts between such marks add up to the total. */
static uint64_t mark(uint64_t total, uint64_t at, uint64_t all)
{
    return all > 0 ? (uint64_t)((unsigned __int128)total * at / all) : 0;
}

static void put_item(struct buffer *o, struct quire_value item)
{
    struct quire_value rest = item, key, value;
    bool any = false;
    json_out_raw(o, "[");
    while (quire_value_next(&rest, &key, &value)) {
        json_out_raw(o, any ? "," : "{");
        any = true;
        buffer_append(o, key.text, key.n);
        json_out_raw(o, ":");
        if (quire_value_is(key, "index"))
            json_out_raw(o, "0");
        else
            buffer_append(o, value.text, value.n);
    }
    json_out_raw(o, "}]");
}

/* inputs, outputs: the bytes before this body's. */
static void put_usage(struct buffer *o, const struct split *s, size_t i, uint64_t inputs, uint64_t outputs)
{
    const uint64_t from = mark(s->input, inputs, s->inputs);
    const uint64_t to = mark(s->input, inputs + s->bodies[i].n_value, s->inputs);
    /* Between the marks of the input, so that it is never more than the input. */
    const uint64_t cached = mark(s->cached, to, s->input) - mark(s->cached, from, s->input);
    const uint64_t output = mark(s->output, outputs + weight_of(s, i), s->outputs) -
                            mark(s->output, outputs, s->outputs);
    json_out_raw(o, "{\"prompt_tokens\":");
    json_out_u64(o, to - from);
    if (s->kind == JOINED_COMPLETIONS) {
        json_out_raw(o, ",\"completion_tokens\":");
        json_out_u64(o, output);
    }
    json_out_raw(o, ",\"total_tokens\":");
    json_out_u64(o, to - from + output);
    json_out_raw(o, ",\"prompt_tokens_details\":{\"cached_tokens\":");
    json_out_u64(o, cached);
    json_out_raw(o, "}}");
}

static void put_reply(struct buffer *o, const struct split *s, size_t i, uint64_t inputs, uint64_t outputs)
{
    struct quire_value rest = s->root, key, value;
    bool any = false;
    while (quire_value_next(&rest, &key, &value)) {
        json_out_raw(o, any ? "," : "{");
        any = true;
        buffer_append(o, key.text, key.n);
        json_out_raw(o, ":");
        if (quire_value_is(key, names[s->kind].list))
            put_item(o, s->items[i]);
        else if (quire_value_is(key, "usage") && quire_value_kind(value) == QUIRE_OBJECT)
            put_usage(o, s, i, inputs, outputs);
        else
            buffer_append(o, value.text, value.n);
    }
    json_out_raw(o, "}");
}

bool joined_split(enum joined_kind kind, const char *reply, size_t n_reply, const struct joined_body *bodies, size_t n,
                  struct buffer *out)
{
    struct upstream_json j;
    struct split s = {.kind = kind, .bodies = bodies, .n = n};
    uint64_t inputs = 0, outputs = 0;
    if (upstream_json_open(reply, n_reply, "reply", &j, NULL) != QUIRE_OK)
        return false;
    s.root = quire_doc_root(j.doc);
    s.items = calloc(n, sizeof *s.items);
    const bool ok = s.items && find_items(&s);
    if (ok)
        read_usage(&s);
    for (size_t i = 0; ok && i < n; i++) {
        put_reply(&out[i], &s, i, inputs, outputs);
        inputs += bodies[i].n_value;
        outputs += weight_of(&s, i);
    }
    free(s.items);
    upstream_json_close(&j);
    return ok;
}
