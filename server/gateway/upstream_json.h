/* Reads JSON that an upstream server sent: a whole reply, or one event of a stream.
 *
 * Requests to Quire are strict JSON (text/quire_json.h). Upstream servers also write what Python's json module reads: a
 * NUL or half of a surrogate pair in a string, NaN, or a repeated key, of which the last counts; and some cut a character
 * in two. Such a text is first rewritten, with U+FFFD for invalid characters. One thread for each document.
 */
#ifndef QUIRE_GATEWAY_UPSTREAM_JSON_H
#define QUIRE_GATEWAY_UPSTREAM_JSON_H

#include "base/status.h"
#include "text/quire_json.h"

#include <stddef.h>

#define UPSTREAM_JSON_MAX_DEPTH 64

struct upstream_json {
    struct quire_doc *doc;
    char *rewritten; /* malloc'd; NULL: values point into the caller's text */
};

/* The caller keeps the text until upstream_json_close(). QUIRE_INVALID: not JSON, or nested too deep. */
int upstream_json_open(const char *text, size_t n_bytes, const char *what, struct upstream_json *out,
                       struct quire_error *err);
void upstream_json_close(struct upstream_json *j); /* a zeroed struct is allowed */

#endif
