#include "tools/bench/lib/sse.h"

#include <stdlib.h>
#include <string.h>

static int append(struct bench_sse_text *t, const char *bytes, size_t n, struct quire_error *err)
{
    if (t->n + n > BENCH_SSE_MAX_BYTES)
        return quire_fail(err, QUIRE_INVALID, "the server sent an event of more than %u bytes", BENCH_SSE_MAX_BYTES);
    if (t->n + n + 1 > t->capacity) {
        size_t capacity = 2 * (t->n + n + 1);
        char *grown = realloc(t->bytes, capacity);
        if (!grown)
            return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
        t->bytes = grown;
        t->capacity = capacity;
    }
    if (n > 0)
        memcpy(t->bytes + t->n, bytes, n);
    t->n += n;
    t->bytes[t->n] = 0;
    return QUIRE_OK;
}

static void dispatch(struct bench_sse *s, bench_sse_event on_event, void *context)
{
    if (s->has_data)
        on_event(context, s->data.bytes, s->data.n);
    s->has_data = false;
    s->data.n = 0;
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
    if (n == 0) {
        dispatch(s, on_event, context);
        return QUIRE_OK;
    }
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
                status = take_line(s, s->line.bytes, s->line.n, on_event, context, err);
                s->line.n = 0;
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
    free(s->line.bytes);
    free(s->data.bytes);
    *s = (struct bench_sse){0};
}
