/* The thinking of a body, as variables of the chat template. */
#include "server/front/messages/messages_read.h"

#include "server/front/front_internal.h"

#define MIN_BUDGET 1024 /* as in Anthropic's API */

static bool read_budget(struct quire_value thinking, struct messages_thinking *out, struct api_error *e)
{
    const struct quire_value budget = json_field_member(thinking, "budget_tokens");
    uint64_t n = 0;
    if (!budget.n)
        return api_bad(e, "thinking.budget_tokens", "is missing");
    if (!json_value_whole(budget, "thinking.budget_tokens", MIN_BUDGET, INT32_MAX, &n, e))
        return false;
    out->budget = (uint32_t)n;
    return true;
}

bool messages_thinking_read(const struct quire_doc *body, struct messages_thinking *out, struct api_error *e)
{
    const struct quire_value thinking = json_field_get(body, "thinking");
    const struct quire_value type = quire_value_member(thinking, "type");
    *out = (struct messages_thinking){.is_set = thinking.n > 0};
    if (!thinking.n || quire_value_is(type, "disabled"))
        return true;
    out->is_on = true;
    if (quire_value_is(type, "enabled"))
        return read_budget(thinking, out, e);
    return quire_value_is(type, "adaptive") ||
           api_bad(e, json_is(thinking, QUIRE_OBJECT) ? "thinking.type" : "thinking",
                   "must be \"enabled\", \"disabled\" or \"adaptive\"");
}

/* ---- variables ------------------------------------------------------------------------------ */

/* *out: the effort in the words of templates, as JSON; NULL: not set. */
static bool read_effort(const struct quire_doc *body, const char **out, struct api_error *e)
{
    static const char *const words[][2] = {
        {"low", "\"low\""}, {"medium", "\"medium\""}, {"high", "\"high\""}, {"xhigh", "\"high\""}, {"max", "\"high\""}};
    const struct quire_value config = json_field_get(body, "output_config");
    const struct quire_value effort = json_field_member(config, "effort");
    *out = NULL;
    if (config.n && !json_is(config, QUIRE_OBJECT))
        return api_bad(e, "output_config", "must be an object");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (quire_value_is(effort, words[i][0]))
            *out = words[i][1];
    return !effort.n || *out ||
           api_bad(e, "output_config.effort", "must be \"low\", \"medium\", \"high\", \"xhigh\" or \"max\"");
}

bool messages_variables_add(struct buffer *o, const struct quire_doc *body, const struct messages_thinking *thinking,
                            struct api_error *e)
{
    const char *effort, *is_on = thinking->is_on ? "true" : "false";
    struct chat_variable variables[3];
    size_t n = 0;
    if (!read_effort(body, &effort, e))
        return false;
    if (thinking->is_set) { /* the two names that templates give it */
        variables[n++] = (struct chat_variable){"enable_thinking", is_on};
        variables[n++] = (struct chat_variable){"thinking", is_on};
    }
    if (effort)
        variables[n++] = (struct chat_variable){"reasoning_effort", effort};
    return chat_variables_add(o, body, variables, n, e);
}
