/* Server-sent events from a stream of bytes in arbitrary pieces: the content of `data:` lines, event by event, by the
 * rules of the HTML standard (lines end in LF, CR or CR LF; comments and other fields are skipped; several data lines
 * of an event are joined by LF; an event without a final empty line is dropped).
 *
 * The bytes come from an untrusted server: an event larger than BENCH_SSE_MAX_BYTES is an error. One thread for each
 * parser.
 */
#ifndef QUIRE_TOOLS_BENCH_SSE_H
#define QUIRE_TOOLS_BENCH_SSE_H

#include "base/buffer.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

#define BENCH_SSE_MAX_BYTES (4u << 20)

struct bench_sse { /* zeroed: at the beginning of a stream */
    struct buffer line; /* the incomplete line */
    struct buffer data; /* of the event so far */
    bool has_data;
    bool after_cr;   /* a following LF belongs to the last line end */
    bool past_first; /* a byte order mark is allowed only at the beginning */
};

/* data: NUL-terminated, n bytes without the NUL; borrowed until the call returns. */
typedef void (*bench_sse_event)(void *context, const char *data, size_t n);

/* QUIRE_INVALID for an event that is too large, QUIRE_NO_MEMORY; then only bench_sse_free() may be called. */
int bench_sse_push(struct bench_sse *s, const char *bytes, size_t n, bench_sse_event on_event, void *context,
                   struct quire_error *err);
void bench_sse_free(struct bench_sse *s);

#endif
