/* tools and tool_choice: Messages → chat completions. */
#include "server/gateway/messages/parts.h"
#include "server/gateway/messages/translate.h"

#include <stdio.h>

#define MAX_TOOLS 1000

static bool put_tool(struct buffer *o, struct quire_value tool, size_t i, struct translate_facts *facts,
                     struct api_error *e)
{
    const struct quire_value type = part_member(tool, "type"), name = part_member(tool, "name");
    const struct quire_value description = part_member(tool, "description"), schema = part_member(tool, "input_schema");
    const struct quire_value strict = part_member(tool, "strict");
    char path[48];
    snprintf(path, sizeof path, "tools[%zu]", i);
    if (!part_is(tool, QUIRE_OBJECT))
        return api_bad(e, path, "must be an object");
    snprintf(path, sizeof path, "tools[%zu].type", i);
    if (type.n && !quire_value_is(type, "custom"))
        return api_unsupported(e, path,
                               "%.*s is a tool that Anthropic's API defines or runs; only \"custom\" tools, with an "
                               "input_schema, are supported",
                               SHOWN(type));
    snprintf(path, sizeof path, "tools[%zu].name", i);
    if (!part_has_text(name))
        return api_bad(e, path, "must be a non-empty string");
    snprintf(path, sizeof path, "tools[%zu].input_schema", i);
    if (!part_is(schema, QUIRE_OBJECT))
        return api_bad(e, path, "must be an object: the JSON Schema of the tool's input");
    json_out_raw(o, i > 0 ? ",{\"type\":\"function\",\"function\":{\"name\":"
                          : "{\"type\":\"function\",\"function\":{\"name\":");
    part_put(o, name);
    if (description.n)
        part_put_member(o, "description", description);
    if (strict.n)
        part_put_member(o, "strict", strict);
    part_put_member(o, "parameters", schema);
    json_out_raw(o, "}}");
    facts->is_eager |= part_member(tool, "eager_input_streaming").n == 4; /* true */
    facts->drops_cache_marks |= part_member(tool, "cache_control").n > 0;
    return true;
}

static bool put_choice(struct buffer *o, struct quire_value choice, struct api_error *e)
{
    static const char *const words[][2] = {{"auto", "\"auto\""}, {"none", "\"none\""}, {"any", "\"required\""}};
    const struct quire_value type = part_member(choice, "type"), name = part_member(choice, "name");
    const struct quire_value one = part_member(choice, "disable_parallel_tool_use");
    json_out_raw(o, ",\"tool_choice\":");
    size_t k = 0;
    while (k < 3 && !quire_value_is(type, words[k][0]))
        k++;
    if (k < 3) {
        json_out_raw(o, words[k][1]);
    } else if (quire_value_is(type, "tool") && part_has_text(name)) {
        json_out_raw(o, "{\"type\":\"function\",\"function\":{\"name\":");
        part_put(o, name);
        json_out_raw(o, "}}");
    } else if (quire_value_is(type, "tool")) {
        return api_bad(e, "tool_choice.name", "must be the name of a tool");
    } else {
        return api_bad(e, "tool_choice.type", "must be \"auto\", \"any\", \"tool\" or \"none\"");
    }
    if (one.n && !part_is(one, QUIRE_BOOL))
        return api_bad(e, "tool_choice.disable_parallel_tool_use", "must be true or false");
    if (one.n && one.text[0] == 't')
        json_out_raw(o, ",\"parallel_tool_calls\":false");
    return true;
}

bool request_put_tools(struct buffer *o, const struct quire_doc *body, struct translate_facts *facts,
                       struct api_error *e)
{
    const struct quire_value tools = part_field(body, "tools"), choice = part_field(body, "tool_choice");
    struct quire_value rest = tools, tool;
    size_t i = 0;
    if (tools.n && !part_is(tools, QUIRE_ARRAY))
        return api_bad(e, "tools", "must be an array");
    if (quire_value_count(tools) > MAX_TOOLS)
        return api_bad(e, "tools", "more than %d", MAX_TOOLS);
    if (quire_value_count(tools) == 0)
        return !quire_value_is(part_member(choice, "type"), "any") &&
                       !quire_value_is(part_member(choice, "type"), "tool")
                   ? true
                   : api_bad(e, "tool_choice", "needs tools");
    json_out_raw(o, ",\"tools\":[");
    for (; quire_value_next(&rest, NULL, &tool); i++)
        if (!put_tool(o, tool, i, facts, e))
            return false;
    json_out_raw(o, "]");
    return !choice.n || put_choice(o, choice, e);
}
