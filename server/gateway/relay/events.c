#include "server/gateway/relay/events.h"

#include <string.h>

static int append(struct buffer *t, const char *bytes, size_t n, struct quire_error *err)
{
    if (n > EVENTS_MAX_BYTES || t->n > EVENTS_MAX_BYTES - n)
        return quire_fail(err, QUIRE_INVALID, "the server sent an event of more than %u bytes", EVENTS_MAX_BYTES);
    return buffer_append(t, bytes, n) ? quire_fail(err, QUIRE_NO_MEMORY, "out of memory") : QUIRE_OK;
}

/* Copies a data line that was still in the caller's bytes. */
static int keep_piece(struct events_splitter *s, struct quire_error *err)
{
    const char *piece = s->piece;
    s->piece = NULL;
    return piece ? append(&s->data, piece, s->n_piece, err) : QUIRE_OK;
}

/* ---- lines ---------------------------------------------------------------------------------- */

static int add_data(struct events_splitter *s, const char *value, size_t n, bool is_borrowed, struct quire_error *err)
{
    if (!s->has_data && !is_borrowed && n <= EVENTS_MAX_BYTES) {
        s->has_data = true;
        s->piece = value;
        s->n_piece = n;
        return QUIRE_OK;
    }
    int status = keep_piece(s, err);
    if (status == QUIRE_OK && s->has_data)
        status = append(&s->data, "\n", 1, err);
    s->has_data = true;
    return status == QUIRE_OK ? append(&s->data, value, n, err) : status;
}

static void set_name(struct events_splitter *s, const char *value, size_t n)
{
    if (n >= sizeof s->name)
        n = sizeof s->name - 1;
    memcpy(s->name, value, n);
    s->name[n] = 0;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s->name[i] < 0x20)
            s->name[i] = '?';
}

static bool is_field(const char *line, size_t n, const char *name, size_t n_name)
{
    return n >= n_name && memcmp(line, name, n_name) == 0 && (n == n_name || line[n_name] == ':');
}

/* A complete line that is not empty. in_line: it lies in s->line, which is cleared afterwards. */
static int take_field(struct events_splitter *s, const char *line, size_t n, bool in_line, struct quire_error *err)
{
    const bool is_data = is_field(line, n, "data", 4), is_name = is_field(line, n, "event", 5);
    size_t skip = is_data ? 4 : 5;
    if (!is_data && !is_name)
        return QUIRE_OK;
    if (skip < n)
        skip++;
    if (skip < n && line[skip] == ' ')
        skip++;
    if (is_data)
        return add_data(s, line + skip, n - skip, in_line, err);
    set_name(s, line + skip, n - skip);
    return QUIRE_OK;
}

/* An empty line. Returns false if the receiver stopped; then s may be gone. */
static bool dispatch(struct events_splitter *s, events_on_event on_event, void *context)
{
    if (s->has_data && !(s->piece ? on_event(context, s->piece, s->n_piece, s->name)
                                  : on_event(context, s->data.data ? s->data.data : "", s->data.n, s->name)))
        return false;
    s->has_data = false;
    s->piece = NULL;
    s->name[0] = 0;
    buffer_clear(&s->data);
    return true;
}

static void skip_mark(struct events_splitter *s, const char **line, size_t *n)
{
    if (!s->past_first && *n >= 3 && memcmp(*line, "\xef\xbb\xbf", 3) == 0) {
        *line += 3;
        *n -= 3;
    }
    s->past_first = true;
}

static size_t line_bytes(const char *at, size_t n)
{
    size_t i = 0;
    while (i < n && at[i] != '\n' && at[i] != '\r')
        i++;
    return i;
}

/* ---- bytes ---------------------------------------------------------------------------------- */

/* One complete line. *go: false if the receiver stopped. */
static int take_line(struct events_splitter *s, const char *bytes, size_t n, events_on_event on_event, void *context,
                     bool *go, struct quire_error *err)
{
    const bool in_line = s->line.n > 0;
    int status = in_line ? append(&s->line, bytes, n, err) : QUIRE_OK;
    if (status != QUIRE_OK)
        return status;
    const char *line = in_line ? s->line.data : bytes;
    size_t n_line = in_line ? s->line.n : n;
    skip_mark(s, &line, &n_line);
    if (n_line == 0)
        *go = dispatch(s, on_event, context);
    else
        status = take_field(s, line, n_line, in_line, err);
    if (*go && in_line)
        buffer_clear(&s->line);
    return status;
}

int events_push(struct events_splitter *s, const char *bytes, size_t n, events_on_event on_event, void *context,
                struct quire_error *err)
{
    bool go = true;
    for (size_t at = 0; at < n;) {
        if (s->after_cr && bytes[at] == '\n') {
            s->after_cr = false;
            at++;
            continue;
        }
        const size_t len = line_bytes(bytes + at, n - at);
        const bool is_whole = at + len < n;
        s->after_cr = is_whole && bytes[at + len] == '\r';
        const int status = is_whole ? take_line(s, bytes + at, len, on_event, context, &go, err)
                                    : append(&s->line, bytes + at, len, err);
        if (!go || status != QUIRE_OK)
            return go ? status : QUIRE_OK;
        at += len + is_whole;
    }
    return keep_piece(s, err);
}

void events_free(struct events_splitter *s)
{
    buffer_free(&s->line);
    buffer_free(&s->data);
    *s = (struct events_splitter){0};
}

void events_put(struct buffer *o, const char *name, const char *data, size_t n)
{
    if (name[0]) {
        buffer_append(o, "event: ", 7);
        buffer_append(o, name, strlen(name));
        buffer_append(o, "\n", 1);
    }
    for (size_t at = 0; at <= n;) {
        const size_t len = line_bytes(data + at, n - at);
        buffer_append(o, "data: ", 6);
        buffer_append(o, data + at, len);
        buffer_append(o, "\n", 1);
        at += len + 1;
        if (at < n && data[at - 1] == '\r' && data[at] == '\n')
            at++;
    }
    buffer_append(o, "\n", 1);
}
