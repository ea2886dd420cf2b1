#include "server/front/output/json_out.h"

#include "base/encoding/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void json_out_raw(struct buffer *o, const char *text)
{
    buffer_append(o, text, strlen(text));
}

size_t utf8_count(const char *text, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        if (((uint8_t)text[i] & 0xc0) != 0x80)
            count++;
    return count;
}

/* Returns whether a byte needs no escape in a JSON string. */
static bool plain(uint8_t c)
{
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

static void put_escape(struct buffer *o, uint8_t c)
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
        buffer_append(o, shorter, 2);
    else
        buffer_append(o, text, sizeof text);
}

void json_out_string(struct buffer *o, const char *text, size_t n)
{
    const uint8_t *p = (const uint8_t *)text;
    buffer_append(o, "\"", 1);
    for (size_t i = 0; i < n;) {
        size_t run = i;
        while (run < n && plain(p[run]))
            run++;
        if (run > i) {
            buffer_append(o, p + i, run - i);
            i = run;
            continue;
        }
        if (p[i] < 0x80) {
            put_escape(o, p[i++]);
            continue;
        }
        size_t length = utf8_character(p + i, n - i);
        if (length > 0) {
            buffer_append(o, p + i, length);
            i += length;
        } else {
            buffer_append(o, "\xef\xbf\xbd", 3);
            i++;
        }
    }
    buffer_append(o, "\"", 1);
}

uint64_t json_out_string_bytes(const char *text, size_t n)
{
    uint64_t bytes = n + 2;
    for (size_t i = 0; i < n; i++) {
        uint8_t c = (uint8_t)text[i];
        if (c < 0x20 || c == 0x7f)
            bytes += 5;
        else if (c == '"' || c == '\\')
            bytes++;
    }
    return bytes;
}

void json_out_text(struct buffer *o, const char *text)
{
    json_out_string(o, text, strlen(text));
}

void json_out_text_or_null(struct buffer *o, const char *text)
{
    if (text)
        json_out_text(o, text);
    else
        json_out_raw(o, "null");
}

void json_out_u64(struct buffer *o, uint64_t value)
{
    char digits[20];
    size_t n = 0;
    do {
        digits[sizeof digits - ++n] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    buffer_append(o, digits + sizeof digits - n, n);
}

void json_out_i64(struct buffer *o, int64_t value)
{
    if (value < 0)
        buffer_append(o, "-", 1);
    json_out_u64(o, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

void json_out_logprob(struct buffer *o, float value)
{
    char text[32];
    if (!(value > -9999.0f)) {
        json_out_raw(o, "-9999.0");
        return;
    }
    /* A logprob is never positive, but a value that overflowed must still be a JSON number. */
    int n = snprintf(text, sizeof text, "%.9g", isfinite(value) ? (double)value : 0.0);
    buffer_append(o, text, (size_t)n);
    if (!memchr(text, '.', (size_t)n) && !memchr(text, 'e', (size_t)n))
        buffer_append(o, ".0", 2);
}

void json_out_byte_array(struct buffer *o, const uint8_t *bytes, size_t n)
{
    buffer_append(o, "[", 1);
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            buffer_append(o, ",", 1);
        json_out_u64(o, bytes[i]);
    }
    buffer_append(o, "]", 1);
}
