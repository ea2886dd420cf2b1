#include "server/gateway/file/arena.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

struct arena_part {
    struct arena_part *before;
    size_t n;
    alignas(max_align_t) char bytes[];
};

void *arena_new(struct arena *a, size_t n)
{
    struct arena_part *p = calloc(1, sizeof *p + n);
    if (!p)
        return NULL;
    p->before = a->last;
    p->n = n;
    a->last = p;
    return p->bytes;
}

char *arena_text(struct arena *a, const char *text, size_t n)
{
    char *copy = arena_new(a, n + 1);
    if (copy && n)
        memcpy(copy, text, n);
    return copy;
}

void arena_free(struct arena *a)
{
    for (struct arena_part *p = a->last, *before; p; p = before) {
        before = p->before;
        explicit_bzero(p->bytes, p->n);
        free(p);
    }
    a->last = NULL;
}
