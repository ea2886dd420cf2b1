/* Fields of a URL's query: "a=1&b=two+words". Owns nothing. Any thread. */
#ifndef QUIRE_HTTP_QUERY_H
#define QUIRE_HTTP_QUERY_H

#include "base/buffer.h"

enum query_result {
    QUERY_ABSENT,
    QUERY_FOUND,
    QUERY_INVALID, /* a wrong escape, or text that is not UTF-8 or has a NUL */
};

/* Appends the first value of a field to out, with %XX and + decoded. query: http_query(). name: without escapes. Check
 * out->failed afterwards. */
enum query_result query_value(const char *query, const char *name, struct buffer *out);
/* Whether every field of the query is one of names[n], so that a misspelt one is noticed. */
bool query_has_only(const char *query, const char *const *names, size_t n);

#endif
