/* The error convention. A function that can fail returns an enum quire_status (0 = ok). On failure it leaves one line
 * of text in the caller's struct quire_error.
 *
 * Owns nothing. Any thread. Callers that need no text pass NULL for `err`. The message says what was wrong and where
 * ("config.json: hidden_size: must be a positive integer, got -3"), so a program can show it to a user unchanged.
 */
#ifndef QUIRE_BASE_STATUS_H
#define QUIRE_BASE_STATUS_H

enum quire_status {
    QUIRE_OK = 0,
    QUIRE_INVALID = 1,     /* the input is wrong: file, request, argument */
    QUIRE_NOT_FOUND = 2,   /* the named thing does not exist */
    QUIRE_UNSUPPORTED = 3, /* well formed, but this build or model does not support it */
    QUIRE_EXHAUSTED = 4,   /* a bounded resource is full; trying later may work */
    QUIRE_NO_MEMORY = 5,   /* an allocation failed */
    QUIRE_IO = 6,          /* an operating system call failed: open, read, connect */
    QUIRE_INTERNAL = 7,    /* a bug: an invariant of this program does not hold */
    QUIRE_UNAVAILABLE = 8, /* a process that this needs is gone, hangs or gave up */
};

#define QUIRE_ERROR_BYTES 512

struct quire_error {
    char text[QUIRE_ERROR_BYTES]; /* NUL-terminated UTF-8; truncated, never overrun */
    const char *parameter;        /* static; the request field that is wrong, or NULL */
};

/* Formats the message into err (unless NULL) and returns status, so a failure takes one line: return quire_fail(err,
 * QUIRE_INVALID, "%s: %s", file, why); */
int quire_fail(struct quire_error *err, enum quire_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));

/* Reports a wrong request field: the message becomes "parameter: why". parameter is static. */
int quire_fail_for(struct quire_error *err, enum quire_status status, const char *parameter, const char *format, ...)
    __attribute__((format(printf, 4, 5), cold));

/* Inserts "prefix: " before the message that is already in err. */
void quire_error_prefix(struct quire_error *err, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

/* Returns "invalid", "not found", ... for logs. Static storage. */
const char *quire_status_name(int status);

#endif
