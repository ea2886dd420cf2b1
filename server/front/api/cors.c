#include "server/front/api/cors.h"

#include "server/http/http.h"

#include <string.h>

#define HOST "abcdefghijklmnopqrstuvwxyz0123456789-._:[]"
#define NAMES "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_, "

int cors_check(const char *origin, struct quire_error *err)
{
    const char *host = strstr(origin, "://");
    size_t n_scheme = strspn(origin, "abcdefghijklmnopqrstuvwxyz0123456789+-.");
    if (strcmp(origin, "*") == 0 ||
        (host && n_scheme > 0 && origin + n_scheme == host && host[3] && !host[3 + strspn(host + 3, HOST)]))
        return QUIRE_OK;
    return quire_fail(err, QUIRE_INVALID,
                      "\"%.200s\": must be * or an origin as browsers send it, in lower case and without a path: "
                      "https://chat.example.com or http://localhost:3000",
                      origin);
}

/* Returns the value of Access-Control-Allow-Origin for this request; NULL: its page may not read the reply. */
static const char *allowed(const struct page_rules *r, const char *origin)
{
    for (size_t i = 0; origin && i < r->n_origins; i++) {
        if (strcmp(r->origins[i], "*") == 0)
            return "*";
        if (strcmp(r->origins[i], origin) == 0)
            return origin;
    }
    return NULL;
}

bool cors_allows(const struct page_rules *r, const char *origin)
{
    return allowed(r, origin) != NULL;
}

bool cors_headers(const struct page_rules *r, struct http_exchange *x)
{
    if (r->n_origins == 0)
        return false;
    /* For caches: the reply depends on Origin, even if the request has no such header. */
    http_add_header(x, "Vary", "Origin");
    const char *origin = allowed(r, http_header(x, "Origin"));
    if (!origin)
        return false;
    http_add_header(x, "Access-Control-Allow-Origin", origin);
    http_add_header(x, "Access-Control-Expose-Headers", "*");
    return true;
}

bool cors_begin(const struct page_rules *r, struct http_exchange *x)
{
    if (!cors_headers(r, x) || strcmp(http_method(x), "OPTIONS") != 0 ||
        !http_header(x, "Access-Control-Request-Method"))
        return false;
    /* Keys come in a header and cookies are ignored, so a page can only do what its visitor has a key for: it may send
     * any header. "*" would not include Authorization. */
    const char *headers = http_header(x, "Access-Control-Request-Headers");
    http_add_header(x, "Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE");
    if (headers && !headers[strspn(headers, NAMES)])
        http_add_header(x, "Access-Control-Allow-Headers", headers);
    http_add_header(x, "Access-Control-Max-Age", "600");
    http_reply(x, 200, NULL, NULL, 0);
    return true;
}
