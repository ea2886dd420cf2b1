#include "scheduler/state/names.h"

#include <stdlib.h>

struct names *names_create(uint32_t n)
{
    struct names *names = malloc(sizeof *names + 2 * (size_t)n * sizeof names->free[0]);
    if (!names)
        return NULL;
    *names = (struct names){.n = n, .retired = names->free + n};
    while (names->n_free < n)
        names_give_back(names, n - 1 - names->n_free);
    return names;
}

uint32_t names_take(struct names *names)
{
    return names->free[--names->n_free];
}

void names_give_back(struct names *names, uint32_t name)
{
    names->free[names->n_free++] = name;
}

void names_retire(struct names *names, uint32_t name)
{
    names->retired[(names->retired_head + names->n_retired++) % names->n] = name;
}

bool names_next_retired(struct names *names, uint32_t *name)
{
    if (names->n_retired == 0)
        return false;
    *name = names->retired[names->retired_head];
    names->retired_head = (names->retired_head + 1) % names->n;
    names->n_retired--;
    return true;
}
