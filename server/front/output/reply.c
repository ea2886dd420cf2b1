#include "server/front/output/reply.h"

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* A token that was proposed several times, after mismatches, is one token of the prediction. Tokens that the engine
 * generated past a stop string are not part of the answer. */
static void add_prediction(const struct generation *g, const struct choice *c, struct reply_usage *u)
{
    uint64_t accepted = least(least(c->n_predicted_right, c->n_tokens), g->prediction.n_ids);
    u->n_accepted += accepted;
    u->n_rejected += least(c->n_predicted - c->n_predicted_right, g->prediction.n_ids - accepted);
}

struct reply_usage reply_usage(const struct generation *g)
{
    struct reply_usage u = {0};
    for (size_t i = 0; i < g->n_prompts; i++) {
        u.n_prompt += g->prompts[i].item.n_ids;
        u.n_cached += g->prompts[i].n_cached;
        u.n_created += g->prompts[i].n_created;
        for (uint32_t j = 0; j < g->params.spec->n; j++) {
            const struct choice *c = &g->prompts[i].choices[j];
            u.n_generated += c->n_tokens;
            add_prediction(g, c, &u);
        }
    }
    return u;
}

struct logprobs_style reply_logprobs_style(const struct generation *g, int32_t n_top)
{
    return (struct logprobs_style){
        .text = g->served->config->text,
        .as_ids = g->params.tokens_as_ids,
        .n_top = n_top > 0 ? (uint32_t)n_top : 0,
    };
}

void reply_put_logprobs(struct buffer *o, const struct generation *g, const struct gen_piece *piece)
{
    const struct logprobs_style style = reply_logprobs_style(g, g->params.spec->n_logprobs);
    for (uint32_t i = 0; i < piece->n_tokens; i++) {
        if (i > 0)
            json_out_raw(o, ",");
        logprobs_chat_entry(o, &style, &piece->tokens[i].token);
    }
}

void reply_emit(struct generation *g)
{
    /* If memory for an event is out, the client must not mistake the stream for a complete one. */
    if (g->event.failed || g->early.failed) {
        g->has_alias = false;
        http_cut_off(g->x);
    } else if (g->begun) {
        generation_alias_show(g, g->event.data, g->event.n);
        http_stream_write(g->x, g->event.data, g->event.n);
    } else {
        buffer_append(&g->early, g->event.data, g->event.n);
    }
}

void reply_put_timing(struct buffer *o, const struct generation *g)
{
    json_out_raw(o, ",\"quire_trace\":");
    timing_json(o, &g->timing, g->tenant, g->admin, g->served->front->tenants, g->served->blockers);
}

void reply_begin_event(struct generation *g, const char *type)
{
    struct buffer *o = &g->event;
    buffer_clear(o);
    json_out_raw(o, "event: ");
    json_out_raw(o, type);
    json_out_raw(o, "\ndata: {\"type\":");
    json_out_text(o, type);
}

void reply_end_event(struct generation *g)
{
    json_out_raw(&g->event, "}\n\n");
    reply_emit(g);
}
