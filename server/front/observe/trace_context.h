/* W3C Trace Context, level 1: what the headers traceparent and tracestate say. Any thread. */
#ifndef QUIRE_FRONT_TRACE_CONTEXT_H
#define QUIRE_FRONT_TRACE_CONTEXT_H

#include <stdbool.h>

#define TRACE_STATE_BYTES 513

struct trace_context {
    char trace_id[33]; /* hexadecimal; "": there is none */
    char parent_id[17]; /* the caller's span; "": this is the trace's first */
    bool sampled;       /* the caller records, so its children are recorded too */
    char state[TRACE_STATE_BYTES]; /* tracestate as it came; "": none */
};

/* Headers that are absent (NULL) or malformed count as none, as the recommendation has it: false, and *out is empty. A
 * tracestate that is malformed, or longer than 512 bytes, is left out. */
bool trace_context_read(const char *traceparent, const char *tracestate, struct trace_context *out);

/* Hexadecimal digits of n random bytes, and the NUL. */
void trace_random_id(char *out, unsigned n);

#endif
