#include "server/front/body/alias.h"

#include "server/front/body/json_field.h"
#include "server/front/body/request_job.h"

#include <stdlib.h>
#include <string.h>

#define MAX_MEMBERS 64 /* of an object */

struct member {
    struct quire_value key, value;
};

/* Pieces on their way to the digest, which takes many at once. Allocates nothing: this runs on the loop, where
 * malloc() may wait for a thread that was preempted inside it. */
struct pieces {
    struct quire_sha256_state *s;
    size_t n;
    char bytes[1024];
};

static void put(struct pieces *o, const char *text, size_t n)
{
    if (n > sizeof o->bytes - o->n) {
        quire_sha256_add(o->s, o->bytes, o->n);
        o->n = 0;
    }
    if (n > sizeof o->bytes) {
        quire_sha256_add(o->s, text, n);
        return;
    }
    memcpy(o->bytes + o->n, text, n);
    o->n += n;
}

static int by_key(const void *a, const void *b)
{
    const struct quire_value x = ((const struct member *)a)->key, y = ((const struct member *)b)->key;
    const int order = memcmp(x.text, y.text, x.n < y.n ? x.n : y.n);
    return order != 0 ? order : (x.n > y.n) - (x.n < y.n);
}

/* Sorts the members of an object. Returns false if there are too many, or a key has an escape, which has several
 * spellings. */
static bool sort_members(struct quire_value object, struct member members[MAX_MEMBERS], size_t *n)
{
    struct member m;
    *n = 0;
    while (quire_value_next(&object, &m.key, &m.value)) {
        if (*n == MAX_MEMBERS || memchr(m.key.text, '\\', m.key.n))
            return false;
        members[(*n)++] = m;
    }
    qsort(members, *n, sizeof *members, by_key);
    return true;
}

static bool put_value(struct pieces *o, struct quire_value value);

static bool put_member(struct pieces *o, const struct member *m)
{
    put(o, m->key.text, m->key.n);
    put(o, ":", 1);
    const bool ok = put_value(o, m->value);
    put(o, ",", 1);
    return ok;
}

static bool put_object(struct pieces *o, struct quire_value object)
{
    struct member members[MAX_MEMBERS];
    size_t n;
    bool ok = sort_members(object, members, &n);
    put(o, "{", 1);
    for (size_t i = 0; i < n && ok; i++)
        ok = put_member(o, &members[i]);
    put(o, "}", 1);
    return ok;
}

/* Strings and numbers are hashed as written: another spelling gives another digest. */
static bool put_value(struct pieces *o, struct quire_value value)
{
    struct quire_value item;
    bool ok = true;
    switch (quire_value_kind(value)) {
    case QUIRE_OBJECT: return put_object(o, value);
    case QUIRE_ARRAY:
        put(o, "[", 1);
        while (ok && quire_value_next(&value, NULL, &item)) {
            ok = put_value(o, item);
            put(o, ",", 1);
        }
        put(o, "]", 1);
        return ok;
    default: put(o, value.text, value.n); return true;
    }
}

static bool is_key(const struct member *m, const char *name)
{
    return quire_value_is(m->key, name);
}

/* Returns whether a member concerns this request alone, or may be refused for another tenant. */
static bool is_its_own(const struct member *m)
{
    static const char *const names[] = {
        "cache",    "priority",    "quire_deadline_ms",      "quire_trace", "prediction", "request_id",
        "metadata", "speculative", "num_speculative_tokens", "background"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is_key(m, names[i]))
            return true;
    return is_key(m, "use_cache") && m->value.text[0] != 't';
}

static bool put_body(struct pieces *o, struct quire_value body)
{
    struct member members[MAX_MEMBERS];
    size_t n;
    bool ok = sort_members(body, members, &n);
    for (size_t i = 0; i < n && ok; i++) {
        /* null counts as absent, and "user" changes nothing. */
        if (json_is(members[i].value, QUIRE_NULL) || is_key(&members[i], "user"))
            continue;
        ok = !is_its_own(&members[i]) && put_member(o, &members[i]);
    }
    return ok;
}

bool alias_add_body(struct quire_sha256_state *s, const char *text, size_t n)
{
    struct pieces o = {.s = s, .n = 0};
    struct api_error e;
    struct quire_doc *body = NULL;
    bool ok = text && n <= ALIAS_MAX_BODY && request_body_parse(text, n, &body, &e) &&
              put_body(&o, quire_doc_root(body));
    if (ok)
        quire_sha256_add(s, o.bytes, o.n);
    quire_doc_close(body);
    return ok;
}
