#include "tests/front/fake_source.h"

#include <stdlib.h>
#include <string.h>

#define MAX_CHOICES 128

struct answer {
    struct answer *next;
    struct fake_source *source;
    uint64_t id;
    struct completion_events events;
    void *context;
    uint32_t *prompt;
    uint32_t n_prompt, max_tokens, n;
    bool refused, cancelled, choice_cancelled[MAX_CHOICES];
    struct event *begin;
};

struct fake_source {
    struct event_base *base;
    bool later;
    uint32_t eos;
    uint64_t next_id;
    struct answer *live;
};

static void answer_free(struct answer *a)
{
    struct answer **at = &a->source->live;
    while (*at != a)
        at = &(*at)->next;
    *at = a->next;
    if (a->begin)
        event_free(a->begin);
    free(a->prompt);
    free(a);
}

static void tell(struct answer *a)
{
    static const char full[] = "the cache is full";
    if (a->cancelled)
        return;
    if (a->refused) {
        const struct wire_refuse refuse = {
            .status = QUIRE_EXHAUSTED, .retry_after_ms = 1500, .message = full, .n_message = sizeof full - 1};
        a->events.on_refused(a->context, &refuse);
        return;
    }
    a->events.on_accepted(a->context, a->id);
    const uint32_t n_tokens = a->max_tokens <= a->n_prompt ? a->max_tokens : a->n_prompt + 1;
    for (uint32_t i = 0; i < n_tokens; i++) {
        for (uint32_t c = 0; c < a->n && !a->cancelled; c++) {
            const struct wire_token token = {.choice = c, .token = i < a->n_prompt ? a->prompt[i] : a->source->eos};
            if (!a->choice_cancelled[c])
                a->events.on_token(a->context, &token);
        }
    }
    for (uint32_t c = 0; c < a->n && !a->cancelled; c++) {
        const bool stopped = n_tokens > a->n_prompt;
        const struct wire_done done = {
            .choice = c,
            .finish = a->choice_cancelled[c] ? WIRE_FINISH_CANCELLED
                      : stopped              ? WIRE_FINISH_STOP
                                             : WIRE_FINISH_LENGTH,
            .last = c + 1 == a->n,
            .has_stop_token = stopped,
            .stop_token = a->source->eos,
            .n_prompt = a->n_prompt,
            .n_generated = n_tokens,
            .n_predicted = n_tokens + 1, /* like a cache that tries stored answers: the client sent no prediction */
            .n_predicted_right = n_tokens,
            .n_created = c == 0 ? a->n_prompt / 16 * 16 : 0, /* as the fake engine reports */
        };
        a->events.on_done(a->context, &done);
    }
}

static void on_begin(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    tell(context);
    answer_free(context);
}

static int submit(void *self, const struct request_spec *submit, const struct completion_terms *terms,
                  const struct completion_events *events, void *context, uint64_t *id, struct quire_error *err)
{
    struct fake_source *s = self;
    struct answer *a = calloc(1, sizeof *a);
    uint32_t *prompt = malloc(submit->n_prompt * sizeof *prompt);
    if (!a || !prompt || submit->n > MAX_CHOICES)
        abort();
    (void)err;
    (void)terms;
    memcpy(prompt, submit->prompt, submit->n_prompt * sizeof *prompt);
    *a = (struct answer){.next = s->live,
                         .source = s,
                         .id = *id = ++s->next_id,
                         .events = *events,
                         .context = context,
                         .prompt = prompt,
                         .n_prompt = submit->n_prompt,
                         .max_tokens = submit->max_tokens,
                         .n = submit->n,
                         .refused = submit->priority == FAKE_SOURCE_REFUSES};
    s->live = a;
    if (!s->later) {
        tell(a);
        answer_free(a);
        return QUIRE_OK;
    }
    a->begin = event_new(s->base, -1, 0, on_begin, a);
    event_active(a->begin, EV_TIMEOUT, 0);
    return QUIRE_OK;
}

static void cancel(void *self, uint64_t id, int64_t choice)
{
    struct fake_source *s = self;
    struct answer *a = s->live;
    while (a && a->id != id)
        a = a->next;
    if (a && choice < 0)
        a->cancelled = true;
    else if (a)
        a->choice_cancelled[choice] = true;
}

struct fake_source *fake_source_open(struct event_base *base, bool later, uint32_t eos)
{
    struct fake_source *s = calloc(1, sizeof *s);
    if (!s)
        abort();
    *s = (struct fake_source){.base = base, .later = later, .eos = eos};
    return s;
}

void fake_source_close(struct fake_source *s)
{
    while (s && s->live)
        answer_free(s->live);
    free(s);
}

struct completion_source fake_source_as_source(struct fake_source *s)
{
    return (struct completion_source){.self = s, .submit = submit, .cancel = cancel};
}
