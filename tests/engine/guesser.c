#include "guesser.h"

#include "client.h"

#include <stdlib.h>

#define MOST 16u

static uint32_t below(struct guesser *g, uint32_t n)
{
    g->random = g->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((g->random >> 33) % n);
}

static struct sched *of(const struct sched *s)
{
    return (struct sched *)(uintptr_t)s; /* a watch may not; an engine that guesses would do it here */
}

static void on_submitted(void *context, const struct engine_watch_submit *s)
{
    struct guesser *g = context;
    for (uint32_t i = 0; s->status == QUIRE_OK && i < s->sched->n; i++) {
        g->owners[s->seqs[i]].answer = g->answers[(s->request - CLIENT_FIRST_ID) % g->n_answers];
        g->owners[s->seqs[i]].choice = i;
    }
}

static void on_retired(void *context, uint32_t seq)
{
    struct guesser *g = context;
    g->owners[seq].answer = NULL;
}

static void on_planned(void *context, uint64_t now_us, const struct sched_plan *plan, const struct sched *sched)
{
    (void)context;
    (void)now_us;
    for (uint32_t i = 0; i < plan->n_admitted; i++)
        sched_gate(of(sched), plan->admitted[i], true);
}

static void guess(struct guesser *g, struct sched *s, uint32_t seq)
{
    const struct answer *a = g->owners[seq].answer;
    const struct choice_answer *o = &a->choices[g->owners[seq].choice];
    uint32_t drafts[MOST], n_known, n = 0, most = g->k ? g->k : below(g, MOST + 1);
    uint32_t n_right = g->guesses == GUESSES_RIGHT ? most : g->guesses == GUESSES_MIXED ? below(g, most + 1) : 0;
    sched_tokens(s, seq, &n_known);
    for (uint32_t at = n_known - a->n_prompt; n < most && at < o->n_tokens; n++, at++)
        drafts[n] = n < n_right ? o->tokens[at] : below(g, g->n_vocab);
    sched_propose(s, seq, drafts, n);
}

static void on_committed(void *context, const struct engine_watch_commit *c)
{
    struct guesser *g = context;
    for (uint32_t i = 0; i < c->plan->n_rows; i++)
        g->n_verified += c->plan->rows[i].n_draft;
    for (uint32_t i = 0; i < c->n_results; i++) {
        uint32_t seq = c->results[i].seq;
        g->n_accepted += c->results[i].n_accepted;
        if (c->results[i].finished || !g->owners[seq].answer)
            continue;
        guess(g, of(c->sched), seq);
        sched_gate(of(c->sched), seq, below(g, 8) > 0);
    }
}

struct guesser *guesser_new(struct answer *const *answers, uint32_t n_answers, uint32_t n_vocab, enum guesses guesses,
                            uint32_t k, uint64_t seed)
{
    struct guesser *g = calloc(1, sizeof *g);
    if (!g)
        abort();
    g->watch = (struct engine_watch){.context = g,
                                     .submitted = on_submitted,
                                     .planned = on_planned,
                                     .committed = on_committed,
                                     .retired = on_retired};
    g->answers = answers;
    g->n_answers = n_answers;
    g->n_vocab = n_vocab;
    g->guesses = guesses;
    g->k = k;
    g->random = seed;
    return g;
}
