#include "server/front/output/reply.h"

#include "server/front/output/generation_cache.h"

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* A token that was proposed several times, after mismatches, is one token of the prediction. Tokens that the engine
 * generated past a stop string are not part of the answer. */
static void add_prediction(const struct reply *r, const struct choice *c, struct reply_usage *u)
{
    uint64_t accepted = least(least(c->n_predicted_right, c->n_tokens), r->n_prediction);
    u->n_accepted += accepted;
    u->n_rejected += least(c->n_predicted - c->n_predicted_right, r->n_prediction - accepted);
}

struct reply_usage reply_usage(const struct reply *r)
{
    struct reply_usage u = {0};
    for (size_t i = 0; i < r->n_prompts; i++) {
        u.n_prompt += r->prompts[i].item.n_ids;
        u.n_cached += r->prompts[i].n_cached;
        u.n_created += r->prompts[i].n_created;
        for (uint32_t j = 0; j < r->params->spec->n; j++) {
            const struct choice *c = &r->prompts[i].choices[j];
            u.n_generated += c->n_tokens;
            u.n_reasoning += c->n_reasoning;
            add_prediction(r, c, &u);
        }
    }
    return u;
}

struct logprobs_style reply_logprobs_style(const struct reply *r, int32_t n_top)
{
    return (struct logprobs_style){
        .text = r->served->config->text,
        .as_ids = r->params->tokens_as_ids,
        .n_top = n_top > 0 ? (uint32_t)n_top : 0,
    };
}

void reply_put_logprobs(struct buffer *o, const struct reply *r, const struct gen_piece *piece)
{
    const struct logprobs_style style = reply_logprobs_style(r, r->params->spec->n_logprobs);
    for (uint32_t i = 0; i < piece->n_tokens; i++) {
        if (i > 0)
            json_out_raw(o, ",");
        logprobs_chat_entry(o, &style, &piece->tokens[i].token);
    }
}

void reply_emit(struct reply *r)
{
    /* If memory for an event is out, the client must not mistake the stream for a complete one. */
    if (r->event.failed || r->early.failed) {
        r->record = NULL;
        http_cut_off(r->x);
    } else if (r->begun) {
        generation_alias_show(r, r->event.data, r->event.n);
        http_stream_write(r->x, r->event.data, r->event.n);
    } else {
        buffer_append(&r->early, r->event.data, r->event.n);
    }
}

void reply_begin_event(struct reply *r, const char *type)
{
    struct buffer *o = &r->event;
    buffer_clear(o);
    json_out_raw(o, "event: ");
    json_out_raw(o, type);
    json_out_raw(o, "\ndata: {\"type\":");
    json_out_text(o, type);
}

void reply_end_event(struct reply *r)
{
    json_out_raw(&r->event, "}\n\n");
    reply_emit(r);
}
