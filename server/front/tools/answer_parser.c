#include "server/front/tools/answer_parser.h"

#include <string.h>

/* Bytes of ids that a new one is compared with; a call after them gets a new id. */
#define MAX_IDS 65536

/* A parser with the sink of one push. */
struct pushed {
    struct answer_parser *p;
    const struct answer_sink *sink;
    bool ok;
};

static void on_text(void *context, const char *text, size_t n)
{
    const struct pushed *d = context;
    d->sink->tools.text(d->sink->tools.context, text, n);
}

/* Whether this id, which is without line breaks, is new in the answer. Clients match results by it. */
static bool is_new_id(struct pushed *d, const struct tool_call *call)
{
    struct buffer *ids = &d->p->ids;
    const size_t before = ids->n;
    buffer_append(ids, "\n", 1);
    buffer_append(ids, call->id, call->n_id);
    buffer_append(ids, "\n", 1);
    d->ok &= !ids->failed;
    if (ids->failed || !memmem(ids->data, before, ids->data + before, ids->n - before))
        return true;
    ids->n = before;
    return false;
}

static void on_call_begin(void *context, const struct tool_call *call)
{
    struct pushed *d = context;
    struct tool_call own = *call;
    d->p->skips = d->p->one_call && d->p->n_calls > 0;
    if (d->p->skips)
        return;
    d->p->n_calls++;
    if (own.id && (memchr(own.id, '\n', own.n_id) || d->p->ids.n > MAX_IDS || !is_new_id(d, call))) {
        own.id = NULL;
        own.n_id = 0;
    }
    d->sink->tools.call_begin(d->sink->tools.context, &own);
}

static void on_call_arguments(void *context, const char *text, size_t n)
{
    const struct pushed *d = context;
    if (!d->p->skips)
        d->sink->tools.call_arguments(d->sink->tools.context, text, n);
}

static void on_call_end(void *context)
{
    const struct pushed *d = context;
    if (!d->p->skips)
        d->sink->tools.call_end(d->sink->tools.context);
}

static struct tool_sink tool_sink(struct pushed *d)
{
    return (struct tool_sink){on_text, on_call_begin, on_call_arguments, on_call_end, d};
}

static void on_reasoning(void *context, const char *text, size_t n)
{
    const struct pushed *d = context;
    d->sink->reasoning(d->sink->tools.context, text, n);
}

/* Text behind the reasoning. */
static void on_answer(void *context, const char *text, size_t n)
{
    struct pushed *d = context;
    const struct tool_sink sink = tool_sink(d);
    if (d->p->tools.format == TOOL_NONE)
        on_text(d, text, n);
    else
        d->ok &= tool_parser_push(&d->p->tools, text, n, &sink);
}

static void on_message_over(void *context)
{
    struct pushed *d = context;
    const struct tool_sink sink = tool_sink(d);
    if (d->p->tools.format != TOOL_NONE)
        d->ok &= tool_parser_interrupt(&d->p->tools, &sink);
}

bool answer_parser_is_needed(const struct answer_parser *p)
{
    return p->reasoning.format != REASONING_NONE || p->tools.format != TOOL_NONE;
}

bool answer_parser_push(struct answer_parser *p, const char *text, size_t n, const struct answer_sink *sink)
{
    struct pushed d = {p, sink, true};
    const struct reasoning_sink split = {on_reasoning, on_answer, &d, on_message_over};
    if (n == 0)
        return true;
    if (p->reasoning.format == REASONING_NONE)
        on_answer(&d, text, n);
    else
        d.ok &= reasoning_parser_push(&p->reasoning, text, n, &split);
    return d.ok;
}

bool answer_parser_finish(struct answer_parser *p, const struct answer_sink *sink)
{
    struct pushed d = {p, sink, true};
    const struct reasoning_sink split = {on_reasoning, on_answer, &d, on_message_over};
    const struct tool_sink calls = tool_sink(&d);
    if (p->reasoning.format != REASONING_NONE)
        d.ok &= reasoning_parser_finish(&p->reasoning, &split);
    if (p->tools.format != TOOL_NONE)
        d.ok &= tool_parser_finish(&p->tools, &calls);
    return d.ok;
}

void answer_parser_free(struct answer_parser *p)
{
    reasoning_parser_free(&p->reasoning);
    tool_parser_free(&p->tools);
    buffer_free(&p->ids);
}
