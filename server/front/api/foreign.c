#include "server/front/api/foreign.h"

#include "server/http/address.h"
#include "server/http/http.h"

#include <stdio.h>
#include <string.h>

#define HOST_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._:[]"
#define MAX_HOST 255 /* the longest name in DNS */

/* "Example.com.:8080" → "example.com" and 8080; "[::1]" keeps its brackets. port is 0 if absent. Returns false if host
 * is neither a name nor an address. name holds MAX_HOST + 1 bytes. */
static bool split_host(const char *host, char *name, unsigned *port)
{
    size_t n = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    *port = 0;
    if (n == 0 || n > strlen(host) || n > MAX_HOST || strspn(host, HOST_CHARACTERS) < n)
        return false;
    if (host[n]) {
        size_t n_digits = strspn(host + n + 1, "0123456789");
        if (host[n] != ':' || n_digits > 5 || host[n + 1 + n_digits])
            return false;
        for (size_t i = 0; i < n_digits; i++)
            *port = *port * 10 + (unsigned)(host[n + 1 + i] - '0');
    }
    for (size_t i = 0; i < n; i++)
        name[i] = host[i] >= 'A' && host[i] <= 'Z' ? (char)(host[i] - 'A' + 'a') : host[i];
    if (n > 1 && name[n - 1] == '.')
        n--;
    name[n] = '\0';
    return true;
}

int foreign_check_host(const char *host, struct quire_error *err)
{
    char name[MAX_HOST + 1];
    unsigned port;
    if (strcmp(host, "*") == 0 || (split_host(host, name, &port) && strlen(name) == strlen(host)))
        return QUIRE_OK;
    return quire_fail(
        err, QUIRE_INVALID,
        "\"%.200s\": must be * or a name as it stands in URLs, without a port: chat.example.com or [fd00::7]", host);
}

bool foreign_host_is_local(const char *host)
{
    char name[MAX_HOST + 1];
    struct http_address address;
    unsigned port;
    if (!split_host(host, name, &port))
        return false;
    if (strcmp(name, "localhost") == 0)
        return true;
    size_t n = strlen(name);
    if (name[0] == '[') {
        name[n - 1] = '\0';
        return http_address_parse(name + 1, &address) && http_address_is_loopback(&address);
    }
    return http_address_parse(name, &address) && http_address_is_loopback(&address);
}

bool foreign_origin_is_own(const char *origin, const char *host, bool tls)
{
    char own[MAX_HOST + 1], theirs[MAX_HOST + 1];
    const char *scheme = tls ? "https://" : "http://";
    const unsigned usual = tls ? 443 : 80;
    unsigned own_port, their_port;
    if (strncasecmp(origin, scheme, strlen(scheme)) != 0 || !split_host(host, own, &own_port) ||
        !split_host(origin + strlen(scheme), theirs, &their_port))
        return false;
    return strcmp(own, theirs) == 0 && (own_port ? own_port : usual) == (their_port ? their_port : usual);
}

static bool host_is_allowed(const struct page_rules *r, const char *host)
{
    char name[MAX_HOST + 1];
    unsigned port;
    bool good = split_host(host, name, &port);
    for (size_t i = 0; i < r->n_hosts; i++)
        if (strcmp(r->hosts[i], "*") == 0 || (good && strcasecmp(r->hosts[i], name) == 0))
            return true;
    return foreign_host_is_local(host);
}

bool foreign_may(const struct page_rules *r, const struct http_exchange *x, struct api_error *e)
{
    /* A client with a key is authorised, and a page has only the keys that its visitor entered. */
    if (r->asks_key)
        return true;
    const char *host = http_header(x, "Host"), *origin = http_header(x, "Origin");
    /* A name that resolves to this machine but is not its own may come from a page that controls its DNS (DNS
     * rebinding). */
    if (host && (r->n_hosts > 0 || r->is_local) && !host_is_allowed(r, host))
        return api_fail(e, 403, NULL, "permission_denied",
                        "the Host \"%.100s\" is none of this server's: if it is to be reached by this name, start it "
                        "with --allowed-hosts NAME",
                        host);
    bool own = origin && host && foreign_origin_is_own(origin, host, r->has_tls);
    if (!origin || ((own || cors_allows(r, origin)) && !http_header_differs(x, "Origin")))
        return true;
    return api_fail(e, 403, NULL, "permission_denied",
                    "pages of the origin \"%.100s\" may not use this server, which asks for no key: allow them with "
                    "--allowed-origins ORIGIN",
                    origin);
}
