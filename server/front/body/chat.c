#include "server/front/front_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool bad_message(struct api_error *e, size_t i, const char *field, const char *why)
{
    char param[64];
    snprintf(param, sizeof param, "messages[%zu]%s%s", i, *field ? "." : "", field);
    return api_bad(e, param, "%s", why);
}

json_t *chat_join_parts(const json_t *parts, const char *const *types, const char *field, struct api_error *e)
{
    struct buffer o = {0};
    const json_t *part;
    size_t i;
    bool ok = true;
    json_array_foreach(parts, i, part)
    {
        const char *type = json_string_value(json_object_get(part, "type"));
        const json_t *text = json_object_get(part, "text");
        const char *const *known = types;
        while (*known && type && strcmp(*known, type) != 0)
            known++;
        if (!type || (*known && !json_is_string(text)))
            ok = api_bad(e, field, "a part must be {\"type\":\"%s\",\"text\":...}", types[0]);
        else if (!*known)
            ok = api_unsupported(e, field, "a part of type \"%.40s\" is not supported", type);
        if (!ok)
            break;
        if (i > 0)
            json_out_raw(&o, "\n");
        buffer_append(&o, json_string_value(text), json_string_length(text));
    }
    json_t *joined = ok && !o.failed ? json_stringn(o.data ? o.data : "", o.n) : NULL;
    if (ok && !joined)
        api_fail(e, 503, field, "out_of_memory", "out of memory");
    buffer_free(&o);
    return joined;
}

static bool join_content(json_t *message, const json_t *parts, size_t index, struct api_error *e)
{
    static const char *const types[] = {"text", NULL};
    char field[64];
    snprintf(field, sizeof field, "messages[%zu].content", index);
    json_t *joined = chat_join_parts(parts, types, field, e);
    return joined && (json_object_set_new(message, "content", joined) == 0 ||
                      api_fail(e, 503, "messages", "out_of_memory", "out of memory"));
}

static bool fix_content(json_t *message, const char *role, size_t index, struct api_error *e)
{
    const json_t *content = json_field_get(message, "content");
    if (json_is_string(content))
        return true;
    if (json_is_array(content))
        return join_content(message, content, index, e);
    if (content)
        return bad_message(e, index, "content", "must be a string, an array of text parts or null");
    if (strcmp(role, "assistant") != 0)
        return bad_message(e, index, "content", "is missing");
    /* Templates ask whether there is content; few expect it to be null. */
    json_object_set_new(message, "content", json_string(""));
    return true;
}

/* Clients send a call's arguments as a JSON string; templates write them as the object they are. */
static bool fix_tool_calls(json_t *message, size_t index, struct api_error *e)
{
    json_t *calls = json_field_get(message, "tool_calls"), *call;
    size_t i;
    if (!calls)
        return true;
    if (!json_is_array(calls))
        return bad_message(e, index, "tool_calls", "must be an array");
    json_array_foreach(calls, i, call)
    {
        json_t *function = json_object_get(call, "function");
        if (!json_is_string(json_object_get(function, "name")))
            return bad_message(e, index, "tool_calls", "a call needs function.name, a string");
        const json_t *arguments = json_field_get(function, "arguments");
        json_t *object = NULL;
        if (json_is_string(arguments) && json_string_length(arguments) > 0) {
            struct quire_error why;
            int status = quire_json_parse(json_string_value(arguments), json_string_length(arguments),
                                          REQUEST_MAX_DEPTH, "function.arguments", &object, &why);
            if (status != QUIRE_OK)
                return bad_message(e, index, "tool_calls", why.text);
        } else if (json_is_object(arguments)) {
            continue;
        } else if (arguments && !json_is_string(arguments)) {
            return bad_message(e, index, "tool_calls", "function.arguments must be a JSON string");
        } else {
            object = json_object();
        }
        json_object_set_new(function, "arguments", object);
    }
    if (json_array_size(calls) == 0)
        json_object_del(message, "tool_calls");
    return true;
}

/* Templates ask whether a key is there, not whether it is null. */
static void drop_nulls(json_t *message)
{
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(message, next, key, value)
    {
        if (json_is_null(value))
            json_object_del(message, key);
    }
}

static bool fix_messages(json_t *messages, struct api_error *e)
{
    json_t *message;
    size_t i;
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return api_bad(e, "messages", "must be a non-empty array");
    if (json_array_size(messages) > CHAT_MAX_MESSAGES)
        return api_bad(e, "messages", "more than %d", CHAT_MAX_MESSAGES);
    json_array_foreach(messages, i, message)
    {
        if (!json_is_object(message))
            return bad_message(e, i, "", "must be an object");
        const char *role = json_string_value(json_object_get(message, "role"));
        if (!role || !*role)
            return bad_message(e, i, "role", "must be a non-empty string");
        if (!fix_content(message, role, i, e) || !fix_tool_calls(message, i, e))
            return false;
        drop_nulls(message);
    }
    return true;
}

bool chat_take(struct request_job *j, const json_t *messages, const char *name)
{
    j->prompt_name = name;
    j->messages = json_dumps(messages, JSON_COMPACT);
    if (!j->messages)
        return request_job_no_memory(j);
    if (!quire_text_has_chat(j->front->text))
        return api_fail(&j->error, 400, name, "unsupported_parameter",
                        "%s: this model has no chat template; /v1/completions takes a prompt", name);
    return request_job_items(j, 1);
}

bool chat_read_messages(struct request_job *j, const json_t *body)
{
    struct api_error *e = &j->error;
    json_t *messages = json_field_get(body, "messages"), *tools;
    const json_t *kwargs = json_field_get(body, "chat_template_kwargs");
    if (!fix_messages(messages, e) || !params_tools(body, &tools, e) ||
        !json_field_bool(body, "continue_final_message", &j->continue_final, e))
        return false;
    j->add_generation_prompt = !j->continue_final;
    if (!json_field_bool(body, "add_generation_prompt", &j->add_generation_prompt, e))
        return false;
    if (j->add_generation_prompt && j->continue_final)
        return api_bad(e, "continue_final_message", "does not go with \"add_generation_prompt\": true");
    if (kwargs && !json_is_object(kwargs))
        return api_bad(e, "chat_template_kwargs", "must be an object");
    j->tools = tools ? json_dumps(tools, JSON_COMPACT) : NULL;
    j->kwargs = kwargs ? json_dumps(kwargs, JSON_COMPACT) : NULL;
    if ((tools && !j->tools) || (kwargs && !j->kwargs))
        return request_job_no_memory(j);
    return chat_take(j, messages, "messages");
}

/* As vLLM: the reply's content begins with the last message's, where both are the same one's. */
static bool read_echo(struct request_job *j, const json_t *body)
{
    const json_t *messages = json_field_get(body, "messages");
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const json_t *content = json_object_get(last, "content");
    const char *role = json_string_value(json_object_get(last, "role"));
    bool echo = false;
    if (!json_field_bool(body, "echo", &echo, &j->error))
        return false;
    if (!echo || (j->add_generation_prompt && strcmp(role, "assistant") != 0))
        return true;
    j->params.n_lead = json_string_length(content);
    j->params.lead = malloc(j->params.n_lead + 1);
    if (!j->params.lead)
        return request_job_no_memory(j);
    memcpy(j->params.lead, json_string_value(content), j->params.n_lead + 1);
    return true;
}

/* What the model writes is searched for calls where it was told of tools. */
static bool read_tool_calls(struct request_job *j, const json_t *body)
{
    struct params *p = &j->params;
    bool parallel = true;
    if (!json_field_bool(body, "parallel_tool_calls", &parallel, &j->error))
        return false;
    if (!j->tools)
        return true;
    p->tool_format = j->front->tool_format;
    p->one_tool_call = !parallel;
    if (p->tool_format != TOOL_NONE && j->front->is_tool_tag_special)
        p->skip_special = false;
    return true;
}

bool chat_read(struct request_job *j, const json_t *body)
{
    return request_job_params(j, body, true) && chat_read_messages(j, body) && read_echo(j, body) &&
           read_tool_calls(j, body);
}
