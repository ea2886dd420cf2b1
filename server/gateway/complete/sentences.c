#include "server/gateway/complete/sentences.h"

int sentences_add(struct sentences *s, const char *text, size_t n)
{
    if (s->begin > 0) {
        memmove(s->text.data, s->text.data + s->begin, s->text.n - s->begin);
        s->text.n -= s->begin;
        s->looked -= s->begin;
        s->begin = 0;
    }
    return buffer_append(&s->text, text, n);
}

/* Whether a sentence ends with the character at i - 1. */
static bool ends_at(const char *text, size_t i)
{
    const char mark = text[i - 2], after = text[i - 1];
    return (mark == '.' || mark == '!' || mark == '?') && (after == ' ' || after == '\n');
}

bool sentences_next(struct sentences *s, bool is_end, const char **text, size_t *n)
{
    size_t i = s->looked > s->begin + 2 ? s->looked : s->begin + 2;
    while (i <= s->text.n && !ends_at(s->text.data, i))
        i++;
    const bool is_whole = i <= s->text.n, is_long = s->text.n - s->begin > SENTENCES_MAX_BYTES;
    if (!is_whole && !is_long && !is_end) {
        s->looked = s->text.n; /* its last character may be the first of an end */
        return false;
    }
    const size_t end = is_whole ? i : s->text.n;
    *text = s->text.data + s->begin;
    *n = end - s->begin;
    s->begin = s->looked = end;
    return *n > 0;
}

void sentences_free(struct sentences *s)
{
    buffer_free(&s->text);
    *s = (struct sentences){0};
}
