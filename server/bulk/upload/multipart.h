/* Reads a multipart/form-data body (RFC 7578) that arrives in pieces: small fields, and one file that is passed on. Pure;
 * one thread at a time.
 */
#ifndef QUIRE_BULK_MULTIPART_H
#define QUIRE_BULK_MULTIPART_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

struct multipart;

struct multipart_events {
    /* A whole field; its value is NUL-terminated UTF-8 or not, and has n bytes. False: stop, err is set. */
    bool (*on_field)(void *context, const char *name, const char *value, size_t n, struct quire_error *err);
    /* The field `name` is a file; its content follows in on_bytes. */
    bool (*on_file)(void *context, const char *name, const char *filename, struct quire_error *err);
    bool (*on_bytes)(void *context, const char *bytes, size_t n, struct quire_error *err);
    void *context;
};

/* content_type: the header's value, with its boundary. QUIRE_INVALID: it is not multipart/form-data. */
int multipart_open(const char *content_type, const struct multipart_events *events, struct multipart **out,
                   struct quire_error *err);
void multipart_close(struct multipart *m); /* NULL is allowed */
/* QUIRE_INVALID: the body is not in this format, or an event has failed. */
int multipart_feed(struct multipart *m, const char *bytes, size_t n, struct quire_error *err);
/* Whether the last boundary has arrived. */
bool multipart_is_whole(const struct multipart *m);

#endif
