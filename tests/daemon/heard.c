#include "tests/daemon/heard.h"
#include "tests/daemon/link_calls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void on_ready(void *context, const struct wire_hello *hello)
{
    struct heard *h = context;
    h->ready = true;
    h->hello = *hello;
    snprintf(h->model, sizeof h->model, "%.*s", (int)hello->n_model, hello->model);
}
static void on_stats(void *context, const struct wire_stats *stats)
{
    struct heard *h = context;
    h->stats_came = true;
    h->stats = *stats;
}
static void on_control(void *context, const struct wire_refuse *refuse)
{
    assert_true(context == (const void *)refuse); /* these tests send no commands */
}
static void on_drain(void *context)
{
    ((struct heard *)context)->drained = true;
}
static void on_closed(void *context, const char *why)
{
    struct heard *h = context;
    assert_false(h->closed);
    h->closed = true;
    snprintf(h->why, sizeof h->why, "%s", why);
}
const struct engine_client_events heard_events = {
    .on_ready = on_ready, .on_stats = on_stats, .on_control = on_control, .on_drain = on_drain, .on_closed = on_closed};

static void on_accepted(void *context, uint64_t id)
{
    struct stream *s = context;
    assert_true(id != 0 && s->n_tokens == 0);
    s->accepted++;
}
static void on_refused(void *context, const struct wire_refuse *refuse)
{
    struct stream *s = context;
    s->refused++;
    s->refuse = *refuse;
    snprintf(s->message, sizeof s->message, "%.*s", (int)refuse->n_message, refuse->message);
    snprintf(s->parameter, sizeof s->parameter, "%.*s", (int)refuse->n_parameter, refuse->parameter);
}
static void on_token(void *context, const struct wire_token *token)
{
    struct stream *s = context;
    assert_int_equal(s->accepted, 1);
    assert_true(s->n_tokens < MOST);
    s->tokens[s->n_tokens++] = *token;
    if (s->n_tokens == s->cancel_at)
        cancel_at(s->heard->client, s->id, -1);
    if (s->close_at_token)
        engine_client_close(s->heard->client);
}
static void on_prompt_logprob(void *context, const struct wire_token *token)
{
    struct stream *s = context;
    if (s->n_prompt < 64)
        s->prompt[s->n_prompt] = *token;
    s->n_prompt++;
}
static void on_done(void *context, const struct wire_done *done)
{
    struct stream *s = context;
    assert_int_equal(s->last, 0);
    s->dones[s->done++] = *done;
    s->last += done->last;
    snprintf(s->message, sizeof s->message, "%.*s", (int)done->n_message, done->message);
    snprintf(s->parameter, sizeof s->parameter, "%.*s", (int)done->n_parameter, done->parameter);
}
static void on_lost(void *context, const char *why)
{
    struct stream *s = context;
    s->lost++;
    snprintf(s->message, sizeof s->message, "%s", why);
}
const struct completion_events stream_events = {
    .on_accepted = on_accepted,
    .on_refused = on_refused,
    .on_token = on_token,
    .on_prompt_logprob = on_prompt_logprob,
    .on_done = on_done,
    .on_lost = on_lost,
};

void stream_open(struct stream *s, struct heard *h)
{
    memset(s, 0, sizeof *s);
    s->heard = h;
    s->tokens = malloc(MOST * sizeof *s->tokens);
    assert_non_null(s->tokens);
}

bool is_ready_or_closed(void *context)
{
    struct heard *h = context;
    return h->ready || h->closed;
}
bool is_over(void *context)
{
    struct stream *s = context;
    return s->last || s->refused || s->lost;
}

void our_hello(struct wire_hello *hello)
{
    *hello = (struct wire_hello){.model = "fake", .n_model = 4};
    memset(hello->identity_text.bytes, 0x11, 32);
    memset(hello->identity_config.bytes, 0x22, 32);
}

const uint32_t heard_prompt[5] = {10, 20, 30, 40, 50};
void submit_of(struct request_spec *submit)
{
    request_spec_default(submit);
    submit->prompt = heard_prompt;
    submit->n_prompt = 5;
    submit->max_tokens = 100;
}

void submit(struct heard *h, struct stream *s, const struct request_spec *what)
{
    struct quire_error err;
    assert_int_equal(submit_to(h->client, what, &stream_events, s, &s->id, &err), QUIRE_OK);
}
