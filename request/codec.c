#include "request/codec.h"

#include "base/little_endian.h"
#include "base/tagged.h"
#include "request/fields.h"

#include <stdlib.h>
#include <string.h>

#define MAX_FIELDS 256u /* in one spec, unknown ones included */

/* ---- words ----------------------------------------------------------------------------------- */

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define copy_words memcpy
#else
/* Its own inverse. */
static void copy_words(void *to, const void *from, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i += 4) {
        uint32_t word = le_load_u32((const uint8_t *)from + i);
        memcpy((char *)to + i, &word, sizeof word);
    }
}
#endif

/* What one value or item has in a field. */
static uint32_t unit(const struct request_field *f)
{
    return f->kind == REQUEST_BOOL ? 1 : (uint32_t)request_field_bytes(f);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put_scalar(const struct request_field *f, const char *from, uint8_t *out)
{
    uint64_t u64;
    bool flag;
    switch ((enum request_kind)f->kind) {
    case REQUEST_BOOL:
        memcpy(&flag, from, sizeof flag);
        *out = flag;
        return;
    case REQUEST_U64:
        memcpy(&u64, from, sizeof u64);
        le_store_u64(out, u64);
        return;
    case REQUEST_KEY: memcpy(out, from, sizeof(struct key256)); return;
    default: copy_words(out, from, 4);
    }
}

static int put_field(struct buffer *b, const struct request_field *f, const struct request_spec *spec)
{
    bool must = f->flags & REQUEST_MUST;
    struct request_list list = {.n = 1};
    if (request_field_is_list(f)) {
        list = request_field_list(f, spec);
        if (list.n > f->range.most)
            return QUIRE_INVALID;
    }
    uint32_t n_bytes = list.n * unit(f);
    uint8_t *out = tagged_put(b, f->tag, must, n_bytes);
    if (!out)
        return QUIRE_NO_MEMORY;
    if (!request_field_is_list(f))
        put_scalar(f, (const char *)spec + f->at, out);
    else if (n_bytes > 0)
        copy_words(out, list.items, n_bytes);
    return QUIRE_OK;
}

int request_spec_put(struct buffer *b, const struct request_spec *spec, enum request_for what_for)
{
    int status = QUIRE_OK;
    for (size_t i = 0; i < request_n_fields && status == QUIRE_OK; i++) {
        const struct request_field *f = &request_fields[i];
        bool wanted = what_for == REQUEST_FOR_FRAME || !(f->flags & REQUEST_PRIVATE);
        if (wanted && !request_field_is_default(f, spec))
            status = put_field(b, f, spec);
    }
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int get_scalar(const char *what, const struct request_field *f, const struct tagged *t, struct request_spec *out,
                      struct quire_error *err)
{
    char *to = (char *)out + f->at;
    uint64_t u64;
    bool flag = true;
    if (t->n != unit(f))
        return quire_fail(err, QUIRE_INVALID, "%s: %s: must be %u bytes, got %u", what, f->member, unit(f), t->n);
    if (f->has_at)
        memcpy((char *)out + f->has_at, &flag, sizeof flag);
    switch ((enum request_kind)f->kind) {
    case REQUEST_BOOL:
        if (t->value[0] > 1)
            return quire_fail(err, QUIRE_INVALID, "%s: %s: must be 0 or 1, got %u", what, f->member, t->value[0]);
        flag = t->value[0];
        memcpy(to, &flag, sizeof flag);
        break;
    case REQUEST_U64:
        u64 = le_load_u64(t->value);
        memcpy(to, &u64, sizeof u64);
        break;
    case REQUEST_KEY: memcpy(to, t->value, sizeof(struct key256)); break;
    default: copy_words(to, t->value, 4);
    }
    return QUIRE_OK;
}

static int get_list(const char *what, const struct request_field *f, const struct tagged *t, struct request_spec *out,
                    struct quire_error *err)
{
    uint32_t n = t->n / unit(f);
    if (t->n % unit(f) != 0)
        return quire_fail(err, QUIRE_INVALID, "%s: %s: must be a multiple of %u bytes, got %u", what, f->member,
                          unit(f), t->n);
    if (n > f->range.most)
        return quire_fail(err, QUIRE_INVALID, "%s: %s: at most %lld, got %u", what, f->member, (long long)f->range.most,
                          n);
    if (n == 0)
        return QUIRE_OK;
    void *items = malloc(t->n);
    if (!items)
        return quire_fail(err, QUIRE_NO_MEMORY, "%s: out of memory", what);
    copy_words(items, t->value, t->n);
    request_field_set_list(f, out, (struct request_list){items, n});
    return QUIRE_OK;
}

/* Fields usually come in the table's order, so the search begins where the last one ended. */
static size_t find(uint16_t tag, size_t from)
{
    for (size_t i = 0; i < request_n_fields; i++) {
        size_t at = (from + i) % request_n_fields;
        if (request_fields[at].tag == tag)
            return at;
    }
    return request_n_fields;
}

static int get_fields(const char *what, const uint8_t *bytes, size_t n, struct request_spec *out,
                      struct quire_error *err)
{
    uint64_t seen = 0;
    size_t cursor = 0, next = 0, n_fields = 0;
    struct tagged t;
    int found, status = QUIRE_OK;
    while (status == QUIRE_OK && (found = tagged_next(what, bytes, n, &cursor, &t, err)) != 0) {
        if (found < 0)
            return -found;
        if (++n_fields > MAX_FIELDS)
            return quire_fail(err, QUIRE_INVALID, "%s: more than %u fields", what, MAX_FIELDS);
        size_t at = find(t.tag, next);
        if (at == request_n_fields && t.must)
            return quire_fail(err, QUIRE_UNSUPPORTED, "%s: field %u is not known here", what, t.tag);
        if (at == request_n_fields)
            continue;
        const struct request_field *f = &request_fields[at];
        if (seen >> at & 1)
            return quire_fail(err, QUIRE_INVALID, "%s: %s: is there twice", what, f->member);
        seen |= UINT64_C(1) << at;
        next = at + 1;
        status = request_field_is_list(f) ? get_list(what, f, &t, out, err) : get_scalar(what, f, &t, out, err);
    }
    for (size_t i = 0; i < request_n_fields && status == QUIRE_OK; i++)
        if (request_fields[i].flags & REQUEST_REQUIRED && !(seen >> i & 1))
            status = quire_fail(err, QUIRE_INVALID, "%s: %s: is missing", what, request_fields[i].member);
    return status;
}

int request_spec_get(const char *what, const uint8_t *bytes, size_t n, struct request_spec *out,
                     struct quire_error *err)
{
    *out = request_defaults;
    int status = get_fields(what, bytes, n, out, err);
    if (status != QUIRE_OK)
        request_spec_free(out);
    return status;
}
