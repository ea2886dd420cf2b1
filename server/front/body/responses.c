/* /v1/responses: its body becomes a chat and its parameters. Text only, and nothing is kept between
 * requests: what needs either is refused. */
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

static bool add_message(json_t *messages, const char *role, json_t *content, struct api_error *e)
{
    json_t *message = json_pack("{s:s, s:o}", "role", role, "content", content);
    if (!message || json_array_append_new(messages, message) != 0)
        return api_fail(e, 503, "input", "out_of_memory", "out of memory");
    return true;
}

/* A message item: {type: "message" (or none), role, content: a string or parts}. */
static bool add_item(json_t *messages, const json_t *item, size_t i, struct api_error *e)
{
    static const char *const roles[] = {"user", "assistant", "system", "developer"};
    static const char *const types[] = {"input_text", "output_text", NULL};
    const char *role = json_string_value(json_object_get(item, "role"));
    const json_t *type = json_field_get(item, "type");
    json_t *content = json_field_get(item, "content");
    char field[64];
    if (!json_is_object(item))
        return bad_item(e, i, "", "must be an object");
    if (type && strcmp(json_is_string(type) ? json_string_value(type) : "", "message") != 0) {
        snprintf(field, sizeof field, "input[%zu].type", i);
        return api_unsupported(e, field, "only \"message\" is supported");
    }
    size_t k = 0;
    while (k < sizeof roles / sizeof *roles && role && strcmp(role, roles[k]) != 0)
        k++;
    if (!role || k == sizeof roles / sizeof *roles)
        return bad_item(e, i, "role", "must be \"user\", \"assistant\", \"system\" or \"developer\"");
    if (json_is_string(content))
        return add_message(messages, role, json_incref(content), e);
    if (!json_is_array(content))
        return bad_item(e, i, "content", "must be a string or an array of text parts");
    snprintf(field, sizeof field, "input[%zu].content", i);
    content = chat_join_parts(content, types, field, e);
    return content && add_message(messages, role, content, e);
}

static bool add_input(json_t *messages, json_t *input, struct api_error *e)
{
    const json_t *item;
    size_t i;
    if (json_is_string(input))
        return add_message(messages, "user", json_incref(input), e);
    if (!json_is_array(input) || json_array_size(input) == 0)
        return api_bad(e, "input", "must be a string or a non-empty array of items");
    if (json_array_size(input) > CHAT_MAX_MESSAGES)
        return api_bad(e, "input", "more than %d", CHAT_MAX_MESSAGES);
    json_array_foreach(input, i, item) if (!add_item(messages, item, i, e)) return false;
    return true;
}

static bool read_input(struct request_job *j, const json_t *body)
{
    json_t *messages = json_array(), *instructions = json_field_get(body, "instructions");
    bool ok = messages || request_job_no_memory(j);
    if (ok && instructions && !json_is_string(instructions))
        ok = api_bad(&j->error, "instructions", "must be a string");
    if (ok && instructions)
        ok = add_message(messages, "system", json_incref(instructions), &j->error);
    j->add_generation_prompt = true;
    ok = ok && add_input(messages, json_field_get(body, "input"), &j->error) && chat_take(j, messages, "input");
    json_decref(messages);
    return ok;
}

/* ---- parameters ----------------------------------------------------------------------------- */

static const char *const not_built[] = {
    "previous_response_id", "conversation", "background", "prompt", "tools", "context_management", "moderation",
};

static bool refuse_not_built(const json_t *body, struct api_error *e)
{
    const json_t *choice = json_field_get(body, "tool_choice"), *text = json_field_get(body, "text");
    if (!params_refuse(body, not_built, sizeof not_built / sizeof *not_built, e))
        return false;
    const char *name = json_string_value(choice);
    if (choice && (!name || (strcmp(name, "auto") != 0 && strcmp(name, "none") != 0)))
        return api_unsupported(e, "tool_choice", "tools are not supported");
    if (!text)
        return true;
    if (!json_is_object(text))
        return api_bad(e, "text", "must be an object");
    const json_t *format = json_field_get(text, "format");
    const char *type = json_string_value(json_object_get(format, "type"));
    if (format && !type)
        return api_bad(e, "text.format", "must be an object with a \"type\"");
    if (format && strcmp(type, "text") != 0)
        return api_unsupported(e, "text.format", "\"%.40s\" is not supported", type);
    return true;
}

static bool read_logprobs(struct request_job *j, const json_t *body)
{
    struct api_error *e = &j->error;
    const json_t *include = json_field_get(body, "include"), *item;
    int64_t top = 0;
    size_t i;
    if (!json_field_i64(body, "top_logprobs", 0, REQUEST_MAX_LOGPROBS, &top, e))
        return false;
    if (include && !json_is_array(include))
        return api_bad(e, "include", "must be an array of strings");
    /* The other things there are to include do not occur in a reply. */
    json_array_foreach(include, i, item)
    {
        if (!json_is_string(item))
            return api_bad(e, "include", "must be an array of strings");
        if (strcmp(json_string_value(item), "message.output_text.logprobs") == 0)
            j->params.spec.n_logprobs = (int32_t)top;
    }
    return true;
}

static bool read_truncation(struct request_job *j, const json_t *body)
{
    const char *truncation = NULL;
    if (!json_field_string(body, "truncation", &truncation, &j->error))
        return false;
    bool cuts = truncation && strcmp(truncation, "auto") == 0;
    if (truncation && !cuts && strcmp(truncation, "disabled") != 0)
        return api_bad(&j->error, "truncation", "must be \"auto\" or \"disabled\"");
    j->params.truncate = cuts ? -1 : 0;
    return true;
}

/* ---- what a reply repeats ------------------------------------------------------------------- */

static bool check_metadata(const json_t *body, struct api_error *e)
{
    json_t *metadata = json_field_get(body, "metadata"), *value;
    const char *key;
    if (metadata && !json_is_object(metadata))
        return api_bad(e, "metadata", "must be an object of strings");
    json_object_foreach(metadata, key, value) if (!json_is_string(value)) return api_bad(
        e, "metadata", "must be an object of strings");
    return true;
}

/* The request's value, or what it is without one, which is taken over. */
static void set_echo(json_t *echo, const json_t *body, const char *key, json_t *otherwise)
{
    json_t *value = json_field_get(body, key);
    json_object_set(echo, key, value ? value : otherwise);
    json_decref(otherwise);
}

/* All fields of the reply that do not depend on what is generated; the SDK's types want them. */
static bool make_echo(struct request_job *j, const json_t *body)
{
    const struct sampling_defaults *d = &j->front->sampling;
    const char *user = NULL;
    bool parallel = true, store = false;
    if (!check_metadata(body, &j->error) || !json_field_string(body, "user", &user, &j->error) ||
        !json_field_bool(body, "parallel_tool_calls", &parallel, &j->error) ||
        !json_field_bool(body, "store", &store, &j->error))
        return false;
    json_t *echo = json_pack("{s:b, s:n, s:[], s:b, s:b, s:n, s:{s:n, s:n}, s:s, s:{s:{s:s}}}", "background", 0,
                             "previous_response_id", "tools", "store", 0, "parallel_tool_calls", (int)parallel,
                             "max_tool_calls", "reasoning", "effort", "summary", "service_tier", "default", "text",
                             "format", "type", "text");
    set_echo(echo, body, "instructions", json_null());
    set_echo(echo, body, "max_output_tokens", json_null());
    set_echo(echo, body, "metadata", json_object());
    set_echo(echo, body, "temperature", json_real(d->has_temperature ? d->temperature : 1));
    set_echo(echo, body, "top_p", json_real(d->has_top_p ? d->top_p : 1));
    set_echo(echo, body, "top_logprobs", json_integer(0));
    set_echo(echo, body, "tool_choice", json_string("auto"));
    set_echo(echo, body, "truncation", json_string("disabled"));
    set_echo(echo, body, "user", json_null());
    /* 15 digits give a decimal number back as it was written. */
    j->echo = echo ? json_dumps(echo, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(echo);
    return j->echo || request_job_no_memory(j);
}

bool responses_read(struct request_job *j, const json_t *body)
{
    struct api_error *e = &j->error;
    return refuse_not_built(body, e) && request_job_common(j, body) && request_job_one_choice(j) &&
           params_stops(&j->params, body, "stop", e) && params_length(&j->params, body, "max_output_tokens", 1, 0, e) &&
           read_logprobs(j, body) && read_truncation(j, body) && make_echo(j, body) && read_input(j, body);
}
