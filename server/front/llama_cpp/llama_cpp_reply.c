/* Writes the replies of llama.cpp's /completion. A result is one choice of one prompt: a reply has one, or an array. A
 * stream has an event for each token, and at the end one for each result, without [DONE]. */
#include "server/front/llama_cpp/llama_cpp.h"
#include "server/front/output/reply.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_SLOT "-1" /* Quire binds no request to a slot */

static void begin(struct reply *r, const struct generation_job *j)
{
    struct buffer *o = &r->head;
    const struct quire_value echo = {j->echo, strlen(j->echo)};
    const struct quire_value settings = quire_value_member(echo, "settings");
    const struct quire_value fields = quire_value_member(echo, "fields");
    json_out_raw(o, ",\"model\":");
    json_out_text(o, j->job.model);
    json_out_raw(o, ",\"generation_settings\":");
    buffer_append(o, settings.text, settings.n);
    if (quire_value_count(fields) > 0)
        o->failed |= buffer_append(&r->fields, fields.text, fields.n) != QUIRE_OK;
}

/* ---- fields ---- */

static void put_u64(struct buffer *o, const char *name, uint64_t value)
{
    json_out_raw(o, ",\"");
    json_out_raw(o, name);
    json_out_raw(o, "\":");
    json_out_u64(o, value);
}

static void put_double(struct buffer *o, const char *name, double value)
{
    char text[96];
    snprintf(text, sizeof text, ",\"%s\":%.9g", name, value);
    json_out_raw(o, text);
}

static void put_phase(struct buffer *o, const char *phase, uint64_t n, uint64_t us)
{
    char name[40];
    const double ms = (double)us * 1e-3;
    snprintf(name, sizeof name, "%s_n", phase);
    put_u64(o, name, n);
    snprintf(name, sizeof name, "%s_ms", phase);
    put_double(o, name, ms);
    snprintf(name, sizeof name, "%s_per_token_ms", phase);
    put_double(o, name, n > 0 ? ms / (double)n : 0);
    snprintf(name, sizeof name, "%s_per_second", phase);
    put_double(o, name, us > 0 ? (double)n * 1e3 / ms : 0);
}

static void put_timings(struct buffer *o, const struct reply *r, const struct reply_prompt *p, const struct choice *c)
{
    const struct reply_times times = reply_times(r, c);
    json_out_raw(o, ",\"timings\":{\"cache_n\":");
    json_out_u64(o, p->n_cached);
    put_phase(o, "prompt", p->item.n_ids - p->n_cached, times.prompt_us);
    put_phase(o, "predicted", c->n_tokens, times.generated_us);
    json_out_raw(o, "}");
}

static void put_probability(struct buffer *o, const struct reply *r, uint32_t id, float logprob)
{
    uint8_t *bytes = NULL;
    size_t n = 0;
    if (quire_text_token_bytes(r->served->config->text, id, &bytes, &n, NULL) != QUIRE_OK)
        n = 0;
    json_out_raw(o, "{\"id\":");
    json_out_u64(o, id);
    json_out_raw(o, ",\"token\":");
    json_out_string(o, (const char *)bytes, n);
    json_out_raw(o, ",\"bytes\":");
    json_out_byte_array(o, bytes, n);
    json_out_raw(o, ",\"logprob\":");
    json_out_logprob(o, logprob);
    free(bytes);
}

/* The items of completion_probabilities. */
static void put_probabilities(struct buffer *o, const struct reply *r, const struct gen_piece *piece)
{
    const uint32_t most = (uint32_t)r->params->spec->n_logprobs;
    for (uint32_t i = 0; i < piece->n_tokens; i++) {
        const struct wire_token *token = &piece->tokens[i].token;
        if (o->n > 0 && o->data[o->n - 1] == '}')
            json_out_raw(o, ",");
        put_probability(o, r, token->token, token->has_logprob ? token->logprob : 0);
        json_out_raw(o, ",\"top_logprobs\":[");
        for (uint32_t k = 0; k < token->n_top && k < most; k++) {
            if (k > 0)
                json_out_raw(o, ",");
            put_probability(o, r, token->top_ids[k], token->top_logprobs[k]);
            json_out_raw(o, "}");
        }
        json_out_raw(o, "]}");
    }
}

static void put_ids(struct buffer *o, const struct gen_piece *piece)
{
    for (uint32_t i = 0; i < piece->n_tokens; i++) {
        if (i > 0)
            json_out_raw(o, ",");
        json_out_u64(o, piece->tokens[i].token.token);
    }
}

static void put_counts(struct buffer *o, const struct reply_prompt *p, const struct choice *c)
{
    put_u64(o, "tokens_predicted", c->n_tokens);
    put_u64(o, "tokens_evaluated", p->item.n_ids);
}

static void put_stop(struct buffer *o, const struct reply *r, const struct reply_prompt *p, const struct choice *c)
{
    const struct stop_set *stops = r->params->stops;
    const bool is_full = p->item.n_ids + c->n_tokens >= r->served->facts->max_model_len;
    const char *type = c->finish != CHOICE_STOP ? "limit" : c->stop_string >= 0 ? "word" : "eos";
    json_out_raw(o, c->parts->llama_cpp->has_new_line ? ",\"has_new_line\":true" : ",\"has_new_line\":false");
    json_out_raw(o, c->finish == CHOICE_LENGTH && is_full ? ",\"truncated\":true" : ",\"truncated\":false");
    json_out_raw(o, ",\"stop_type\":");
    json_out_text(o, type);
    json_out_raw(o, ",\"stopping_word\":");
    if (c->stop_string >= 0)
        json_out_string(o, stops->strings[c->stop_string], stops->bytes[c->stop_string]);
    else
        json_out_raw(o, "\"\"");
}

/* All fields of a result. In a stream its text, ids and probabilities were sent before. */
static void put_all(struct buffer *o, const struct reply *r, const struct reply_prompt *p, const struct choice *c)
{
    const struct choice_parts *parts = c->parts;
    json_out_raw(o, "{\"index\":");
    json_out_u64(o, c->index);
    json_out_raw(o, ",\"content\":");
    json_out_string(o, parts->text.data, parts->text.n);
    json_out_raw(o, ",\"tokens\":[");
    buffer_append(o, parts->token_ids.data, parts->token_ids.n);
    json_out_raw(o, "],\"id_slot\":" NO_SLOT ",\"stop\":true");
    buffer_append(o, r->head.data, r->head.n);
    put_counts(o, p, c);
    json_out_raw(o, ",\"prompt\":");
    json_out_string(o, p->item.text, p->item.n_text);
    put_stop(o, r, p, c);
    put_u64(o, "tokens_cached", p->n_cached);
    put_timings(o, r, p, c);
    if (r->params->spec->n_logprobs > 0 && !r->params->stream) {
        json_out_raw(o, ",\"completion_probabilities\":[");
        buffer_append(o, parts->llama_cpp->probabilities.data, parts->llama_cpp->probabilities.n);
        json_out_raw(o, "]");
    }
    if (r->params->wants_timing)
        reply_put_timing(o, r);
    json_out_raw(o, "}");
}

/* A result with the fields that the request asks for. */
static void put_result(struct buffer *o, const struct reply *r, const struct reply_prompt *p, const struct choice *c)
{
    struct buffer all = {0};
    if (r->fields.n == 0) {
        put_all(o, r, p, c);
        return;
    }
    put_all(&all, r, p, c);
    llama_cpp_put_picked(o, &all, &r->fields);
    buffer_free(&all);
}

static void watch_lines(struct choice *c, const struct gen_piece *piece)
{
    if (piece->n_text > 0 && memchr(piece->text, '\n', piece->n_text))
        c->parts->llama_cpp->has_new_line = true;
}

/* ---- a stream's events ---- */

static void end_event(struct reply *r)
{
    json_out_raw(&r->event, "\n\n");
}

static void open_choice(struct reply *r, struct reply_prompt *p, struct choice *c)
{
    (void)r;
    (void)p;
    c->parts->opened = true;
}

static void put_token(struct reply *r, struct reply_prompt *p, struct choice *c, const struct gen_piece *piece)
{
    struct buffer *o = &r->event, probabilities = {0};
    watch_lines(c, piece);
    buffer_clear(o);
    json_out_raw(o, "data: {\"index\":");
    json_out_u64(o, c->index);
    json_out_raw(o, ",\"content\":");
    json_out_string(o, piece->text, piece->n_text);
    json_out_raw(o, ",\"tokens\":[");
    put_ids(o, piece);
    json_out_raw(o, "],\"stop\":false,\"id_slot\":" NO_SLOT);
    put_counts(o, p, c);
    if (r->params->continuous_usage)
        put_timings(o, r, p, c);
    if (r->params->spec->n_logprobs > 0 && piece->n_tokens > 0) {
        put_probabilities(&probabilities, r, piece);
        json_out_raw(o, ",\"completion_probabilities\":[");
        buffer_append(o, probabilities.data, probabilities.n);
        json_out_raw(o, "]");
        o->failed |= probabilities.failed;
    }
    buffer_free(&probabilities);
    json_out_raw(o, "}");
    end_event(r);
    reply_emit(r);
}

/* The result follows in end(), when the counts of the cache are known. */
static void finish(struct reply *r, struct reply_prompt *p, struct choice *c)
{
    open_choice(r, p, c);
}

/* All results are one piece: each repeats its prompt, and together they are not more than the client has had time to
 * read. */
static void end(struct reply *r)
{
    buffer_clear(&r->event);
    for (size_t i = 0; i < r->n_prompts; i++) {
        struct reply_prompt *p = &r->prompts[i];
        for (uint32_t k = 0; k < r->params->spec->n; k++) {
            json_out_raw(&r->event, "data: ");
            put_result(&r->event, r, p, &p->choices[k]);
            end_event(r);
        }
    }
    reply_emit(r);
}

static void error(struct reply *r, const struct api_error *e)
{
    buffer_clear(&r->event);
    json_out_raw(&r->event, "data: ");
    api_error_json_llama_cpp(&r->event, e);
    json_out_raw(&r->event, "\n\n");
    reply_emit(r);
}

/* ---- a whole reply ---- */

static void collect(struct reply *r, struct choice *c, const struct gen_piece *piece)
{
    struct choice_parts *parts = c->parts;
    watch_lines(c, piece);
    buffer_append(&parts->text, piece->text, piece->n_text);
    if (r->params->return_token_ids && piece->n_tokens > 0) {
        if (parts->token_ids.n > 0)
            json_out_raw(&parts->token_ids, ",");
        put_ids(&parts->token_ids, piece);
    }
    if (r->params->spec->n_logprobs > 0)
        put_probabilities(&parts->llama_cpp->probabilities, r, piece);
}

static void whole(struct reply *r, struct buffer *o)
{
    const bool is_list = r->n_prompts * r->params->spec->n > 1;
    if (is_list)
        json_out_raw(o, "[");
    for (size_t i = 0; i < r->n_prompts; i++) {
        struct reply_prompt *p = &r->prompts[i];
        for (uint32_t k = 0; k < r->params->spec->n; k++) {
            struct choice *c = &p->choices[k];
            o->failed |= c->parts->text.failed || c->parts->token_ids.failed ||
                         c->parts->llama_cpp->probabilities.failed;
            if (i > 0 || k > 0)
                json_out_raw(o, ",");
            put_result(o, r, p, c);
            choice_close(c);
        }
    }
    if (is_list)
        json_out_raw(o, "]");
}

const struct api_dialect api_llama_cpp = {
    .form = CHOICE_LLAMA_CPP,
    .id_prefix = "cmpl-",
    .read = llama_cpp_read,
    .shape = &field_shape_llama_cpp,
    .begin = begin,
    .open = open_choice,
    .token = put_token,
    .finish = finish,
    .end = end,
    .error = error,
    .collect = collect,
    .whole = whole,
};
