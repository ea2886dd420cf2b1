#include "server/cache/verify.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

#define MOST_RUNNING 4 /* at once: it is background work */

struct verifier {
    struct verifier_options options;
    double due; /* grows by the share with each served response, up to 1 */
    TAILQ_HEAD(, verification) running;
    uint32_t n_running;
    uint64_t n_verified, n_differing;
};

struct verification {
    TAILQ_ENTRY(verification) link;
    struct verifier *verifier;
    struct cached *cached; /* read by it */
    uint64_t below_id;
    size_t prompt_cursor, cursors[REQUEST_MAX_CHOICES];
    bool is_cut[REQUEST_MAX_CHOICES];
    bool is_submitting, is_over;
};

bool verifier_is_due(const struct verifier *v)
{
    return v->options.share > 0 && v->due + v->options.share >= 1 && v->n_running < MOST_RUNNING;
}

void verifier_pass(struct verifier *v)
{
    v->due = v->due + v->options.share < 1 ? v->due + v->options.share : 1;
}

static void end(struct verification *a)
{
    if (!a->is_over) {
        TAILQ_REMOVE(&a->verifier->running, a, link);
        a->verifier->n_running--;
        cached_leave(a->cached);
        a->is_over = true;
    }
    if (!a->is_submitting)
        free(a);
}

void verifier_stop(struct verifier *v)
{
    struct verification *a;
    while ((a = TAILQ_FIRST(&v->running)))
        end(a);
}

void verifier_free(struct verifier *v)
{
    if (v)
        verifier_stop(v);
    free(v);
}

struct verifier *verifier_new(const struct verifier_options *options)
{
    struct verifier *v = calloc(1, sizeof *v);
    if (!v)
        return NULL;
    v->options = *options;
    TAILQ_INIT(&v->running);
    return v;
}

void verifier_counts(const struct verifier *v, uint64_t *n_verified, uint64_t *n_differing)
{
    *n_verified = v->n_verified;
    *n_differing = v->n_differing;
}

static const struct completion_source *below_of(const struct verification *a)
{
    return a->verifier->options.below;
}

static void differs(struct verification *a)
{
    struct verifier *v = a->verifier;
    char key[65];
    v->n_differing++;
    quire_key256_hex(&a->cached->answer.key, key);
    quire_log(QUIRE_LOG_ERROR, "cache", "the cached response %s differs from the computed one and was dropped", key);
    v->options.on_differing(v->options.context, a->cached);
    below_of(a)->cancel(below_of(a)->self, a->below_id, -1);
    end(a);
}

/* The next that is kept of a choice, or of the prompt. */
static bool next_of(struct verification *a, bool of_prompt, uint32_t choice, struct answer_event *e)
{
    const struct answer *answer = &a->cached->answer;
    size_t *cursor = of_prompt ? &a->prompt_cursor : &a->cursors[choice];
    while (answer_next(answer->events, cursor, e)) {
        if (e->kind == ANSWER_PROMPT_LOGPROB
                ? of_prompt
                : !of_prompt && choice == (e->kind == ANSWER_DONE ? e->done.choice : e->token.choice))
            return true;
    }
    return false;
}

static bool same_token(const struct wire_token *a, const struct wire_token *b)
{
    return a->token == b->token && a->has_logprob == b->has_logprob &&
           (!a->has_logprob ||
            (memcmp(&a->logprob, &b->logprob, sizeof a->logprob) == 0 && a->rank == b->rank && a->n_top == b->n_top &&
             memcmp(a->top_ids, b->top_ids, a->n_top * sizeof *a->top_ids) == 0 &&
             memcmp(a->top_logprobs, b->top_logprobs, a->n_top * sizeof *a->top_logprobs) == 0));
}

static void take_token(struct verification *a, const struct wire_token *token, bool of_prompt)
{
    struct answer_event e;
    const uint32_t choice = token->choice;
    if (!of_prompt && choice < REQUEST_MAX_CHOICES && a->is_cut[choice])
        return;
    const bool known = (of_prompt || choice < a->cached->answer.n_choices) && next_of(a, of_prompt, choice, &e);
    if (known && e.kind == ANSWER_DONE && e.done.finish == WIRE_FINISH_CANCELLED) {
        /* The client cut it here. */
        a->is_cut[choice] = true;
        below_of(a)->cancel(below_of(a)->self, a->below_id, choice);
    } else if (!known || e.kind == ANSWER_DONE || !same_token(token, &e.token)) {
        differs(a);
    }
}

static void on_token(void *context, const struct wire_token *token)
{
    take_token(context, token, false);
}

static void on_prompt_logprob(void *context, const struct wire_token *token)
{
    take_token(context, token, true);
}

static void on_done(void *context, const struct wire_done *done)
{
    struct verification *a = context;
    struct answer_event e;
    const uint32_t choice = done->choice;
    if (choice >= a->cached->answer.n_choices) {
        differs(a);
        return;
    }
    if (!a->is_cut[choice]) {
        if (done->finish >= WIRE_FINISH_CANCELLED) { /* it was not computed */
            if (!done->last)
                below_of(a)->cancel(below_of(a)->self, a->below_id, -1);
            end(a);
            return;
        }
        const bool ends = next_of(a, false, choice, &e) && e.kind == ANSWER_DONE;
        if (!ends || (e.done.finish != WIRE_FINISH_CANCELLED &&
                      (e.done.finish != done->finish || e.done.stop_token != done->stop_token))) {
            differs(a);
            return;
        }
    }
    if (!done->last)
        return;
    a->verifier->n_verified++;
    end(a);
}

static void on_accepted(void *context, uint64_t engine_id)
{
    (void)context;
    (void)engine_id;
}

static void on_refused(void *context, const struct wire_refuse *refuse)
{
    (void)refuse;
    end(context);
}

static void on_lost(void *context, const char *why)
{
    (void)why;
    end(context);
}

static void begin(struct verifier *v, struct cached *k, const struct request_spec *spec)
{
    static const struct completion_events events = {.on_accepted = on_accepted,
                                                    .on_refused = on_refused,
                                                    .on_token = on_token,
                                                    .on_prompt_logprob = on_prompt_logprob,
                                                    .on_done = on_done,
                                                    .on_lost = on_lost};
    struct verification *a = calloc(1, sizeof *a);
    struct request_spec s = *spec;
    if (!a)
        return;
    /* No tenant is charged for it, and no client waits for it. */
    s.tenant = s.class_index = 0;
    s.priority = 0;
    s.background = true;
    s.deadline_us = s.pin_us = 0;
    s.prediction = NULL;
    s.n_prediction = 0;
    a->verifier = v;
    a->cached = k;
    cached_read(k);
    TAILQ_INSERT_TAIL(&v->running, a, link);
    v->n_running++;
    a->is_submitting = true;
    const int status = v->options.below->submit(v->options.below->self, &s, NULL, &events, a, &a->below_id, NULL);
    a->is_submitting = false;
    if (status != QUIRE_OK || a->is_over)
        end(a);
}

void verifier_served(struct verifier *v, struct cached *k, const struct request_spec *spec)
{
    const bool is_due = verifier_is_due(v) && !k->answer.unseeded;
    if (v->options.share <= 0)
        return;
    verifier_pass(v);
    if (!is_due)
        return;
    v->due = 0;
    begin(v, k, spec);
}
