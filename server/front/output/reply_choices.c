#include "server/front/output/reply_choices.h"

#include <time.h>

/* ---- parts ---------------------------------------------------------------------------------- */

void choices_begin(struct reply *r, const char *model, const char *object)
{
    struct buffer *o = &r->head;
    json_out_raw(o, "{\"id\":");
    json_out_text(o, r->id);
    json_out_raw(o, ",\"object\":");
    json_out_text(o, object);
    json_out_raw(o, ",\"created\":");
    json_out_i64(o, (int64_t)time(NULL));
    json_out_raw(o, ",\"model\":");
    json_out_text(o, model);
    json_out_raw(o, ",\"system_fingerprint\":");
    json_out_text(o, r->served->front->fingerprint);
}

void choices_put_ids(struct buffer *o, const char *name, const uint32_t *ids, size_t n)
{
    json_out_raw(o, ",");
    json_out_text(o, name);
    json_out_raw(o, ":[");
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            json_out_raw(o, ",");
        json_out_u64(o, ids[i]);
    }
    json_out_raw(o, "]");
}

void choices_put_piece_ids(struct buffer *o, const struct reply *r, const struct gen_piece *piece)
{
    if (!r->params->return_token_ids)
        return;
    json_out_raw(o, ",\"token_ids\":[");
    for (uint32_t i = 0; i < piece->n_tokens; i++) {
        if (i > 0)
            json_out_raw(o, ",");
        json_out_u64(o, piece->tokens[i].token.token);
    }
    json_out_raw(o, "]");
}

void choices_put_kept_ids(struct buffer *o, const struct reply *r, const struct choice *c)
{
    if (!r->params->return_token_ids)
        return;
    json_out_raw(o, ",\"token_ids\":[");
    buffer_append(o, c->parts->token_ids.data, c->parts->token_ids.n);
    json_out_raw(o, "]");
}

void choices_put_finish(struct buffer *o, const struct reply *r, const struct choice *c)
{
    json_out_raw(o, ",\"finish_reason\":");
    const char *stop = c->parts->answer.n_calls > 0 ? "\"tool_calls\"" : "\"stop\"";
    json_out_raw(o, c->finish == CHOICE_STOP ? stop : "\"length\"");
    json_out_raw(o, ",\"stop_reason\":");
    if (c->stop_string >= 0)
        json_out_string(o, r->params->stops->strings[c->stop_string], r->params->stops->bytes[c->stop_string]);
    else if (c->stop_token >= 0)
        json_out_i64(o, c->stop_token);
    else
        json_out_raw(o, "null");
}

void choices_put_prompt_logprobs(struct buffer *o, const struct reply *r, const struct reply_prompt *p)
{
    if (r->params->spec->n_prompt_logprobs < 0)
        return;
    json_out_raw(o, ",\"prompt_logprobs\":[");
    buffer_append(o, p->prompt_logprobs.data, p->prompt_logprobs.n);
    json_out_raw(o, "]");
}

/* What the generated tokens were. */
static void put_details(struct buffer *o, const struct reply *r, const struct reply_usage *u)
{
    const bool reasons = r->params->reasoning_format != REASONING_NONE;
    if (!reasons && !r->params->has_prediction)
        return;
    json_out_raw(o, ",\"completion_tokens_details\":{");
    if (reasons) {
        json_out_raw(o, "\"reasoning_tokens\":");
        json_out_u64(o, u->n_reasoning);
    }
    if (r->params->has_prediction) {
        json_out_raw(o, reasons ? ",\"accepted_prediction_tokens\":" : "\"accepted_prediction_tokens\":");
        json_out_u64(o, u->n_accepted);
        json_out_raw(o, ",\"rejected_prediction_tokens\":");
        json_out_u64(o, u->n_rejected);
    }
    json_out_raw(o, "}");
}

/* cached: includes the counts of the prefix cache and of a prediction, which are known at the end. */
static void put_usage(struct buffer *o, const struct reply *r, bool cached)
{
    const struct reply_usage u = reply_usage(r);
    json_out_raw(o, "{\"prompt_tokens\":");
    json_out_u64(o, u.n_prompt);
    json_out_raw(o, ",\"completion_tokens\":");
    json_out_u64(o, u.n_generated);
    json_out_raw(o, ",\"total_tokens\":");
    json_out_u64(o, u.n_prompt + u.n_generated);
    if (cached) {
        json_out_raw(o, ",\"prompt_tokens_details\":{\"cached_tokens\":");
        json_out_u64(o, u.n_cached);
        json_out_raw(o, "},\"cache_read_tokens\":");
        json_out_u64(o, u.n_cached);
        json_out_raw(o, ",\"cache_creation_tokens\":");
        json_out_u64(o, u.n_created);
    }
    if (cached)
        put_details(o, r, &u);
    if (cached && r->is_similar)
        json_out_raw(o, ",\"cached\":true,\"cost\":0");
    json_out_raw(o, "}");
}

/* ---- a stream's events ---------------------------------------------------------------------- */

void choices_begin_event(struct reply *r)
{
    buffer_clear(&r->event);
    json_out_raw(&r->event, "data: ");
    buffer_append(&r->event, r->head.data, r->head.n);
}

void choices_begin_choice(struct reply *r, const struct choice *c)
{
    json_out_raw(&r->event, ",\"choices\":[{\"index\":");
    json_out_u64(&r->event, c->index);
}

void choices_end_event(struct reply *r)
{
    json_out_raw(&r->event, "}]");
    if (r->params->continuous_usage) {
        json_out_raw(&r->event, ",\"usage\":");
        put_usage(&r->event, r, false);
    } else if (r->params->include_usage) {
        json_out_raw(&r->event, ",\"usage\":null");
    }
    json_out_raw(&r->event, "}\n\n");
    reply_emit(r);
}

static void put_done(struct reply *r)
{
    buffer_clear(&r->event);
    json_out_raw(&r->event, "data: [DONE]\n\n");
    reply_emit(r);
}

void choices_end(struct reply *r)
{
    if (r->params->include_usage || r->params->wants_timing) {
        choices_begin_event(r);
        json_out_raw(&r->event, ",\"choices\":[]");
        if (r->params->include_usage) {
            json_out_raw(&r->event, ",\"usage\":");
            put_usage(&r->event, r, true);
        }
        if (r->params->wants_timing)
            reply_put_timing(&r->event, r);
        json_out_raw(&r->event, "}\n\n");
        reply_emit(r);
    }
    put_done(r);
}

void choices_error(struct reply *r, const struct api_error *e)
{
    buffer_clear(&r->event);
    json_out_raw(&r->event, "data: ");
    api_error_json(&r->event, e);
    json_out_raw(&r->event, "\n\n");
    reply_emit(r);
    put_done(r);
}

/* ---- a whole reply -------------------------------------------------------------------------- */

void choices_keep(const struct reply *r, struct choice *c, const struct gen_piece *piece)
{
    buffer_append(&c->parts->text, piece->text, piece->n_text);
    for (uint32_t i = 0; i < piece->n_tokens && r->params->return_token_ids; i++) {
        if (c->parts->token_ids.n > 0)
            json_out_raw(&c->parts->token_ids, ",");
        json_out_u64(&c->parts->token_ids, piece->tokens[i].token.token);
    }
}

void choices_whole(struct reply *r, struct buffer *o,
                   void (*put_choice)(struct buffer *o, struct reply *r, struct reply_prompt *p, struct choice *c))
{
    buffer_append(o, r->head.data, r->head.n);
    json_out_raw(o, ",\"choices\":[");
    for (size_t i = 0; i < r->n_prompts; i++) {
        struct reply_prompt *p = &r->prompts[i];
        o->failed |= p->prompt_logprobs.failed;
        for (uint32_t j = 0; j < r->params->spec->n; j++) {
            struct choice *c = &p->choices[j];
            o->failed |= c->parts->text.failed || c->parts->token_ids.failed;
            json_out_raw(o, c->index > 0 ? ",{\"index\":" : "{\"index\":");
            json_out_u64(o, c->index);
            put_choice(o, r, p, c);
            json_out_raw(o, "}");
            choice_close(c);
        }
        if (r->n_prompts > 1) { /* otherwise the part after the choices contains them */
            buffer_free(&p->prompt_logprobs);
            logprobs_arrays_free(&p->arrays);
        }
    }
    json_out_raw(o, "],\"usage\":");
    put_usage(o, r, true);
    if (r->params->wants_timing)
        reply_put_timing(o, r);
}

uint64_t reply_prompt_bytes(const struct reply *r, const struct reply_prompt *p)
{
    return r->params->spec->n * (p->prompt_logprobs.n + logprobs_arrays_bytes(&p->arrays));
}

void reply_prompt_logprob(struct reply *r, struct reply_prompt *p, const struct wire_token *token)
{
    const struct params *params = r->params;
    struct wire_token first = {.token = token ? token->token : p->item.ids[0]};
    const struct wire_token *shown = token ? token : &first;
    if (params->echo && params->spec->n_logprobs >= 0) {
        const struct logprobs_style style = reply_logprobs_style(r, params->spec->n_logprobs);
        bool placed = p->item.places && p->arrays.n < p->item.n_ids;
        logprobs_arrays_add(&p->arrays, &style, shown, placed ? p->item.places[p->arrays.n] : 0);
    }
    if (params->spec->n_prompt_logprobs >= 0) {
        const struct logprobs_style style = reply_logprobs_style(r, params->spec->n_prompt_logprobs);
        if (token) {
            json_out_raw(&p->prompt_logprobs, ",");
            logprobs_prompt_entry(&p->prompt_logprobs, &style, token);
        } else {
            json_out_raw(&p->prompt_logprobs, "null");
        }
    }
}
