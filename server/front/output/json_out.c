#include "server/front/output/json_out.h"

#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void json_out_free(struct json_out *o)
{
    free(o->data);
    *o = (struct json_out){0};
}

void json_out_clear(struct json_out *o)
{
    o->n = 0;
    o->failed = false;
}

static bool reserve(struct json_out *o, size_t more)
{
    if (o->failed)
        return false;
    if (more <= o->capacity - o->n)
        return true;
    size_t capacity = o->capacity ? o->capacity : 256;
    while (capacity - o->n < more) {
        if (capacity > SIZE_MAX / 2) {
            o->failed = true;
            return false;
        }
        capacity *= 2;
    }
    char *grown = realloc(o->data, capacity);
    if (!grown) {
        o->failed = true;
        return false;
    }
    o->data = grown;
    o->capacity = capacity;
    return true;
}

void json_out_bytes(struct json_out *o, const void *bytes, size_t n)
{
    if (n > 0 && reserve(o, n)) {
        memcpy(o->data + o->n, bytes, n);
        o->n += n;
    }
}

void json_out_raw(struct json_out *o, const char *text)
{
    json_out_bytes(o, text, strlen(text));
}

size_t utf8_count(const char *text, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        if (((uint8_t)text[i] & 0xc0) != 0x80)
            count++;
    return count;
}

/* Bytes that stand for themselves inside a JSON string. */
static bool plain(uint8_t c)
{
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

static void put_escape(struct json_out *o, uint8_t c)
{
    static const char hex[] = "0123456789abcdef";
    char text[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
    const char *shorter = NULL;
    switch (c) {
    case '"': shorter = "\\\""; break;
    case '\\': shorter = "\\\\"; break;
    case '\n': shorter = "\\n"; break;
    case '\r': shorter = "\\r"; break;
    case '\t': shorter = "\\t"; break;
    }
    if (shorter)
        json_out_bytes(o, shorter, 2);
    else
        json_out_bytes(o, text, sizeof text);
}

void json_out_string(struct json_out *o, const char *text, size_t n)
{
    const uint8_t *p = (const uint8_t *)text;
    json_out_bytes(o, "\"", 1);
    for (size_t i = 0; i < n;) {
        size_t run = i;
        while (run < n && plain(p[run]))
            run++;
        if (run > i) {
            json_out_bytes(o, p + i, run - i);
            i = run;
            continue;
        }
        if (p[i] < 0x80) {
            put_escape(o, p[i++]);
            continue;
        }
        size_t length = utf8_character(p + i, n - i);
        if (length > 0) {
            json_out_bytes(o, p + i, length);
            i += length;
        } else {
            json_out_bytes(o, "\xef\xbf\xbd", 3);
            i++;
        }
    }
    json_out_bytes(o, "\"", 1);
}

void json_out_text(struct json_out *o, const char *text)
{
    json_out_string(o, text, strlen(text));
}

void json_out_text_or_null(struct json_out *o, const char *text)
{
    if (text)
        json_out_text(o, text);
    else
        json_out_raw(o, "null");
}

void json_out_u64(struct json_out *o, uint64_t value)
{
    char digits[20];
    size_t n = 0;
    do {
        digits[sizeof digits - ++n] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    json_out_bytes(o, digits + sizeof digits - n, n);
}

void json_out_i64(struct json_out *o, int64_t value)
{
    if (value < 0)
        json_out_bytes(o, "-", 1);
    json_out_u64(o, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

void json_out_logprob(struct json_out *o, float value)
{
    char text[32];
    if (!(value > -9999.0f)) {
        json_out_raw(o, "-9999.0");
        return;
    }
    /* A logprob is never positive; whatever overflowed upwards must still be a JSON number. */
    int n = snprintf(text, sizeof text, "%.9g", isfinite(value) ? (double)value : 0.0);
    json_out_bytes(o, text, (size_t)n);
    if (!memchr(text, '.', (size_t)n) && !memchr(text, 'e', (size_t)n))
        json_out_bytes(o, ".0", 2);
}

void json_out_byte_array(struct json_out *o, const uint8_t *bytes, size_t n)
{
    json_out_bytes(o, "[", 1);
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            json_out_bytes(o, ",", 1);
        json_out_u64(o, bytes[i]);
    }
    json_out_bytes(o, "]", 1);
}
