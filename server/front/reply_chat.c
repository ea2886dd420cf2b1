/* /v1/chat/completions: how its replies are written. */
#include "server/front/reply_choices.h"

static void begin(struct generation *g, const char *model)
{
    choices_begin(g, model, g->params.stream ? "chat.completion.chunk" : "chat.completion");
}

static void put_prompt_ids(struct json_out *o, const struct generation *g,
                           const struct gen_prompt *p)
{
    if (g->params.return_token_ids)
        choices_put_ids(o, "prompt_token_ids", p->item.ids, p->item.n_ids);
}

static void open_choice(struct generation *g, struct gen_prompt *p, struct choice *c)
{
    struct json_out *o = &g->event;
    if (c->opened)
        return;
    c->opened = true;
    choices_begin_event(g);
    put_prompt_ids(o, g, p);
    choices_begin_choice(g, c);
    json_out_raw(o, ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null"
                    ",\"finish_reason\":null");
    choices_end_event(g);
    if (g->params.n_lead == 0)
        return;
    choices_begin_event(g);
    choices_begin_choice(g, c);
    json_out_raw(o, ",\"delta\":{\"content\":");
    json_out_string(o, g->params.lead, g->params.n_lead);
    json_out_raw(o, "},\"logprobs\":null,\"finish_reason\":null");
    choices_end_event(g);
}

static void put_logprobs(struct json_out *o, const struct generation *g, const struct gen_piece *piece)
{
    const struct logprobs_style style = reply_logprobs_style(g, g->params.submit.n_logprobs);
    for (uint32_t i = 0; i < piece->n_tokens; i++) {
        if (i > 0)
            json_out_raw(o, ",");
        logprobs_chat_entry(o, &style, &piece->tokens[i].token);
    }
}

static void put_token(struct generation *g, struct gen_prompt *p, struct choice *c,
                      const struct gen_piece *piece)
{
    struct json_out *o = &g->event;
    open_choice(g, p, c);
    choices_begin_event(g);
    choices_begin_choice(g, c);
    json_out_raw(o, ",\"delta\":{\"content\":");
    json_out_string(o, piece->text, piece->n_text);
    json_out_raw(o, "},\"logprobs\":");
    if (g->params.submit.n_logprobs >= 0 && piece->n_tokens > 0) {
        json_out_raw(o, "{\"content\":[");
        put_logprobs(o, g, piece);
        json_out_raw(o, "],\"refusal\":null}");
    } else {
        json_out_raw(o, "null");
    }
    choices_put_piece_ids(o, g, piece);
    json_out_raw(o, ",\"finish_reason\":null");
    choices_end_event(g);
}

static void finish(struct generation *g, struct gen_prompt *p, struct choice *c)
{
    open_choice(g, p, c);
    choices_begin_event(g);
    choices_begin_choice(g, c);
    json_out_raw(&g->event, ",\"delta\":{},\"logprobs\":null");
    choices_put_finish(&g->event, g, c);
    choices_end_event(g);
}

static void collect(struct generation *g, struct choice *c, const struct gen_piece *piece)
{
    choices_keep(g, c, piece);
    if (piece->n_tokens == 0 || g->params.submit.n_logprobs < 0)
        return;
    if (c->logprobs.n > 0)
        json_out_raw(&c->logprobs, ",");
    put_logprobs(&c->logprobs, g, piece);
}

static void put_content(struct json_out *o, const struct generation *g, const struct choice *c)
{
    struct json_out both = {0};
    json_out_bytes(&both, g->params.lead, g->params.n_lead);
    json_out_bytes(&both, c->text.data, c->text.n);
    json_out_string(o, both.data, both.n);
    o->failed |= both.failed;
    json_out_free(&both);
}

static void put_choice(struct json_out *o, struct generation *g, struct gen_prompt *p,
                       struct choice *c)
{
    (void)p;
    json_out_raw(o, ",\"message\":{\"role\":\"assistant\",\"content\":");
    put_content(o, g, c);
    json_out_raw(o, ",\"refusal\":null},\"logprobs\":");
    if (g->params.submit.n_logprobs >= 0) {
        json_out_raw(o, "{\"content\":[");
        json_out_bytes(o, c->logprobs.data, c->logprobs.n);
        json_out_raw(o, "],\"refusal\":null}");
    } else {
        json_out_raw(o, "null");
    }
    choices_put_finish(o, g, c);
    choices_put_kept_ids(o, g, c);
}

static void whole(struct generation *g, struct json_out *o)
{
    choices_whole(g, o, put_choice);
    put_prompt_ids(o, g, &g->prompts[0]);
    choices_put_prompt_logprobs(o, g, &g->prompts[0]);
    json_out_raw(o, "}");
}

const struct api_dialect api_chat = {
    .id_prefix = "chatcmpl-",
    .read = chat_read,
    .begin = begin,
    .open = open_choice,
    .token = put_token,
    .finish = finish,
    .end = choices_end,
    .error = choices_error,
    .collect = collect,
    .whole = whole,
};
