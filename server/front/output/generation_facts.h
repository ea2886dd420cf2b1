/* What is known of a generating request when it is over, for its line in the log and its spans. None of
 * them holds any of its text. Private to generation_*.c. Loop's thread. */
#ifndef QUIRE_FRONT_GENERATION_FACTS_H
#define QUIRE_FRONT_GENERATION_FACTS_H

#include "server/front/output/generation.h"

/* Times on the clock of struct timing; 0: it was not reached. */
struct generation_facts {
    const char *finish, *error; /* error: its code; NULL */
    int status;
    uint64_t n_prompt, n_cached, n_generated, n_most, n_choices, n_drafted, n_accepted;
    uint64_t queued_until_us, first_us, last_us, engine_id;
};

/* What counts it. */
static inline struct metrics *generation_metrics(const struct generation *g)
{
    return g->params.spec.background ? &g->served->counts->background : &g->served->counts->all;
}

static inline uint64_t facts_since(uint64_t now_us, uint64_t then_us)
{
    return now_us > then_us ? now_us - then_us : 0;
}

/* One line. generation_log.c. */
void generation_log(const struct generation *g, const struct generation_facts *f);
/* A span for the request and one for each of its parts, to the collector. generation_spans.c. */
void generation_send_spans(const struct generation *g, const struct generation_facts *f);

#endif
