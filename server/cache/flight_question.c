/* The question of a flight's request, and what the answer to a similar question is good for. */
#include "server/cache/flight_internal.h"

#include "base/clock.h"
#include "server/similar/guards.h"

#include <stdlib.h>
#include <string.h>

void flight_question_take(struct flight *f, const struct request_spec *spec, const struct completion_terms *terms)
{
    struct request_spec rest = *spec;
    struct key256 key;
    if (!f->cache->similar || !terms->question || terms->n_question == 0 || terms->n_question > ANSWER_MAX_QUESTION)
        return;
    rest.prompt = NULL;
    rest.n_prompt = 0;
    rest.max_tokens = 0; /* the length limit does not affect how the answer begins */
    if (!cache_key(&f->cache->identity, &rest, terms, &key))
        return;
    f->question = calloc(1, sizeof *f->question);
    if (!f->question)
        return;
    f->question->text = malloc(terms->n_question);
    if (!f->question->text) {
        flight_drop_question(f);
        return;
    }
    memcpy(f->question->text, terms->question, terms->n_question);
    f->question->n = terms->n_question;
    f->question->around = quire_keyed_hash(&key, terms->around.bytes, sizeof terms->around.bytes);
    f->question->is_compared = !f->resumed && spec->n_prediction == 0 && spec->max_tokens > 0;
}

bool flight_question_holds(const struct flight *f)
{
    return f->question && f->question->is_compared && similar_mode(f->cache->similar) == SIMILAR_ANSWER;
}

bool flight_question_fits(struct flight *f, const struct answer *answer)
{
    const struct answer_question *q = &answer->question;
    if (!q->text || f->spec->n_prompt_logprobs >= 0 || answer->n_choices != f->n ||
        answer->n_generated > (uint64_t)f->max_tokens * f->n ||
        !hit_is_young(answer, flight_max_age(f), cache_wall_ms() / 1000) || answer_was_cut(answer))
        return false;
    const enum guard guard = guard_differs(f->question->text, f->question->n, q->text, q->n);
    f->cache->counts.n_guarded[guard]++;
    return guard == GUARD_NONE;
}

void flight_question_serve(struct flight *f, struct cached *k)
{
    struct response_cache *c = f->cache;
    flight_unlist(f);
    for (struct waiter *a = waiter_walk(&f->waiters, true); a; a = waiter_walk(&f->waiters, false)) {
        hit_count(c, &k->answer);
        hit_begin(c, a, &k->answer, "semantic");
        a->origin.from = COMPLETION_SIMILAR;
        a->origin.similarity = f->question->match.similarity;
    }
    flight_hand_over(f, k, true);
    flight_end(f);
}

void flight_question_predict(struct flight *f, const struct answer *answer)
{
    const struct completion_source *below = &f->cache->below;
    uint32_t *tokens = f->is_below && below->predict ? malloc((answer->n_generated + 1) * sizeof *tokens) : NULL;
    const uint32_t n = tokens ? answer_tokens(answer, 0, tokens, f->max_tokens) : 0;
    f->question->is_drafted = n > 0 && below->predict(below->self, f->below_id, tokens, n);
    free(tokens);
    struct waiter *first = TAILQ_FIRST(&f->waiters.head);
    if (!f->question->is_drafted || first->origin.from != COMPLETION_COMPUTED)
        return;
    first->origin.from = COMPLETION_DRAFTED;
    first->origin.layer = "draft";
    first->origin.similarity = f->question->match.similarity;
}
