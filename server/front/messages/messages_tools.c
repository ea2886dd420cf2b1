/* The tools of a body, and its tool_choice. */
#include "server/front/messages/messages_read.h"

#include "server/front/body/tools_json.h"
#include "server/front/output/json_out.h"

#include <stdio.h>

/* ---- tools ---------------------------------------------------------------------------------- */

static const char *path_of(char out[64], size_t i, const char *name)
{
    snprintf(out, 64, "tools[%zu]%s", i, name);
    return out;
}

static bool check_tool(struct quire_value tool, size_t i, uint32_t *ttl_s, struct api_error *e)
{
    const struct quire_value type = json_field_member(tool, "type"), name = quire_value_member(tool, "name");
    const struct quire_value description = json_field_member(tool, "description");
    char path[64];
    if (!json_is(tool, QUIRE_OBJECT))
        return api_bad(e, path_of(path, i, ""), "must be an object");
    if (type.n && !json_is(type, QUIRE_STRING))
        return api_bad(e, path_of(path, i, ".type"), "must be a string");
    if (type.n && !quire_value_is(type, "custom"))
        return api_unsupported(e, path_of(path, i, ".type"),
                               "%.*s is a tool that Anthropic's API defines or runs; only \"custom\" tools, with an "
                               "input_schema, are supported",
                               JSON_SHOWN(type));
    if (!tools_is_name(name))
        return api_bad(e, path_of(path, i, ".name"), "must be a string of 1 to %d of the characters A-Z a-z 0-9 _ -",
                       TOOLS_MAX_NAME);
    if (description.n && !json_is(description, QUIRE_STRING))
        return api_bad(e, path_of(path, i, ".description"), "must be a string");
    if (!json_is(quire_value_member(tool, "input_schema"), QUIRE_OBJECT))
        return api_bad(e, path_of(path, i, ".input_schema"), "must be an object: the JSON Schema of the tool's input");
    return messages_cache_control(tool, path_of(path, i, ""), ttl_s, e);
}

static bool add_tools(struct quire_value tools, struct messages_tools *out, uint32_t *ttl_s, struct api_error *e)
{
    struct quire_value names[TOOLS_MAX], tool;
    char path[64];
    json_out_raw(&out->tools, "[");
    for (size_t i = 0; quire_value_next(&tools, NULL, &tool); i++) {
        bool is_strict = false, is_eager = false;
        if (i == TOOLS_MAX)
            return api_bad(e, "tools", "more than %d", TOOLS_MAX);
        if (!check_tool(tool, i, ttl_s, e) ||
            !json_value_bool(json_field_member(tool, "strict"), path_of(path, i, ".strict"), &is_strict, e) ||
            !json_value_bool(json_field_member(tool, "eager_input_streaming"),
                             path_of(path, i, ".eager_input_streaming"), &is_eager, e))
            return false;
        names[i] = quire_value_member(tool, "name");
        if (tools_has_name(names, i, names[i]))
            return api_bad(e, path_of(path, i, ".name"), "another tool has the name %.*s", JSON_SHOWN(names[i]));
        tools_put_function(&out->tools, names[i], json_field_member(tool, "description"),
                           quire_value_member(tool, "input_schema"), is_strict);
        out->is_eager |= is_eager;
    }
    json_out_raw(&out->tools, "]");
    return true;
}

/* ---- the choice ----------------------------------------------------------------------------- */

/* Each has the meaning of a chat's tool_choice. */
static const struct {
    const char *type, *choice;
    bool forces;
} choices[] = {
    {"auto", "\"auto\"", false}, {"none", "\"none\"", false}, {"any", "\"required\"", true}, {"tool", NULL, true}};
#define N_CHOICES (sizeof choices / sizeof *choices)

static bool put_named(struct buffer *o, struct quire_value choice, struct api_error *e)
{
    const struct quire_value name = quire_value_member(choice, "name");
    if (!tools_is_name(name))
        return api_bad(e, "tool_choice.name", "must be the name of a tool");
    tools_put_named_choice(o, name);
    return true;
}

/* *none: the model must not call a tool. */
static bool read_choice(struct quire_value choice, struct messages_tools *out, bool *none, struct api_error *e)
{
    const struct quire_value type = quire_value_member(choice, "type");
    size_t k = 0;
    if (!json_is(choice, QUIRE_OBJECT))
        return api_bad(e, "tool_choice", "must be an object");
    while (k < N_CHOICES && !quire_value_is(type, choices[k].type))
        k++;
    if (k == N_CHOICES)
        return api_bad(e, "tool_choice.type", "must be \"auto\", \"any\", \"tool\" or \"none\"");
    if (!json_value_bool(json_field_member(choice, "disable_parallel_tool_use"),
                         "tool_choice.disable_parallel_tool_use", &out->one_call, e))
        return false;
    *none = quire_value_is(type, "none");
    out->forces_calls = choices[k].forces;
    if (choices[k].choice)
        json_out_raw(&out->choice, choices[k].choice);
    return choices[k].choice || put_named(&out->choice, choice, e);
}

/* ---- both ----------------------------------------------------------------------------------- */

bool messages_tools_read(const struct quire_doc *body, struct messages_tools *out, uint32_t *ttl_s, struct api_error *e)
{
    const struct quire_value tools = json_field_get(body, "tools"), choice = json_field_get(body, "tool_choice");
    struct quire_value rest = tools, tool;
    bool none = false;
    if (tools.n && !json_is(tools, QUIRE_ARRAY))
        return api_bad(e, "tools", "must be an array");
    const bool any = tools.n && quire_value_next(&rest, NULL, &tool);
    if (any && !add_tools(tools, out, ttl_s, e))
        return false;
    if (choice.n && !read_choice(choice, out, &none, e))
        return false;
    if (!any && out->forces_calls)
        return api_bad(e, "tool_choice", "needs tools");
    if (!any || none)
        messages_tools_free(out);
    return !out->tools.failed || api_no_memory(e);
}

void messages_tools_free(struct messages_tools *t)
{
    buffer_free(&t->tools);
    buffer_free(&t->choice);
}
