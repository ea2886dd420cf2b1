/* The input of a body: items become messages of a chat. Reasoning, a message and calls that follow each other are one
 * message of the assistant, because templates expect them in one. */
#include "server/front/body/open_calls.h"
#include "server/front/front_internal.h"
#include "server/front/responses/responses_read.h"

#include <stdio.h>

/* The contents of JSON strings, without quotes. */
struct turn {
    bool any, has_text, has_calls;
    struct buffer text, reasoning, calls;
};

struct items {
    struct buffer *o;
    struct api_error *e;
    bool is_before; /* items of the responses before: they were checked when they came */
    size_t i;       /* index of the current item */
    size_t n;       /* of all items */
    struct turn turn; /* the assistant's, while it is read */
    struct open_calls calls;
    char path[64];
};

/* "input[1].call_id". name: with its dot, or "". */
static const char *path_of(struct items *t, const char *name)
{
    if (t->is_before)
        snprintf(t->path, sizeof t->path, "previous_response_id");
    else
        snprintf(t->path, sizeof t->path, "input[%zu]%s", t->i, name);
    return t->path;
}

/* ---- the assistant's turn ------------------------------------------------------------------- */

/* All calls of a turn need a result before the next message: many templates fail otherwise. */
static bool all_answered(struct items *t)
{
    const struct open_call *call = open_calls_first(&t->calls);
    if (!call)
        return true;
    t->is_before = call->part > 0;
    t->i = call->message;
    return api_bad(t->e, path_of(t, ""),
                   "No tool output found for function call %.*s: input needs an item of type \"function_call_output\" "
                   "with this call_id",
                   JSON_SHOWN(call->id));
}

static bool begin_turn(struct items *t)
{
    if (t->turn.any)
        return true;
    if (!all_answered(t))
        return false;
    open_calls_clear(&t->calls);
    t->turn.any = true;
    return true;
}

static void end_turn(struct items *t)
{
    struct turn *turn = &t->turn;
    if (!turn->any)
        return;
    chat_put_message(t->o, "assistant");
    json_out_raw(t->o, "\"");
    buffer_append(t->o, turn->text.data, turn->text.n);
    json_out_raw(t->o, "\"");
    if (turn->reasoning.n > 0) {
        json_out_raw(t->o, ",\"reasoning_content\":\"");
        buffer_append(t->o, turn->reasoning.data, turn->reasoning.n);
        json_out_raw(t->o, "\"");
    }
    if (turn->has_calls) {
        json_out_raw(t->o, ",\"tool_calls\":[");
        buffer_append(t->o, turn->calls.data, turn->calls.n);
        json_out_raw(t->o, "]");
    }
    json_out_raw(t->o, "}");
    t->o->failed |= turn->text.failed || turn->reasoning.failed || turn->calls.failed;
    buffer_clear(&turn->text);
    buffer_clear(&turn->reasoning);
    buffer_clear(&turn->calls);
    turn->any = turn->has_text = turn->has_calls = false;
}

/* Before text or reasoning: a message before it is a turn of its own, unless calls connect both. */
static bool go_on(struct items *t)
{
    if (t->turn.has_text && !t->turn.has_calls)
        end_turn(t);
    return begin_turn(t);
}

/* A string, or text parts, as one more line. */
static bool add_lines(struct items *t, struct buffer *to, struct quire_value content, const char *const *types,
                      const char *name)
{
    struct buffer text = {0};
    bool ok = true;
    if (json_is(content, QUIRE_STRING))
        buffer_append(&text, content.text, content.n);
    else
        ok = chat_put_parts(&text, content, types, path_of(t, name), t->e);
    if (ok && !text.failed && text.n > 2) {
        if (to->n > 0)
            json_out_raw(to, "\\n");
        buffer_append(to, text.data + 1, text.n - 2);
    }
    to->failed |= text.failed;
    buffer_free(&text);
    return ok;
}

/* ---- items ---------------------------------------------------------------------------------- */

static const char *const text_types[] = {"input_text", "output_text", NULL};

/* {type: "message" (or absent), role, content: a string or parts}. */
static bool add_message(struct items *t, struct quire_value item)
{
    static const char *const roles[] = {"user", "assistant", "system", "developer"};
    const struct quire_value role = quire_value_member(item, "role"), content = json_field_member(item, "content");
    size_t k = 0;
    while (k < sizeof roles / sizeof *roles && !quire_value_is(role, roles[k]))
        k++;
    if (k == sizeof roles / sizeof *roles)
        return api_bad(t->e, path_of(t, ".role"), "must be \"user\", \"assistant\", \"system\" or \"developer\"");
    if (!json_is(content, QUIRE_STRING) && !json_is(content, QUIRE_ARRAY))
        return api_bad(t->e, path_of(t, ".content"), "must be a string or an array of text parts");
    if (k == 1) {
        if (!go_on(t))
            return false;
        t->turn.has_text = true;
        return add_lines(t, &t->turn.text, content, text_types, ".content");
    }
    end_turn(t);
    if (!all_answered(t))
        return false;
    chat_put_message(t->o, roles[k]);
    bool ok = true;
    if (json_is(content, QUIRE_STRING))
        buffer_append(t->o, content.text, content.n);
    else
        ok = chat_put_parts(t->o, content, text_types, path_of(t, ".content"), t->e);
    json_out_raw(t->o, "}");
    return ok;
}

/* {type: "reasoning", content: parts}. A summary says less than the content, and templates have no place for it. */
static bool add_reasoning(struct items *t, struct quire_value item)
{
    static const char *const types[] = {"reasoning_text", NULL};
    const struct quire_value content = json_field_member(item, "content");
    if (content.n && !json_is(content, QUIRE_ARRAY))
        return api_bad(t->e, path_of(t, ".content"), "must be an array of parts");
    if (!go_on(t))
        return false;
    return !content.n || add_lines(t, &t->turn.reasoning, content, types, ".content");
}

static bool is_named(struct quire_value value)
{
    return json_is(value, QUIRE_STRING) && value.n > 2;
}

/* {type: "function_call", call_id, name, arguments: a string}. */
static bool add_call(struct items *t, struct quire_value item)
{
    const struct quire_value id = quire_value_member(item, "call_id"), name = quire_value_member(item, "name");
    const struct quire_value arguments = json_field_member(item, "arguments");
    struct buffer *o = &t->turn.calls;
    if (!is_named(id))
        return api_bad(t->e, path_of(t, ".call_id"), "must be a non-empty string");
    if (!is_named(name))
        return api_bad(t->e, path_of(t, ".name"), "must be a non-empty string");
    if (!json_is(arguments, QUIRE_STRING))
        return api_bad(t->e, path_of(t, ".arguments"), "must be a string of JSON");
    if (!begin_turn(t) || !open_calls_add(&t->calls, id, t->i, t->is_before, path_of(t, ""), t->e))
        return false;
    json_out_raw(o, t->turn.has_calls ? ",{\"id\":" : "{\"id\":");
    t->turn.has_calls = true;
    buffer_append(o, id.text, id.n);
    json_out_raw(o, ",\"type\":\"function\",\"function\":{\"name\":");
    buffer_append(o, name.text, name.n);
    json_out_raw(o, ",\"arguments\":");
    bool ok = chat_put_arguments(o, arguments, path_of(t, ".arguments"), t->e);
    json_out_raw(o, "}}");
    return ok;
}

/* {type: "function_call_output", call_id, output: a string or text parts}. */
static bool add_output(struct items *t, struct quire_value item)
{
    const struct quire_value id = quire_value_member(item, "call_id"), output = json_field_member(item, "output");
    bool ok = true;
    if (!is_named(id))
        return api_bad(t->e, path_of(t, ".call_id"), "must be a non-empty string");
    if (!json_is(output, QUIRE_STRING) && !json_is(output, QUIRE_ARRAY))
        return api_bad(t->e, path_of(t, ".output"), "must be a string or an array of text parts");
    end_turn(t);
    if (!open_calls_answer(&t->calls, id))
        return api_bad(t->e, path_of(t, ".call_id"), "No tool call found for function call output with call_id %.*s",
                       JSON_SHOWN(id));
    chat_put_message(t->o, "tool");
    if (json_is(output, QUIRE_STRING))
        buffer_append(t->o, output.text, output.n);
    else
        ok = chat_put_parts(t->o, output, text_types, path_of(t, ".output"), t->e);
    json_out_raw(t->o, ",\"tool_call_id\":");
    buffer_append(t->o, id.text, id.n);
    json_out_raw(t->o, "}");
    return ok;
}

static bool add_item(struct items *t, struct quire_value item)
{
    static const struct {
        const char *type;
        bool (*add)(struct items *t, struct quire_value item);
    } kinds[] = {{"message", add_message},
                 {"function_call", add_call},
                 {"function_call_output", add_output},
                 {"reasoning", add_reasoning}};
    const struct quire_value type = json_field_member(item, "type");
    if (!json_is(item, QUIRE_OBJECT))
        return api_bad(t->e, path_of(t, ""), "must be an object");
    if (!type.n)
        return add_message(t, item);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        if (quire_value_is(type, kinds[k].type))
            return kinds[k].add(t, item);
    return api_unsupported(t->e, path_of(t, ".type"),
                           "must be \"message\", \"function_call\", \"function_call_output\" or \"reasoning\"; other "
                           "items are not supported, got %.*s",
                           JSON_SHOWN(type));
}

static bool add_items(struct items *t, struct quire_value array)
{
    struct quire_value item;
    for (t->i = 0; quire_value_next(&array, NULL, &item); t->i++) {
        if (++t->n > CHAT_MAX_MESSAGES)
            return api_bad(t->e, "input", "more than %d items, with those of the responses before", CHAT_MAX_MESSAGES);
        if (!add_item(t, item))
            return false;
    }
    return true;
}

static bool add_input(struct items *t, struct quire_value input)
{
    if (json_is(input, QUIRE_ARRAY) && quire_value_count(input) > 0)
        return add_items(t, input);
    if (!json_is(input, QUIRE_STRING))
        return api_bad(t->e, "input", "must be a string or a non-empty array of items");
    end_turn(t);
    if (!all_answered(t))
        return false;
    chat_put_message(t->o, "user");
    buffer_append(t->o, input.text, input.n);
    json_out_raw(t->o, "}");
    return true;
}

bool responses_items_add(struct buffer *o, struct quire_value before, struct quire_value input, struct api_error *e)
{
    struct items t = {.o = o, .e = e, .is_before = true};
    bool ok = !before.n || add_items(&t, before);
    t.is_before = false;
    ok = ok && add_input(&t, input);
    if (ok)
        end_turn(&t);
    ok = ok && all_answered(&t);
    open_calls_free(&t.calls);
    buffer_free(&t.turn.text);
    buffer_free(&t.turn.reasoning);
    buffer_free(&t.turn.calls);
    return ok;
}
