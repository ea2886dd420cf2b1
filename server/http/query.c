#include "server/http/query.h"

#include "base/encoding/utf8.h"

static int digit(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char lower = c >= 'A' && c <= 'F' ? (char)(c - 'A' + 'a') : c;
    const char *at = lower ? strchr(digits, lower) : NULL;
    return at ? (int)(at - digits) : -1;
}

static bool decode(const char *text, size_t n, struct buffer *out)
{
    for (size_t i = 0; i < n; i++) {
        char c = text[i] == '+' ? ' ' : text[i];
        if (c == '%') {
            const int high = i + 2 < n ? digit(text[i + 1]) : -1, low = high >= 0 ? digit(text[i + 2]) : -1;
            if (low < 0 || high * 16 + low == 0)
                return false;
            c = (char)(high * 16 + low);
            i += 2;
        }
        buffer_append(out, &c, 1);
    }
    return true;
}

static bool is_utf8(const char *text, size_t n_bytes)
{
    for (size_t i = 0, n; i < n_bytes; i += n)
        if ((n = utf8_character((const uint8_t *)text + i, n_bytes - i)) == 0)
            return false;
    return true;
}

enum query_result query_value(const char *query, const char *name, struct buffer *out)
{
    const size_t n_name = strlen(name), from = out->n;
    for (const char *field = query; *field; field += *field == '&') {
        const size_t n = strcspn(field, "&");
        const bool is_it = n >= n_name && memcmp(field, name, n_name) == 0 && (n == n_name || field[n_name] == '=');
        if (is_it && n > n_name && !decode(field + n_name + 1, n - n_name - 1, out))
            return QUERY_INVALID;
        if (is_it)
            return out->failed || is_utf8(out->data + from, out->n - from) ? QUERY_FOUND : QUERY_INVALID;
        field += n;
    }
    return QUERY_ABSENT;
}

bool query_has_only(const char *query, const char *const *names, size_t n)
{
    for (const char *field = query; *field; field += *field == '&') {
        const size_t n_field = strcspn(field, "&"), n_name = strcspn(field, "=&");
        bool is_known = n_field == 0;
        for (size_t i = 0; i < n; i++)
            is_known |= strlen(names[i]) == n_name && memcmp(names[i], field, n_name) == 0;
        if (!is_known)
            return false;
        field += n_field;
    }
    return true;
}
