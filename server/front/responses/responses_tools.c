/* The tools of a body, and its tool_choice. */
#include "server/front/body/tools_json.h"
#include "server/front/output/json_out.h"
#include "server/front/responses/responses_read.h"

#include <stdio.h>

static const char *path_of(char out[64], size_t i, const char *name)
{
    snprintf(out, 64, "tools[%zu]%s", i, name);
    return out;
}

static bool check_tool(struct quire_value tool, size_t i, struct api_error *e)
{
    const struct quire_value type = quire_value_member(tool, "type");
    const struct quire_value description = json_field_member(tool, "description");
    const struct quire_value parameters = json_field_member(tool, "parameters");
    char path[64];
    if (!json_is(tool, QUIRE_OBJECT))
        return api_bad(e, path_of(path, i, ""), "must be an object");
    if (!json_is(type, QUIRE_STRING))
        return api_bad(e, path_of(path, i, ".type"), "must be a string");
    if (!quire_value_is(type, "function"))
        return api_unsupported(e, path_of(path, i, ".type"),
                               "%.*s is a tool that OpenAI defines or runs; only \"function\" tools are supported",
                               JSON_SHOWN(type));
    if (!tools_is_name(quire_value_member(tool, "name")))
        return api_bad(e, path_of(path, i, ".name"), "must be a string of 1 to %d of the characters A-Z a-z 0-9 _ -",
                       TOOLS_MAX_NAME);
    if (description.n && !json_is(description, QUIRE_STRING))
        return api_bad(e, path_of(path, i, ".description"), "must be a string");
    return !parameters.n || json_is(parameters, QUIRE_OBJECT) ||
           api_bad(e, path_of(path, i, ".parameters"), "must be an object: the JSON Schema of the arguments");
}

static bool add_tools(struct quire_value tools, struct buffer *o, struct api_error *e)
{
    struct quire_value names[TOOLS_MAX], tool;
    char path[64];
    json_out_raw(o, "[");
    for (size_t i = 0; quire_value_next(&tools, NULL, &tool); i++) {
        bool is_strict = false;
        if (i == TOOLS_MAX)
            return api_bad(e, "tools", "more than %d", TOOLS_MAX);
        if (!check_tool(tool, i, e) ||
            !json_value_bool(json_field_member(tool, "strict"), path_of(path, i, ".strict"), &is_strict, e))
            return false;
        names[i] = quire_value_member(tool, "name");
        if (tools_has_name(names, i, names[i]))
            return api_bad(e, path_of(path, i, ".name"), "another tool has the name %.*s", JSON_SHOWN(names[i]));
        tools_put_function(o, names[i], json_field_member(tool, "description"), json_field_member(tool, "parameters"),
                           is_strict);
    }
    json_out_raw(o, "]");
    return true;
}

static bool read_choice(struct quire_value choice, struct buffer *o, struct api_error *e)
{
    const struct quire_value type = quire_value_member(choice, "type"), name = quire_value_member(choice, "name");
    if (json_is(choice, QUIRE_STRING)) {
        if (!quire_value_is(choice, "auto") && !quire_value_is(choice, "none") && !quire_value_is(choice, "required"))
            return api_bad(e, "tool_choice", "must be \"none\", \"auto\", \"required\" or an object");
        buffer_append(o, choice.text, choice.n);
        return true;
    }
    if (!json_is(choice, QUIRE_OBJECT))
        return api_bad(e, "tool_choice", "must be \"none\", \"auto\", \"required\" or an object");
    if (!json_is(type, QUIRE_STRING))
        return api_bad(e, "tool_choice.type", "must be \"function\"");
    if (!quire_value_is(type, "function"))
        return api_unsupported(e, "tool_choice.type", "only \"function\" is supported, got %.*s", JSON_SHOWN(type));
    if (!tools_is_name(name))
        return api_bad(e, "tool_choice.name", "must be the name of a tool");
    tools_put_named_choice(o, name);
    return true;
}

bool responses_tools_read(const struct quire_doc *body, struct responses_tools *out, struct api_error *e)
{
    const struct quire_value tools = json_field_get(body, "tools"), choice = json_field_get(body, "tool_choice");
    if (tools.n && !json_is(tools, QUIRE_ARRAY))
        return api_bad(e, "tools", "must be an array");
    const bool any = tools.n && quire_value_count(tools) > 0;
    if (any && !add_tools(tools, &out->tools, e))
        return false;
    if (choice.n && !read_choice(choice, &out->choice, e))
        return false;
    if (quire_value_is(choice, "none"))
        responses_tools_free(out);
    return (!out->tools.failed && !out->choice.failed) || api_no_memory(e);
}

void responses_tools_free(struct responses_tools *t)
{
    buffer_free(&t->tools);
    buffer_free(&t->choice);
}
