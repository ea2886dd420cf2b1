/* The messages of /api/chat, as messages of a chat. */
#include "server/front/ollama/ollama_read.h"

#include "server/front/output/json_out.h"

#include <stdio.h>
#include <stdlib.h>

/* A call that waits for its result. */
struct open_call {
    struct quire_value name;
    uint32_t id;
};

struct turns {
    struct buffer *o;
    struct api_error *e;
    size_t message; /* index of the current one */
    struct open_call *calls;
    size_t n_calls, capacity;
    uint32_t next_id;
    char path[64];
};

static const char *path_of(struct turns *t, const char *name)
{
    snprintf(t->path, sizeof t->path, "messages[%zu]%s", t->message, name);
    return t->path;
}

bool ollama_no_images(struct quire_value images, const char *path, struct api_error *e)
{
    char field[80];
    snprintf(field, sizeof field, "%.60s%simages", path, *path ? "." : "");
    if (!images.n)
        return true;
    if (!json_is(images, QUIRE_ARRAY))
        return api_bad(e, field, "must be an array");
    return quire_value_count(images) == 0 || api_unsupported(e, field, "this server reads text only");
}

/* ---- calls ---------------------------------------------------------------------------------- */

/* Nine letters and digits: templates of Mistral take no other id. */
static void put_id(struct buffer *o, uint32_t id)
{
    char text[16];
    snprintf(text, sizeof text, "\"call%05u\"", id % 100000);
    json_out_raw(o, text);
}

static bool open_call(struct turns *t, struct quire_value name)
{
    if (t->n_calls == t->capacity) {
        const size_t capacity = t->capacity ? t->capacity * 2 : 8;
        struct open_call *calls = realloc(t->calls, capacity * sizeof *calls);
        if (!calls)
            return api_no_memory(t->e);
        t->calls = calls;
        t->capacity = capacity;
    }
    t->calls[t->n_calls++] = (struct open_call){name, t->next_id++};
    return true;
}

static bool put_call(struct turns *t, struct quire_value call)
{
    const struct quire_value function = json_field_member(call, "function");
    const struct quire_value name = json_field_member(function, "name");
    const struct quire_value arguments = json_field_member(function, "arguments");
    if (!json_is(name, QUIRE_STRING))
        return api_bad(t->e, path_of(t, ".tool_calls"),
                       "a call must be {\"function\":{\"name\":...,\"arguments\":{...}}}");
    if (arguments.n && !json_is(arguments, QUIRE_OBJECT) && !json_is(arguments, QUIRE_STRING))
        return api_bad(t->e, path_of(t, ".tool_calls"), "function.arguments must be an object");
    if (!open_call(t, name))
        return false;
    json_out_raw(t->o, "{\"id\":");
    put_id(t->o, t->calls[t->n_calls - 1].id);
    json_out_raw(t->o, ",\"type\":\"function\",\"function\":{\"name\":");
    buffer_append(t->o, name.text, name.n);
    json_out_raw(t->o, ",\"arguments\":");
    if (arguments.n)
        buffer_append(t->o, arguments.text, arguments.n);
    else
        json_out_raw(t->o, "{}");
    json_out_raw(t->o, "}}");
    return true;
}

/* Calls of an earlier turn that have no result are forgotten. */
static bool put_calls(struct turns *t, struct quire_value calls)
{
    struct quire_value call;
    if (!calls.n)
        return true;
    if (!json_is(calls, QUIRE_ARRAY))
        return api_bad(t->e, path_of(t, ".tool_calls"), "must be an array");
    if (quire_value_count(calls) == 0)
        return true;
    t->n_calls = 0;
    json_out_raw(t->o, ",\"tool_calls\":[");
    for (size_t i = 0; quire_value_next(&calls, NULL, &call); i++) {
        json_out_raw(t->o, i > 0 ? "," : "");
        if (!put_call(t, call))
            return false;
    }
    json_out_raw(t->o, "]");
    return true;
}

static bool is_same(struct quire_value a, struct quire_value b)
{
    return a.n == b.n && memcmp(a.text, b.text, a.n) == 0;
}

static bool put_result_id(struct turns *t, struct quire_value message)
{
    struct quire_value name = json_field_member(message, "tool_name");
    size_t at = 0;
    if (!name.n)
        name = json_field_member(message, "name");
    while (name.n && at < t->n_calls && !is_same(t->calls[at].name, name))
        at++;
    if (at == t->n_calls)
        return api_bad(t->e, path_of(t, ""), "is a tool's result, and no call %.*s of a message before waits for one",
                       JSON_SHOWN(name));
    json_out_raw(t->o, ",\"tool_call_id\":");
    put_id(t->o, t->calls[at].id);
    t->n_calls--;
    memmove(&t->calls[at], &t->calls[at + 1], (t->n_calls - at) * sizeof *t->calls);
    return true;
}

/* ---- messages ------------------------------------------------------------------------------- */

static bool put_message(struct turns *t, struct quire_value message)
{
    const struct quire_value role = json_field_member(message, "role");
    const struct quire_value content = json_field_member(message, "content");
    char owner[40];
    if (!json_is(message, QUIRE_OBJECT))
        return api_bad(t->e, path_of(t, ""), "must be an object");
    if (!json_is(role, QUIRE_STRING))
        return api_bad(t->e, path_of(t, ".role"), "must be a string");
    if (content.n && !json_is(content, QUIRE_STRING))
        return api_bad(t->e, path_of(t, ".content"), "must be a string");
    snprintf(owner, sizeof owner, "messages[%zu]", t->message);
    if (!ollama_no_images(json_field_member(message, "images"), owner, t->e))
        return false;
    json_out_raw(t->o, t->message > 0 ? ",{\"role\":" : "{\"role\":");
    buffer_append(t->o, role.text, role.n);
    json_out_raw(t->o, ",\"content\":");
    if (content.n)
        buffer_append(t->o, content.text, content.n);
    else
        json_out_raw(t->o, "\"\"");
    ollama_put_field(t->o, "reasoning_content", json_field_member(message, "thinking"));
    if (quire_value_is(role, "tool")) {
        ollama_put_field(t->o, "name", json_field_member(message, "tool_name"));
        if (!put_result_id(t, message))
            return false;
    }
    if (!put_calls(t, json_field_member(message, "tool_calls")))
        return false;
    json_out_raw(t->o, "}");
    return true;
}

bool ollama_put_messages(struct buffer *o, struct quire_value messages, struct api_error *e)
{
    struct turns t = {.o = o, .e = e};
    struct quire_value rest = messages, message;
    bool ok = json_is(messages, QUIRE_ARRAY) || api_bad(e, "messages", "must be an array");
    buffer_reserve(o, messages.n + 64);
    json_out_raw(o, "[");
    for (; ok && quire_value_next(&rest, NULL, &message); t.message++)
        ok = put_message(&t, message);
    json_out_raw(o, "]");
    free(t.calls);
    return ok;
}
