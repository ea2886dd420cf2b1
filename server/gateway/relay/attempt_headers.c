#include "server/gateway/relay/attempt.h"

#include "server/http/http.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* What Quire sends: 8 warnings, and "and 3 more". */
#define MAX_WARNINGS 9
#define MAX_WARNING_BYTES 200

struct warnings {
    struct http_exchange *x;
    size_t n;
};

static bool begins(const char *name, const char *with)
{
    return strncasecmp(name, with, strlen(with)) == 0;
}

static void copy_header(void *context, const char *name, const char *value)
{
    if (begins(name, "x-quire-") || begins(name, "x-ratelimit-"))
        http_add_header(context, name, value);
}

static void copy_warning(void *context, const char *name, const char *value)
{
    struct warnings *w = context;
    char text[MAX_WARNING_BYTES];
    if (strcasecmp(name, "x-quire-warning") != 0 || w->n == MAX_WARNINGS)
        return;
    snprintf(text, sizeof text, "%s", value);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 32 || (unsigned char)*c > 126)
            *c = '?';
    http_add_header(w->x, "x-quire-warning", text);
    w->n++;
}

void attempt_headers(const struct attempt *a, struct http_exchange *x)
{
    struct warnings warnings = {.x = x};
    if (a->call && attempt_is_engine(a))
        remote_headers(a->call, copy_header, x);
    else if (a->call)
        remote_headers(a->call, copy_warning, &warnings);
    if (a->stream->dialect.facts.drops_thinking)
        http_add_header(x, "x-quire-dropped", "thinking");
}
