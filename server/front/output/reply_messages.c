/* Writes the replies of Anthropic's /v1/messages. A reply is one message with one block of text. */
#include "server/front/output/reply.h"

static void begin(struct generation *g, const struct request_job *j)
{
    struct buffer *o = &g->head;
    json_out_raw(o, "{\"id\":");
    json_out_text(o, g->id);
    json_out_raw(o, ",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
    json_out_text(o, j->model);
}

/* ---- parts ---------------------------------------------------------------------------------- */

/* The reason why the only choice ended. */
static void put_stop(struct buffer *o, const struct generation *g)
{
    const struct choice *c = &g->prompts[0].choices[0];
    json_out_raw(o, "\"stop_reason\":");
    if (c->stop_string >= 0)
        json_out_raw(o, "\"stop_sequence\"");
    else
        json_out_raw(o, c->finish == CHOICE_STOP ? "\"end_turn\"" : "\"max_tokens\"");
    json_out_raw(o, ",\"stop_sequence\":");
    if (c->stop_string >= 0)
        json_out_string(o, g->params.stops.strings[c->stop_string], g->params.stops.bytes[c->stop_string]);
    else
        json_out_raw(o, "null");
}

/* The three counts of input are disjoint parts of the prompt. The cached part is known at the end; until then all of
 * it is input_tokens. */
static void put_usage(struct buffer *o, const struct generation *g)
{
    const struct reply_usage u = reply_usage(g);
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

static void open_choice(struct generation *g, struct gen_prompt *p, struct choice *c)
{
    struct buffer *o = &g->event;
    (void)p;
    if (c->parts->opened)
        return;
    c->parts->opened = true;
    reply_begin_event(g, "message_start");
    json_out_raw(o, ",\"message\":");
    buffer_append(o, g->head.data, g->head.n);
    json_out_raw(o, ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,");
    put_usage(o, g);
    json_out_raw(o, "}");
    reply_end_event(g);
    reply_begin_event(g, "content_block_start");
    json_out_raw(o, ",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}");
    reply_end_event(g);
    reply_begin_event(g, "ping");
    reply_end_event(g);
}

static void put_token(struct generation *g, struct gen_prompt *p, struct choice *c, const struct gen_piece *piece)
{
    open_choice(g, p, c);
    if (piece->n_text == 0)
        return;
    reply_begin_event(g, "content_block_delta");
    json_out_raw(&g->event, ",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":");
    json_out_string(&g->event, piece->text, piece->n_text);
    json_out_raw(&g->event, "}");
    reply_end_event(g);
}

static void finish(struct generation *g, struct gen_prompt *p, struct choice *c)
{
    open_choice(g, p, c);
    reply_begin_event(g, "content_block_stop");
    json_out_raw(&g->event, ",\"index\":0");
    reply_end_event(g);
}

static void end(struct generation *g)
{
    reply_begin_event(g, "message_delta");
    json_out_raw(&g->event, ",\"delta\":{");
    put_stop(&g->event, g);
    json_out_raw(&g->event, "},");
    put_usage(&g->event, g);
    if (g->params.wants_timing)
        reply_put_timing(&g->event, g);
    reply_end_event(g);
    reply_begin_event(g, "message_stop");
    reply_end_event(g);
}

static void error(struct generation *g, const struct api_error *e)
{
    buffer_clear(&g->event);
    json_out_raw(&g->event, "event: error\ndata: ");
    api_error_json_anthropic(&g->event, e, http_request_id(g->x));
    json_out_raw(&g->event, "\n\n");
    reply_emit(g);
}

/* ---- a whole reply -------------------------------------------------------------------------- */

static void collect(struct generation *g, struct choice *c, const struct gen_piece *piece)
{
    (void)g;
    buffer_append(&c->parts->text, piece->text, piece->n_text);
}

static void whole(struct generation *g, struct buffer *o)
{
    const struct choice *c = &g->prompts[0].choices[0];
    buffer_append(o, g->head.data, g->head.n);
    json_out_raw(o, ",\"content\":[{\"type\":\"text\",\"text\":");
    json_out_string(o, c->parts->text.data, c->parts->text.n);
    json_out_raw(o, "}],");
    put_stop(o, g);
    json_out_raw(o, ",");
    put_usage(o, g);
    if (g->params.wants_timing)
        reply_put_timing(o, g);
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
