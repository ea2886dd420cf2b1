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
