#include "server/cache/redis/url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DB 999999u

static int refuse(const char *what, struct quire_error *err)
{
    return quire_fail(err, QUIRE_INVALID, "must be redis[s]://[user:password@]host[:port][/db]: %s", what);
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* %41 becomes A. Returns false if the text is too long, or contains an invalid escape or a NUL. */
static bool decode(const char *from, size_t n, char *out, size_t n_slots)
{
    size_t n_out = 0;
    for (size_t i = 0; i < n; i++) {
        char c = from[i];
        if (c == '%') {
            const int high = i + 2 < n ? hex_digit(from[i + 1]) : -1, low = i + 2 < n ? hex_digit(from[i + 2]) : -1;
            if (high < 0 || low < 0)
                return false;
            c = (char)(high * 16 + low);
            i += 2;
        }
        if (c == '\0' || n_out + 1 >= n_slots)
            return false;
        out[n_out++] = c;
    }
    out[n_out] = '\0';
    return true;
}

static int parse_who(const char *from, size_t n, struct redis_url *out, struct quire_error *err)
{
    const char *colon = memchr(from, ':', n);
    if (!colon || colon == from + n - 1)
        return refuse("the part before the @ must be user:password or :password", err);
    const size_t n_user = (size_t)(colon - from);
    if (!decode(from, n_user, out->user, sizeof out->user) ||
        !decode(colon + 1, n - n_user - 1, out->password, sizeof out->password))
        return refuse("user or password is too long, or has a % without two hex digits", err);
    return QUIRE_OK;
}

static bool number(const char *text, size_t n, uint32_t min, uint32_t max, uint32_t *out)
{
    uint32_t value = 0;
    if (n == 0 || n > 7)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (uint32_t)(text[i] - '0');
    }
    *out = value;
    return value >= min && value <= max;
}

static bool plain(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] <= ' ' || (unsigned char)text[i] >= 127 || strchr("?#@\\\"<>", text[i]))
            return false;
    return true;
}

static int parse_where(const char *from, size_t n, struct redis_url *out, struct quire_error *err)
{
    const bool bracket = n > 0 && from[0] == '[';
    const char *end = bracket ? memchr(from, ']', n) : memchr(from, ':', n);
    const char *host = from + bracket;
    const size_t n_host = end ? (size_t)(end - host) : n - bracket, n_before = end ? (size_t)(end - from) + bracket : n;
    uint32_t port = 6379;
    if ((bracket && !end) || n_host == 0 || n_host >= sizeof out->host || !plain(host, n_host))
        return refuse("the host is missing or invalid (put an IPv6 address in [ ])", err);
    if (n_before < n && (from[n_before] != ':' || !number(from + n_before + 1, n - n_before - 1, 1, 65535, &port)))
        return refuse("the port is invalid (put an IPv6 address in [ ])", err);
    memcpy(out->host, host, n_host);
    out->host[n_host] = '\0';
    snprintf(out->port, sizeof out->port, "%u", (unsigned)(port & 0xffff));
    return QUIRE_OK;
}

int redis_url_parse(const char *text, struct redis_url *out, struct quire_error *err)
{
    memset(out, 0, sizeof *out);
    out->tls = strncmp(text, "rediss://", 9) == 0;
    if (!out->tls && strncmp(text, "redis://", 8) != 0)
        return refuse("it begins otherwise", err);
    const char *rest = text + (out->tls ? 9 : 8);
    const size_t n = strcspn(rest, "/");
    const char *at = memrchr(rest, '@', n);
    int status = at ? parse_who(rest, (size_t)(at - rest), out, err) : QUIRE_OK;
    if (status == QUIRE_OK) {
        const char *where = at ? at + 1 : rest;
        status = parse_where(where, n - (size_t)(where - rest), out, err);
    }
    if (status != QUIRE_OK)
        return status;
    if (strchr(rest + n, '@'))
        return refuse("write a / in user or password as %2F", err);
    if (rest[n] == '/' && rest[n + 1] && !number(rest + n + 1, strlen(rest + n + 1), 0, MAX_DB, &out->db))
        return refuse("the path after the host must be the number of a database", err);
    return QUIRE_OK;
}

void redis_url_text(const struct redis_url *url, char *out, size_t n)
{
    const bool v6 = strchr(url->host, ':') != NULL;
    snprintf(out, n, "%s://%s%s%s:%s/%u", url->tls ? "rediss" : "redis", v6 ? "[" : "", url->host, v6 ? "]" : "",
             url->port, url->db);
}
