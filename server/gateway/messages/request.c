/* The body of a request: Messages → chat completions. */
#include "server/gateway/messages/translate.h"

#include "server/gateway/messages/parts.h"

#include <string.h>

/* Fields with the same name and meaning. Those that are not OpenAI's are vLLM's and SGLang's: other servers reject them
 * with their own words. */
static const char *const same[] = {"temperature",
                                   "top_p",
                                   "top_k",
                                   "min_p",
                                   "seed",
                                   "presence_penalty",
                                   "frequency_penalty",
                                   "repetition_penalty",
                                   "logit_bias",
                                   "chat_template_kwargs"};

static bool refuse_not_built(const struct quire_doc *body, struct api_error *e)
{
    static const char *const names[] = {"mcp_servers", "container"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct quire_value value = part_field(body, names[i]);
        if (value.n && !quire_value_is(value, "") && !(quire_value_count(value) == 0 && strchr("[{", value.text[0])))
            return api_unsupported(e, names[i], "is not supported");
    }
    return true;
}

static bool put_max_tokens(struct buffer *o, const struct quire_doc *body, struct api_error *e)
{
    const struct quire_value value = part_field(body, "max_tokens");
    bool is_negative;
    uint64_t n;
    if (!value.n)
        return api_bad(e, "max_tokens", "is missing");
    if (quire_value_integer(value, &is_negative, &n) != QUIRE_INTEGER || is_negative || n == 0)
        return api_bad(e, "max_tokens", "must be a positive integer, got %.*s", SHOWN(value));
    part_put_member(o, "max_tokens", value);
    return true;
}

static bool put_sampling(struct buffer *o, const struct quire_doc *body, struct api_error *e)
{
    const struct quire_value temperature = part_field(body, "temperature");
    if (temperature.n && !(quire_value_double(temperature) >= 0 && quire_value_double(temperature) <= 1))
        return api_bad(e, "temperature", "must be between 0 and 1, got %.*s", SHOWN(temperature));
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        const struct quire_value value = part_field(body, same[i]);
        if (value.n)
            part_put_member(o, same[i], value);
    }
    return true;
}

static bool put_stops(struct buffer *o, const struct quire_doc *body, struct api_error *e)
{
    const struct quire_value stops = part_field(body, "stop_sequences");
    struct quire_value rest = stops, stop;
    if (!stops.n)
        return true;
    bool ok = part_is(stops, QUIRE_ARRAY);
    while (ok && quire_value_next(&rest, NULL, &stop))
        ok = part_has_text(stop);
    if (!ok)
        return api_bad(e, "stop_sequences", "must be an array of non-empty strings");
    if (quire_value_count(stops) > 0)
        part_put_member(o, "stop", stops);
    return true;
}

/* ---- the form of the answer, and thinking --------------------------------------------------- */

static bool put_format(struct buffer *o, struct quire_value format, const char *path, struct api_error *e)
{
    const struct quire_value type = part_member(format, "type"), schema = part_member(format, "schema");
    if (!format.n)
        return true;
    if (!quire_value_is(type, "json_schema") || !part_is(schema, QUIRE_OBJECT))
        return api_bad(e, path, "must be {\"type\":\"json_schema\",\"schema\":{...}}");
    json_out_raw(o,
                 ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"answer\",\"strict\":true");
    part_put_member(o, "schema", schema);
    json_out_raw(o, "}}");
    return true;
}

static bool put_effort(struct buffer *o, const struct quire_doc *body, struct quire_value config, struct api_error *e)
{
    static const char *const words[][2] = {
        {"low", "low"}, {"medium", "medium"}, {"high", "high"}, {"xhigh", "high"}, {"max", "high"}};
    const struct quire_value effort = part_member(config, "effort"), own = part_field(body, "reasoning_effort");
    const char *word = NULL;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (quire_value_is(effort, words[i][0]))
            word = words[i][1];
    if (effort.n && !word)
        return api_bad(e, "output_config.effort", "must be \"low\", \"medium\", \"high\", \"xhigh\" or \"max\"");
    if (word) {
        json_out_raw(o, ",\"reasoning_effort\":");
        json_out_text(o, word);
    } else if (own.n) {
        part_put_member(o, "reasoning_effort", own);
    }
    return true;
}

static bool put_output(struct buffer *o, const struct quire_doc *body, struct api_error *e)
{
    const struct quire_value config = part_field(body, "output_config"), format = part_field(body, "output_format");
    const struct quire_value newer = part_member(config, "format");
    if (config.n && !part_is(config, QUIRE_OBJECT))
        return api_bad(e, "output_config", "must be an object");
    return put_effort(o, body, config, e) &&
           (newer.n ? put_format(o, newer, "output_config.format", e) : put_format(o, format, "output_format", e));
}

/* Only servers of Anthropic's own API know what a budget of thinking is. */
static bool read_thinking(const struct quire_doc *body, struct translate_facts *facts, struct api_error *e)
{
    const struct quire_value thinking = part_field(body, "thinking"), type = part_member(thinking, "type");
    if (thinking.n && !quire_value_is(type, "enabled") && !quire_value_is(type, "adaptive") &&
        !quire_value_is(type, "disabled"))
        return api_bad(e, part_is(thinking, QUIRE_OBJECT) ? "thinking.type" : "thinking",
                       "must be \"enabled\", \"disabled\" or \"adaptive\"");
    facts->drops_thinking = thinking.n > 0 && !quire_value_is(type, "disabled");
    return true;
}

static bool put_stream(struct buffer *o, const struct quire_doc *body, struct translate_facts *facts,
                       struct api_error *e)
{
    const struct quire_value stream = part_field(body, "stream");
    if (stream.n && !part_is(stream, QUIRE_BOOL))
        return api_bad(e, "stream", "must be true or false");
    facts->is_stream = stream.n && stream.text[0] == 't';
    if (facts->is_stream)
        json_out_raw(o, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    return true;
}

bool translate_request(struct buffer *o, const struct quire_doc *body, const char *model, struct translate_facts *facts,
                       struct api_error *e)
{
    *facts = (struct translate_facts){.drops_cache_marks = part_field(body, "cache_control").n > 0};
    json_out_raw(o, "{\"model\":");
    json_out_text(o, model);
    bool ok = refuse_not_built(body, e) && put_max_tokens(o, body, e) && put_sampling(o, body, e) &&
              put_stops(o, body, e) && put_output(o, body, e) && read_thinking(body, facts, e) &&
              put_stream(o, body, facts, e) && request_put_tools(o, body, facts, e) &&
              request_put_turns(o, body, facts, e);
    json_out_raw(o, "}");
    return ok && (!o->failed || api_no_memory(e));
}
