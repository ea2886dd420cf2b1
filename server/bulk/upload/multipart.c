#include "server/bulk/upload/multipart.h"

#include "base/buffer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_BOUNDARY 70 /* RFC 2046 */
#define MAX_HEAD 8192   /* of a part */
#define MAX_VALUE 65536 /* of a field */
#define MAX_PARTS 64
#define MAX_NAME 256

enum state {
    BEFORE, /* the first boundary */
    AFTER_BOUNDARY,
    IN_HEAD,
    IN_VALUE,
    IN_FILE,
    FINISHED,
};

struct multipart {
    struct multipart_events events;
    enum state state;
    char mark[MAX_BOUNDARY + 5]; /* CR LF "--" boundary */
    size_t n_mark, n_parts;
    struct buffer held; /* bytes that were not used yet */
    struct buffer value;
    char name[MAX_NAME], filename[MAX_NAME];
};

/* ---- headers -------------------------------------------------------------------------------- */

/* A parameter of a header: name=value or name="value", with \" as curl and browsers write it. False: the header lacks it. */
static bool parameter(const char *header, const char *name, char *out, size_t n_out)
{
    const size_t n_name = strlen(name);
    bool quoted = false;
    for (const char *at = header; *at; at++) {
        if (*at == '"' && (at == header || at[-1] != '\\'))
            quoted = !quoted;
        if (quoted || *at != ';')
            continue;
        const char *key = at + 1 + strspn(at + 1, " \t");
        if (strncasecmp(key, name, n_name) != 0 || key[n_name] != '=')
            continue;
        const char *value = key + n_name + 1;
        const bool has_quotes = *value == '"';
        size_t n = 0;
        for (value += has_quotes; *value && (has_quotes ? *value != '"' : !strchr("; \t\r", *value)); value++) {
            if (has_quotes && value[0] == '\\' && (value[1] == '"' || value[1] == '\\'))
                value++;
            if (n + 1 < n_out)
                out[n++] = *value;
        }
        out[n] = '\0';
        return true;
    }
    return false;
}

int multipart_open(const char *content_type, const struct multipart_events *events, struct multipart **out,
                   struct quire_error *err)
{
    static const char form[] = "multipart/form-data";
    char boundary[MAX_BOUNDARY + 2];
    *out = NULL;
    if (!content_type || strncasecmp(content_type, form, sizeof form - 1) != 0)
        return quire_fail(err, QUIRE_INVALID,
                          "Content-Type: must be multipart/form-data, with the fields purpose and file");
    if (!parameter(content_type, "boundary", boundary, sizeof boundary) || !boundary[0] ||
        strlen(boundary) > MAX_BOUNDARY)
        return quire_fail(err, QUIRE_INVALID, "Content-Type: needs a boundary of 1 to %d characters", MAX_BOUNDARY);
    struct multipart *m = *out = calloc(1, sizeof *m);
    if (!m)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    m->events = *events;
    m->n_mark = (size_t)snprintf(m->mark, sizeof m->mark, "\r\n--%s", boundary);
    buffer_append(&m->held, "\r\n", 2); /* the first boundary has no line before it */
    return QUIRE_OK;
}

void multipart_close(struct multipart *m)
{
    if (!m)
        return;
    buffer_free(&m->held);
    buffer_free(&m->value);
    free(m);
}

bool multipart_is_whole(const struct multipart *m)
{
    return m->state == FINISHED;
}

static void use(struct multipart *m, size_t n)
{
    memmove(m->held.data, m->held.data + n, m->held.n - n);
    m->held.n -= n;
}

/* One header line of a part, NUL-terminated. */
static int read_header(struct multipart *m, const char *line, struct quire_error *err)
{
    static const char name[] = "content-disposition:";
    if (strncasecmp(line, name, sizeof name - 1) != 0)
        return QUIRE_OK;
    if (!parameter(line, "name", m->name, sizeof m->name))
        return quire_fail(err, QUIRE_INVALID, "the body: a part's Content-Disposition has no name");
    if (parameter(line, "filename", m->filename, sizeof m->filename))
        m->state = IN_FILE;
    return QUIRE_OK;
}

/* The head of a part has arrived: n bytes, with its empty line. */
static int read_head(struct multipart *m, size_t n, struct quire_error *err)
{
    int status = QUIRE_OK;
    m->name[0] = m->filename[0] = '\0';
    m->state = IN_VALUE;
    buffer_clear(&m->value);
    for (char *line = m->held.data, *end = line + n; line < end && status == QUIRE_OK;) {
        char *stop = memmem(line, (size_t)(end - line), "\r\n", 2);
        if (memchr(line, '\0', (size_t)(stop - line)))
            return quire_fail(err, QUIRE_INVALID, "the body: a part's head has a NUL byte");
        *stop = '\0';
        status = read_header(m, line, err);
        line = stop + 2;
    }
    use(m, n);
    if (status != QUIRE_OK)
        return status;
    if (!m->name[0])
        return quire_fail(err, QUIRE_INVALID, "the body: a part has no Content-Disposition with a name");
    if (m->state == IN_FILE && !m->events.on_file(m->events.context, m->name, m->filename, err))
        return QUIRE_INVALID;
    return QUIRE_OK;
}

/* ---- content -------------------------------------------------------------------------------- */

/* Passes n bytes of a part on, and forgets them. */
static int pass(struct multipart *m, size_t n, struct quire_error *err)
{
    if (m->state == IN_FILE && n > 0 && !m->events.on_bytes(m->events.context, m->held.data, n, err))
        return QUIRE_INVALID;
    if (m->state == IN_VALUE && (m->value.n + n > MAX_VALUE || buffer_append(&m->value, m->held.data, n)))
        return quire_fail(err, QUIRE_INVALID, "the body: the field %.60s is longer than %d bytes", m->name, MAX_VALUE);
    use(m, n);
    return QUIRE_OK;
}

static int end_part(struct multipart *m, struct quire_error *err)
{
    if (m->state == BEFORE || m->state == IN_FILE)
        return QUIRE_OK;
    const char *value = buffer_text(&m->value);
    if (!value)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    return m->events.on_field(m->events.context, m->name, value, m->value.n, err) ? QUIRE_OK : QUIRE_INVALID;
}

/* Uses what can be used of a part's content. *more: whether another state follows. */
static int take_content(struct multipart *m, bool *more, struct quire_error *err)
{
    const char *mark = m->held.n ? memmem(m->held.data, m->held.n, m->mark, m->n_mark) : NULL;
    if (!mark) {
        /* The end may be the beginning of a boundary. */
        const size_t n = m->held.n >= m->n_mark ? m->held.n - m->n_mark + 1 : 0;
        return pass(m, n, err);
    }
    int status = pass(m, (size_t)(mark - m->held.data), err);
    if (status == QUIRE_OK)
        status = end_part(m, err);
    if (status != QUIRE_OK)
        return status;
    use(m, m->n_mark);
    m->state = AFTER_BOUNDARY;
    *more = true;
    return QUIRE_OK;
}

/* "--" ends the body; blanks and CR LF begin a part. */
static int take_boundary_end(struct multipart *m, bool *more, struct quire_error *err)
{
    if (m->held.n < 2)
        return QUIRE_OK;
    if (memcmp(m->held.data, "--", 2) == 0) {
        m->state = FINISHED;
        return QUIRE_OK;
    }
    size_t n = 0;
    while (n < m->held.n && (m->held.data[n] == ' ' || m->held.data[n] == '\t'))
        n++;
    if (m->held.n < n + 2)
        return n < MAX_HEAD ? QUIRE_OK : quire_fail(err, QUIRE_INVALID, "the body: a boundary does not end");
    if (memcmp(m->held.data + n, "\r\n", 2) != 0)
        return quire_fail(err, QUIRE_INVALID, "the body: a boundary does not end its line");
    if (++m->n_parts > MAX_PARTS)
        return quire_fail(err, QUIRE_INVALID, "the body has more than %d parts", MAX_PARTS);
    use(m, n + 2);
    m->state = IN_HEAD;
    *more = true;
    return QUIRE_OK;
}

static int take_head(struct multipart *m, bool *more, struct quire_error *err)
{
    const char *end = m->held.n ? memmem(m->held.data, m->held.n, "\r\n\r\n", 4) : NULL;
    if (!end)
        return m->held.n <= MAX_HEAD
                   ? QUIRE_OK
                   : quire_fail(err, QUIRE_INVALID, "the body: a part's head is longer than %d bytes", MAX_HEAD);
    *more = true;
    /* The line's end before the empty line stays with the head. */
    int status = read_head(m, (size_t)(end - m->held.data) + 2, err);
    if (status == QUIRE_OK)
        use(m, 2);
    return status;
}

int multipart_feed(struct multipart *m, const char *bytes, size_t n, struct quire_error *err)
{
    int status = buffer_append(&m->held, bytes, n) ? quire_fail(err, QUIRE_NO_MEMORY, "out of memory") : (int)QUIRE_OK;
    for (bool more = true; more && status == QUIRE_OK;) {
        more = false;
        switch (m->state) {
        case BEFORE:
        case IN_VALUE:
        case IN_FILE: status = take_content(m, &more, err); break;
        case AFTER_BOUNDARY: status = take_boundary_end(m, &more, err); break;
        case IN_HEAD: status = take_head(m, &more, err); break;
        case FINISHED: buffer_clear(&m->held); break; /* bytes after the last boundary have no meaning */
        }
    }
    return status;
}
