#include "server/front/observe/prefix_watch.h"

#include <stdlib.h>
#include <string.h>

static size_t shared(const uint32_t *a, const uint32_t *b, size_t n)
{
    size_t i = 0;
    while (i + 16 <= n && memcmp(a + i, b + i, 16 * sizeof *a) == 0)
        i += 16;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/* Keeps nothing if memory is out. */
static void keep(struct watched_prompt *p, const struct key256 *domain, const uint32_t *ids, size_t n)
{
    uint32_t *copy = n > 0 ? malloc(n * sizeof *copy) : NULL;
    free(p->ids);
    if (copy)
        memcpy(copy, ids, n * sizeof *copy);
    *p = (struct watched_prompt){.domain = *domain, .ids = copy, .n = copy ? n : 0, .used = copy ? p->used : 0};
}

bool prefix_watch_add(struct prefix_watch *w, const struct key256 *domain, const uint32_t *ids, size_t n, uint32_t *at)
{
    struct watched_prompt *oldest = w->prompts, *same = NULL; /* same: has the same beginning, as far as both go */
    size_t longest = 0;
    bool is_alone = true;
    if (n > PREFIX_WATCH_TOKENS)
        n = PREFIX_WATCH_TOKENS;
    for (struct watched_prompt *p = w->prompts; p < w->prompts + PREFIX_WATCH_PROMPTS; p++) {
        if (p->used < oldest->used)
            oldest = p;
        if (p->used == 0 || memcmp(&p->domain, domain, sizeof *domain) != 0)
            continue;
        size_t least = n < p->n ? n : p->n, k = shared(ids, p->ids, least);
        is_alone = false;
        if (k == least && (!same || p->n > same->n))
            same = p;
        if (k > longest)
            longest = k;
    }
    struct watched_prompt *to = same ? same : oldest;
    to->used = ++w->clock;
    if (!same || n > same->n)
        keep(to, domain, ids, n);
    *at = (uint32_t)longest;
    return !is_alone && !same;
}

void prefix_watch_free(struct prefix_watch *w)
{
    for (int i = 0; i < PREFIX_WATCH_PROMPTS; i++)
        free(w->prompts[i].ids);
    *w = (struct prefix_watch){0};
}
