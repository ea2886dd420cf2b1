/* The one error convention: a function that can fail returns an enum quire_status
 * (0 = ok) and, on failure, leaves one line of text in the caller's struct quire_error.
 *
 * Owns nothing. Any thread. `err` may be NULL where the caller needs no text.
 * The message names what was wrong and where ("config.json: hidden_size: must be a
 * positive integer, got -3"), so that it can be shown to a user as it is.
 */
#ifndef QUIRE_BASE_STATUS_H
#define QUIRE_BASE_STATUS_H

enum quire_status {
    QUIRE_OK = 0,
    QUIRE_INVALID = 1,     /* the input is wrong: file, request, argument */
    QUIRE_NOT_FOUND = 2,   /* the thing named does not exist */
    QUIRE_UNSUPPORTED = 3, /* well formed, but this build or model cannot do it */
    QUIRE_EXHAUSTED = 4,   /* a bounded resource is full; trying later may work */
    QUIRE_NO_MEMORY = 5,   /* an allocation failed */
    QUIRE_IO = 6,          /* the operating system refused: open, read, connect */
    QUIRE_INTERNAL = 7,    /* a promise of our own was broken */
    QUIRE_UNAVAILABLE = 8, /* a process that this needs is gone, hangs or gave up */
};

#define QUIRE_ERROR_BYTES 512

struct quire_error {
    char text[QUIRE_ERROR_BYTES]; /* NUL-terminated UTF-8; truncated, never overrun */
    const char *parameter;        /* static: the field of a request that is wrong; NULL: none, or not one alone */
};

/* Formats the message into err (when not NULL) and returns status, so that a failing
 * path is one line: return quire_fail(err, QUIRE_INVALID, "%s: %s", file, why); */
int quire_fail(struct quire_error *err, enum quire_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));

/* The same of a wrong field of a request: the message becomes "parameter: why". parameter: static. */
int quire_fail_for(struct quire_error *err, enum quire_status status, const char *parameter, const char *format, ...)
    __attribute__((format(printf, 4, 5), cold));

/* Puts "prefix: " before the message that is already in err. */
void quire_error_prefix(struct quire_error *err, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

/* "invalid", "not found", ...: for logs. Static storage. */
const char *quire_status_name(int status);

#endif
