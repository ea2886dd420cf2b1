#include "server/front/observe/trace_context.h"

#include "base/hash.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Checks for exactly n lower-case hexadecimal digits, followed by `end`. */
static bool is_hex(const char *text, size_t n, char end)
{
    return strspn(text, "0123456789abcdef") == n && text[n] == end;
}

static bool is_zero(const char *text, size_t n)
{
    return strspn(text, "0") >= n;
}

#define PARENT_BYTES 55

/* "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01". Versions above 00 may continue after a further dash. */
static bool read_parent(const char *text, struct trace_context *out)
{
    if (strlen(text) < PARENT_BYTES)
        return false;
    const char *trace = text + 3, *parent = trace + 33, *flags = parent + 17;
    if (!is_hex(text, 2, '-') || memcmp(text, "ff", 2) == 0)
        return false;
    if (!is_hex(trace, 32, '-') || is_zero(trace, 32) || !is_hex(parent, 16, '-') || is_zero(parent, 16))
        return false;
    if (!is_hex(flags, 2, '\0') && (memcmp(text, "00", 2) == 0 || !is_hex(flags, 2, '-')))
        return false;
    snprintf(out->trace_id, sizeof out->trace_id, "%.32s", trace);
    snprintf(out->parent_id, sizeof out->parent_id, "%.16s", parent);
    out->sampled = strchr("13579bdf", flags[1]) != NULL;
    return true;
}

/* Members "key=value" with commas between them; empty ones are allowed. */
static bool is_state(const char *text)
{
    static const char key[] = "abcdefghijklmnopqrstuvwxyz0123456789_-*/@";
    if (strlen(text) >= TRACE_STATE_BYTES)
        return false;
    for (const char *at = text;;) {
        at += strspn(at, " \t");
        size_t n = strspn(at, key);
        if (n > 0) {
            if (at[n] != '=')
                return false;
            for (at += n + 1; *at && *at != ','; at++)
                if (*at < 0x20 || *at > 0x7e || *at == '=')
                    return false;
        }
        if (*at == '\0')
            return true;
        if (*at++ != ',')
            return false;
    }
}

bool trace_context_read(const char *traceparent, const char *tracestate, struct trace_context *out)
{
    *out = (struct trace_context){0};
    if (!traceparent || !read_parent(traceparent, out)) {
        *out = (struct trace_context){0};
        return false;
    }
    if (tracestate && is_state(tracestate))
        memcpy(out->state, tracestate, strlen(tracestate) + 1);
    return true;
}

void trace_random_id(char *out, unsigned n)
{
    uint8_t random[16];
    quire_random(random, sizeof random);
    for (unsigned i = 0; i < n && i < sizeof random; i++)
        snprintf(out + 2 * (size_t)i, 3, "%02x", random[i]);
}
