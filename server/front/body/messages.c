/* /v1/messages, Anthropic's: its body becomes a chat and its parameters. Text only. */
#include "server/front/front_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the prompt ----------------------------------------------------------------------------- */

/* A string or a list of text blocks as a message's content. */
static bool add_message(json_t *out, const char *role, json_t *content, const char *field, struct api_error *e)
{
    static const char *const types[] = {"text", NULL};
    if (!json_is_string(content) && !json_is_array(content))
        return api_bad(e, field, "must be a string or an array of text blocks");
    json_t *text = json_is_string(content) ? json_incref(content) : chat_join_parts(content, types, field, e);
    if (!text)
        return false;
    json_t *message = json_pack("{s:s, s:o}", "role", role, "content", text);
    if (!message || json_array_append_new(out, message) != 0)
        return api_fail(e, 503, field, "out_of_memory", "out of memory");
    return true;
}

static bool add_messages(json_t *out, const json_t *messages, struct api_error *e)
{
    const json_t *message;
    char field[64];
    size_t i;
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return api_bad(e, "messages", "must be a non-empty array");
    if (json_array_size(messages) > CHAT_MAX_MESSAGES)
        return api_bad(e, "messages", "more than %d", CHAT_MAX_MESSAGES);
    json_array_foreach(messages, i, message)
    {
        const char *role = json_string_value(json_object_get(message, "role"));
        snprintf(field, sizeof field, "messages[%zu].role", i);
        if (!role || (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0 && strcmp(role, "system") != 0))
            return api_bad(e, field, "must be \"user\", \"assistant\" or \"system\"");
        snprintf(field, sizeof field, "messages[%zu].content", i);
        if (!add_message(out, role, json_field_get(message, "content"), field, e))
            return false;
    }
    return true;
}

static bool last_is_assistant(const json_t *messages)
{
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    return strcmp(json_string_value(json_object_get(last, "role")), "assistant") == 0;
}

static bool read_prompt(struct request_job *j, const json_t *body)
{
    struct api_error *e = &j->error;
    json_t *chat = json_array(), *system = json_field_get(body, "system");
    bool ok = (chat || request_job_no_memory(j)) && (!system || add_message(chat, "system", system, "system", e)) &&
              add_messages(chat, json_field_get(body, "messages"), e);
    if (ok) {
        /* An answer that is begun is continued. */
        j->continue_final = last_is_assistant(chat);
        j->add_generation_prompt = !j->continue_final;
        ok = chat_take(j, chat, "messages");
    }
    json_decref(chat);
    return ok;
}

/* ---- parameters ----------------------------------------------------------------------------- */

static const char *const not_built[] = {
    "tools", "mcp_servers", "container", "context_management", "output_format",
};

static bool refuse_not_built(const json_t *body, struct api_error *e)
{
    const json_t *thinking = json_field_get(body, "thinking"), *choice = json_field_get(body, "tool_choice");
    const json_t *output = json_field_get(body, "output_config");
    const char *type = json_string_value(json_object_get(thinking, "type"));
    if (!params_refuse(body, not_built, sizeof not_built / sizeof *not_built, e))
        return false;
    if (thinking && (!type || strcmp(type, "disabled") != 0))
        return api_unsupported(e, "thinking", "only {\"type\":\"disabled\"} is supported");
    type = json_string_value(json_object_get(choice, "type"));
    if (choice && (!type || (strcmp(type, "auto") != 0 && strcmp(type, "none") != 0)))
        return api_unsupported(e, "tool_choice", "tools are not supported");
    if (output && !json_is_object(output))
        return api_bad(e, "output_config", "must be an object");
    if (json_field_get(output, "format"))
        return api_unsupported(e, "output_config.format", "is not supported");
    return true;
}

static bool check_metadata(const json_t *body, struct api_error *e)
{
    const json_t *metadata = json_field_get(body, "metadata"), *user = json_field_get(metadata, "user_id");
    if (metadata && !json_is_object(metadata))
        return api_bad(e, "metadata", "must be an object");
    if (user && !json_is_string(user))
        return api_bad(e, "metadata.user_id", "must be a string");
    return true;
}

static bool read_length(struct request_job *j, const json_t *body)
{
    if (!params_length(&j->params, body, "max_tokens", 1, 0, &j->error))
        return false;
    return j->params.has_max_tokens || api_bad(&j->error, "max_tokens", "is missing");
}

static bool check_temperature(const json_t *body, struct api_error *e)
{
    const json_t *temperature = json_field_get(body, "temperature");
    return !json_is_number(temperature) || json_number_value(temperature) <= 1 ||
           api_bad(e, "temperature", "must be between 0 and 1, got %g", json_number_value(temperature));
}

bool messages_read(struct request_job *j, const json_t *body)
{
    struct api_error *e = &j->error;
    return refuse_not_built(body, e) && check_temperature(body, e) && check_metadata(body, e) &&
           request_job_common(j, body) && request_job_one_choice(j) && read_length(j, body) &&
           params_stops(&j->params, body, "stop_sequences", e) && read_prompt(j, body);
}

/* ---- counting ------------------------------------------------------------------------------- */

bool messages_count_read(struct request_job *j, const json_t *body)
{
    const char *model = NULL;
    return refuse_not_built(body, &j->error) && json_field_string(body, "model", &model, &j->error) &&
           front_model_name(j->front, model, &j->error) && read_prompt(j, body);
}

static void put_count(struct buffer *o, const struct request_job *j)
{
    json_out_raw(o, "{\"input_tokens\":");
    json_out_u64(o, j->items[0].n_ids);
    json_out_raw(o, "}");
}

void messages_count_start(struct front *f, struct http_exchange *x)
{
    utility_start(f, x, messages_count_read, put_count);
}
