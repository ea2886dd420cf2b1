#include "app/command/unknown.h"

#include <stdio.h>
#include <string.h>

int suggest_unknown(const struct suggest *s, const char *what, const char *prefix)
{
    fprintf(stderr, "quire: unknown %s \"%.40s%.*s\"; ", what, strcmp(prefix, "quire ") == 0 ? "" : prefix,
            s->n_typed < 64 ? (int)s->n_typed : 64, s->typed);
    if (s->best)
        fprintf(stderr, "did you mean %s%.*s?\n", prefix, (int)s->n_best, s->best);
    else
        fprintf(stderr, "%s--help lists all of them\n", prefix);
    return 2;
}

struct unknown_name unknown_begin(int argc, char **argv)
{
    return (struct unknown_name){.near = suggest_begin(argv[0], strlen(argv[0])), .next = argc > 1 ? argv[1] : NULL};
}

void unknown_try(struct unknown_name *u, const char *name)
{
    suggest_try_list(&u->near, name);
    u->is_swapped = u->is_swapped || (u->next && strcmp(u->next, name) == 0);
}

int unknown_end(const struct unknown_name *u, const char *what, const char *prefix)
{
    if (!u->is_swapped)
        return suggest_unknown(&u->near, what, prefix);
    fprintf(stderr, "quire: unknown %s \"%s%.200s\"; the two are swapped: write %s%s %.200s\n", what,
            strcmp(prefix, "quire ") == 0 ? "" : prefix, u->near.typed, prefix, u->next, u->near.typed);
    return 2;
}
