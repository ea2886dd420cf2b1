#include "base/encoding/server_url.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static size_t without_slashes(const char *text, size_t n)
{
    while (n > 0 && text[n - 1] == '/')
        n--;
    return n;
}

int quire_server_url(const char *typed, char *out, size_t size, struct quire_error *err)
{
    const char *end = strstr(typed, "://"), *rest = end ? end + 3 : typed;
    const size_t n_scheme = end ? (size_t)(end - typed) : 0;
    const bool is_tls = n_scheme == 5 && strncasecmp(typed, "https", 5) == 0;
    if (end && !is_tls && (n_scheme != 4 || strncasecmp(typed, "http", 4) != 0))
        return quire_fail(err, QUIRE_INVALID, "\"%.200s\": must begin with http:// or https://", typed);
    if (strpbrk(rest, " \t\r\n?#"))
        return quire_fail(err, QUIRE_INVALID, "\"%.200s\": must not have spaces, a query (?) or a fragment (#)", typed);
    size_t n = without_slashes(rest, strlen(rest));
    if (n > 3 && memcmp(rest + n - 3, "/v1", 3) == 0)
        n = without_slashes(rest, n - 3);
    if (n == 0 || rest[0] == '/' || rest[0] == ':')
        return quire_fail(err, QUIRE_INVALID, "\"%.200s\": has no host, such as http://127.0.0.1:8000", typed);
    const int n_out = snprintf(out, size, "%s%.*s", is_tls ? "https://" : "http://", (int)n, rest);
    if (n_out < 0 || (size_t)n_out >= size)
        return quire_fail(err, QUIRE_INVALID, "\"%.80s...\": the URL has more than %zu bytes", typed, size - 1);
    return QUIRE_OK;
}
