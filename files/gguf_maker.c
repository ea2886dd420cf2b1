#include "files/gguf_maker.h"

#include <stdio.h>
#include <string.h>

void maker_set(struct gguf_maker *m, const char *name, json_t *value)
{
    if (m->status == QUIRE_OK && json_object_set_new(m->json, name, value) != 0)
        m->status = quire_fail(m->err, QUIRE_NO_MEMORY, "%s: out of memory", gguf_name(m->g));
    else if (m->status != QUIRE_OK)
        json_decref(value);
}

const char *maker_key(const struct gguf_maker *m, const char *key, char out[GGUF_KEY_BYTES])
{
    snprintf(out, GGUF_KEY_BYTES, "%s.%s", m->family->arch, key);
    return out;
}

void maker_fail(struct gguf_maker *m, enum quire_status status, const char *key, const char *says)
{
    if (m->status == QUIRE_OK)
        m->status = quire_fail(m->err, status, "%s: %s.%s: %s", gguf_name(m->g), m->family->arch, key, says);
}

bool maker_has(const struct gguf_maker *m, const char *key)
{
    char full[GGUF_KEY_BYTES];
    struct gguf_value ignored;
    return gguf_find(m->g, maker_key(m, key, full), &ignored);
}

uint64_t maker_integer(struct gguf_maker *m, const char *key, bool must)
{
    char full[GGUF_KEY_BYTES];
    uint64_t value = 0;
    if (m->status != QUIRE_OK)
        return 0;
    m->status = gguf_u64(m->g, maker_key(m, key, full), &value, m->err);
    if (value > INT64_MAX)
        maker_fail(m, QUIRE_INVALID, key, "is too large");
    if (must && !maker_has(m, key))
        maker_fail(m, QUIRE_INVALID, key, "is missing");
    return value;
}

double maker_number(struct gguf_maker *m, const char *key, double otherwise)
{
    char full[GGUF_KEY_BYTES];
    double value = otherwise;
    if (m->status == QUIRE_OK)
        m->status = gguf_f64(m->g, maker_key(m, key, full), &value, m->err);
    return value;
}

struct gguf_text maker_text(struct gguf_maker *m, const char *key, const char *otherwise)
{
    char full[GGUF_KEY_BYTES];
    struct gguf_text text = {otherwise, strlen(otherwise)};
    if (m->status == QUIRE_OK)
        m->status = gguf_string(m->g, maker_key(m, key, full), &text, m->err);
    return text;
}

bool maker_text_is(struct gguf_text text, const char *what)
{
    return text.n == strlen(what) && memcmp(text.data, what, text.n) == 0;
}

bool maker_has_tensor(const struct gguf_maker *m, const char *name)
{
    return gguf_find_tensor(m->g, name) != NULL;
}

uint64_t maker_head_dim(struct gguf_maker *m)
{
    const uint64_t length = maker_integer(m, "attention.key_length", false);
    const uint64_t hidden = maker_integer(m, "embedding_length", true);
    const uint64_t heads = maker_integer(m, "attention.head_count", true);
    return length ? length : heads ? hidden / heads : 0;
}
