#include "text/quire_chat.h"
#include "server/front/body/generation_job.h"
#include "server/front/body/open_calls.h"
#include "server/front/front_internal.h"
#include "server/front/grammar/tool_grammar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool bad_message(struct api_error *e, size_t i, const char *field, const char *why)
{
    char param[64];
    snprintf(param, sizeof param, "messages[%zu]%s%s", i, *field ? "." : "", field);
    return api_bad(e, param, "%s", why);
}

/* ---- writing messages in the form of a template ---- */

static void put_value(struct buffer *o, struct quire_value value)
{
    buffer_append(o, value.text, value.n);
}

/* Adds a comma unless an array or object has just begun. */
static void put_comma(struct buffer *o)
{
    if (o->n > 0 && o->data[o->n - 1] != '{' && o->data[o->n - 1] != '[')
        json_out_raw(o, ",");
}

static void put_key(struct buffer *o, struct quire_value key)
{
    put_comma(o);
    put_value(o, key);
    json_out_raw(o, ":");
}

bool chat_put_parts(struct buffer *o, struct quire_value parts, const char *const *types, const char *field,
                    struct api_error *e)
{
    struct quire_value part;
    char path[96];
    json_out_raw(o, "\"");
    for (size_t i = 0; quire_value_next(&parts, NULL, &part); i++) {
        struct quire_value type = quire_value_member(part, "type"), text = quire_value_member(part, "text");
        const char *const *known = types;
        while (*known && !quire_value_is(type, *known))
            known++;
        snprintf(path, sizeof path, "%.60s[%zu].type", field, i);
        if (!json_is(type, QUIRE_STRING) || (*known && !json_is(text, QUIRE_STRING)))
            return api_bad(e, field, "a part must be {\"type\":\"%s\",\"text\":...}", types[0]);
        if (!*known)
            return api_unsupported(e, path, "a part of type %.*s is not supported; the server reads text only",
                                   JSON_SHOWN(type));
        if (i > 0)
            json_out_raw(o, "\\n");
        buffer_append(o, text.text + 1, text.n - 2);
    }
    json_out_raw(o, "\"");
    return true;
}

void chat_put_message(struct buffer *o, const char *role)
{
    put_comma(o);
    json_out_raw(o, "{\"role\":");
    json_out_text(o, role);
    json_out_raw(o, ",\"content\":");
}

/* content: a string, an array or absent. */
static bool put_content(struct buffer *o, struct quire_value content, size_t index, struct api_error *e)
{
    static const char *const types[] = {"text", NULL};
    char field[64];
    snprintf(field, sizeof field, "messages[%zu].content", index);
    if (json_is(content, QUIRE_ARRAY))
        return chat_put_parts(o, content, types, field, e);
    /* Templates test whether content exists; few expect it to be null. */
    if (json_is(content, QUIRE_STRING))
        put_value(o, content);
    else
        json_out_raw(o, "\"\"");
    return true;
}

/* Levels of nesting that are parsed in a call's arguments; deeper text stays a string. */
#define ARGUMENTS_MAX_DEPTH 120

/* Clients send a call's arguments as a JSON string; templates write them as an object. A model wrote the string: text
 * that is not JSON goes to the template as the string, so that one bad call does not end a chat. */
bool chat_put_arguments(struct buffer *o, struct quire_value arguments, const char *field, struct api_error *e)
{
    char *text;
    size_t n;
    if (json_is(arguments, QUIRE_OBJECT)) {
        put_value(o, arguments);
        return true;
    }
    if (json_is(arguments, QUIRE_NULL) || (json_is(arguments, QUIRE_STRING) && arguments.n == 2)) {
        json_out_raw(o, "{}");
        return true;
    }
    if (!json_is(arguments, QUIRE_STRING))
        return api_bad(e, field, "function.arguments must be a JSON string");
    if (!json_value_text(arguments, "messages", &text, &n, e))
        return false;
    if (quire_json_is_pythons(text, n, ARGUMENTS_MAX_DEPTH))
        buffer_append(o, text, n);
    else
        put_value(o, arguments);
    free(text);
    return true;
}

static bool put_function(struct buffer *o, struct quire_value function, size_t index, struct api_error *e)
{
    struct quire_value key, value;
    char field[64];
    bool has_arguments = false;
    snprintf(field, sizeof field, "messages[%zu].tool_calls", index);
    json_out_raw(o, "{");
    while (quire_value_next(&function, &key, &value)) {
        put_key(o, key);
        if (!quire_value_is(key, "arguments"))
            put_value(o, value);
        else if (!chat_put_arguments(o, value, field, e))
            return false;
        else
            has_arguments = true;
    }
    json_out_raw(o, has_arguments ? "}" : ",\"arguments\":{}}");
    return true;
}

static bool put_tool_calls(struct buffer *o, struct quire_value calls, size_t index, struct api_error *e)
{
    struct quire_value call, key, value;
    json_out_raw(o, "[");
    while (quire_value_next(&calls, NULL, &call)) {
        struct quire_value function = quire_value_member(call, "function");
        const struct quire_value name = quire_value_member(function, "name");
        if (!json_is(name, QUIRE_STRING) || name.n == 2)
            return bad_message(e, index, "tool_calls", "a call needs function.name, a non-empty string");
        put_comma(o);
        json_out_raw(o, "{");
        while (quire_value_next(&call, &key, &value)) {
            put_key(o, key);
            if (!quire_value_is(key, "function"))
                put_value(o, value);
            else if (!put_function(o, function, index, e))
                return false;
        }
        json_out_raw(o, "}");
    }
    json_out_raw(o, "]");
    return true;
}

/* Adds a member of a message other than content. Templates test whether a key exists, not whether it has a value. */
static bool put_member(struct buffer *o, struct quire_value key, struct quire_value value, size_t index,
                       struct api_error *e)
{
    bool calls = quire_value_is(key, "tool_calls");
    if (json_is(value, QUIRE_NULL))
        return true;
    if (calls && !json_is(value, QUIRE_ARRAY))
        return bad_message(e, index, "tool_calls", "must be an array");
    if (calls && quire_value_count(value) == 0)
        return true;
    put_key(o, key);
    if (calls)
        return put_tool_calls(o, value, index, e);
    put_value(o, value);
    return true;
}

static bool check_message(struct quire_value message, size_t index, struct api_error *e)
{
    struct quire_value role = quire_value_member(message, "role"), content = json_field_member(message, "content");
    if (!json_is(message, QUIRE_OBJECT))
        return bad_message(e, index, "", "must be an object");
    if (!json_is(role, QUIRE_STRING) || role.n == 2)
        return bad_message(e, index, "role", "must be a non-empty string");
    if (!content.n && !quire_value_is(role, "assistant"))
        return bad_message(e, index, "content", "is missing");
    if (content.n && !json_is(content, QUIRE_STRING) && !json_is(content, QUIRE_ARRAY))
        return bad_message(e, index, "content", "must be a string, an array of text parts or null");
    return true;
}

/* ---- calls and their results ---- */

/* All calls of a turn need a result before the next turn: many templates fail otherwise. */
static bool all_answered(const struct open_calls *calls, struct api_error *e)
{
    const struct open_call *call = open_calls_first(calls);
    char path[64];
    if (!call)
        return true;
    snprintf(path, sizeof path, "messages[%zu].tool_calls[%zu]", call->message, call->part);
    return api_bad(e, path, "no message of role \"tool\" with the result of this call (its tool_call_id) follows");
}

static bool open_turn(struct open_calls *open, struct quire_value calls, size_t index, struct api_error *e)
{
    struct quire_value rest = calls, call;
    char path[64];
    open_calls_clear(open);
    for (size_t k = 0; calls.n && quire_value_next(&rest, NULL, &call); k++) { /* an array: it has been written */
        const struct quire_value id = json_field_member(call, "id");
        snprintf(path, sizeof path, "messages[%zu].tool_calls[%zu].id", index, k);
        if (id.n && !json_is(id, QUIRE_STRING))
            return api_bad(e, path, "must be a string");
        if (!open_calls_add(open, id, index, k, path, e))
            return false;
    }
    return true;
}

/* Messages of other roles than these do not end a turn. */
static bool follow_calls(struct open_calls *open, struct quire_value message, size_t index, struct api_error *e)
{
    const struct quire_value role = quire_value_member(message, "role");
    const struct quire_value id = json_field_member(message, "tool_call_id");
    if (quire_value_is(role, "assistant"))
        return all_answered(open, e) && open_turn(open, json_field_member(message, "tool_calls"), index, e);
    if (quire_value_is(role, "user"))
        return all_answered(open, e);
    if (!quire_value_is(role, "tool"))
        return true;
    if (id.n && !json_is(id, QUIRE_STRING))
        return bad_message(e, index, "tool_call_id", "must be a string");
    return open_calls_answer(open, id) ||
           bad_message(e, index, "tool_call_id",
                       "no call of the assistant's message before has this id and still needs a result");
}

static bool put_message(struct buffer *o, struct quire_value message, size_t index, struct api_error *e)
{
    struct quire_value key, value;
    bool has_content = false;
    if (!check_message(message, index, e))
        return false;
    put_comma(o);
    json_out_raw(o, "{");
    while (quire_value_next(&message, &key, &value)) {
        if (!quire_value_is(key, "content")) {
            if (!put_member(o, key, value, index, e))
                return false;
            continue;
        }
        has_content = true;
        put_key(o, key);
        if (!put_content(o, value, index, e))
            return false;
    }
    json_out_raw(o, has_content ? "}" : ",\"content\":\"\"}");
    return true;
}

/* may_be_open: the calls of the last turn may be without results. */
static bool put_messages(struct buffer *o, struct quire_value messages, bool may_be_open, struct api_error *e)
{
    struct quire_value rest = messages, message;
    struct open_calls open = {0};
    bool ok = true;
    size_t i;
    /* The output is about as long as the input. Growing in steps would copy, with both copies in memory for a while. */
    buffer_reserve(o, messages.n + 64);
    json_out_raw(o, "[");
    for (i = 0; ok && json_is(messages, QUIRE_ARRAY) && quire_value_next(&rest, NULL, &message); i++) {
        if (i == CHAT_MAX_MESSAGES)
            ok = api_bad(e, "messages", "more than %d", CHAT_MAX_MESSAGES);
        ok = ok && put_message(o, message, i, e) && follow_calls(&open, message, i, e);
    }
    json_out_raw(o, "]");
    ok = ok && (may_be_open || all_answered(&open, e));
    open_calls_free(&open);
    return ok && (i > 0 || api_bad(e, "messages", "must be a non-empty array"));
}

/* ---- a chat ---------------------------------------------------------------------------------- */

bool chat_take(struct request_job *j, struct buffer *messages, const char *name)
{
    j->text->name = name;
    if (!buffer_text(messages))
        return api_no_memory(&j->error);
    j->text->chat.messages = messages->data;
    *messages = (struct buffer){0};
    if (!quire_text_has_chat(j->served->config->text))
        return api_fail(&j->error, 400, name, "unsupported_parameter",
                        "%s: this model has no chat template; /v1/completions takes a prompt", name);
    return text_task_items(j->text, 1, &j->error);
}

/* Copies a value as written, for the template. */
static bool keep(struct request_job *j, struct quire_value value, char **out)
{
    *out = value.n ? strndup(value.text, value.n) : NULL;
    return *out || !value.n || api_no_memory(&j->error);
}

bool chat_read_messages(struct request_job *j, const struct quire_doc *body)
{
    struct api_error *e = &j->error;
    struct text_chat *c = &j->text->chat;
    struct quire_value tools;
    struct buffer o = {0};
    bool ok = json_field_bool(body, "continue_final_message", &c->continue_final, e);
    c->add_generation_prompt = !c->continue_final;
    ok = ok && json_field_bool(body, "add_generation_prompt", &c->add_generation_prompt, e);
    if (ok && c->add_generation_prompt && c->continue_final)
        ok = api_bad(e, "continue_final_message", "does not go with \"add_generation_prompt\": true");
    ok = ok && put_messages(&o, json_field_get(body, "messages"), !c->add_generation_prompt, e) &&
         params_tools(body, &tools, e);
    ok = ok && keep(j, tools, &c->tools) && chat_read_variables(j, body, NULL, 0) && chat_take(j, &o, "messages");
    buffer_free(&o);
    return ok;
}

/* As in vLLM: the reply's content begins with the last message's content, if both have the same role. */
static bool read_echo(struct generation_job *g, const struct quire_doc *body)
{
    const struct text_chat *chat = &g->job.text->chat;
    struct quire_value rest = {chat->messages, strlen(chat->messages)}, last;
    bool echo = false;
    if (!json_field_bool(body, "echo", &echo, &g->job.error))
        return false;
    if (!echo)
        return true;
    while (quire_value_next(&rest, NULL, &last))
        ;
    if (chat->add_generation_prompt && !quire_value_is(quire_value_member(last, "role"), "assistant"))
        return true;
    struct quire_value content = quire_value_member(last, "content");
    return json_value_text(content, "messages", &g->params->lead, &g->params->n_lead, &g->job.error);
}

/* An answer in JSON is content, even if it looks like a call. */
static bool is_json(const struct grammar_request *r)
{
    return r && (r->source.form == QUIRE_FORM_JSON_OBJECT || r->source.form == QUIRE_FORM_JSON_SCHEMA);
}

bool chat_use_tools(struct generation_job *g, struct quire_value tools, struct quire_value choice, bool parallel)
{
    struct params *p = g->params;
    const enum tool_format format = g->job.served->config->tool_format;
    const struct tool_calls calls = {tools, choice, !parallel, format, &g->job.served->config->tool_tags};
    if (!tool_grammar_read(&calls, &p->grammar, &g->job.error))
        return false;
    if (!tools.n || is_json(p->grammar))
        return true;
    p->tool_format = format;
    p->one_tool_call = !parallel;
    p->tags[0] = &g->job.served->config->tool_tags;
    return keep(&g->job, tools, &p->tools);
}

void chat_choose_reasoning(struct generation_job *g)
{
    g->params->reasoning_format = g->job.served->config->reasoning_format;
    g->params->tags[1] = &g->job.served->config->reasoning_tags;
}

static bool read_tool_calls(struct generation_job *g, const struct quire_doc *body)
{
    struct quire_value tools;
    bool parallel = true;
    return json_field_bool(body, "parallel_tool_calls", &parallel, &g->job.error) &&
           params_tools(body, &tools, &g->job.error) &&
           chat_use_tools(g, tools, json_field_get(body, "tool_choice"), parallel);
}

bool chat_read(struct generation_job *g, const struct quire_doc *body)
{
    const bool ok = generation_job_params(g, body, true) && chat_read_messages(&g->job, body) && read_echo(g, body) &&
                    read_tool_calls(g, body) && generation_job_prediction(g, body);
    if (ok)
        chat_choose_reasoning(g);
    return ok;
}
