/* Writes the replies of /v1/completions. */
#include "server/front/output/reply_choices.h"

static void begin(struct reply *r, const struct generation_job *j)
{
    choices_begin(r, j->job.model, "text_completion");
}

static void put_prompt_ids(struct buffer *o, const struct reply *r, const struct reply_prompt *p)
{
    if (r->params->return_token_ids)
        choices_put_ids(o, "prompt_token_ids", p->item.ids, p->item.n_ids);
}

/* An event for the prompt, if requested. */
static void open_choice(struct reply *r, struct reply_prompt *p, struct choice *c)
{
    struct buffer *o = &r->event;
    if (c->parts->opened)
        return;
    c->parts->opened = true;
    if (!r->params->echo && !r->params->return_token_ids)
        return;
    choices_begin_event(r);
    choices_begin_choice(r, c);
    json_out_raw(o, ",\"text\":");
    json_out_string(o, p->item.text, r->params->echo ? p->item.n_text : 0);
    json_out_raw(o, ",\"logprobs\":");
    if (r->params->echo && r->params->spec->n_logprobs >= 0)
        logprobs_arrays_json(o, NULL, &p->arrays);
    else
        json_out_raw(o, "null");
    put_prompt_ids(o, r, p);
    json_out_raw(o, ",\"finish_reason\":null");
    choices_end_event(r);
}

static void add_logprobs(const struct reply *r, struct choice *c, const struct gen_piece *piece)
{
    const struct logprobs_style style = reply_logprobs_style(r, r->params->spec->n_logprobs);
    for (uint32_t i = 0; i < piece->n_tokens; i++)
        logprobs_arrays_add(c->parts->arrays, &style, &piece->tokens[i].token, piece->tokens[i].offset);
}

static void put_token(struct reply *r, struct reply_prompt *p, struct choice *c, const struct gen_piece *piece)
{
    struct buffer *o = &r->event;
    open_choice(r, p, c);
    choices_begin_event(r);
    choices_begin_choice(r, c);
    json_out_raw(o, ",\"text\":");
    json_out_string(o, piece->text, piece->n_text);
    json_out_raw(o, ",\"logprobs\":");
    if (r->params->spec->n_logprobs >= 0 && piece->n_tokens > 0) {
        logprobs_arrays_clear(c->parts->arrays);
        add_logprobs(r, c, piece);
        logprobs_arrays_json(o, NULL, c->parts->arrays);
    } else {
        json_out_raw(o, "null");
    }
    choices_put_piece_ids(o, r, piece);
    json_out_raw(o, ",\"finish_reason\":null");
    choices_end_event(r);
}

static void finish(struct reply *r, struct reply_prompt *p, struct choice *c)
{
    open_choice(r, p, c);
    choices_begin_event(r);
    choices_begin_choice(r, c);
    json_out_raw(&r->event, ",\"text\":\"\",\"logprobs\":null");
    choices_put_finish(&r->event, r, c);
    choices_end_event(r);
}

static void collect(struct reply *r, struct choice *c, const struct gen_piece *piece)
{
    choices_keep(r, c, piece);
    if (r->params->spec->n_logprobs >= 0)
        add_logprobs(r, c, piece);
}

static void put_choice(struct buffer *o, struct reply *r, struct reply_prompt *p, struct choice *c)
{
    const struct params *params = r->params;
    json_out_raw(o, ",\"text\":");
    if (params->echo) {
        struct buffer both = {0};
        buffer_append(&both, p->item.text, p->item.n_text);
        buffer_append(&both, c->parts->text.data, c->parts->text.n);
        json_out_string(o, both.data, both.n);
        o->failed |= both.failed;
        buffer_free(&both);
    } else {
        json_out_string(o, c->parts->text.data, c->parts->text.n);
    }
    json_out_raw(o, ",\"logprobs\":");
    if (params->spec->n_logprobs >= 0)
        logprobs_arrays_json(o, params->echo ? &p->arrays : NULL, c->parts->arrays);
    else
        json_out_raw(o, "null");
    choices_put_finish(o, r, c);
    choices_put_kept_ids(o, r, c);
    put_prompt_ids(o, r, p);
    choices_put_prompt_logprobs(o, r, p);
}

static void whole(struct reply *r, struct buffer *o)
{
    choices_whole(r, o, put_choice);
    json_out_raw(o, "}");
}

const struct api_dialect api_completions = {
    .form = CHOICE_COMPLETION,
    .id_prefix = "cmpl-",
    .read = completions_read,
    .shape = &field_shape_completions,
    .begin = begin,
    .open = open_choice,
    .token = put_token,
    .finish = finish,
    .end = choices_end,
    .error = choices_error,
    .collect = collect,
    .whole = whole,
};
