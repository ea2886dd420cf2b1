/* Writes the replies of Anthropic's /v1/messages. A reply is one message with one block of text. */
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

/* The reason why the only choice ended. */
static void put_stop(struct buffer *o, const struct reply *r)
{
    const struct choice *c = &r->prompts[0].choices[0];
    json_out_raw(o, "\"stop_reason\":");
    if (c->stop_string >= 0)
        json_out_raw(o, "\"stop_sequence\"");
    else
        json_out_raw(o, c->finish == CHOICE_STOP ? "\"end_turn\"" : "\"max_tokens\"");
    json_out_raw(o, ",\"stop_sequence\":");
    if (c->stop_string >= 0)
        json_out_string(o, r->params->stops.strings[c->stop_string], r->params->stops.bytes[c->stop_string]);
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
    reply_begin_event(r, "content_block_start");
    json_out_raw(o, ",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}");
    reply_end_event(r);
    reply_begin_event(r, "ping");
    reply_end_event(r);
}

static void put_token(struct reply *r, struct reply_prompt *p, struct choice *c, const struct gen_piece *piece)
{
    open_choice(r, p, c);
    if (piece->n_text == 0)
        return;
    reply_begin_event(r, "content_block_delta");
    json_out_raw(&r->event, ",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":");
    json_out_string(&r->event, piece->text, piece->n_text);
    json_out_raw(&r->event, "}");
    reply_end_event(r);
}

static void finish(struct reply *r, struct reply_prompt *p, struct choice *c)
{
    open_choice(r, p, c);
    reply_begin_event(r, "content_block_stop");
    json_out_raw(&r->event, ",\"index\":0");
    reply_end_event(r);
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
    const struct choice *c = &r->prompts[0].choices[0];
    buffer_append(o, r->head.data, r->head.n);
    json_out_raw(o, ",\"content\":[{\"type\":\"text\",\"text\":");
    json_out_string(o, c->parts->text.data, c->parts->text.n);
    json_out_raw(o, "}],");
    put_stop(o, r);
    json_out_raw(o, ",");
    put_usage(o, r);
    if (r->params->wants_timing)
        reply_put_timing(o, r);
    json_out_raw(o, "}");
    o->failed |= c->parts->text.failed;
}

const struct api_dialect api_messages = {
    .id_prefix = "msg_",
    .read = messages_read,
    .begin = begin,
    .open = open_choice,
    .token = put_token,
    .finish = finish,
    .end = end,
    .error = error,
    .collect = collect,
    .whole = whole,
};
