/* Parses HTTP/1.x requests from a stream of bytes; no I/O.
 *
 * It is strict where other parsers had security holes: lines end in CRLF, headers are not folded, Content-Length
 * appears once and never with Transfer-Encoding, and "chunked" is the only coding. Every size is bounded. Every
 * rejection has a 4xx status and a sentence for the client. One thread at a time.
 */
#ifndef QUIRE_HTTP_PARSER_H
#define QUIRE_HTTP_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_MAX_HEADERS 100

enum http_parsed {
    HTTP_MORE, /* all bytes were used, the request is not complete */
    HTTP_HEAD, /* once per request: method, path and headers are there; feed again (0 bytes too) */
    HTTP_DONE, /* the request is complete; bytes that were not used belong to the next one */
    HTTP_BAD,  /* bad_status and bad_reason say why; nothing more can be read from this stream */
};

struct http_header {
    const char *name, *value;
};

struct http_parser {
    /* Set by http_parser_init. */
    size_t max_head_bytes, max_body_bytes;
    uint64_t
        max_length; /* a longer Content-Length is rejected at once; max_body_bytes, or more if its owner empties body */

    /* Valid from HTTP_HEAD on until http_parser_reset. */
    const char *method, *path; /* path: decoded but for %2F and %25, without query and authority */
    const char *query; /* between "?" and "#", with its escapes; "" without one */
    const char *authority; /* from an absolute-form target, which then replaces Host; otherwise NULL */
    struct http_header headers[HTTP_MAX_HEADERS];
    unsigned n_headers;
    bool http_1_0, keep_alive, expect_continue, has_body, chunked;
    uint64_t content_length;

    /* Valid at HTTP_DONE; not NUL-terminated. */
    char *body;
    size_t n_body;

    int bad_status;
    const char *bad_reason; /* static */

    uint64_t n_passed; /* for its owner: bytes of the body that it has taken out */

    /* Inside. */
    int state;
    char *head;
    size_t n_head, head_capacity, line_start, body_capacity;
    uint64_t left; /* bytes left of the body or chunk */
    unsigned n_line; /* characters of the chunk-size or trailer line */
    size_t n_trailer;
    bool in_extension, after_cr;
};

void http_parser_init(struct http_parser *p, size_t max_head_bytes, size_t max_body_bytes);
/* Frees what belongs to the request; ready for the next one. */
void http_parser_reset(struct http_parser *p);

/* *used: how many of the n bytes were taken. */
enum http_parsed http_parser_feed(struct http_parser *p, const uint8_t *data, size_t n, size_t *used);
/* After HTTP_DONE: the body is the caller's, to be freed. NULL when it is empty. */
char *http_parser_take_body(struct http_parser *p, size_t *n_bytes);
/* Whether no byte of a request has arrived yet. */
bool http_parser_is_idle(const struct http_parser *p);

/* The value of the first header of this name, in any case; NULL if the header does not exist. */
const char *http_parser_header(const struct http_parser *p, const char *name);
/* That of the next header of this name, behind the one that has the value `after`. */
const char *http_parser_header_next(const struct http_parser *p, const char *name, const char *after);
/* Whether there are two of this name whose values differ. */
bool http_parser_header_differs(const struct http_parser *p, const char *name);

#endif
