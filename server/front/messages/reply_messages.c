/* Writes the replies of Anthropic's /v1/messages. A reply is one message with blocks of content. */
#include "server/front/messages/reply_blocks.h"
#include "server/front/output/reply.h"

static void begin(struct reply *r, const struct generation_job *j)
{
    struct buffer *o = &r->head;
    json_out_raw(o, "{\"id\":");
    json_out_text(o, r->id);
    json_out_raw(o, ",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
    json_out_text(o, j->job.model);
}

/* ---- parts ---------------------------------------------------------------------------------- */

/* The reason why the only choice ended. A stop string after a call does not keep the client from the call. */
static void put_stop(struct buffer *o, const struct reply *r)
{
    const struct choice *c = &r->prompts[0].choices[0];
    const bool calls = c->parts->blocks->n_calls > 0, stops = c->stop_string >= 0 && !calls;
    json_out_raw(o, "\"stop_reason\":");
    if (stops)
        json_out_raw(o, "\"stop_sequence\"");
    else if (c->finish != CHOICE_STOP)
        json_out_raw(o, "\"max_tokens\"");
    else
        json_out_raw(o, calls ? "\"tool_use\"" : "\"end_turn\"");
    json_out_raw(o, ",\"stop_sequence\":");
    if (stops)
        json_out_string(o, r->params->stops->strings[c->stop_string], r->params->stops->bytes[c->stop_string]);
    else
        json_out_raw(o, "null");
}

/* The three counts of input are disjoint parts of the prompt. The cached part is known at the end; until then all of
 * it is input_tokens. */
static void put_usage(struct buffer *o, const struct reply *r)
{
    const struct reply_usage u = reply_usage(r);
    json_out_raw(o, "\"usage\":{\"input_tokens\":");
    json_out_u64(o, u.n_prompt - u.n_cached - u.n_created);
    json_out_raw(o, ",\"cache_creation_input_tokens\":");
    json_out_u64(o, u.n_created);
    json_out_raw(o, ",\"cache_read_input_tokens\":");
    json_out_u64(o, u.n_cached);
    json_out_raw(o, ",\"output_tokens\":");
    json_out_u64(o, u.n_generated);
    json_out_raw(o, "}");
}

/* ---- a stream's events ---------------------------------------------------------------------- */

static void open_choice(struct reply *r, struct reply_prompt *p, struct choice *c)
{
    struct buffer *o = &r->event;
    (void)p;
    if (c->parts->opened)
        return;
    c->parts->opened = true;
    reply_begin_event(r, "message_start");
    json_out_raw(o, ",\"message\":");
    buffer_append(o, r->head.data, r->head.n);
    json_out_raw(o, ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,");
    put_usage(o, r);
    json_out_raw(o, "}");
    reply_end_event(r);
    reply_begin_event(r, "ping");
    reply_end_event(r);
}

/* ---- the model's text ---- */

static void on_text(void *context, const char *text, size_t n)
{
    blocks_text(context, text, n);
}

static void on_reasoning(void *context, const char *text, size_t n)
{
    blocks_thinking(context, text, n);
}

static void on_begin(void *context, const struct tool_call *call)
{
    blocks_call_begin(context, call->name, call->n_name);
}

static void on_arguments(void *context, const char *text, size_t n)
{
    blocks_call_arguments(context, text, n);
}

static void on_end(void *context)
{
    blocks_call_end(context);
}

static struct answer_sink sink_of(struct blocks_writer *w)
{
    return (struct answer_sink){on_reasoning, {on_text, on_begin, on_arguments, on_end, w}};
}

static bool add_text(struct blocks_writer *w, const char *text, size_t n)
{
    const struct answer_sink sink = sink_of(w);
    if (answer_parser_is_needed(&w->c->parts->answer))
        return answer_parser_push(&w->c->parts->answer, text, n, &sink);
    blocks_text(w, text, n);
    return true;
}

static bool end_text(struct blocks_writer *w)
{
    const struct answer_sink sink = sink_of(w);
    struct answer_parser *parser = &w->c->parts->answer;
    bool ok = !answer_parser_is_needed(parser) || answer_parser_finish(parser, &sink);
    blocks_end(w);
    return ok;
}

static void put_token(struct reply *r, struct reply_prompt *p, struct choice *c, const struct gen_piece *piece)
{
    struct blocks_writer w = {.r = r, .c = c};
    open_choice(r, p, c);
    if (!add_text(&w, piece->text, piece->n_text))
        http_cut_off(r->x);
}

static void finish(struct reply *r, struct reply_prompt *p, struct choice *c)
{
    struct blocks_writer w = {.r = r, .c = c};
    open_choice(r, p, c);
    if (!end_text(&w))
        http_cut_off(r->x);
}

static void end(struct reply *r)
{
    reply_begin_event(r, "message_delta");
    json_out_raw(&r->event, ",\"delta\":{");
    put_stop(&r->event, r);
    json_out_raw(&r->event, "},");
    put_usage(&r->event, r);
    if (r->params->wants_timing)
        reply_put_timing(&r->event, r);
    reply_end_event(r);
    reply_begin_event(r, "message_stop");
    reply_end_event(r);
}

static void error(struct reply *r, const struct api_error *e)
{
    buffer_clear(&r->event);
    json_out_raw(&r->event, "event: error\ndata: ");
    api_error_json_anthropic(&r->event, e, http_request_id(r->x));
    json_out_raw(&r->event, "\n\n");
    reply_emit(r);
}

/* ---- a whole reply -------------------------------------------------------------------------- */

static void collect(struct reply *r, struct choice *c, const struct gen_piece *piece)
{
    (void)r;
    buffer_append(&c->parts->text, piece->text, piece->n_text);
}

static void whole(struct reply *r, struct buffer *o)
{
    struct choice *c = &r->prompts[0].choices[0];
    struct blocks_writer w = {.r = r, .c = c, .whole = o};
    buffer_append(o, r->head.data, r->head.n);
    json_out_raw(o, ",\"content\":[");
    bool ok = add_text(&w, c->parts->text.data, c->parts->text.n) && end_text(&w);
    json_out_raw(o, "],");
    put_stop(o, r);
    json_out_raw(o, ",");
    put_usage(o, r);
    if (r->params->wants_timing)
        reply_put_timing(o, r);
    json_out_raw(o, "}");
    o->failed |= !ok || c->parts->text.failed;
}

const struct api_dialect api_messages = {
    .form = CHOICE_MESSAGE,
    .id_prefix = "msg_",
    .read = messages_read,
    .shape = &field_shape_messages,
    .begin = begin,
    .open = open_choice,
    .token = put_token,
    .finish = finish,
    .end = end,
    .error = error,
    .collect = collect,
    .whole = whole,
};
