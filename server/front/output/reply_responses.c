/* Writes the replies of /v1/responses. A reply is an object whose output is one message of one part; a stream has
 * events for each level's beginning and end. */
#include "server/front/output/reply.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static void begin(struct reply *r, const struct generation_job *j)
{
    struct buffer *o = &r->head;
    json_out_raw(o, "{\"id\":");
    json_out_text(o, r->id);
    json_out_raw(o, ",\"object\":\"response\",\"created_at\":");
    json_out_i64(o, (int64_t)time(NULL));
    json_out_raw(o, ",\"model\":");
    json_out_text(o, j->job.model);
    json_out_raw(o, ",");
    buffer_append(o, j->echo + 1, strlen(j->echo) - 2); /* without its braces */
}

/* ---- parts ---------------------------------------------------------------------------------- */

/* `how` determines whether an object is written as at its beginning or its end. Its choice does not, because it may be
 * over when the first event is made. */
static const char *status_of(enum choice_finish how)
{
    if (how == CHOICE_RUNS)
        return "in_progress";
    return how == CHOICE_STOP ? "completed" : "incomplete";
}

/* "msg_..." for "resp_...". */
static void put_item_id(struct buffer *o, const struct reply *r)
{
    json_out_raw(o, "\"msg_");
    json_out_raw(o, r->id + strlen(r->dialect->id_prefix));
    json_out_raw(o, "\"");
}

/* Text and logprobs collected so far. */
static void put_kept(struct buffer *o, const struct choice *c)
{
    json_out_raw(o, "\"text\":");
    json_out_string(o, c->parts->text.data, c->parts->text.n);
    json_out_raw(o, ",\"logprobs\":[");
    buffer_append(o, c->parts->logprobs.data, c->parts->logprobs.n);
    json_out_raw(o, "]");
    o->failed |= c->parts->text.failed || c->parts->logprobs.failed;
}

static void put_part(struct buffer *o, const struct choice *c)
{
    json_out_raw(o, "{\"type\":\"output_text\",\"annotations\":[],");
    put_kept(o, c);
    json_out_raw(o, "}");
}

/* An item that has only begun has no parts yet. */
static void put_item(struct buffer *o, const struct reply *r, const struct choice *c, enum choice_finish how)
{
    json_out_raw(o, "{\"type\":\"message\",\"id\":");
    put_item_id(o, r);
    json_out_raw(o, ",\"role\":\"assistant\",\"status\":");
    json_out_text(o, status_of(how));
    json_out_raw(o, ",\"content\":[");
    if (how != CHOICE_RUNS)
        put_part(o, c);
    json_out_raw(o, "]}");
}

static void put_usage(struct buffer *o, const struct reply *r)
{
    const struct reply_usage u = reply_usage(r);
    json_out_raw(o, "{\"input_tokens\":");
    json_out_u64(o, u.n_prompt);
    json_out_raw(o, ",\"input_tokens_details\":{\"cached_tokens\":");
    json_out_u64(o, u.n_cached);
    json_out_raw(o, ",\"cache_write_tokens\":");
    json_out_u64(o, u.n_created);
    json_out_raw(o, "},\"output_tokens\":");
    json_out_u64(o, u.n_generated);
    json_out_raw(o, ",\"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":");
    json_out_u64(o, u.n_prompt + u.n_generated);
    json_out_raw(o, "}");
}

static void put_error(struct buffer *o, const struct api_error *e)
{
    const char *code = e->status >= 500 ? "server_error" : "invalid_prompt";
    json_out_raw(o, "{\"code\":");
    json_out_text(o, e->status == 429 ? "rate_limit_exceeded" : code);
    json_out_raw(o, ",\"message\":");
    json_out_text(o, e->why.text);
    json_out_raw(o, "}");
}

/* The response object. e: the error that ended it early, or NULL. */
static void put_response(struct buffer *o, const struct reply *r, enum choice_finish how, const struct api_error *e)
{
    buffer_append(o, r->head.data, r->head.n);
    json_out_raw(o, ",\"status\":");
    json_out_text(o, e ? "failed" : status_of(how));
    json_out_raw(o, ",\"error\":");
    if (e)
        put_error(o, e);
    else
        json_out_raw(o, "null");
    json_out_raw(o, ",\"incomplete_details\":");
    json_out_raw(o, how == CHOICE_LENGTH ? "{\"reason\":\"max_output_tokens\"}" : "null");
    json_out_raw(o, ",\"completed_at\":");
    if (how == CHOICE_STOP)
        json_out_i64(o, (int64_t)time(NULL));
    else
        json_out_raw(o, "null");
    if (how == CHOICE_RUNS) {
        json_out_raw(o, ",\"output\":[],\"usage\":null}");
        return;
    }
    json_out_raw(o, ",\"output\":[");
    put_item(o, r, &r->prompts[0].choices[0], how);
    json_out_raw(o, "],\"usage\":");
    put_usage(o, r);
    if (r->params->wants_timing)
        reply_put_timing(o, r);
    json_out_raw(o, "}");
}

/* ---- a stream's events ---------------------------------------------------------------------- */

static void begin_event(struct reply *r, const char *type)
{
    reply_begin_event(r, type);
    json_out_raw(&r->event, ",\"sequence_number\":");
    json_out_u64(&r->event, r->n_events++);
}

static void response_event(struct reply *r, const char *type, enum choice_finish how, const struct api_error *e)
{
    begin_event(r, type);
    json_out_raw(&r->event, ",\"response\":");
    put_response(&r->event, r, how, e);
    reply_end_event(r);
}

static void item_event(struct reply *r, const char *type, const struct choice *c, enum choice_finish how)
{
    begin_event(r, type);
    json_out_raw(&r->event, ",\"output_index\":0,\"item\":");
    put_item(&r->event, r, c, how);
    reply_end_event(r);
}

static void begin_part_event(struct reply *r, const char *type)
{
    begin_event(r, type);
    json_out_raw(&r->event, ",\"item_id\":");
    put_item_id(&r->event, r);
    json_out_raw(&r->event, ",\"output_index\":0,\"content_index\":0,");
}

static void part_event(struct reply *r, const char *type, const struct choice *c)
{
    begin_part_event(r, type);
    json_out_raw(&r->event, "\"part\":");
    put_part(&r->event, c);
    reply_end_event(r);
}

static void open_choice(struct reply *r, struct reply_prompt *p, struct choice *c)
{
    (void)p;
    if (c->parts->opened)
        return;
    c->parts->opened = true;
    response_event(r, "response.created", CHOICE_RUNS, NULL);
    response_event(r, "response.in_progress", CHOICE_RUNS, NULL);
    item_event(r, "response.output_item.added", c, CHOICE_RUNS);
    part_event(r, "response.content_part.added", c);
}

/* Keeps the text that the last events repeat. */
static void keep(struct reply *r, struct choice *c, const struct gen_piece *piece)
{
    buffer_append(&c->parts->text, piece->text, piece->n_text);
    if (piece->n_tokens == 0 || r->params->spec->n_logprobs < 0)
        return;
    if (c->parts->logprobs.n > 0)
        json_out_raw(&c->parts->logprobs, ",");
    reply_put_logprobs(&c->parts->logprobs, r, piece);
}

static void put_token(struct reply *r, struct reply_prompt *p, struct choice *c, const struct gen_piece *piece)
{
    struct buffer *o = &r->event;
    bool logprobs = r->params->spec->n_logprobs >= 0 && piece->n_tokens > 0;
    open_choice(r, p, c);
    keep(r, c, piece);
    if (piece->n_text == 0 && !logprobs)
        return;
    begin_part_event(r, "response.output_text.delta");
    json_out_raw(o, "\"delta\":");
    json_out_string(o, piece->text, piece->n_text);
    json_out_raw(o, ",\"logprobs\":[");
    if (logprobs)
        reply_put_logprobs(o, r, piece);
    json_out_raw(o, "]");
    reply_end_event(r);
}

static void finish(struct reply *r, struct reply_prompt *p, struct choice *c)
{
    open_choice(r, p, c);
    begin_part_event(r, "response.output_text.done");
    put_kept(&r->event, c);
    reply_end_event(r);
    part_event(r, "response.content_part.done", c);
    item_event(r, "response.output_item.done", c, c->finish);
}

static void end(struct reply *r)
{
    enum choice_finish how = r->prompts[0].choices[0].finish;
    response_event(r, how == CHOICE_STOP ? "response.completed" : "response.incomplete", how, NULL);
}

static void error(struct reply *r, const struct api_error *e)
{
    struct buffer *o = &r->event;
    begin_event(r, "error");
    json_out_raw(o, ",\"code\":");
    json_out_text_or_null(o, e->code);
    json_out_raw(o, ",\"message\":");
    json_out_text(o, e->why.text);
    json_out_raw(o, ",\"param\":");
    json_out_text_or_null(o, e->param[0] ? e->param : NULL);
    reply_end_event(r);
    response_event(r, "response.failed", CHOICE_RUNS, e);
}

/* ---- a whole reply -------------------------------------------------------------------------- */

static void whole(struct reply *r, struct buffer *o)
{
    put_response(o, r, r->prompts[0].choices[0].finish, NULL);
}

const struct api_dialect api_responses = {
    .id_prefix = "resp_",
    .read = responses_read,
    .begin = begin,
    .open = open_choice,
    .token = put_token,
    .finish = finish,
    .end = end,
    .error = error,
    .collect = keep,
    .whole = whole,
};
