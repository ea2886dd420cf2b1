#include "app/generate/answer.h"

#include "base/clock.h"
#include "engine/info.h"
#include "engine/plan.h"
#include "server/link/completion_source.h"
#include "speculation/figures.h"

#include <stdio.h>
#include <string.h>

static void finish(struct answer *a, int status)
{
    a->status = status;
    a->running = false;
    event_base_loopbreak(a->base);
}

/* The earliest stop text from `from` on. Returns false if there is none. */
static bool find_stop(const struct answer *a, size_t from, size_t *at)
{
    const struct cli_list *stops = &a->flags->stops;
    bool found = false;
    for (size_t i = 0; i < stops->n; i++) {
        const size_t n = strlen(stops->items[i]);
        const char *hit = n ? memmem(a->text.data + from, a->text.n - from, stops->items[i], n) : NULL;
        if (hit && (!found || (size_t)(hit - a->text.data) < *at))
            *at = (size_t)(hit - a->text.data);
        found = found || hit;
    }
    return found;
}

/* The length of the text's end that a stop text may begin with. */
static size_t n_held(const struct answer *a)
{
    const struct cli_list *stops = &a->flags->stops;
    size_t most = 0;
    for (size_t i = 0; i < stops->n; i++)
        for (size_t n = strlen(stops->items[i]); n-- > most + 1;)
            if (n <= a->text.n - a->n_shown && memcmp(a->text.data + a->text.n - n, stops->items[i], n) == 0)
                most = n;
    return most;
}

static void show(struct answer *a, size_t end)
{
    if (!a->flags->json && !a->flags->no_stream && end > a->n_shown)
        screen_write(&a->screen, a->text.data + a->n_shown, end - a->n_shown);
    a->n_shown = end > a->n_shown ? end : a->n_shown;
}

/* Text that was shown holds no begin of a stop text, so the search starts after it. */
static void emit(struct answer *a, const char *piece, size_t n)
{
    const struct completion_source *source = local_engine_source(a->engine);
    size_t at = 0;
    if (n == 0)
        return;
    if (buffer_append(&a->text, piece, n)) {
        finish(a, quire_fail(&a->err, QUIRE_NO_MEMORY, "out of memory"));
        return;
    }
    if (find_stop(a, a->n_shown, &at)) {
        a->text.n = at;
        show(a, at);
        source->cancel(source->self, a->source_id, -1);
        finish(a, QUIRE_OK);
        return;
    }
    show(a, a->text.n - n_held(a));
}

static void on_token(void *context, const struct wire_token *token)
{
    struct answer *a = context;
    const char *piece;
    size_t n;
    if (!a->running)
        return; /* after a stop text */
    if (a->n_generated++ == 0)
        a->first_token = quire_now_s();
    a->last_token = quire_now_s();
    if (token->has_logprob) {
        quire_sha256_add(&a->hash, &token->token, sizeof token->token);
        quire_sha256_add(&a->hash, &token->logprob, sizeof token->logprob);
    }
    int status = quire_detok_push(a->detok, token->token, &piece, &n, &a->err);
    if (status != QUIRE_OK)
        finish(a, status);
    else
        emit(a, piece, n);
}

static void on_done(void *context, const struct wire_done *done)
{
    struct answer *a = context;
    const char *piece;
    size_t n;
    if (!a->running)
        return;
    int status = quire_detok_finish(a->detok, &piece, &n, &a->err);
    if (status == QUIRE_OK)
        emit(a, piece, n);
    if (!a->running)
        return; /* the last piece had a stop text */
    a->is_cut = done->finish == WIRE_FINISH_LENGTH;
    a->n_drafted = done->n_drafted;
    a->n_accepted = done->n_accepted;
    if (done->finish == WIRE_FINISH_ERROR)
        status = quire_fail(&a->err, QUIRE_INTERNAL, "%.*s", (int)done->n_message, done->message);
    finish(a, status);
}

static void on_refused(void *context, const struct wire_refuse *refuse)
{
    struct answer *a = context;
    finish(a, quire_fail(&a->err, QUIRE_INVALID, "%.*s", (int)refuse->n_message, refuse->message));
}

static void on_lost(void *context, const char *why)
{
    struct answer *a = context;
    finish(a, quire_fail(&a->err, QUIRE_INTERNAL, "%s", why));
}

static void on_accepted(void *context, uint64_t engine_id)
{
    (void)context;
    (void)engine_id;
}

static int submit(struct answer *a, const uint32_t *ids, size_t n_ids)
{
    static const struct completion_events events = {
        .on_accepted = on_accepted,
        .on_refused = on_refused,
        .on_token = on_token,
        .on_prompt_logprob = on_token,
        .on_done = on_done,
        .on_lost = on_lost,
    };
    const struct engine_info *info = local_engine_info(a->engine);
    const struct completion_source *source = local_engine_source(a->engine);
    uint32_t room = info->max_model_len;
    room -= (uint32_t)n_ids;
    struct request_spec s;
    request_spec_default(&s);
    s.prompt = ids;
    s.n_prompt = (uint32_t)n_ids;
    s.max_tokens = a->flags->max_tokens && a->flags->max_tokens < room ? a->flags->max_tokens : room;
    request_spec_take_defaults(&s, info->sampling);
    if (a->flags->has_temperature)
        s.temperature = (float)a->flags->temperature;
    if (a->flags->has_top_p)
        s.top_p = (float)a->flags->top_p;
    if (s.top_p == 0) { /* greedy, as in requests; the model's default may be 0 too */
        s.temperature = 0;
        s.top_p = 1;
    }
    if (a->flags->has_top_k)
        s.top_k = a->flags->top_k;
    if (a->flags->has_min_p)
        s.min_p = (float)a->flags->min_p;
    if (a->flags->verbose)
        s.n_logprobs = 0;
    if (a->grammar) {
        s.grammar = (const uint8_t *)a->grammar;
        s.n_grammar = strlen(a->grammar);
    }
    a->n_prompt = s.n_prompt;
    a->n_generated = a->n_drafted = a->n_accepted = 0;
    buffer_clear(&a->text);
    a->n_shown = 0;
    a->is_cut = false;
    quire_sha256_begin(&a->hash);
    screen_begin(&a->screen, stdout);
    a->started = quire_now_s();
    a->interrupted = false;
    a->running = true;
    return source->submit(source->self, &s, NULL, &events, a, &a->source_id, &a->err);
}

int answer_run(struct answer *a, const uint32_t *ids, size_t n_ids)
{
    int status = quire_detok_open(local_engine_text(a->engine), ids, n_ids, true, &a->detok, &a->err);
    if (status == QUIRE_OK)
        status = submit(a, ids, n_ids);
    if (status == QUIRE_OK) {
        event_base_dispatch(a->base);
        status = a->status;
        show(a, a->text.n);
        if (a->flags->no_stream && !a->flags->json)
            screen_write(&a->screen, a->text.data, a->text.n);
        screen_end(&a->screen);
    }
    quire_detok_close(a->detok);
    a->detok = NULL;
    return status;
}

void answer_close(struct answer *a)
{
    buffer_free(&a->text);
    screen_close(&a->screen);
}

void answer_fail(struct answer *a, const char *why)
{
    finish(a, quire_fail(&a->err, QUIRE_INTERNAL, "the engine closed the connection: %s", why));
}

void answer_interrupt(struct answer *a)
{
    const struct completion_source *source = local_engine_source(a->engine);
    a->interrupted = true;
    if (a->running)
        source->cancel(source->self, a->source_id, -1);
    finish(a, QUIRE_OK);
}

void answer_print_speed(const struct answer *a)
{
    double total = quire_now_s() - a->started, first = a->first_token - a->started;
    fprintf(stderr, "(%u tokens in, first token after %.0f ms, %u tokens out at %.1f tokens/s", a->n_prompt,
            first * 1e3, a->n_generated, a->n_generated / total);
    if (a->n_drafted > 0)
        fprintf(stderr, "; %.2f tokens per step, %.0f%% of %u drafts accepted",
                draft_tokens_a_step(a->n_generated, a->n_accepted), 100 * draft_acceptance(a->n_drafted, a->n_accepted),
                a->n_drafted);
    if (a->flags->verbose && a->n_generated > 1) {
        const struct key256 hash = quire_sha256_now(&a->hash);
        const double bytes = (double)local_engine_info(a->engine)->plan->bytes[PLAN_WEIGHTS];
        char hex[65];
        quire_key256_hex(&hash, hex);
        fprintf(stderr, "; %.2f GB/s of weights; logprobs sha256:%s",
                bytes * (a->n_generated - 1) / (a->last_token - a->first_token) / 1e9, hex);
    }
    fputs(")\n", stderr);
}
