#include "tests/speculation/suffix_oracle.h"

#include <stdlib.h>
#include <string.h>

struct place {
    const uint32_t *at, *end; /* what follows */
    uint32_t n_same;  /* tokens before it that equal the last ones */
    uint32_t n_agree; /* the same, except for one edit */
};

static uint32_t same(const uint32_t *a, int64_t n_a, const uint32_t *b, int64_t n_b, uint32_t most)
{
    uint32_t n = 0;
    while (n < most && n < n_a && n < n_b && a[n_a - 1 - n] == b[n_b - 1 - n])
        n++;
    return n;
}

static struct place place_at(const struct oracle_text *t, uint32_t at, const uint32_t *last, uint32_t n_last,
                             uint32_t depth)
{
    uint32_t n = same(t->tokens, at, last, n_last, depth), more = 0;
    for (int edit = 1; edit < 4 && n < depth; edit++) { /* 1: removed, 2: inserted, 3: replaced */
        int64_t n_a = (int64_t)at - n - (edit & 1), n_b = (int64_t)n_last - n - (edit >> 1);
        uint32_t m = same(t->tokens, n_a, last, n_b, depth - n - (uint32_t)(edit >> 1));
        more = m > more ? m : more;
    }
    return (struct place){t->tokens + at, t->tokens + t->n, n, more >= 3 ? n + more : n};
}

/* All positions after the last token, the latest first: `texts` are in the order of their age. */
static uint32_t find_all(const struct oracle_text *texts, uint32_t n_texts, const uint32_t *last, uint32_t n_last,
                         uint32_t depth, struct place **places)
{
    uint32_t n = 0, room = 16;
    *places = malloc(room * sizeof **places);
    for (uint32_t i = n_texts; i-- > 0;)
        for (uint32_t at = texts[i].n; at-- > 1;) {
            struct place p = place_at(&texts[i], at, last, n_last, depth);
            if (p.n_same == 0)
                continue;
            if (n == room)
                *places = realloc(*places, (room *= 2) * sizeof **places);
            (*places)[n++] = p;
        }
    return n;
}

/* The most frequent token at `depth` among the live positions; ties go to the latest position. */
static uint32_t most_frequent(struct place *const *alive, uint32_t n, uint32_t depth, uint32_t *votes)
{
    uint32_t best = 0;
    *votes = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t same = 0;
        for (uint32_t j = 0; j < n; j++)
            same += alive[j]->at[depth] == alive[i]->at[depth];
        if (same > *votes) {
            *votes = same;
            best = alive[i]->at[depth];
        }
    }
    return best;
}

static void walk(const struct suffix_config *c, struct place *places, uint32_t n_places, uint32_t agree,
                 uint32_t found_by, uint32_t most, int ends_count, struct oracle_guess *best)
{
    struct place **alive = malloc(n_places * sizeof *alive);
    struct oracle_guess g = {.n = 0};
    uint32_t n = 0, votes;
    double chance = 1;
    for (uint32_t i = 0; i < n_places; i++)
        if (places[i].n_agree >= agree && places[i].n_same >= found_by)
            alive[n++] = &places[i];
    uint32_t counted = n;
    while (n > 0 && g.n < most) {
        uint32_t token = most_frequent(alive, n, g.n, &votes), n_next = 0, n_ended = 0;
        chance *= (double)votes / counted;
        if (chance < (double)c->min_token_prob - 1e-7)
            break;
        for (uint32_t i = 0; i < n; i++)
            if (alive[i]->at[g.n] == token) {
                if (alive[i]->at + g.n + 1 < alive[i]->end)
                    alive[n_next++] = alive[i];
                else
                    n_ended++;
            }
        g.tokens[g.n++] = token;
        g.worth += chance;
        n = n_next;
        counted = n + (ends_count ? n_ended : 0);
    }
    if (g.worth > best->worth + 1e-5)
        *best = g;
    free(alive);
}

void oracle_guess(const struct suffix_config *c, const struct oracle_text *texts, uint32_t n_texts,
                  const uint32_t *last, uint32_t n_last, uint32_t most, int ends_count, struct oracle_guess *best)
{
    struct place *places;
    uint32_t n = find_all(texts, n_texts, last, n_last, c->max_tree_depth, &places);
    for (uint32_t found_by = 8; found_by > 0; found_by /= 2)
        for (uint32_t agree = c->max_tree_depth; agree > 0; agree--) {
            double limit = (double)c->max_spec_factor * agree;
            uint32_t n_there = 0;
            for (uint32_t i = 0; i < n; i++)
                n_there += places[i].n_agree >= agree && places[i].n_same >= found_by;
            if (n_there > 0)
                walk(c, places, n, agree, found_by, limit < most ? (uint32_t)limit : most, ends_count, best);
        }
    free(places);
}
