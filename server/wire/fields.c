#include "server/wire/fields.h"

#include "base/encoding/utf8.h"
#include "base/hash.h"
#include "server/wire/frame.h"

#include <string.h>

/* ---- encoding ---- */

static uint8_t *put_field(struct buffer *b, const struct wire_field *rule, size_t n)
{
    return n > WIRE_MAX_BODY ? NULL : tagged_put(b, rule->tag, rule->flags & FIELD_MUST, (uint32_t)n);
}

static size_t scalar_bytes(const struct wire_field *rule)
{
    switch ((enum wire_field_kind)rule->kind) {
    case FIELD_BOOL: return sizeof(bool);
    case FIELD_32: return 4;
    case FIELD_64: return 8;
    case FIELD_KEY: return sizeof(struct key256);
    case FIELD_TEXT:
    case FIELD_BYTES:
    case FIELD_WORDS: break;
    }
    return 0;
}

static int put_scalar(struct buffer *b, const struct wire_body *body, const struct wire_field *rule, const char *values)
{
    const char *from = values + rule->at;
    const char *usual = (const char *)body->defaults + rule->at;
    bool present;
    if (rule->count_at != FIELD_NONE)
        memcpy(&present, values + rule->count_at, sizeof present);
    else
        present = rule->flags & FIELD_REQUIRED || memcmp(from, usual, scalar_bytes(rule)) != 0;
    if (!present)
        return QUIRE_OK;
    uint8_t *p = put_field(b, rule, rule->kind == FIELD_BOOL ? 1 : scalar_bytes(rule));
    if (!p)
        return QUIRE_NO_MEMORY;
    uint32_t v32;
    uint64_t v64;
    bool flag;
    switch ((enum wire_field_kind)rule->kind) {
    case FIELD_BOOL:
        memcpy(&flag, from, sizeof flag);
        p[0] = flag;
        break;
    case FIELD_32:
        memcpy(&v32, from, sizeof v32);
        le_store_u32(p, v32);
        break;
    case FIELD_64:
        memcpy(&v64, from, sizeof v64);
        le_store_u64(p, v64);
        break;
    default: memcpy(p, from, sizeof(struct key256)); break;
    }
    return QUIRE_OK;
}

/* Texts and bytes have a length of type size_t, words a count of type u32. */
static size_t span_count(const struct wire_field *rule, const char *values)
{
    uint32_t n_words;
    size_t n_bytes;
    if (rule->kind == FIELD_WORDS) {
        memcpy(&n_words, values + rule->count_at, sizeof n_words);
        return n_words;
    }
    memcpy(&n_bytes, values + rule->count_at, sizeof n_bytes);
    return n_bytes;
}

static int put_span(struct buffer *b, const struct wire_field *rule, const char *values)
{
    size_t n = span_count(rule, values);
    const uint8_t *from;
    bool host = rule->kind == FIELD_WORDS && rule->host_at != FIELD_NONE;
    memcpy(&from, values + (host ? rule->host_at : rule->at), sizeof from);
    if (rule->kind == FIELD_TEXT)
        n = n ? wire_utf8_prefix((const char *)from, n, rule->max) : 0;
    if (n == 0 && !(rule->flags & FIELD_REQUIRED))
        return QUIRE_OK;
    if (n > rule->max || (rule->kind == FIELD_BYTES && n != rule->max))
        return QUIRE_INVALID;
    size_t n_bytes = rule->kind == FIELD_WORDS ? n * rule->width * 4 : n;
    uint8_t *p = put_field(b, rule, n_bytes);
    if (!p)
        return n_bytes > WIRE_MAX_BODY ? QUIRE_INVALID : QUIRE_NO_MEMORY;
    if (host) {
        for (size_t i = 0; i < n_bytes; i += 4) {
            uint32_t word;
            memcpy(&word, from + i, sizeof word);
            le_store_u32(p + i, word);
        }
    } else if (n_bytes) {
        memcpy(p, from, n_bytes);
    }
    return QUIRE_OK;
}

int wire_put_body(struct buffer *b, uint16_t type, uint64_t request, const struct wire_body *body, const void *values)
{
    size_t mark;
    int status = wire_frame_begin(b, type, request, &mark);
    if (status)
        return status;
    for (size_t i = 0; i < body->n_rules && !status; i++) {
        const struct wire_field *rule = &body->rules[i];
        status = rule->kind >= FIELD_TEXT ? put_span(b, rule, values) : put_scalar(b, body, rule, values);
    }
    if (!status)
        return wire_frame_end(b, mark);
    b->n = mark;
    return status;
}

/* ---- decoding ---- */

static int get_scalar(const char *frame, const struct wire_field *rule, const uint8_t *value, uint32_t n, char *out,
                      struct quire_error *err)
{
    uint32_t need = rule->kind == FIELD_BOOL ? 1 : (uint32_t)scalar_bytes(rule);
    if (n != need)
        return quire_fail(err, QUIRE_INVALID, "%s: %s: must be %u bytes, got %u", frame, rule->name, need, n);
    char *to = out + rule->at;
    uint32_t v32;
    uint64_t v64;
    bool flag;
    switch ((enum wire_field_kind)rule->kind) {
    case FIELD_BOOL:
        if (value[0] > 1)
            return quire_fail(err, QUIRE_INVALID, "%s: %s: must be 0 or 1, got %u", frame, rule->name, value[0]);
        flag = value[0];
        memcpy(to, &flag, sizeof flag);
        break;
    case FIELD_32:
        v32 = le_load_u32(value);
        if (rule->max && v32 > rule->max)
            return quire_fail(err, QUIRE_INVALID, "%s: %s: must be at most %u, got %u", frame, rule->name, rule->max,
                              v32);
        memcpy(to, &v32, sizeof v32);
        break;
    case FIELD_64:
        v64 = le_load_u64(value);
        memcpy(to, &v64, sizeof v64);
        break;
    default: memcpy(to, value, sizeof(struct key256)); break;
    }
    if (rule->count_at != FIELD_NONE) {
        flag = true;
        memcpy(out + rule->count_at, &flag, sizeof flag);
    }
    return QUIRE_OK;
}

static int get_span(const char *frame, const struct wire_field *rule, const uint8_t *value, uint32_t n, char *out,
                    struct quire_error *err)
{
    uint32_t unit = rule->kind == FIELD_WORDS ? 4u * rule->width : 1;
    if (n % unit != 0)
        return quire_fail(err, QUIRE_INVALID, "%s: %s: must be a multiple of %u bytes, got %u", frame, rule->name, unit,
                          n);
    if (n / unit > rule->max)
        return quire_fail(err, QUIRE_INVALID, "%s: %s: at most %u, got %u", frame, rule->name, rule->max, n / unit);
    if (rule->kind == FIELD_BYTES && n != rule->max)
        return quire_fail(err, QUIRE_INVALID, "%s: %s: must be %u bytes, got %u", frame, rule->name, rule->max, n);
    if (rule->kind == FIELD_TEXT && wire_utf8_prefix((const char *)value, n, n) != n)
        return quire_fail(err, QUIRE_INVALID, "%s: %s: is not UTF-8", frame, rule->name);
    memcpy(out + rule->at, &value, sizeof value);
    uint32_t n_words = n / unit;
    size_t n_bytes = n;
    if (rule->kind == FIELD_WORDS)
        memcpy(out + rule->count_at, &n_words, sizeof n_words);
    else
        memcpy(out + rule->count_at, &n_bytes, sizeof n_bytes);
    return QUIRE_OK;
}

/* Fields usually come in the table's order, so the search begins where the last one ended. */
static size_t find_rule(const struct wire_body *body, uint16_t tag, size_t from)
{
    for (size_t i = 0; i < body->n_rules; i++) {
        size_t at = (from + i) % body->n_rules;
        if (body->rules[at].tag == tag)
            return at;
    }
    return body->n_rules;
}

int wire_get_body(const struct wire_body *body, const uint8_t *bytes, size_t n, void *out, struct quire_error *err)
{
    uint64_t seen = 0;
    size_t cursor = 0, next = 0, n_fields = 0;
    struct tagged t;
    int found;
    memcpy(out, body->defaults, body->n_struct);
    while ((found = tagged_next(body->name, bytes, n, &cursor, &t, err)) > 0) {
        if (++n_fields > WIRE_MAX_FIELDS)
            return quire_fail(err, QUIRE_INVALID, "%s: more than %u fields", body->name, WIRE_MAX_FIELDS);
        size_t at = find_rule(body, t.tag, next);
        if (at == body->n_rules) {
            if (t.must)
                return quire_fail(err, QUIRE_UNSUPPORTED, "%s: field %u is unknown", body->name, t.tag);
            continue;
        }
        const struct wire_field *rule = &body->rules[at];
        if (seen >> at & 1)
            return quire_fail(err, QUIRE_INVALID, "%s: %s: occurs twice", body->name, rule->name);
        seen |= UINT64_C(1) << at;
        next = at + 1;
        int status = rule->kind >= FIELD_TEXT ? get_span(body->name, rule, t.value, t.n, out, err)
                                              : get_scalar(body->name, rule, t.value, t.n, out, err);
        if (status)
            return status;
    }
    if (found < 0)
        return -found;
    for (size_t i = 0; i < body->n_rules; i++) {
        if (body->rules[i].flags & FIELD_REQUIRED && !(seen >> i & 1))
            return quire_fail(err, QUIRE_INVALID, "%s: %s: is missing", body->name, body->rules[i].name);
    }
    return QUIRE_OK;
}

size_t wire_utf8_prefix(const char *text, size_t n, size_t max)
{
    size_t end = n < max ? n : max, at = 0;
    while (at < end) {
        size_t length = utf8_character((const uint8_t *)text + at, end - at);
        if (length == 0)
            break;
        at += length;
    }
    return at;
}

int wire_frame_begin(struct buffer *b, uint16_t type, uint64_t request, size_t *mark)
{
    uint8_t *p = buffer_reserve(b, WIRE_HEADER_BYTES);
    if (!p)
        return QUIRE_NO_MEMORY;
    *mark = b->n;
    le_store_u32(p, 0);
    le_store_u16(p + 4, type);
    le_store_u16(p + 6, 0);
    le_store_u64(p + 8, request);
    b->n += WIRE_HEADER_BYTES;
    return QUIRE_OK;
}

int wire_frame_end(struct buffer *b, size_t mark)
{
    if (b->failed)
        return QUIRE_NO_MEMORY;
    size_t n = b->n - mark - WIRE_HEADER_BYTES;
    if (n > WIRE_MAX_BODY) {
        b->n = mark;
        return QUIRE_INVALID;
    }
    le_store_u32(b->data + mark, (uint32_t)n);
    return QUIRE_OK;
}
