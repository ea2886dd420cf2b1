#include "app/generate/answer.h"

#include "base/clock.h"
#include "engine/info.h"
#include "server/link/completion_source.h"
#include "speculation/figures.h"

#include <stdio.h>
#include <stdlib.h>

static void finish(struct answer *a, int status)
{
    a->status = status;
    a->running = false;
    event_base_loopbreak(a->base);
}

static void emit(struct answer *a, const char *piece, size_t n)
{
    if (n == 0)
        return;
    if (buffer_append(&a->text, piece, n)) {
        finish(a, quire_fail(&a->err, QUIRE_NO_MEMORY, "out of memory"));
        return;
    }
    if (!a->flags->json) {
        fwrite(piece, 1, n, stdout);
        fflush(stdout);
    }
}

static void on_token(void *context, const struct wire_token *token)
{
    struct answer *a = context;
    const char *piece;
    size_t n;
    if (a->n_generated++ == 0)
        a->first_token = quire_now_s();
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
    int status = quire_detok_finish(a->detok, &piece, &n, &a->err);
    if (status == QUIRE_OK)
        emit(a, piece, n);
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
    if (n_ids == 0)
        return quire_fail(&a->err, QUIRE_INVALID, "the prompt is empty");
    if (n_ids >= room)
        return quire_fail(&a->err, QUIRE_INVALID,
                          "the prompt has %zu tokens, but the context has only %u; raise --max-model-len, or start a "
                          "new chat",
                          n_ids, room);
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
    a->n_prompt = s.n_prompt;
    a->n_generated = a->n_drafted = a->n_accepted = 0;
    buffer_clear(&a->text);
    a->started = quire_now_s();
    a->interrupted = false;
    a->running = true;
    return source->submit(source->self, &s, NULL, &events, a, &a->source_id, &a->err);
}

int answer_run(struct answer *a, const char *prompt, size_t n, bool is_plain)
{
    const struct quire_text *text = local_engine_text(a->engine);
    size_t n_ids = 0;
    uint32_t *ids = NULL;
    int status = quire_text_encode(text, prompt, n, is_plain, &ids, &n_ids, &a->err);
    if (status == QUIRE_OK)
        status = quire_detok_open(text, ids, n_ids, true, &a->detok, &a->err);
    if (status == QUIRE_OK)
        status = submit(a, ids, n_ids);
    if (status == QUIRE_OK) {
        event_base_dispatch(a->base);
        status = a->status;
    }
    quire_detok_close(a->detok);
    a->detok = NULL;
    free(ids);
    return status;
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
    fputs(")\n", stderr);
}
