/* Server-sent events out of a stream of bytes, cut anywhere: what `data:` lines say, event by event, by the rules of
 * the HTML standard (lines end in LF, CR or CR LF; comments and other fields are passed over; several data lines of
 * an event are joined by LF; what no empty line ends is no event).
 *
 * The bytes come from a server nobody vouched for: an event larger than BENCH_SSE_MAX_BYTES is an error. One thread
 * for each parser.
 */
#ifndef QUIRE_TOOLS_BENCH_SSE_H
#define QUIRE_TOOLS_BENCH_SSE_H

#include "base/buffer.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

#define BENCH_SSE_MAX_BYTES (4u << 20)

struct bench_sse { /* zeroed = at the beginning of a stream */
    struct buffer line; /* the one not yet complete */
    struct buffer data; /* of the event so far */
    bool has_data;
    bool after_cr;   /* an LF that comes next ends no line of its own */
    bool past_first; /* a byte order mark may stand at the very beginning only */
};

/* data: NUL-terminated, n bytes without the NUL; borrowed until the call returns. */
typedef void (*bench_sse_event)(void *context, const char *data, size_t n);

/* QUIRE_INVALID for an event that is too large, QUIRE_NO_MEMORY; the parser is then good for bench_sse_free() only. */
int bench_sse_push(struct bench_sse *s, const char *bytes, size_t n, bench_sse_event on_event, void *context,
                   struct quire_error *err);
void bench_sse_free(struct bench_sse *s);

#endif
