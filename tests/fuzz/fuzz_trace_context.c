/* A traceparent, a newline, a tracestate: what is taken has the form that the recommendation gives it. */
#include "fuzz.h"

#include "server/front/observe/trace_context.h"

#include <stdlib.h>
#include <string.h>

static void must(bool condition)
{
    if (!condition)
        abort();
}

static bool is_id(const char *id, size_t n)
{
    return strlen(id) == n && strspn(id, "0123456789abcdef") == n && strspn(id, "0") < n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct trace_context got;
    char *parent = malloc(n + 1);
    must(parent != NULL);
    memcpy(parent, data, n);
    parent[n] = '\0';
    char *state = strchr(parent, '\n');
    if (state)
        *state++ = '\0';
    if (trace_context_read(parent, state, &got)) {
        must(is_id(got.trace_id, 32) && is_id(got.parent_id, 16));
        must(strlen(parent) >= 55 && memcmp(parent + 3, got.trace_id, 32) == 0);
        must(!got.state[0] || (state && strcmp(got.state, state) == 0 && strlen(state) <= 512));
        for (const char *c = got.state; *c; c++)
            must((*c >= 0x20 && *c <= 0x7e) || *c == '\t');
    } else {
        must(!got.trace_id[0] && !got.parent_id[0] && !got.state[0] && !got.sampled);
    }
    free(parent);
    return 0;
}
