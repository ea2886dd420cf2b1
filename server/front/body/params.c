#include "server/front/body/params.h"

#include "server/front/body/bad_words.h"
#include "server/front/body/drafts_json.h"
#include "server/front/body/spec_json.h"
#include "server/front/body/tools_json.h"

#include <stdlib.h>
#include <string.h>

/* ---- unsupported fields ---- */

/* Returns whether a value requests anything: false, 0, "" and empty lists do not. */
static bool asks(struct quire_value value)
{
    struct quire_value rest = value, item;
    switch (quire_value_kind(value)) {
    case QUIRE_NOTHING:
    case QUIRE_NULL: return false;
    case QUIRE_BOOL: return value.text[0] == 't';
    case QUIRE_STRING: return value.n > 2;
    case QUIRE_ARRAY:
    case QUIRE_OBJECT: return quire_value_next(&rest, NULL, &item);
    case QUIRE_NUMBER: return quire_value_double(value) != 0;
    }
    return true;
}

/* They would change the answer, so they are never ignored. */
static const char *const not_built[] = {
    "use_beam_search",   "logits_processors",  "guided_decoding", "regex",         "ebnf",    "repetition_detection",
    "logprob_token_ids", "kv_transfer_params", "vllm_xargs",      "prompt_embeds", "adapter", "adapters",
    "lora_request",
};
static const char *const not_built_in_chat[] = {
    "functions", "chat_template", "documents", "audio", "web_search_options",
};
static const char *const not_built_in_completions[] = {"suffix"};

bool params_refuse(const struct quire_doc *body, const char *const *names, size_t n, struct api_error *e)
{
    for (size_t i = 0; i < n; i++)
        if (asks(quire_doc_field(body, names[i])))
            return api_unsupported(e, names[i], "is not supported");
    return true;
}

static bool refuse_not_built(const struct quire_doc *body, bool chat, struct api_error *e)
{
    if (!chat)
        return params_refuse(body, not_built_in_completions,
                             sizeof not_built_in_completions / sizeof *not_built_in_completions, e);
    struct quire_value modalities = json_field_get(body, "modalities"), rest = modalities, item;
    while (json_is(modalities, QUIRE_ARRAY) && quire_value_next(&rest, NULL, &item))
        if (!quire_value_is(item, "text"))
            return api_unsupported(e, "modalities", "only \"text\" is supported");
    return params_refuse(body, not_built_in_chat, sizeof not_built_in_chat / sizeof *not_built_in_chat, e);
}

static enum quire_grammar_whitespace whitespace_of(const struct params_model *model)
{
    return model->flexible_whitespace ? QUIRE_WHITESPACE_FLEXIBLE : QUIRE_WHITESPACE_COMPACT;
}

bool params_format(struct params *p, struct quire_value format, const char *field, const struct params_model *model,
                   struct api_error *e)
{
    return grammar_request_format(format, field, whitespace_of(model), &p->grammar, e);
}

/* Clients of local servers use names that OpenAI's API does not have, such as those with a dot. */
static bool check_tool_name(struct quire_value name, size_t index, struct api_error *e)
{
    char *text = NULL;
    size_t n = 0;
    if (json_is(name, QUIRE_STRING) && !json_value_text(name, "tools", &text, &n, e))
        return false;
    bool ok = n > 0 && n <= TOOLS_MAX_NAME;
    for (size_t k = 0; ok && k < n; k++)
        ok = (unsigned char)text[k] >= ' ' && text[k] != '\x7f';
    free(text);
    return ok ||
           api_bad(e, "tools", "item %zu: function.name must be a string of 1 to %d bytes without control characters",
                   index, TOOLS_MAX_NAME);
}

static bool check_tools(struct quire_value tools, struct api_error *e)
{
    struct quire_value rest = tools, tool;
    if (tools.n && !json_is(tools, QUIRE_ARRAY))
        return api_bad(e, "tools", "must be an array");
    for (size_t i = 0; tools.n && quire_value_next(&rest, NULL, &tool); i++) {
        if (i == TOOLS_MAX)
            return api_bad(e, "tools", "more than %d", TOOLS_MAX);
        if (!quire_value_is(quire_value_member(tool, "type"), "function"))
            return api_bad(e, "tools", "item %zu must be of type \"function\"", i);
        if (!check_tool_name(quire_value_member(quire_value_member(tool, "function"), "name"), i, e))
            return false;
    }
    return true;
}

bool params_tools(const struct quire_doc *body, struct quire_value *out, struct api_error *e)
{
    struct quire_value tools = json_field_get(body, "tools"), choice = json_field_get(body, "tool_choice");
    *out = (struct quire_value){0};
    if (!check_tools(tools, e))
        return false;
    const bool none = quire_value_is(choice, "none");
    if (choice.n && !none && !json_is(choice, QUIRE_OBJECT) && !quire_value_is(choice, "auto") &&
        !quire_value_is(choice, "required"))
        return api_bad(e, "tool_choice", "must be \"none\", \"auto\", \"required\" or an object");
    /* Tools are left out if the model must not call one, because its output is not constrained. */
    struct quire_value rest = tools, tool;
    if (!none && tools.n && quire_value_next(&rest, NULL, &tool))
        *out = tools;
    return true;
}

/* ---- groups of fields ----------------------------------------------------------------------- */

static bool read_spec(struct params *p, const struct quire_doc *body, const struct params_model *model,
                      struct api_error *e)
{
    request_spec_take_defaults(p->spec, model->defaults);
    if (!spec_json_read(p->spec, body, model->vocab_size, e) || !speculative_json_read(p->spec, body, e))
        return false;
    p->has_priority = json_field_get(body, "priority").n > 0;
    int64_t best_of = p->spec->n;
    if (!json_field_i64(body, "best_of", 1, REQUEST_MAX_CHOICES, &best_of, e))
        return false;
    if (best_of != p->spec->n)
        return api_unsupported(e, "best_of", "%lld is not supported; leave it out, or give the value of n: %u",
                               (long long)best_of, p->spec->n);
    return true;
}

static bool read_bad_words(struct params_body *once, const struct quire_doc *body, struct api_error *e)
{
    once->bad_words = json_field_get(body, "bad_words");
    return !once->bad_words.n || bad_words_check(once->bad_words, e);
}

static bool add_stop(struct params *p, const struct quire_doc *body, struct quire_value stop, const char *name,
                     struct api_error *e)
{
    size_t n_bytes = 0;
    if (p->stops && p->stops->n == STOP_MAX_STRINGS)
        return api_bad(e, name, "at most %d strings", STOP_MAX_STRINGS);
    if (!json_is(stop, QUIRE_STRING))
        return api_bad(e, name, "must be a string or an array of strings");
    const char *text = quire_doc_text(body, stop, &n_bytes);
    if (text && (n_bytes == 0 || n_bytes > STOP_MAX_BYTES))
        return api_bad(e, name, "a string must have between 1 and %d bytes", STOP_MAX_BYTES);
    return (text && stop_set_add(&p->stops, text, n_bytes)) ||
           api_fail(e, 503, name, "out_of_memory", "%s: out of memory", name);
}

bool params_stops(struct params *p, const struct quire_doc *body, const char *name, struct api_error *e)
{
    struct quire_value stop = json_field_get(body, name), item;
    if (!json_is(stop, QUIRE_ARRAY))
        return !stop.n || add_stop(p, body, stop, name, e);
    while (quire_value_next(&stop, NULL, &item))
        if (!add_stop(p, body, item, name, e))
            return false;
    return true;
}

static bool read_logprobs(struct params *p, const struct quire_doc *body, bool chat, struct api_error *e)
{
    int64_t top = chat ? 0 : -1, prompt = -1;
    bool wanted = false;
    if (chat) {
        if (!json_field_bool(body, "logprobs", &wanted, e) ||
            !json_field_i64(body, "top_logprobs", 0, REQUEST_MAX_LOGPROBS, &top, e))
            return false;
        if (top > 0 && !wanted)
            return api_bad(e, "top_logprobs", "needs \"logprobs\": true");
        if (wanted)
            p->spec->n_logprobs = (int32_t)top;
    } else {
        if (!json_field_i64(body, "logprobs", 0, REQUEST_MAX_LOGPROBS, &top, e))
            return false;
        p->spec->n_logprobs = (int32_t)top;
    }
    if (!json_field_i64(body, "prompt_logprobs", 0, REQUEST_MAX_LOGPROBS, &prompt, e))
        return false;
    if (prompt >= 0 && p->stream)
        return api_bad(e, "prompt_logprobs", "is not given in a stream");
    p->spec->n_prompt_logprobs = (int32_t)prompt;
    return true;
}

bool params_length(struct params *p, const struct quire_doc *body, const char *name, uint32_t least, uint32_t otherwise,
                   struct api_error *e)
{
    /* A number beyond the context is refused later, when the prompt's length is known. */
    int64_t n = otherwise;
    if (!json_field_i64(body, name, least, INT32_MAX, &n, e))
        return false;
    p->has_max_tokens = json_field_get(body, name).n > 0;
    p->max_tokens_name = name;
    p->max_tokens = (uint32_t)n;
    return true;
}

static bool read_length(struct params *p, const struct quire_doc *body, bool chat, uint32_t max_model_len,
                        struct api_error *e)
{
    const char *name = "max_tokens";
    if (chat && json_field_get(body, "max_completion_tokens").n)
        name = "max_completion_tokens";
    if (!params_length(p, body, name, !chat && p->echo ? 0 : 1, chat ? 0 : 16, e))
        return false;
    if (!json_field_i64(body, "truncate_prompt_tokens", -1, max_model_len, &p->truncate, e))
        return false;
    if (json_field_get(body, "truncate_prompt_tokens").n && p->truncate == 0)
        return api_bad(e, "truncate_prompt_tokens", "must be -1 or at least 1");
    const char *side = "left";
    if (!json_field_string(body, "truncation_side", &side, e))
        return false;
    p->truncate_end = strcmp(side, "right") == 0;
    if (!p->truncate_end && strcmp(side, "left") != 0)
        return api_bad(e, "truncation_side", "must be \"left\" or \"right\"");
    return true;
}

static bool read_stream_options(struct params *p, const struct quire_doc *body, struct api_error *e)
{
    struct quire_value options = json_field_get(body, "stream_options");
    if (!options.n)
        return true;
    if (!p->stream)
        return api_bad(e, "stream_options", "needs \"stream\": true");
    if (!json_is(options, QUIRE_OBJECT))
        return api_bad(e, "stream_options", "must be an object");
    struct quire_value usage = json_field_member(options, "include_usage");
    struct quire_value continuous = json_field_member(options, "continuous_usage_stats");
    if (!json_value_bool(usage, "include_usage", &p->include_usage, e) ||
        !json_value_bool(continuous, "continuous_usage_stats", &p->continuous_usage, e)) {
        strcpy(e->param, "stream_options");
        quire_error_prefix(&e->why, "stream_options");
        return false;
    }
    return true;
}

/* As in vLLM: -1 is no limit. */
static bool read_thinking_budget(struct params_body *once, const struct quire_doc *body, struct api_error *e)
{
    once->thinking_budget = -1;
    once->budget_name = "thinking_token_budget";
    return json_field_i64(body, once->budget_name, -1, INT32_MAX, &once->thinking_budget, e);
}

/* As in vLLM: how many tokens an event has. */
static bool read_stream_interval(struct params *p, const struct quire_doc *body, struct api_error *e)
{
    int64_t n = 1;
    if (!json_field_i64(body, "stream_interval", 1, INT32_MAX, &n, e))
        return false;
    p->stream_interval = (uint32_t)n;
    return true;
}

static bool read_service(struct params *p, const struct quire_doc *body, struct api_error *e)
{
    int64_t deadline = 0;
    if (!json_field_i64(body, "quire_deadline_ms", 1, PARAMS_MAX_DEADLINE_MS, &deadline, e))
        return false;
    p->deadline_ms = (uint32_t)deadline;
    return json_field_bool(body, "quire_trace", &p->wants_timing, e);
}

static bool read_request_id(struct params *p, const struct quire_doc *body, struct api_error *e)
{
    const char *id = NULL;
    if (!json_field_string(body, "request_id", &id, e))
        return false;
    if (!id)
        return true;
    size_t n = strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:");
    if (n > 0 && n <= 64 && id[n] == '\0')
        memcpy(p->request_id, id, n + 1);
    else
        return api_bad(e, "request_id", "must be 1 to 64 of the characters A-Z a-z 0-9 - _ . :");
    return true;
}

/* "use_cache": false means no_cache and no_store. */
static bool read_cache(struct params *p, struct params_body *once, const struct quire_doc *body, struct api_error *e)
{
    struct quire_value cache = json_field_get(body, "cache");
    struct params_cache *c = &p->cache;
    bool use = true;
    if (!json_field_string(body, "cache_salt", &once->cache_salt, e) || !json_field_bool(body, "use_cache", &use, e))
        return false;
    c->no_cache = c->no_store = !use;
    if (!cache.n)
        return true;
    if (!json_is(cache, QUIRE_OBJECT))
        return api_bad(e, "cache", "must be an object");
    bool no_cache = false, no_store = false;
    uint64_t ttl = 0;
    const struct quire_value ttl_value = json_field_member(cache, "ttl"), name = json_field_member(cache, "namespace");
    if (!json_value_bool(json_field_member(cache, "no_cache"), "cache.no_cache", &no_cache, e) ||
        !json_value_bool(json_field_member(cache, "no_store"), "cache.no_store", &no_store, e) ||
        (ttl_value.n && !json_value_whole(ttl_value, "cache.ttl", 1, PARAMS_MAX_CACHE_TTL_S, &ttl, e)))
        return false;
    if (name.n) {
        size_t n_bytes = 0;
        once->cache_name_space = json_is(name, QUIRE_STRING) ? quire_doc_text(body, name, &n_bytes) : NULL;
        if (!once->cache_name_space || n_bytes == 0 || n_bytes > 256)
            return api_bad(e, "cache.namespace", "must be a string of 1 to 256 bytes");
    }
    c->no_cache |= no_cache;
    c->no_store |= no_store;
    c->ttl_s = (uint32_t)ttl;
    return true;
}

bool params_read_common(struct params *p, struct params_body *once, const struct quire_doc *body,
                        const struct params_model *model, struct api_error *e)
{
    *once = (struct params_body){0};
    *p = (struct params){.spec = malloc(sizeof *p->spec), .skip_special = true};
    if (!p->spec)
        return api_no_memory(e);
    request_spec_default(p->spec);
    return params_refuse(body, not_built, sizeof not_built / sizeof *not_built, e) &&
           json_field_string(body, "model", &once->model, e) && json_field_bool(body, "stream", &p->stream, e) &&
           read_spec(p, body, model, e) && read_bad_words(once, body, e) &&
           grammar_request_read(body, whitespace_of(model), &p->grammar, e) &&
           json_field_bool(body, "include_stop_str_in_output", &p->include_stop, e) &&
           json_field_bool(body, "skip_special_tokens", &p->skip_special, e) && read_stream_interval(p, body, e) &&
           read_thinking_budget(once, body, e) && read_service(p, body, e) && read_request_id(p, body, e) &&
           read_cache(p, once, body, e);
}

bool params_read(struct params *p, struct params_body *once, const struct quire_doc *body, bool chat,
                 const struct params_model *model, struct api_error *e)
{
    if (!params_read_common(p, once, body, model, e) || !refuse_not_built(body, chat, e) ||
        !params_format(p, json_field_get(body, "response_format"), "response_format", model, e))
        return false;
    if (!chat && !json_field_bool(body, "echo", &p->echo, e))
        return false;
    once->add_special = !chat;
    return read_stream_options(p, body, e) && params_stops(p, body, "stop", e) && read_logprobs(p, body, chat, e) &&
           read_length(p, body, chat, model->max_model_len, e) &&
           json_field_bool(body, "add_special_tokens", &once->add_special, e) &&
           json_field_bool(body, "return_token_ids", &p->return_token_ids, e) &&
           json_field_bool(body, "return_tokens_as_token_ids", &p->tokens_as_ids, e);
}

void params_free(struct params *p)
{
    if (p->spec)
        request_spec_free(p->spec);
    free(p->spec);
    free(p->lead);
    free(p->tools);
    grammar_request_free(p->grammar);
    stop_set_free(p->stops);
    if (p->response)
        response_record_free(p->response);
    free(p->response);
    *p = (struct params){0};
}
