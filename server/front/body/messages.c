/* Anthropic's /v1/messages: turns its body into a chat and parameters. Text only. */
#include "server/front/body/system_prompt.h"
#include "server/front/body/generation_job.h"
#include "server/front/front_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the prompt ----------------------------------------------------------------------------- */

/* A string or a list of text blocks as a message's content. */
static bool add_message(struct buffer *o, const char *role, struct quire_value content, const char *field,
                        struct api_error *e)
{
    static const char *const types[] = {"text", NULL};
    bool list = json_is(content, QUIRE_ARRAY);
    if (!list && !json_is(content, QUIRE_STRING))
        return api_bad(e, field, "must be a string or an array of text blocks");
    chat_put_message(o, role);
    if (list && !chat_put_parts(o, content, types, field, e))
        return false;
    if (!list)
        buffer_append(o, content.text, content.n);
    json_out_raw(o, "}");
    return true;
}

static bool add_messages(struct buffer *o, struct quire_value messages, bool *last_is_assistant, struct api_error *e)
{
    static const char *const roles[] = {"user", "assistant", "system"};
    struct quire_value rest = messages, message;
    char field[64];
    size_t i;
    for (i = 0; json_is(messages, QUIRE_ARRAY) && quire_value_next(&rest, NULL, &message); i++) {
        if (i == CHAT_MAX_MESSAGES)
            return api_bad(e, "messages", "more than %d", CHAT_MAX_MESSAGES);
        struct quire_value role = quire_value_member(message, "role");
        size_t k = 0;
        while (k < 3 && !quire_value_is(role, roles[k]))
            k++;
        snprintf(field, sizeof field, "messages[%zu].role", i);
        if (k == 3)
            return api_bad(e, field, "must be \"user\", \"assistant\" or \"system\"");
        snprintf(field, sizeof field, "messages[%zu].content", i);
        if (!add_message(o, roles[k], json_field_member(message, "content"), field, e))
            return false;
        *last_is_assistant = k == 1;
    }
    return i > 0 || api_bad(e, "messages", "must be a non-empty array");
}

static bool read_prompt(struct request_job *j, const struct quire_doc *body)
{
    struct api_error *e = &j->error;
    struct quire_value system = json_field_get(body, "system");
    struct buffer o = {0};
    json_out_raw(&o, "[");
    /* A last message of the assistant is continued. */
    bool ok = (!system.n || system_prompt_add(&o, system, !j->served->config->keeps_billing_header, e)) &&
              add_messages(&o, json_field_get(body, "messages"), &j->text->chat.continue_final, e);
    json_out_raw(&o, "]");
    j->text->chat.add_generation_prompt = !j->text->chat.continue_final;
    ok = ok && chat_take(j, &o, "messages");
    buffer_free(&o);
    return ok;
}

/* ---- parameters ----------------------------------------------------------------------------- */

static const char *const not_built[] = {
    "tools",
    "mcp_servers",
    "container",
    "context_management",
};

static bool refuse_not_built(const struct quire_doc *body, struct api_error *e)
{
    struct quire_value thinking = json_field_get(body, "thinking"), choice = json_field_get(body, "tool_choice");
    struct quire_value output = json_field_get(body, "output_config"), type;
    if (!params_refuse(body, not_built, sizeof not_built / sizeof *not_built, e))
        return false;
    if (thinking.n && !quire_value_is(quire_value_member(thinking, "type"), "disabled"))
        return api_unsupported(e, "thinking", "only {\"type\":\"disabled\"} is supported");
    type = quire_value_member(choice, "type");
    if (choice.n && !quire_value_is(type, "auto") && !quire_value_is(type, "none"))
        return api_unsupported(e, "tool_choice", "tools are not supported");
    if (output.n && !json_is(output, QUIRE_OBJECT))
        return api_bad(e, "output_config", "must be an object");
    return true;
}

static bool check_metadata(const struct quire_doc *body, struct api_error *e)
{
    struct quire_value metadata = json_field_get(body, "metadata"), user = json_field_member(metadata, "user_id");
    if (metadata.n && !json_is(metadata, QUIRE_OBJECT))
        return api_bad(e, "metadata", "must be an object");
    if (user.n && !json_is(user, QUIRE_STRING))
        return api_bad(e, "metadata.user_id", "must be a string");
    return true;
}

static bool read_length(struct generation_job *g, const struct quire_doc *body)
{
    if (!params_length(g->params, body, "max_tokens", 1, 0, &g->job.error))
        return false;
    return g->params->has_max_tokens || api_bad(&g->job.error, "max_tokens", "is missing");
}

static bool check_temperature(const struct quire_doc *body, struct api_error *e)
{
    struct quire_value temperature = json_field_get(body, "temperature");
    return !(quire_value_double(temperature) > 1) ||
           api_bad(e, "temperature", "must be between 0 and 1, got %.*s", JSON_SHOWN(temperature));
}

/* The format's name in Anthropic's beta, and its newer name. */
static bool read_format(struct generation_job *g, const struct quire_doc *body)
{
    struct quire_value config = json_field_get(body, "output_config");
    return generation_job_format(g, json_field_get(body, "output_format"), "output_format") &&
           generation_job_format(g, json_field_member(config, "format"), "output_config.format");
}

bool messages_read(struct generation_job *g, const struct quire_doc *body)
{
    struct api_error *e = &g->job.error;
    return refuse_not_built(body, e) && check_temperature(body, e) && check_metadata(body, e) &&
           generation_job_common(g, body) && generation_job_one_choice(g) && read_length(g, body) &&
           read_format(g, body) && params_stops(g->params, body, "stop_sequences", e) && read_prompt(&g->job, body);
}

/* ---- counting ------------------------------------------------------------------------------- */

/* The form of the answer does not change the prompt, but it is checked all the same. */
static bool check_format(const struct quire_doc *body, struct api_error *e)
{
    struct quire_value config = json_field_get(body, "output_config");
    struct grammar_request *r = NULL;
    bool ok = grammar_request_format(json_field_get(body, "output_format"), "output_format", QUIRE_WHITESPACE_COMPACT,
                                     &r, e) &&
              grammar_request_format(json_field_member(config, "format"), "output_config.format",
                                     QUIRE_WHITESPACE_COMPACT, &r, e);
    grammar_request_free(r);
    return ok;
}

bool messages_count_read(struct request_job *j, const struct quire_doc *body)
{
    const char *model = NULL;
    return refuse_not_built(body, &j->error) && check_format(body, &j->error) &&
           json_field_string(body, "model", &model, &j->error) && model_name(j->models, j->served, model, &j->error) &&
           read_prompt(j, body);
}

static void put_count(struct buffer *o, const struct request_job *j)
{
    json_out_raw(o, "{\"input_tokens\":");
    json_out_u64(o, j->text->items[0].n_ids);
    json_out_raw(o, "}");
}

void messages_count_start(struct served_model *m, struct http_exchange *x)
{
    static const struct utility_calls calls = {messages_count_read, put_count, true};
    utility_start(m, x, &calls);
}
