#include "app/models/hub_url.h"

#include "app/models/quant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PATH_BYTES 2048
#define MAX_PARTS 32

static bool begins(const char *text, const char *with)
{
    return strncasecmp(text, with, strlen(with)) == 0;
}

static const char *after_scheme(const char *url)
{
    static const char *const schemes[] = {"https://", "http://", "hf://"};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (begins(url, schemes[i]))
            return url + strlen(schemes[i]);
    return NULL;
}

/* Returns the path after the hub's host, or NULL. */
static const char *after_host(const char *rest)
{
    static const char *const hosts[] = {"huggingface.co/", "www.huggingface.co/", "hf.co/"};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        if (begins(rest, hosts[i]))
            return rest + strlen(hosts[i]);
    const char *endpoint = getenv("HF_ENDPOINT");
    const char *own = endpoint ? after_scheme(endpoint) : NULL;
    size_t n = own ? strlen(own) : 0;
    while (n > 0 && own[n - 1] == '/')
        n--;
    return n > 0 && strncasecmp(rest, own, n) == 0 && rest[n] == '/' ? rest + n + 1 : NULL;
}

bool hub_url_is(const char *given)
{
    return after_scheme(given) || after_host(given);
}

/* "refs%2Fpr%2F1" is a revision. Other escapes stay and are rejected with the name. */
static void decode_slashes(char *text)
{
    char *to = text;
    for (const char *from = text; *from;) {
        const bool is_slash = strncasecmp(from, "%2f", 3) == 0;
        *to++ = is_slash ? '/' : *from;
        from += is_slash ? 3 : 1;
    }
    *to = 0;
}

/* Splits a path at its slashes, in place. Returns the number of parts. */
static size_t split(char *path, char *parts[MAX_PARTS])
{
    char *state = NULL;
    size_t n = 0;
    for (char *part = strtok_r(path, "/", &state); part && n < MAX_PARTS; part = strtok_r(NULL, "/", &state))
        parts[n++] = part;
    return n;
}

int hub_url_read(const char *given, char *out, size_t n_out, struct quire_error *err)
{
    static const char *const others[] = {"datasets", "spaces", "collections", "papers", "docs", "blog"};
    const char *rest = after_scheme(given);
    /* hf://ORG/NAME has no host. */
    const char *path = after_host(rest ? rest : given);
    char copy[PATH_BYTES], *parts[MAX_PARTS], quant[64] = "";
    if (!path && begins(given, "hf://"))
        path = rest;
    if (!path)
        return quire_fail(
            err, QUIRE_INVALID,
            "%.200s: this is not an address of the hub: write https://huggingface.co/ORG/NAME or ORG/NAME", given);
    snprintf(copy, sizeof copy, "%.*s", (int)strcspn(path, "?#"), path);
    size_t n = split(copy, parts);
    for (size_t i = 0; n > 0 && i < sizeof others / sizeof *others; i++)
        if (strcmp(parts[0], others[i]) == 0)
            return quire_fail(err, QUIRE_INVALID, "%.200s: this is not the address of a model", given);
    if (n < 2)
        return quire_fail(err, QUIRE_INVALID, "%.200s: the address has no model: write https://huggingface.co/ORG/NAME",
                          given);
    const bool has_file = n >= 5 && (strcmp(parts[2], "blob") == 0 || strcmp(parts[2], "resolve") == 0);
    const bool has_revision = has_file || (n >= 4 && strcmp(parts[2], "tree") == 0);
    if (has_revision)
        decode_slashes(parts[3]);
    if (has_file && hub_quant_of_file(parts[n - 1], quant, sizeof quant) && strchr(parts[1], ':'))
        quant[0] = 0;
    if (snprintf(out, n_out, "%s/%s%s%s%s%s", parts[0], parts[1], quant[0] ? ":" : "", quant,
                 has_revision && strcmp(parts[3], "main") != 0 ? "@" : "",
                 has_revision && strcmp(parts[3], "main") != 0 ? parts[3] : "") >= (int)n_out)
        return quire_fail(err, QUIRE_INVALID, "%.200s: the address is too long", given);
    return QUIRE_OK;
}
