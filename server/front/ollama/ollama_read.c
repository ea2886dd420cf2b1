/* The bodies of /api/chat and /api/generate. */
#include "server/front/ollama/ollama_read.h"

#include "server/front/body/generation_job.h"
#include "server/front/front_internal.h"
#include "server/front/ollama/ollama.h"

#include <stdio.h>
#include <string.h>

/* Begins a body with the fields of both routes. */
static bool put_common(struct buffer *o, const struct request_job *j, const struct quire_doc *body, struct api_error *e)
{
    const struct quire_value stream = json_field_get(body, "stream"), options = json_field_get(body, "options");
    bool streams = true;
    if (!json_value_bool(stream, "stream", &streams, e))
        return false;
    json_out_raw(o, streams ? "{\"stream\":true" : "{\"stream\":false");
    return ollama_put_model(o, j, json_field_get(body, "model"), e) && ollama_put_options(o, options, e) &&
           ollama_put_format(o, json_field_get(body, "format"), e);
}

static bool read_as(struct generation_job *g, struct buffer *o,
                    bool (*read)(struct generation_job *g, const struct quire_doc *body))
{
    const bool ok = generation_job_read_as(g, o, read);
    if (!ok)
        ollama_name_error(&g->job.error);
    if (ok && g->params->grammar) /* it is compiled later */
        snprintf(g->params->grammar->field, sizeof g->params->grammar->field, "format");
    if (ok) { /* Ollama drops the oldest tokens of a long answer instead of an error */
        g->params->clamps_max_tokens = true;
        g->params->include_usage = true;
        if (!g->params->has_max_tokens)
            g->params->max_tokens = 0; /* to the end of the context, which is not the default of completions */
    }
    return ok;
}

static void put_logprobs(struct buffer *o, const struct quire_doc *body)
{
    ollama_put_field(o, "logprobs", json_field_get(body, "logprobs"));
    if (quire_value_kind(json_field_get(body, "logprobs")) == QUIRE_BOOL &&
        json_field_get(body, "logprobs").text[0] == 't')
        ollama_put_field(o, "top_logprobs", json_field_get(body, "top_logprobs"));
}

/* ---- /api/chat ------------------------------------------------------------------------------ */

/* A last message of the assistant is continued. */
static bool continues(struct quire_value messages)
{
    struct quire_value last = {0};
    while (quire_value_next(&messages, NULL, &last))
        ;
    const struct quire_value calls = json_field_member(last, "tool_calls");
    return quire_value_is(json_field_member(last, "role"), "assistant") && (!calls.n || quire_value_count(calls) == 0);
}

bool ollama_chat_read(struct generation_job *g, const struct quire_doc *body)
{
    struct api_error *e = &g->job.error;
    const struct quire_value messages = json_field_get(body, "messages");
    struct buffer o = {0};
    bool ok = put_common(&o, &g->job, body, e) && ollama_put_think(&o, json_field_get(body, "think"), e);
    ollama_put_field(&o, "tools", json_field_get(body, "tools"));
    put_logprobs(&o, body);
    json_out_raw(&o, ",\"messages\":");
    ok = ok && ollama_put_messages(&o, messages, e);
    if (ok && continues(messages))
        json_out_raw(&o, ",\"continue_final_message\":true");
    json_out_raw(&o, "}");
    ok = ok && read_as(g, &o, chat_read);
    buffer_free(&o);
    return ok;
}

/* ---- /api/generate -------------------------------------------------------------------------- */

static bool refuse_not_built(const struct quire_doc *body, struct api_error *e)
{
    const struct quire_value context = json_field_get(body, "context"), suffix = json_field_get(body, "suffix");
    const struct quire_value template = json_field_get(body, "template");
    if (suffix.n && !quire_value_is(suffix, ""))
        return api_unsupported(e, "suffix", "is not supported: the model continues a prompt");
    if (template.n && !quire_value_is(template, ""))
        return api_unsupported(e, "template",
                               "is not supported: the server has the model's own chat template; with "
                               "\"raw\": true the prompt is taken as it is");
    if (context.n && (!json_is(context, QUIRE_ARRAY) || quire_value_count(context) > 0))
        return api_unsupported(e, "context", "is not supported: send the earlier messages to /api/chat");
    return ollama_no_images(json_field_get(body, "images"), "", e);
}

static bool put_text(struct buffer *o, struct quire_value text, const char *name, struct api_error *e)
{
    if (!json_is(text, QUIRE_STRING))
        return api_bad(e, name, "must be a string");
    buffer_append(o, text.text, text.n);
    return true;
}

static bool put_dialog(struct buffer *o, const struct quire_doc *body, struct api_error *e)
{
    const struct quire_value system = json_field_get(body, "system");
    json_out_raw(o, ",\"messages\":[");
    if (system.n && !quire_value_is(system, "")) {
        json_out_raw(o, "{\"role\":\"system\",\"content\":");
        if (!put_text(o, system, "system", e))
            return false;
        json_out_raw(o, "},");
    }
    json_out_raw(o, "{\"role\":\"user\",\"content\":");
    if (!put_text(o, json_field_get(body, "prompt"), "prompt", e))
        return false;
    json_out_raw(o, "}]");
    return ollama_put_think(o, json_field_get(body, "think"), e);
}

/* Completions count their logprobs. */
static bool put_prompt(struct buffer *o, const struct quire_doc *body, struct api_error *e)
{
    const struct quire_value logprobs = json_field_get(body, "logprobs"), top = json_field_get(body, "top_logprobs");
    bool wanted = false;
    uint64_t n = 0;
    if (!json_value_bool(logprobs, "logprobs", &wanted, e) ||
        (top.n && !json_value_whole(top, "top_logprobs", 0, REQUEST_MAX_LOGPROBS, &n, e)))
        return false;
    if (wanted && top.n)
        ollama_put_field(o, "logprobs", top);
    else if (wanted)
        json_out_raw(o, ",\"logprobs\":0");
    json_out_raw(o, ",\"prompt\":");
    return put_text(o, json_field_get(body, "prompt"), "prompt", e);
}

bool ollama_generate_read(struct generation_job *g, const struct quire_doc *body)
{
    struct api_error *e = &g->job.error;
    struct buffer o = {0};
    bool raw = false;
    if (!json_value_bool(json_field_get(body, "raw"), "raw", &raw, e) || !refuse_not_built(body, e))
        return false;
    raw |= !quire_text_has_chat(g->job.served->config->text);
    bool ok = put_common(&o, &g->job, body, e);
    if (!raw)
        put_logprobs(&o, body);
    ok = ok && (raw ? put_prompt(&o, body, e) : put_dialog(&o, body, e));
    json_out_raw(&o, "}");
    ok = ok && read_as(g, &o, raw ? completions_read : chat_read);
    g->job.text->name = "prompt";
    buffer_free(&o);
    return ok;
}
