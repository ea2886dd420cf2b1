#include "server/front/generation.h"

#include <string.h>
#include <time.h>

/* ---- parts ---------------------------------------------------------------------------------- */

bool reply_begin(struct generation *g, const char *model)
{
    struct json_out *o = &g->head;
    const char *object = "text_completion";
    if (g->chat)
        object = g->params.stream ? "chat.completion.chunk" : "chat.completion";
    json_out_raw(o, "{\"id\":");
    json_out_text(o, g->id);
    json_out_raw(o, ",\"object\":");
    json_out_text(o, object);
    json_out_raw(o, ",\"created\":");
    json_out_i64(o, (int64_t)time(NULL));
    json_out_raw(o, ",\"model\":");
    json_out_text(o, model);
    json_out_raw(o, ",\"system_fingerprint\":");
    json_out_text(o, g->front->fingerprint);
    return !o->failed;
}

static struct logprobs_style style_of(const struct generation *g, int32_t n_top)
{
    return (struct logprobs_style){
        .text = g->front->text,
        .as_ids = g->params.tokens_as_ids,
        .n_top = n_top > 0 ? (uint32_t)n_top : 0,
    };
}

static void put_ids(struct json_out *o, const char *key, const uint32_t *ids, size_t n)
{
    json_out_raw(o, key);
    json_out_raw(o, "[");
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            json_out_raw(o, ",");
        json_out_u64(o, ids[i]);
    }
    json_out_raw(o, "]");
}

static void put_finish(struct json_out *o, const struct generation *g, const struct choice *c)
{
    json_out_raw(o, ",\"finish_reason\":");
    json_out_raw(o, c->finish == CHOICE_STOP ? "\"stop\"" : "\"length\"");
    json_out_raw(o, ",\"stop_reason\":");
    if (c->stop_string >= 0)
        json_out_string(o, g->params.stops.strings[c->stop_string],
                        g->params.stops.bytes[c->stop_string]);
    else if (c->stop_token >= 0)
        json_out_i64(o, c->stop_token);
    else
        json_out_raw(o, "null");
}

/* cached: also how many prompt tokens came from the prefix cache, and how many were added to it, which
 * is known at the end. */
static void put_usage(struct json_out *o, const struct generation *g, bool cached)
{
    uint64_t n_prompt = 0, n_generated = 0, n_cached = 0, n_created = 0;
    for (size_t i = 0; i < g->n_prompts; i++) {
        n_prompt += g->prompts[i].item.n_ids;
        n_cached += g->prompts[i].n_cached;
        n_created += g->prompts[i].n_created;
        for (uint32_t j = 0; j < g->params.submit.n; j++)
            n_generated += g->prompts[i].choices[j].n_tokens;
    }
    json_out_raw(o, "{\"prompt_tokens\":");
    json_out_u64(o, n_prompt);
    json_out_raw(o, ",\"completion_tokens\":");
    json_out_u64(o, n_generated);
    json_out_raw(o, ",\"total_tokens\":");
    json_out_u64(o, n_prompt + n_generated);
    if (cached) {
        json_out_raw(o, ",\"prompt_tokens_details\":{\"cached_tokens\":");
        json_out_u64(o, n_cached);
        json_out_raw(o, "},\"cache_read_tokens\":");
        json_out_u64(o, n_cached);
        json_out_raw(o, ",\"cache_creation_tokens\":");
        json_out_u64(o, n_created);
    }
    json_out_raw(o, "}");
}

static void put_trace(struct json_out *o, const struct generation *g)
{
    json_out_raw(o, ",\"quire_trace\":");
    trace_json(o, &g->trace, g->tenant, g->admin, g->front->tenants, &g->front->names);
}

/* ---- a stream's events ---------------------------------------------------------------------- */

static void begin_event(struct generation *g)
{
    json_out_clear(&g->event);
    json_out_raw(&g->event, "data: ");
    json_out_bytes(&g->event, g->head.data, g->head.n);
}

static void emit(struct generation *g)
{
    /* Without memory for an event, what the client has must not look whole. */
    if (g->event.failed || g->early.failed)
        http_cut_off(g->x);
    else if (g->begun)
        http_stream_write(g->x, g->event.data, g->event.n);
    else
        json_out_bytes(&g->early, g->event.data, g->event.n);
}

/* After the choices. */
static void end_event(struct generation *g)
{
    if (g->params.continuous_usage) {
        json_out_raw(&g->event, ",\"usage\":");
        put_usage(&g->event, g, false);
    } else if (g->params.include_usage) {
        json_out_raw(&g->event, ",\"usage\":null");
    }
    json_out_raw(&g->event, "}\n\n");
    emit(g);
}

static void begin_choice(struct generation *g, const struct choice *c)
{
    json_out_raw(&g->event, ",\"choices\":[{\"index\":");
    json_out_u64(&g->event, c->index);
}

void reply_open(struct generation *g, struct gen_prompt *p, struct choice *c)
{
    struct json_out *o = &g->event;
    bool ids = g->params.return_token_ids;
    if (c->opened)
        return;
    c->opened = true;
    if (!g->chat && !g->params.echo && !ids)
        return;
    begin_event(g);
    if (g->chat && ids)
        put_ids(o, ",\"prompt_token_ids\":", p->item.ids, p->item.n_ids);
    begin_choice(g, c);
    if (g->chat) {
        json_out_raw(o, ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null");
    } else {
        json_out_raw(o, ",\"text\":");
        json_out_string(o, p->item.text, g->params.echo ? p->item.n_text : 0);
        json_out_raw(o, ",\"logprobs\":");
        if (g->params.echo && g->params.submit.n_logprobs >= 0)
            logprobs_arrays_json(o, NULL, &p->arrays);
        else
            json_out_raw(o, "null");
        if (ids)
            put_ids(o, ",\"prompt_token_ids\":", p->item.ids, p->item.n_ids);
    }
    json_out_raw(o, ",\"finish_reason\":null}]");
    end_event(g);
}

static void put_token_logprobs(struct generation *g, struct choice *c,
                               const struct wire_token *token, uint64_t offset)
{
    struct json_out *o = &g->event;
    const struct logprobs_style style = style_of(g, g->params.submit.n_logprobs);
    json_out_raw(o, ",\"logprobs\":");
    if (g->params.submit.n_logprobs < 0 || !token) {
        json_out_raw(o, "null");
    } else if (g->chat) {
        json_out_raw(o, "{\"content\":[");
        logprobs_chat_entry(o, &style, token);
        json_out_raw(o, "],\"refusal\":null}");
    } else {
        logprobs_arrays_clear(&c->arrays);
        logprobs_arrays_add(&c->arrays, &style, token, offset);
        logprobs_arrays_json(o, NULL, &c->arrays);
    }
}

void reply_token(struct generation *g, struct gen_prompt *p, struct choice *c,
                 const struct wire_token *token, uint64_t offset, const char *text, size_t n_text)
{
    struct json_out *o = &g->event;
    reply_open(g, p, c);
    begin_event(g);
    begin_choice(g, c);
    json_out_raw(o, g->chat ? ",\"delta\":{\"content\":" : ",\"text\":");
    json_out_string(o, text, n_text);
    if (g->chat)
        json_out_raw(o, "}");
    put_token_logprobs(g, c, token, offset);
    if (g->params.return_token_ids)
        put_ids(o, ",\"token_ids\":", token ? &token->token : NULL, token != NULL);
    json_out_raw(o, ",\"finish_reason\":null}]");
    end_event(g);
}

void reply_finish(struct generation *g, struct gen_prompt *p, struct choice *c)
{
    reply_open(g, p, c);
    begin_event(g);
    begin_choice(g, c);
    json_out_raw(&g->event, g->chat ? ",\"delta\":{}" : ",\"text\":\"\"");
    json_out_raw(&g->event, ",\"logprobs\":null");
    put_finish(&g->event, g, c);
    json_out_raw(&g->event, "}]");
    end_event(g);
}

static void put_done(struct generation *g)
{
    json_out_clear(&g->event);
    json_out_raw(&g->event, "data: [DONE]\n\n");
    emit(g);
}

void reply_end(struct generation *g)
{
    if (g->params.include_usage || g->params.trace) {
        begin_event(g);
        json_out_raw(&g->event, ",\"choices\":[]");
        if (g->params.include_usage) {
            json_out_raw(&g->event, ",\"usage\":");
            put_usage(&g->event, g, true);
        }
        if (g->params.trace)
            put_trace(&g->event, g);
        json_out_raw(&g->event, "}\n\n");
        emit(g);
    }
    put_done(g);
}

void reply_error(struct generation *g, const struct api_error *e)
{
    json_out_clear(&g->event);
    json_out_raw(&g->event, "data: ");
    api_error_json(&g->event, e);
    json_out_raw(&g->event, "\n\n");
    emit(g);
    put_done(g);
}

/* ---- a whole reply -------------------------------------------------------------------------- */

void reply_prompt_logprob(struct generation *g, struct gen_prompt *p,
                          const struct wire_token *token)
{
    const struct params *params = &g->params;
    struct wire_token first = {.token = token ? token->token : p->item.ids[0]};
    const struct wire_token *shown = token ? token : &first;
    if (params->echo && params->submit.n_logprobs >= 0) {
        const struct logprobs_style style = style_of(g, params->submit.n_logprobs);
        const char *piece;
        size_t n_piece;
        logprobs_arrays_add(&p->arrays, &style, shown, p->n_chars);
        int status = quire_detok_push(p->detok, shown->token, &piece, &n_piece, NULL);
        if (status == QUIRE_OK)
            p->n_chars += utf8_count(piece, n_piece);
    }
    if (params->submit.n_prompt_logprobs >= 0) {
        const struct logprobs_style style = style_of(g, params->submit.n_prompt_logprobs);
        if (token) {
            json_out_raw(&p->prompt_logprobs, ",");
            logprobs_prompt_entry(&p->prompt_logprobs, &style, token);
        } else {
            json_out_raw(&p->prompt_logprobs, "null");
        }
    }
}

void reply_collect(struct generation *g, struct gen_prompt *p, struct choice *c,
                   const struct wire_token *token, uint64_t offset, const char *text, size_t n_text)
{
    const struct logprobs_style style = style_of(g, g->params.submit.n_logprobs);
    (void)p;
    json_out_bytes(&c->text, text, n_text);
    if (!token)
        return;
    if (g->params.return_token_ids) {
        if (c->token_ids.n > 0)
            json_out_raw(&c->token_ids, ",");
        json_out_u64(&c->token_ids, token->token);
    }
    if (g->params.submit.n_logprobs < 0)
        return;
    if (g->chat) {
        if (c->logprobs.n > 0)
            json_out_raw(&c->logprobs, ",");
        logprobs_chat_entry(&c->logprobs, &style, token);
    } else {
        logprobs_arrays_add(&c->arrays, &style, token, offset);
    }
}

static void put_chat_choice(struct json_out *o, struct generation *g, struct choice *c)
{
    json_out_raw(o, ",\"message\":{\"role\":\"assistant\",\"content\":");
    json_out_string(o, c->text.data, c->text.n);
    json_out_raw(o, ",\"refusal\":null},\"logprobs\":");
    if (g->params.submit.n_logprobs >= 0) {
        json_out_raw(o, "{\"content\":[");
        json_out_bytes(o, c->logprobs.data, c->logprobs.n);
        json_out_raw(o, "],\"refusal\":null}");
    } else {
        json_out_raw(o, "null");
    }
}

static void put_completion_choice(struct json_out *o, struct generation *g, struct gen_prompt *p,
                                  struct choice *c)
{
    const struct params *params = &g->params;
    json_out_raw(o, ",\"text\":");
    if (params->echo) {
        struct json_out both = {0};
        json_out_bytes(&both, p->item.text, p->item.n_text);
        json_out_bytes(&both, c->text.data, c->text.n);
        json_out_string(o, both.data, both.n);
        o->failed |= both.failed;
        json_out_free(&both);
    } else {
        json_out_string(o, c->text.data, c->text.n);
    }
    json_out_raw(o, ",\"logprobs\":");
    if (params->submit.n_logprobs >= 0)
        logprobs_arrays_json(o, params->echo ? &p->arrays : NULL, &c->arrays);
    else
        json_out_raw(o, "null");
}

static void put_prompt_logprobs(struct json_out *o, const struct gen_prompt *p)
{
    json_out_raw(o, ",\"prompt_logprobs\":[");
    json_out_bytes(o, p->prompt_logprobs.data, p->prompt_logprobs.n);
    json_out_raw(o, "]");
}

void reply_whole(struct generation *g, struct json_out *o)
{
    const struct params *params = &g->params;
    json_out_bytes(o, g->head.data, g->head.n);
    json_out_raw(o, ",\"choices\":[");
    for (size_t i = 0; i < g->n_prompts; i++) {
        struct gen_prompt *p = &g->prompts[i];
        o->failed |= p->prompt_logprobs.failed;
        for (uint32_t j = 0; j < params->submit.n; j++) {
            struct choice *c = &p->choices[j];
            o->failed |= c->text.failed || c->token_ids.failed || c->logprobs.failed;
            json_out_raw(o, c->index > 0 ? ",{\"index\":" : "{\"index\":");
            json_out_u64(o, c->index);
            if (g->chat)
                put_chat_choice(o, g, c);
            else
                put_completion_choice(o, g, p, c);
            put_finish(o, g, c);
            if (params->return_token_ids) {
                json_out_raw(o, ",\"token_ids\":[");
                json_out_bytes(o, c->token_ids.data, c->token_ids.n);
                json_out_raw(o, "]");
                if (!g->chat)
                    put_ids(o, ",\"prompt_token_ids\":", p->item.ids, p->item.n_ids);
            }
            if (!g->chat && params->submit.n_prompt_logprobs >= 0)
                put_prompt_logprobs(o, p);
            json_out_raw(o, "}");
        }
    }
    json_out_raw(o, "],\"usage\":");
    put_usage(o, g, true);
    if (params->trace)
        put_trace(o, g);
    if (g->chat && params->return_token_ids)
        put_ids(o, ",\"prompt_token_ids\":", g->prompts[0].item.ids, g->prompts[0].item.n_ids);
    if (g->chat && params->submit.n_prompt_logprobs >= 0)
        put_prompt_logprobs(o, &g->prompts[0]);
    json_out_raw(o, "}");
}
