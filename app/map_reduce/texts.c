#include "app/map_reduce/texts.h"

#include <stdio.h>
#include <stdlib.h>

struct buffer *texts_add(struct texts *t)
{
    if (t->n == t->capacity) {
        const size_t capacity = t->capacity ? 2 * t->capacity : 64;
        struct buffer *more = realloc(t->items, capacity * sizeof *more);
        if (!more)
            return NULL;
        t->items = more;
        t->capacity = capacity;
    }
    t->items[t->n] = (struct buffer){0};
    return &t->items[t->n++];
}

void texts_free(struct texts *t)
{
    for (size_t i = 0; i < t->n; i++)
        buffer_free(&t->items[i]);
    free(t->items);
    *t = (struct texts){0};
}

void texts_fill(struct buffer *out, const char *prompt, const char *text, size_t n)
{
    static const char mark[] = "{text}";
    const char *at = strstr(prompt, mark);
    buffer_append(out, prompt, at ? (size_t)(at - prompt) : strlen(prompt));
    if (!at)
        buffer_append(out, "\n\n", 2);
    buffer_append(out, text, n);
    if (at)
        buffer_append(out, at + sizeof mark - 1, strlen(at + sizeof mark - 1));
}

void texts_join(struct buffer *out, size_t number, const struct buffer *text)
{
    char head[48];
    const int n = snprintf(head, sizeof head, "%sItem %zu result:\n", out->n ? "\n\n" : "", number);
    buffer_append(out, head, (size_t)n);
    buffer_append(out, text->data, text->n);
}
