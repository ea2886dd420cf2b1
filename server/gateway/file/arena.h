/* Memory that is freed at once. Zero it to begin. One thread at a time. */
#ifndef QUIRE_GATEWAY_ARENA_H
#define QUIRE_GATEWAY_ARENA_H

#include <stddef.h>

struct arena_part;
struct arena {
    struct arena_part *last;
};

/* n zero bytes, aligned for every type; NULL: out of memory. n may be 0. */
void *arena_new(struct arena *a, size_t n);
/* A copy of n bytes and a NUL; NULL: out of memory. */
char *arena_text(struct arena *a, const char *text, size_t n);
/* Frees everything, and overwrites it first: it may hold API keys. */
void arena_free(struct arena *a);

#endif
