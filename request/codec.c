#include "request/codec.h"

#include "base/encoding/tagged.h"

#include <stdlib.h>
#include <string.h>

#define MAX_FIELDS 256u /* in one spec, including unknown fields */

/* Words are stored in memory in the order of the wire, so lists are copied as a whole. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "frames and recordings are little-endian");

_Static_assert(sizeof(bool) == 1, "and so are flags");

/* Bytes of one value, or of one item of a list. */
static uint32_t unit(const struct request_field *f)
{
    return (uint32_t)request_field_bytes(f);
}

/* ---- writing --------------------------------------------------------------------------------- */

static int put_list(struct buffer *b, const struct request_field *f, const void *values, size_t *ids_at)
{
    struct request_list list = request_field_list(f, values);
    if (list.n > f->range.most)
        return QUIRE_INVALID;
    uint32_t n_bytes = list.n * unit(f);
    uint8_t *out = tagged_put(b, f->tag, f->flags & REQUEST_MUST, n_bytes);
    if (!out)
        return QUIRE_NO_MEMORY;
    if (ids_at) {
        b->n -= n_bytes;
        *ids_at = b->n;
    } else if (n_bytes > 0) {
        memcpy(out, list.items, n_bytes);
    }
    return QUIRE_OK;
}

static int put_scalar(struct buffer *b, const struct request_field *f, const void *values)
{
    uint8_t *out = tagged_put(b, f->tag, f->flags & REQUEST_MUST, unit(f));
    if (!out)
        return QUIRE_NO_MEMORY;
    memcpy(out, (const char *)values + f->at, unit(f));
    return QUIRE_OK;
}

int request_layout_put(struct buffer *b, const struct request_layout *layout, const void *values,
                       enum request_for what_for, size_t *prompt_at)
{
    int status = QUIRE_OK;
    for (size_t i = 0; i < layout->n_rows && status == QUIRE_OK; i++) {
        const struct request_field *f = &layout->rows[i];
        if (what_for == REQUEST_FOR_RECORDING && f->flags & REQUEST_PRIVATE)
            continue;
        if (f->flags & REQUEST_OLD || request_layout_is_default(layout, f, values))
            continue;
        bool apart = prompt_at && strcmp(f->member, "prompt") == 0;
        status = request_field_is_list(f) ? put_list(b, f, values, apart ? prompt_at : NULL) : put_scalar(b, f, values);
    }
    return status;
}

int request_spec_put(struct buffer *b, const struct request_spec *spec, enum request_for what_for, size_t *prompt_at)
{
    return request_layout_put(b, &request_spec_layout, spec, what_for, prompt_at);
}

/* ---- reading --------------------------------------------------------------------------------- */

static int get_scalar(const char *what, const struct request_field *f, const struct tagged *t, void *out,
                      struct quire_error *err)
{
    const bool is_there = true;
    if (t->n != unit(f))
        return quire_fail(err, QUIRE_INVALID, "%s: %s: must be %u bytes, got %u", what, f->member, unit(f), t->n);
    if (f->kind == REQUEST_BOOL && t->value[0] > 1)
        return quire_fail(err, QUIRE_INVALID, "%s: %s: must be 0 or 1, got %u", what, f->member, t->value[0]);
    if (f->has_at)
        memcpy((char *)out + f->has_at, &is_there, sizeof is_there);
    memcpy((char *)out + f->at, t->value, unit(f));
    return QUIRE_OK;
}

static int get_list(const char *what, const struct request_field *f, const struct tagged *t, void *out,
                    struct quire_error *err)
{
    uint32_t n = t->n / unit(f);
    if (t->n % unit(f) != 0)
        return quire_fail(err, QUIRE_INVALID, "%s: %s: must be a multiple of %u bytes, got %u", what, f->member,
                          unit(f), t->n);
    if (n > f->range.most)
        return quire_fail(err, QUIRE_INVALID, "%s: %s: at most %llu, got %u", what, f->member,
                          (unsigned long long)f->range.most, n);
    if (n == 0)
        return QUIRE_OK;
    void *items = malloc(t->n);
    if (!items)
        return quire_fail(err, QUIRE_NO_MEMORY, "%s: out of memory", what);
    memcpy(items, t->value, t->n);
    request_field_set_list(f, out, (struct request_list){items, n});
    return QUIRE_OK;
}

/* Fields usually come in the table's order, so the search begins where the last one ended. */
static size_t find(const struct request_layout *layout, uint16_t tag, size_t from)
{
    for (size_t i = 0; i < layout->n_rows; i++) {
        size_t at = from + i < layout->n_rows ? from + i : from + i - layout->n_rows;
        if (layout->rows[at].tag == tag)
            return at;
    }
    return layout->n_rows;
}

static int get_fields(const char *what, const struct request_layout *layout, const uint8_t *bytes, size_t n, void *out,
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
        size_t at = find(layout, t.tag, next);
        if (at == layout->n_rows && t.must)
            return quire_fail(err, QUIRE_UNSUPPORTED, "%s: field %u is unknown", what, t.tag);
        if (at == layout->n_rows)
            continue;
        const struct request_field *f = &layout->rows[at];
        if (seen >> at & 1)
            return quire_fail(err, QUIRE_INVALID, "%s: %s: occurs twice", what, f->member);
        seen |= UINT64_C(1) << at;
        next = at + 1;
        status = request_field_is_list(f) ? get_list(what, f, &t, out, err) : get_scalar(what, f, &t, out, err);
    }
    for (size_t i = 0; i < layout->n_rows && status == QUIRE_OK; i++)
        if (layout->rows[i].flags & REQUEST_REQUIRED && !(seen >> i & 1))
            status = quire_fail(err, QUIRE_INVALID, "%s: %s: is missing", what, layout->rows[i].member);
    return status;
}

int request_layout_get(const char *what, const struct request_layout *layout, const uint8_t *bytes, size_t n, void *out,
                       struct quire_error *err)
{
    request_layout_default(layout, out);
    int status = get_fields(what, layout, bytes, n, out, err);
    if (status != QUIRE_OK)
        request_layout_free(layout, out);
    return status;
}

int request_spec_get(const char *what, const uint8_t *bytes, size_t n, struct request_spec *out,
                     struct quire_error *err)
{
    *out = request_defaults;
    int status = get_fields(what, &request_spec_layout, bytes, n, out, err);
    if (status != QUIRE_OK)
        request_spec_free(out);
    return status;
}
