#include "base/encoding/suggest.h"

#include "base/encoding/distance.h"

#include <stdbool.h>
#include <string.h>

static unsigned most_edits(size_t n)
{
    return n <= 4 ? 1 : n <= 7 ? 2 : 3;
}

struct suggest suggest_begin(const char *typed, size_t n)
{
    return (struct suggest){.typed = typed, .n_typed = n, .distance = most_edits(n) + 1};
}

/* Two neighbours in the wrong order are one slip of the fingers, not two edits. */
static bool is_swapped(const char *a, const char *b, size_t n)
{
    size_t i = 0;
    while (i < n && a[i] == b[i])
        i++;
    return i + 1 < n && a[i] == b[i + 1] && a[i + 1] == b[i] && memcmp(a + i + 2, b + i + 2, n - i - 2) == 0;
}

void suggest_try(struct suggest *s, const char *name, size_t n)
{
    if (n < 3)
        return;
    unsigned distance = quire_distance(s->typed, s->n_typed, name, n);
    if (n == s->n_typed && is_swapped(name, s->typed, n))
        distance = 1;
    else if (s->n_typed >= 3 && n > s->n_typed && memcmp(name, s->typed, s->n_typed) == 0 && distance > 1)
        distance = 1;
    else if (s->n_typed >= 6 && distance > 3 && memmem(name, n, s->typed, s->n_typed))
        distance = 3; /* "prefix-caching" of "enable-prefix-caching" */
    if (distance >= s->n_typed || distance >= s->distance)
        return;
    s->distance = distance;
    s->best = name;
    s->n_best = n;
}

void suggest_try_list(struct suggest *s, const char *names)
{
    while (names && *names) {
        const size_t n = strcspn(names, ",");
        suggest_try(s, names, n);
        names += n + (names[n] == ',');
    }
}
