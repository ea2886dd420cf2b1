/* The messages of a body: blocks of content become messages of a chat. */
#include "server/front/messages/messages_read.h"

#include "server/front/body/open_calls.h"
#include "server/front/front_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

enum role { ROLE_USER, ROLE_ASSISTANT, ROLE_SYSTEM, N_ROLES };
static const char *const roles[N_ROLES] = {"user", "assistant", "system"};

enum kind { KIND_TEXT, KIND_RESULT, KIND_CALL, KIND_THINKING, KIND_REDACTED, N_KINDS };
static const struct {
    const char *type;
    bool is_of[N_ROLES];
} kinds[N_KINDS] = {
    [KIND_TEXT] = {"text", {true, true, true}},
    [KIND_RESULT] = {"tool_result", {true, false, false}},
    [KIND_CALL] = {"tool_use", {false, true, false}},
    [KIND_THINKING] = {"thinking", {false, true, false}},
    [KIND_REDACTED] = {"redacted_thinking", {false, true, false}},
};

struct turns {
    struct buffer *o;
    struct api_error *e;
    uint32_t *ttl_s;
    size_t message; /* index of the current one */
    bool is_assistants; /* the last message of a user or an assistant was the assistant's */
    struct open_calls calls; /* the assistant's, since the last message of the user */
    char path[96];
};

/* "messages[1].content[2].id". name: with its dot, or "". */
static const char *path_of(struct turns *t, size_t block, const char *name)
{
    snprintf(t->path, sizeof t->path, "messages[%zu].content[%zu]%s", t->message, block, name);
    return t->path;
}

/* ---- checks --------------------------------------------------------------------------------- */

static bool is_named(struct quire_value value)
{
    return json_is(value, QUIRE_STRING) && value.n > 2;
}

static enum kind kind_of(struct quire_value block)
{
    const struct quire_value type = quire_value_member(block, "type");
    enum kind k = KIND_TEXT;
    while (k < N_KINDS && !quire_value_is(type, kinds[k].type))
        k++;
    return k;
}

static bool check_text(struct turns *t, struct quire_value block, size_t i, const char *name)
{
    return json_is(quire_value_member(block, name + 1), QUIRE_STRING) ||
           api_bad(t->e, path_of(t, i, name), "must be a string");
}

/* What another server signed or encrypted: Quire cannot check it, and does not use it. */
static bool check_sealed(struct turns *t, struct quire_value block, size_t i, const char *name)
{
    const struct quire_value value = json_field_member(block, name + 1);
    return !value.n || json_is(value, QUIRE_STRING) || api_bad(t->e, path_of(t, i, name), "must be a string");
}

static bool check_call(struct turns *t, struct quire_value block, size_t i)
{
    const struct quire_value input = json_field_member(block, "input");
    if (!is_named(quire_value_member(block, "id")))
        return api_bad(t->e, path_of(t, i, ".id"), "must be a non-empty string");
    if (!is_named(quire_value_member(block, "name")))
        return api_bad(t->e, path_of(t, i, ".name"), "must be a non-empty string");
    return !input.n || json_is(input, QUIRE_OBJECT) || api_bad(t->e, path_of(t, i, ".input"), "must be an object");
}

static bool check_result_content(struct turns *t, struct quire_value content, size_t i)
{
    struct quire_value part;
    char name[40];
    if (!content.n || json_is(content, QUIRE_STRING))
        return true;
    if (!json_is(content, QUIRE_ARRAY))
        return api_bad(t->e, path_of(t, i, ".content"), "must be a string or an array of text blocks");
    for (size_t k = 0; quire_value_next(&content, NULL, &part); k++) {
        const struct quire_value type = quire_value_member(part, "type");
        snprintf(name, sizeof name, ".content[%zu]", k);
        if (!messages_cache_control(part, path_of(t, i, name), t->ttl_s, t->e))
            return false;
        snprintf(name, sizeof name, ".content[%zu].type", k);
        if (!json_is(type, QUIRE_STRING))
            return api_bad(t->e, path_of(t, i, name), "must be \"text\"");
        if (!quire_value_is(type, "text"))
            return api_unsupported(t->e, path_of(t, i, name),
                                   "a block of type %.*s is not supported; the server reads "
                                   "text only",
                                   JSON_SHOWN(type));
        snprintf(name, sizeof name, ".content[%zu].text", k);
        if (!json_is(quire_value_member(part, "text"), QUIRE_STRING))
            return api_bad(t->e, path_of(t, i, name), "must be a string");
    }
    return true;
}

static bool check_result(struct turns *t, struct quire_value block, size_t i)
{
    const struct quire_value is_error = json_field_member(block, "is_error");
    if (!is_named(quire_value_member(block, "tool_use_id")))
        return api_bad(t->e, path_of(t, i, ".tool_use_id"), "must be a non-empty string");
    if (is_error.n && !json_is(is_error, QUIRE_BOOL))
        return api_bad(t->e, path_of(t, i, ".is_error"), "must be true or false");
    return check_result_content(t, json_field_member(block, "content"), i);
}

static bool check_block(struct turns *t, struct quire_value block, size_t i, enum role role)
{
    const struct quire_value type = quire_value_member(block, "type");
    const enum kind kind = kind_of(block);
    if (!json_is(type, QUIRE_STRING))
        return api_bad(t->e, path_of(t, i, ".type"), "must be a string: a block has a type");
    if (kind == N_KINDS)
        return api_unsupported(t->e, path_of(t, i, ".type"),
                               "a block of type %.*s is not supported; the server reads text only", JSON_SHOWN(type));
    if (!kinds[kind].is_of[role])
        return api_bad(t->e, path_of(t, i, ".type"), "a message of role \"%s\" has no block of type \"%s\"",
                       roles[role], kinds[kind].type);
    if (!messages_cache_control(block, path_of(t, i, ""), t->ttl_s, t->e))
        return false;
    switch (kind) {
    case KIND_TEXT: return check_text(t, block, i, ".text");
    case KIND_RESULT: return check_result(t, block, i);
    case KIND_CALL: return check_call(t, block, i);
    case KIND_THINKING: return check_text(t, block, i, ".thinking") && check_sealed(t, block, i, ".signature");
    case KIND_REDACTED: return check_sealed(t, block, i, ".data");
    case N_KINDS: break;
    }
    return true;
}

/* Checks content and counts its blocks of each kind. A string counts as text. */
static bool check_content(struct turns *t, struct quire_value content, enum role role, size_t n[N_KINDS])
{
    struct quire_value block;
    if (json_is(content, QUIRE_STRING)) {
        n[KIND_TEXT] = 1;
        return true;
    }
    snprintf(t->path, sizeof t->path, "messages[%zu].content", t->message);
    if (!json_is(content, QUIRE_ARRAY))
        return api_bad(t->e, t->path, "must be a string or an array of blocks");
    for (size_t i = 0; quire_value_next(&content, NULL, &block); i++) {
        if (!check_block(t, block, i, role))
            return false;
        n[kind_of(block)]++;
    }
    return true;
}

/* ---- writing checked content ---------------------------------------------------------------- */

/* One JSON string: the member `name` of all blocks of a kind, one per line. Content: a string, an array or absent. */
static void put_texts(struct buffer *o, struct quire_value content, enum kind kind, const char *name)
{
    struct quire_value rest = content, block;
    bool any = false;
    if (json_is(content, QUIRE_STRING)) {
        buffer_append(o, content.text, content.n);
        return;
    }
    json_out_raw(o, "\"");
    while (content.n > 0 && quire_value_next(&rest, NULL, &block)) {
        if (kind_of(block) != kind)
            continue;
        const struct quire_value text = quire_value_member(block, name);
        if (any)
            json_out_raw(o, "\\n");
        buffer_append(o, text.text + 1, text.n - 2);
        any = true;
    }
    json_out_raw(o, "\"");
}

static void put_member(struct buffer *o, const char *key, struct quire_value value)
{
    json_out_raw(o, ",");
    json_out_text(o, key);
    json_out_raw(o, ":");
    buffer_append(o, value.text, value.n);
}

/* Templates have no member for a failed call. The result states it, unless its text already does. */
static void mark_error(struct buffer *o, size_t string)
{
    static const char word[] = "Error: ";
    const size_t n = sizeof word - 1, begin = string + 1;
    if (o->failed || (o->n - begin >= 5 && strncasecmp(o->data + begin, word, 5) == 0) || !buffer_reserve(o, n))
        return;
    memmove(o->data + begin + n, o->data + begin, o->n - begin);
    memcpy(o->data + begin, word, n);
    o->n += n;
}

static void put_result(struct buffer *o, struct quire_value block)
{
    const struct quire_value is_error = json_field_member(block, "is_error");
    chat_put_message(o, "tool");
    const size_t string = o->n;
    put_texts(o, json_field_member(block, "content"), KIND_TEXT, "text");
    if (is_error.n && is_error.text[0] == 't')
        mark_error(o, string);
    put_member(o, "tool_call_id", quire_value_member(block, "tool_use_id"));
    json_out_raw(o, "}");
}

static void put_call(struct buffer *o, struct quire_value block)
{
    const struct quire_value input = json_field_member(block, "input");
    json_out_raw(o, "{\"id\":");
    buffer_append(o, quire_value_member(block, "id").text, quire_value_member(block, "id").n);
    json_out_raw(o, ",\"type\":\"function\",\"function\":{\"name\":");
    buffer_append(o, quire_value_member(block, "name").text, quire_value_member(block, "name").n);
    put_member(o, "arguments", input.n ? input : (struct quire_value){"{}", 2});
    json_out_raw(o, "}}");
}

static void put_calls(struct buffer *o, struct quire_value content)
{
    struct quire_value block;
    bool any = false;
    json_out_raw(o, ",\"tool_calls\":[");
    while (quire_value_next(&content, NULL, &block)) {
        if (kind_of(block) != KIND_CALL)
            continue;
        if (any)
            json_out_raw(o, ",");
        put_call(o, block);
        any = true;
    }
    json_out_raw(o, "]");
}

/* ---- calls and their results ---------------------------------------------------------------- */

static bool answer_call(struct turns *t, struct quire_value block, size_t i)
{
    const struct quire_value id = quire_value_member(block, "tool_use_id");
    return open_calls_answer(&t->calls, id) ||
           api_bad(t->e, path_of(t, i, ".tool_use_id"),
                   "the assistant's message before has no tool_use block with the id %.*s that still needs a result",
                   JSON_SHOWN(id));
}

/* All calls of a turn need a result before the assistant speaks again: many templates fail otherwise. */
static bool all_answered(struct turns *t)
{
    const struct open_call *call = open_calls_first(&t->calls);
    if (!call)
        return true;
    snprintf(t->path, sizeof t->path, "messages[%zu].content[%zu]", call->message, call->part);
    return api_bad(t->e, t->path, "the tool_use block with the id %.*s has no tool_result block in the next message",
                   JSON_SHOWN(call->id));
}

/* ---- messages ------------------------------------------------------------------------------- */

static bool add_assistant(struct turns *t, struct quire_value content, const size_t n[N_KINDS])
{
    struct quire_value rest = content, block;
    if (!t->is_assistants) {
        if (!all_answered(t))
            return false;
        open_calls_clear(&t->calls);
    }
    for (size_t i = 0; n[KIND_CALL] > 0 && quire_value_next(&rest, NULL, &block); i++)
        if (kind_of(block) == KIND_CALL &&
            !open_calls_add(&t->calls, quire_value_member(block, "id"), t->message, i, path_of(t, i, ""), t->e))
            return false;
    chat_put_message(t->o, "assistant");
    put_texts(t->o, content, KIND_TEXT, "text");
    if (n[KIND_THINKING] > 0) {
        json_out_raw(t->o, ",\"reasoning_content\":");
        put_texts(t->o, content, KIND_THINKING, "thinking");
    }
    if (n[KIND_CALL] > 0)
        put_calls(t->o, content);
    json_out_raw(t->o, "}");
    return true;
}

/* Results come first, because they follow the calls. */
static bool add_user(struct turns *t, struct quire_value content, const size_t n[N_KINDS])
{
    struct quire_value rest = content, block;
    for (size_t i = 0; n[KIND_RESULT] > 0 && quire_value_next(&rest, NULL, &block); i++) {
        if (kind_of(block) != KIND_RESULT)
            continue;
        if (!answer_call(t, block, i))
            return false;
        put_result(t->o, block);
    }
    if (n[KIND_RESULT] > 0 && n[KIND_TEXT] == 0)
        return true;
    chat_put_message(t->o, "user");
    put_texts(t->o, content, KIND_TEXT, "text");
    json_out_raw(t->o, "}");
    return true;
}

static bool add_message(struct turns *t, struct quire_value message, enum role *role)
{
    const struct quire_value content = json_field_member(message, "content");
    size_t n[N_KINDS] = {0};
    *role = ROLE_USER;
    while (*role < N_ROLES && !quire_value_is(quire_value_member(message, "role"), roles[*role]))
        (*role)++;
    snprintf(t->path, sizeof t->path, "messages[%zu].role", t->message);
    if (*role == N_ROLES)
        return api_bad(t->e, t->path, "must be \"user\", \"assistant\" or \"system\"");
    if (!check_content(t, content, *role, n))
        return false;
    if (*role == ROLE_SYSTEM) {
        chat_put_message(t->o, "system");
        put_texts(t->o, content, KIND_TEXT, "text");
        json_out_raw(t->o, "}");
        return true;
    }
    const bool ok = *role == ROLE_USER ? add_user(t, content, n) : add_assistant(t, content, n);
    t->is_assistants = *role == ROLE_ASSISTANT;
    return ok;
}

bool messages_turns_add(struct buffer *o, struct quire_value messages, bool *continues, uint32_t *ttl_s,
                        struct api_error *e)
{
    struct turns t = {.o = o, .e = e, .ttl_s = ttl_s};
    struct quire_value rest = messages, message;
    enum role role = ROLE_USER;
    bool ok = true;
    buffer_reserve(o, messages.n + 64);
    for (; ok && json_is(messages, QUIRE_ARRAY) && quire_value_next(&rest, NULL, &message); t.message++) {
        if (t.message == CHAT_MAX_MESSAGES)
            ok = api_bad(e, "messages", "more than %d", CHAT_MAX_MESSAGES);
        ok = ok && add_message(&t, message, &role);
    }
    ok = ok && all_answered(&t) && (t.message > 0 || api_bad(e, "messages", "must be a non-empty array"));
    *continues = role == ROLE_ASSISTANT;
    open_calls_free(&t.calls);
    return ok;
}
