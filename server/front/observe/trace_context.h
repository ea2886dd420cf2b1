/* W3C Trace Context, level 1: reads the headers traceparent and tracestate. Any thread. */
#ifndef QUIRE_FRONT_TRACE_CONTEXT_H
#define QUIRE_FRONT_TRACE_CONTEXT_H

#include <stdbool.h>

#define TRACE_STATE_BYTES 513

struct trace_context {
    char trace_id[33]; /* hexadecimal; "": no trace */
    char parent_id[17]; /* the caller's span; "": this is the trace's first */
    bool sampled;       /* the caller records, so its children are recorded too */
    char state[TRACE_STATE_BYTES]; /* tracestate as received; "": absent */
};

/* Absent (NULL) or malformed headers count as absent, as the recommendation requires: returns false with an empty
 * *out. A tracestate that is malformed, or longer than 512 bytes, is omitted. */
bool trace_context_read(const char *traceparent, const char *tracestate, struct trace_context *out);

/* Writes n random bytes as hexadecimal digits, and the NUL. */
void trace_random_id(char *out, unsigned n);

#endif
