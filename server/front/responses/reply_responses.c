/* Writes the replies of /v1/responses, and stores them when they are complete. A reply that failed, or whose client
 * disconnected, is not stored. */
#include "server/front/output/reply.h"
#include "server/front/responses/reply_items.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static void begin(struct reply *r, const struct generation_job *j)
{
    struct buffer *o = &r->head;
    /* Not the request's name: whoever knows the id can continue the response. */
    snprintf(r->id, sizeof r->id, "%s", r->params->response->id);
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
    json_out_raw(o, ",\"output_tokens_details\":{\"reasoning_tokens\":");
    json_out_u64(o, u.n_reasoning);
    json_out_raw(o, "},\"total_tokens\":");
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
    const struct buffer *items = &r->prompts[0].choices[0].parts->items->done;
    json_out_raw(o, ",\"output\":[");
    r->params->response->output_at = o->n;
    r->params->response->n_output = items->n;
    buffer_append(o, items->data, items->n);
    o->failed |= items->failed;
    json_out_raw(o, "],\"usage\":");
    put_usage(o, r);
    if (r->params->wants_timing)
        reply_put_timing(o, r);
    json_out_raw(o, "}");
}

/* ---- a stream's events ---------------------------------------------------------------------- */

static void response_event(struct reply *r, const char *type, const struct buffer *response)
{
    responses_begin_event(r, type);
    json_out_raw(&r->event, ",\"response\":");
    buffer_append(&r->event, response->data, response->n);
    r->event.failed |= response->failed;
    reply_end_event(r);
}

static void open_choice(struct reply *r, struct reply_prompt *p, struct choice *c)
{
    struct buffer o = {0};
    (void)p;
    if (c->parts->opened)
        return;
    c->parts->opened = true;
    put_response(&o, r, CHOICE_RUNS, NULL);
    response_event(r, "response.created", &o);
    response_event(r, "response.in_progress", &o);
    buffer_free(&o);
}

static void put_token(struct reply *r, struct reply_prompt *p, struct choice *c, const struct gen_piece *piece)
{
    open_choice(r, p, c);
    if (!reply_items_add(r, c, piece))
        http_cut_off(r->x);
}

static void finish(struct reply *r, struct reply_prompt *p, struct choice *c)
{
    open_choice(r, p, c);
    if (!reply_items_end(r, c))
        http_cut_off(r->x);
}

/* Stores the response, which is complete. */
static void keep(const struct reply *r, const struct buffer *response)
{
    struct response_record *record = r->params->response;
    if (!record->is_stored || response->failed)
        return;
    buffer_append(&record->reply, response->data, response->n);
    response_store_put(r->served->config->responses, record);
}

static void end(struct reply *r)
{
    const enum choice_finish how = r->prompts[0].choices[0].finish;
    struct buffer o = {0};
    put_response(&o, r, how, NULL);
    keep(r, &o);
    response_event(r, how == CHOICE_STOP ? "response.completed" : "response.incomplete", &o);
    buffer_free(&o);
}

static void error(struct reply *r, const struct api_error *e)
{
    struct buffer *o = &r->event;
    struct buffer response = {0};
    responses_begin_event(r, "error");
    json_out_raw(o, ",\"code\":");
    json_out_text_or_null(o, e->code);
    json_out_raw(o, ",\"message\":");
    json_out_text(o, e->why.text);
    json_out_raw(o, ",\"param\":");
    json_out_text_or_null(o, e->param[0] ? e->param : NULL);
    reply_end_event(r);
    put_response(&response, r, CHOICE_RUNS, e);
    response_event(r, "response.failed", &response);
    buffer_free(&response);
}

/* ---- a whole reply -------------------------------------------------------------------------- */

/* Finds the items as a stream does, because a token's logprobs belong to the item of its text. */
static void collect(struct reply *r, struct choice *c, const struct gen_piece *piece)
{
    if (!reply_items_add(r, c, piece))
        c->parts->items->done.failed = true;
}

static void whole(struct reply *r, struct buffer *o)
{
    struct choice *c = &r->prompts[0].choices[0];
    const bool ok = reply_items_end(r, c);
    put_response(o, r, c->finish, NULL);
    o->failed |= !ok;
    keep(r, o);
}

const struct api_dialect api_responses = {
    .form = CHOICE_RESPONSE,
    .id_prefix = "resp_",
    .read = responses_read,
    .shape = &field_shape_responses,
    .begin = begin,
    .open = open_choice,
    .token = put_token,
    .finish = finish,
    .end = end,
    .error = error,
    .collect = collect,
    .whole = whole,
};
