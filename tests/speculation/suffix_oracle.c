#include "tests/speculation/suffix_oracle.h"

#include <stdlib.h>
#include <string.h>

struct place {
    const uint32_t *at, *end; /* what follows */
    uint32_t n_agree;
};

/* All places after the last token, the latest first: `texts` are in the order of their age. */
static uint32_t find_all(const struct oracle_text *texts, uint32_t n_texts, const uint32_t *last, uint32_t n_last,
                         uint32_t depth, struct place **places)
{
    uint32_t n = 0, room = 16;
    *places = malloc(room * sizeof **places);
    for (uint32_t i = n_texts; i-- > 0;)
        for (uint32_t at = texts[i].n; at-- > 1;) {
            uint32_t agree = 0;
            while (agree < depth && agree < n_last && agree < at &&
                   texts[i].tokens[at - 1 - agree] == last[n_last - 1 - agree])
                agree++;
            if (agree == 0)
                continue;
            if (n == room)
                *places = realloc(*places, (room *= 2) * sizeof **places);
            (*places)[n++] = (struct place){texts[i].tokens + at, texts[i].tokens + texts[i].n, agree};
        }
    return n;
}

/* The most frequent token at `depth` among those alive, the latest place's of equals. */
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

static void walk(const struct suffix_config *c, struct place *places, uint32_t n_places, uint32_t agree, uint32_t most,
                 int ends_count, struct oracle_guess *best)
{
    struct place **alive = malloc(n_places * sizeof *alive);
    struct oracle_guess g = {.n = 0};
    uint32_t n = 0, votes;
    double chance = 1;
    for (uint32_t i = 0; i < n_places; i++)
        if (places[i].n_agree >= agree)
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
    for (uint32_t agree = c->max_tree_depth; agree > 0; agree--) {
        double limit = (double)c->max_spec_factor * agree;
        uint32_t n_there = 0;
        for (uint32_t i = 0; i < n; i++)
            n_there += places[i].n_agree >= agree;
        if (n_there > 0)
            walk(c, places, n, agree, limit < most ? (uint32_t)limit : most, ends_count, best);
    }
    free(places);
}
