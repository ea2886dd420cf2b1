/* Writes the replies of /v1/chat/completions. */
#include "server/front/output/reply_choices.h"

#include <string.h>

static void begin(struct reply *r, const struct generation_job *j)
{
    choices_begin(r, j->job.model, r->params->stream ? "chat.completion.chunk" : "chat.completion");
}

static void put_prompt_ids(struct buffer *o, const struct reply *r, const struct reply_prompt *p)
{
    if (r->params->return_token_ids)
        choices_put_ids(o, "prompt_token_ids", p->item.ids, p->item.n_ids);
}

static void open_choice(struct reply *r, struct reply_prompt *p, struct choice *c)
{
    struct buffer *o = &r->event;
    if (c->parts->opened)
        return;
    c->parts->opened = true;
    choices_begin_event(r);
    put_prompt_ids(o, r, p);
    choices_begin_choice(r, c);
    /* With possible tool calls there may be no content: null, until content comes. */
    json_out_raw(o, ",\"delta\":{\"role\":\"assistant\",\"content\":");
    json_out_raw(o, r->params->tool_format == TOOL_NONE ? "\"\"" : "null");
    json_out_raw(o, "},\"logprobs\":null,\"finish_reason\":null");
    choices_end_event(r);
    if (r->params->n_lead == 0)
        return;
    choices_begin_event(r);
    choices_begin_choice(r, c);
    json_out_raw(o, ",\"delta\":{\"content\":");
    json_out_string(o, r->params->lead, r->params->n_lead);
    json_out_raw(o, "},\"logprobs\":null,\"finish_reason\":null");
    choices_end_event(r);
}

/* ---- a delta of a stream: content, or a part of a call ---- */

struct deltas {
    struct reply *r;
    struct choice *c;
    const struct gen_piece *piece; /* its tokens go with the first delta only */
    bool any;
};

static void begin_delta(struct deltas *d)
{
    choices_begin_event(d->r);
    choices_begin_choice(d->r, d->c);
    json_out_raw(&d->r->event, ",\"delta\":{");
}

static void end_delta(struct deltas *d)
{
    static const struct gen_piece none;
    struct reply *r = d->r;
    struct buffer *o = &r->event;
    json_out_raw(o, "},\"logprobs\":");
    if (r->params->spec->n_logprobs >= 0 && d->piece->n_tokens > 0) {
        json_out_raw(o, "{\"content\":[");
        reply_put_logprobs(o, r, d->piece);
        json_out_raw(o, "],\"refusal\":null}");
    } else {
        json_out_raw(o, "null");
    }
    choices_put_piece_ids(o, r, d->piece);
    json_out_raw(o, ",\"finish_reason\":null");
    choices_end_event(r);
    d->piece = &none;
    d->any = true;
}

static void put_content_delta(void *context, const char *text, size_t n)
{
    struct deltas *d = context;
    begin_delta(d);
    json_out_raw(&d->r->event, "\"content\":");
    json_out_string(&d->r->event, text, n);
    end_delta(d);
}

static void put_reasoning_delta(void *context, const char *text, size_t n)
{
    struct deltas *d = context;
    struct buffer *o = &d->r->event;
    begin_delta(d);
    json_out_raw(o, "\"reasoning_content\":");
    json_out_string(o, text, n);
    json_out_raw(o, ",\"reasoning\":");
    json_out_string(o, text, n);
    end_delta(d);
}

/* The beginning of a call; its arguments follow. call->id: the model's own; NULL: a new one. */
static void put_call_head(struct buffer *o, const struct reply *r, const struct tool_call *call)
{
    char random[TOOL_CALL_ID_BYTES];
    tool_call_id(r->params->tool_format, "call_", random);
    json_out_raw(o, "\"id\":");
    if (call->id)
        json_out_string(o, call->id, call->n_id);
    else
        json_out_text(o, random);
    json_out_raw(o, ",\"type\":\"function\",\"function\":{\"name\":");
    json_out_string(o, call->name, call->n_name);
    json_out_raw(o, ",\"arguments\":");
}

static void begin_call_delta(struct deltas *d, uint32_t index)
{
    begin_delta(d);
    json_out_raw(&d->r->event, "\"tool_calls\":[{\"index\":");
    json_out_u64(&d->r->event, index);
    json_out_raw(&d->r->event, ",");
}

static void put_call_delta(void *context, const struct tool_call *call)
{
    struct deltas *d = context;
    begin_call_delta(d, call->index);
    put_call_head(&d->r->event, d->r, call);
    json_out_raw(&d->r->event, "\"\"}}]");
    end_delta(d);
}

static void put_arguments_delta(void *context, const char *text, size_t n)
{
    struct deltas *d = context;
    begin_call_delta(d, d->c->parts->answer.n_calls - 1);
    json_out_raw(&d->r->event, "\"function\":{\"arguments\":");
    json_out_string(&d->r->event, text, n);
    json_out_raw(&d->r->event, "}}]");
    end_delta(d);
}

static void put_no_delta(void *context)
{
    (void)context;
}

static struct answer_sink sink_of(struct deltas *d)
{
    return (struct answer_sink){put_reasoning_delta,
                                {put_content_delta, put_call_delta, put_arguments_delta, put_no_delta, d}};
}

static void put_token(struct reply *r, struct reply_prompt *p, struct choice *c, const struct gen_piece *piece)
{
    struct deltas d = {.r = r, .c = c, .piece = piece};
    const struct answer_sink sink = sink_of(&d);
    open_choice(r, p, c);
    if (!answer_parser_is_needed(&c->parts->answer)) {
        put_content_delta(&d, piece->text, piece->n_text);
        return;
    }
    bool ok = answer_parser_push(&c->parts->answer, piece->text, piece->n_text, &sink);
    if (!d.any) { /* all text is held back, but the tokens still get an event */
        begin_delta(&d);
        r->event.failed |= !ok;
        end_delta(&d);
    }
}

static void finish(struct reply *r, struct reply_prompt *p, struct choice *c)
{
    static const struct gen_piece none;
    struct deltas d = {.r = r, .c = c, .piece = &none};
    const struct answer_sink sink = sink_of(&d);
    open_choice(r, p, c);
    bool ok = !answer_parser_is_needed(&c->parts->answer) || answer_parser_finish(&c->parts->answer, &sink);
    choices_begin_event(r);
    choices_begin_choice(r, c);
    json_out_raw(&r->event, ",\"delta\":{},\"logprobs\":null");
    choices_put_finish(&r->event, r, c);
    r->event.failed |= !ok;
    choices_end_event(r);
}

/* ---- a whole reply ---- */

static void collect(struct reply *r, struct choice *c, const struct gen_piece *piece)
{
    struct answer_parts *shown = &c->parts->chat->shown;
    const struct answer_sink sink = answer_parts_sink(shown);
    struct gen_piece kept = *piece;
    if (answer_parser_is_needed(&c->parts->answer)) {
        shown->failed |= !answer_parser_push(&c->parts->answer, piece->text, piece->n_text, &sink);
        kept.n_text = 0;
    }
    choices_keep(r, c, &kept);
    if (piece->n_tokens == 0 || r->params->spec->n_logprobs < 0)
        return;
    if (c->parts->chat->logprobs.n > 0)
        json_out_raw(&c->parts->chat->logprobs, ",");
    reply_put_logprobs(&c->parts->chat->logprobs, r, piece);
}

struct message {
    struct buffer content, reasoning, calls;
};

static void add_part(struct message *m, const struct reply *r, const struct answer_part *part)
{
    const struct tool_call call = {.name = part->name,
                                   .n_name = part->name ? strlen(part->name) : 0,
                                   .id = part->id,
                                   .n_id = part->id ? strlen(part->id) : 0};
    if (part->kind != ANSWER_CALL) {
        struct buffer *o = part->kind == ANSWER_TEXT ? &m->content : &m->reasoning;
        buffer_append(o, part->text.data, part->text.n);
        return;
    }
    json_out_raw(&m->calls, m->calls.n > 0 ? ",{" : "{");
    put_call_head(&m->calls, r, &call);
    json_out_string(&m->calls, part->text.data, part->text.n);
    json_out_raw(&m->calls, "}}");
}

static void write_message(struct buffer *o, const struct message *m)
{
    json_out_raw(o, ",\"message\":{\"role\":\"assistant\",\"content\":");
    if (m->content.n == 0 && (m->calls.n > 0 || m->reasoning.n > 0))
        json_out_raw(o, "null");
    else
        json_out_string(o, m->content.data, m->content.n);
    json_out_raw(o, ",\"refusal\":null");
    if (m->reasoning.n > 0) {
        json_out_raw(o, ",\"reasoning_content\":");
        json_out_string(o, m->reasoning.data, m->reasoning.n);
        json_out_raw(o, ",\"reasoning\":");
        json_out_string(o, m->reasoning.data, m->reasoning.n);
    }
    if (m->calls.n > 0) {
        json_out_raw(o, ",\"tool_calls\":[");
        buffer_append(o, m->calls.data, m->calls.n);
        json_out_raw(o, "]");
    }
    json_out_raw(o, "}");
    o->failed |= m->content.failed || m->reasoning.failed || m->calls.failed;
}

static void put_message(struct buffer *o, const struct reply *r, struct choice *c)
{
    struct answer_parts *shown = &c->parts->chat->shown;
    const struct answer_sink sink = answer_parts_sink(shown);
    struct message m = {0};
    buffer_append(&m.content, r->params->lead, r->params->n_lead);
    buffer_append(&m.content, c->parts->text.data, c->parts->text.n);
    if (answer_parser_is_needed(&c->parts->answer))
        shown->failed |= !answer_parser_finish(&c->parts->answer, &sink);
    for (uint32_t i = 0; i < shown->n && !shown->failed; i++)
        add_part(&m, r, &shown->items[i]);
    o->failed |= shown->failed;
    write_message(o, &m);
    buffer_free(&m.content);
    buffer_free(&m.reasoning);
    buffer_free(&m.calls);
}

static void put_choice(struct buffer *o, struct reply *r, struct reply_prompt *p, struct choice *c)
{
    (void)p;
    put_message(o, r, c);
    json_out_raw(o, ",\"logprobs\":");
    if (r->params->spec->n_logprobs >= 0) {
        json_out_raw(o, "{\"content\":[");
        buffer_append(o, c->parts->chat->logprobs.data, c->parts->chat->logprobs.n);
        o->failed |= c->parts->chat->logprobs.failed;
        json_out_raw(o, "],\"refusal\":null}");
    } else {
        json_out_raw(o, "null");
    }
    choices_put_finish(o, r, c);
    choices_put_kept_ids(o, r, c);
}

static void whole(struct reply *r, struct buffer *o)
{
    choices_whole(r, o, put_choice);
    put_prompt_ids(o, r, &r->prompts[0]);
    choices_put_prompt_logprobs(o, r, &r->prompts[0]);
    json_out_raw(o, "}");
}

const struct api_dialect api_chat = {
    .form = CHOICE_CHAT,
    .id_prefix = "chatcmpl-",
    .read = chat_read,
    .shape = &field_shape_chat,
    .begin = begin,
    .open = open_choice,
    .token = put_token,
    .finish = finish,
    .end = choices_end,
    .error = choices_error,
    .collect = collect,
    .whole = whole,
};
