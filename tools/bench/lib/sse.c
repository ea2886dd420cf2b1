#include "tools/bench/lib/sse.h"

#include <stdlib.h>
#include <string.h>

static int append(struct buffer *t, const char *bytes, size_t n, struct quire_error *err)
{
    if (t->n + n > BENCH_SSE_MAX_BYTES)
        return quire_fail(err, QUIRE_INVALID, "the server sent an event of more than %u bytes", BENCH_SSE_MAX_BYTES);
    return buffer_append(t, bytes, n) ? quire_fail(err, QUIRE_NO_MEMORY, "out of memory") : QUIRE_OK;
}

static int dispatch(struct bench_sse *s, bench_sse_event on_event, void *context, struct quire_error *err)
{
    if (s->has_data) {
        const char *text = buffer_text(&s->data);
        if (!text)
            return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
        on_event(context, text, s->data.n);
    }
    s->has_data = false;
    buffer_clear(&s->data);
    return QUIRE_OK;
}

/* A complete line, without its end. */
static int take_line(struct bench_sse *s, const char *line, size_t n, bench_sse_event on_event, void *context,
                     struct quire_error *err)
{
    static const char mark[] = "\xef\xbb\xbf", field[] = "data";
    const size_t n_mark = sizeof mark - 1, n_field = sizeof field - 1;
    if (!s->past_first && n >= n_mark && memcmp(line, mark, n_mark) == 0) {
        line += n_mark;
        n -= n_mark;
    }
    s->past_first = true;
    if (n == 0)
        return dispatch(s, on_event, context, err);
    if (n < n_field || memcmp(line, field, n_field) != 0 || (n > n_field && line[n_field] != ':'))
        return QUIRE_OK;
    size_t skip = n > n_field ? n_field + 1 : n_field;
    if (skip < n && line[skip] == ' ')
        skip++;
    int status = s->has_data ? append(&s->data, "\n", 1, err) : QUIRE_OK;
    s->has_data = true;
    return status == QUIRE_OK ? append(&s->data, line + skip, n - skip, err) : status;
}

int bench_sse_push(struct bench_sse *s, const char *bytes, size_t n, bench_sse_event on_event, void *context,
                   struct quire_error *err)
{
    for (size_t at = 0; at < n;) {
        if (s->after_cr && bytes[at] == '\n') {
            s->after_cr = false;
            at++;
            continue;
        }
        s->after_cr = false;
        size_t len = 0;
        while (at + len < n && bytes[at + len] != '\n' && bytes[at + len] != '\r')
            len++;
        bool is_whole = at + len < n;
        int status = QUIRE_OK;
        if (is_whole && s->line.n == 0) {
            status = take_line(s, bytes + at, len, on_event, context, err);
        } else {
            status = append(&s->line, bytes + at, len, err);
            if (status == QUIRE_OK && is_whole) {
                status = take_line(s, s->line.data, s->line.n, on_event, context, err);
                buffer_clear(&s->line);
            }
        }
        if (status != QUIRE_OK)
            return status;
        s->after_cr = is_whole && bytes[at + len] == '\r';
        at += len + is_whole;
    }
    return QUIRE_OK;
}

void bench_sse_free(struct bench_sse *s)
{
    buffer_free(&s->line);
    buffer_free(&s->data);
    *s = (struct bench_sse){0};
}
