/* /v1/responses: turns its body into a chat and parameters. Text only, and the server stores nothing between requests:
 * fields that need either are rejected. */
#include "server/front/body/generation_job.h"
#include "server/front/front_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- input ---------------------------------------------------------------------------------- */

static bool bad_item(struct api_error *e, size_t i, const char *key, const char *why)
{
    char field[64];
    snprintf(field, sizeof field, "input[%zu]%s%s", i, *key ? "." : "", key);
    return api_bad(e, field, "%s", why);
}

/* content: a string. */
static void add_message(struct buffer *o, const char *role, struct quire_value content)
{
    chat_put_message(o, role);
    buffer_append(o, content.text, content.n);
    json_out_raw(o, "}");
}

/* A message item: {type: "message" (or absent), role, content: a string or parts}. */
static bool add_item(struct buffer *o, struct quire_value item, size_t i, struct api_error *e)
{
    static const char *const roles[] = {"user", "assistant", "system", "developer"};
    static const char *const types[] = {"input_text", "output_text", NULL};
    struct quire_value role = quire_value_member(item, "role"), type = json_field_member(item, "type");
    struct quire_value content = json_field_member(item, "content");
    char field[64];
    if (!json_is(item, QUIRE_OBJECT))
        return bad_item(e, i, "", "must be an object");
    if (type.n && !quire_value_is(type, "message")) {
        snprintf(field, sizeof field, "input[%zu].type", i);
        return api_unsupported(e, field, "only \"message\" is supported");
    }
    size_t k = 0;
    while (k < sizeof roles / sizeof *roles && !quire_value_is(role, roles[k]))
        k++;
    if (k == sizeof roles / sizeof *roles)
        return bad_item(e, i, "role", "must be \"user\", \"assistant\", \"system\" or \"developer\"");
    if (json_is(content, QUIRE_STRING)) {
        add_message(o, roles[k], content);
        return true;
    }
    if (!json_is(content, QUIRE_ARRAY))
        return bad_item(e, i, "content", "must be a string or an array of text parts");
    snprintf(field, sizeof field, "input[%zu].content", i);
    chat_put_message(o, roles[k]);
    bool ok = chat_put_parts(o, content, types, field, e);
    json_out_raw(o, "}");
    return ok;
}

static bool add_input(struct buffer *o, struct quire_value input, struct api_error *e)
{
    struct quire_value rest = input, item;
    size_t i;
    if (json_is(input, QUIRE_STRING)) {
        add_message(o, "user", input);
        return true;
    }
    for (i = 0; json_is(input, QUIRE_ARRAY) && quire_value_next(&rest, NULL, &item); i++) {
        if (i == CHAT_MAX_MESSAGES)
            return api_bad(e, "input", "more than %d", CHAT_MAX_MESSAGES);
        if (!add_item(o, item, i, e))
            return false;
    }
    return i > 0 || api_bad(e, "input", "must be a string or a non-empty array of items");
}

static bool read_input(struct request_job *j, const struct quire_doc *body)
{
    struct quire_value instructions = json_field_get(body, "instructions");
    struct buffer o = {0};
    if (instructions.n && !json_is(instructions, QUIRE_STRING))
        return api_bad(&j->error, "instructions", "must be a string");
    json_out_raw(&o, "[");
    if (instructions.n && !quire_value_is(instructions, "")) /* an empty string counts as absent, as in vLLM */
        add_message(&o, "system", instructions);
    j->text->chat.add_generation_prompt = true;
    bool ok = add_input(&o, json_field_get(body, "input"), &j->error);
    json_out_raw(&o, "]");
    ok = ok && chat_take(j, &o, "input");
    buffer_free(&o);
    return ok;
}

/* ---- parameters ----------------------------------------------------------------------------- */

static const char *const not_built[] = {
    "previous_response_id", "conversation", "background", "prompt", "tools", "context_management", "moderation",
};

static bool refuse_not_built(const struct quire_doc *body, struct api_error *e)
{
    struct quire_value choice = json_field_get(body, "tool_choice"), text = json_field_get(body, "text");
    if (!params_refuse(body, not_built, sizeof not_built / sizeof *not_built, e))
        return false;
    if (choice.n && !quire_value_is(choice, "auto") && !quire_value_is(choice, "none"))
        return api_unsupported(e, "tool_choice", "tools are not supported");
    if (text.n && !json_is(text, QUIRE_OBJECT))
        return api_bad(e, "text", "must be an object");
    struct quire_value format = json_field_member(text, "format"), type = quire_value_member(format, "type");
    if (format.n && !json_is(type, QUIRE_STRING))
        return api_bad(e, "text.format", "must be an object with a \"type\"");
    if (format.n && !quire_value_is(type, "text"))
        return api_unsupported(e, "text.format", "%.*s is not supported", JSON_SHOWN(type));
    return true;
}

static bool read_logprobs(struct generation_job *g, const struct quire_doc *body)
{
    struct api_error *e = &g->job.error;
    struct quire_value include = json_field_get(body, "include"), rest = include, item;
    int64_t top = 0;
    if (!json_field_i64(body, "top_logprobs", 0, REQUEST_MAX_LOGPROBS, &top, e))
        return false;
    if (include.n && !json_is(include, QUIRE_ARRAY))
        return api_bad(e, "include", "must be an array of strings");
    /* The other values of include have no effect on a reply. */
    while (include.n && quire_value_next(&rest, NULL, &item)) {
        if (!json_is(item, QUIRE_STRING))
            return api_bad(e, "include", "must be an array of strings");
        if (quire_value_is(item, "message.output_text.logprobs"))
            g->params->spec->n_logprobs = (int32_t)top;
    }
    return true;
}

static bool read_truncation(struct generation_job *g, const struct quire_doc *body)
{
    const char *truncation = NULL;
    if (!json_field_string(body, "truncation", &truncation, &g->job.error))
        return false;
    bool cuts = truncation && strcmp(truncation, "auto") == 0;
    if (truncation && !cuts && strcmp(truncation, "disabled") != 0)
        return api_bad(&g->job.error, "truncation", "must be \"auto\" or \"disabled\"");
    g->params->truncate = cuts ? -1 : 0;
    return true;
}

/* ---- fields that a reply repeats ---- */

static bool check_metadata(const struct quire_doc *body, struct api_error *e)
{
    struct quire_value metadata = json_field_get(body, "metadata"), rest = metadata, value;
    if (metadata.n && !json_is(metadata, QUIRE_OBJECT))
        return api_bad(e, "metadata", "must be an object of strings");
    while (metadata.n && quire_value_next(&rest, NULL, &value))
        if (!json_is(value, QUIRE_STRING))
            return api_bad(e, "metadata", "must be an object of strings");
    return true;
}

/* Writes the request's value as written, or a default if it is absent. */
static void put_echo(struct buffer *o, const struct quire_doc *body, const char *key, const char *otherwise)
{
    struct quire_value value = json_field_get(body, key);
    json_out_raw(o, ",");
    json_out_text(o, key);
    json_out_raw(o, ":");
    if (value.n)
        buffer_append(o, value.text, value.n);
    else
        json_out_raw(o, otherwise);
}

/* Writes all fields of the reply that do not depend on the generated text; the SDK's types need them. */
static bool make_echo(struct generation_job *g, const struct quire_doc *body)
{
    const struct sampling_defaults *d = g->job.served->config->sampling;
    const char *user = NULL;
    char temperature[32], top_p[32];
    bool parallel = true, store = false;
    struct buffer o = {0};
    if (!check_metadata(body, &g->job.error) || !json_field_string(body, "user", &user, &g->job.error) ||
        !json_field_bool(body, "parallel_tool_calls", &parallel, &g->job.error) ||
        !json_field_bool(body, "store", &store, &g->job.error))
        return false;
    /* 15 digits reproduce a decimal number as it was written. */
    snprintf(temperature, sizeof temperature, "%.15g", d->has_temperature ? d->temperature : 1);
    snprintf(top_p, sizeof top_p, "%.15g", d->has_top_p ? d->top_p : 1);
    json_out_raw(&o, "{\"background\":false,\"previous_response_id\":null,\"tools\":[],\"store\":false,"
                     "\"max_tool_calls\":null,\"reasoning\":{\"effort\":null,\"summary\":null},"
                     "\"service_tier\":\"default\",\"text\":{\"format\":{\"type\":\"text\"}}");
    put_echo(&o, body, "parallel_tool_calls", "true");
    put_echo(&o, body, "instructions", "null");
    put_echo(&o, body, "max_output_tokens", "null");
    put_echo(&o, body, "metadata", "{}");
    put_echo(&o, body, "temperature", temperature);
    put_echo(&o, body, "top_p", top_p);
    put_echo(&o, body, "top_logprobs", "0");
    put_echo(&o, body, "tool_choice", "\"auto\"");
    put_echo(&o, body, "truncation", "\"disabled\"");
    put_echo(&o, body, "user", "null");
    json_out_raw(&o, "}");
    g->echo = buffer_text(&o) ? o.data : NULL;
    if (!g->echo)
        buffer_free(&o);
    return g->echo || api_no_memory(&g->job.error);
}

bool responses_read(struct generation_job *g, const struct quire_doc *body)
{
    struct api_error *e = &g->job.error;
    return refuse_not_built(body, e) && generation_job_common(g, body) && generation_job_one_choice(g) &&
           params_stops(g->params, body, "stop", e) && params_length(g->params, body, "max_output_tokens", 1, 0, e) &&
           read_logprobs(g, body) && read_truncation(g, body) && make_echo(g, body) && read_input(&g->job, body);
}
