/* Reads the tokens, the usage and the error of an event or of a whole reply. */
#include "server/gateway/relay/events.h"

#include "server/gateway/upstream_json.h"

#include <stdlib.h>
#include <string.h>

static bool is_object(struct quire_value v)
{
    return quire_value_kind(v) == QUIRE_OBJECT;
}

static bool has_text(struct quire_value object, const char *key)
{
    const struct quire_value v = quire_value_member(object, key);
    return quire_value_kind(v) == QUIRE_STRING && v.n > 2;
}

/* ---- usage ---------------------------------------------------------------------------------- */

/* Leaves *out as it was if there is no such count. */
static bool count(struct quire_value object, const char *key, uint64_t *out)
{
    bool is_negative;
    uint64_t n;
    if (quire_value_integer(quire_value_member(object, key), &is_negative, &n) != QUIRE_INTEGER || is_negative)
        return false;
    *out = n < UINT32_MAX ? n : UINT32_MAX; /* sums of them, times a price, fit 64 bits */
    return true;
}

/* Messages counts the cached part of the input apart from the rest. */
static void read_messages_usage(struct quire_value usage, struct events_usage *out)
{
    uint64_t input, created = 0, cached = 0;
    count(usage, "cache_creation_input_tokens", &created);
    count(usage, "cache_read_input_tokens", &cached);
    if (count(usage, "input_tokens", &input)) {
        out->input = input + created + cached;
        out->cached_input = cached;
        out->is_set = true;
    }
    out->is_set |= count(usage, "output_tokens", &out->output);
}

static void read_usage(struct quire_value usage, bool is_messages, struct events_usage *out)
{
    if (is_messages) {
        read_messages_usage(usage, out);
        return;
    }
    out->is_set |= count(usage, "prompt_tokens", &out->input) || count(usage, "input_tokens", &out->input);
    out->is_set |= count(usage, "completion_tokens", &out->output) || count(usage, "output_tokens", &out->output);
    if (!count(quire_value_member(usage, "prompt_tokens_details"), "cached_tokens", &out->cached_input))
        count(quire_value_member(usage, "input_tokens_details"), "cached_tokens", &out->cached_input);
    if (out->cached_input > out->input)
        out->cached_input = out->input;
}

/* ---- errors --------------------------------------------------------------------------------- */

/* Copies a string's content, cut at the end of a character. */
static void copy(struct quire_value string, char *out, size_t size)
{
    char *text = NULL;
    size_t n = 0;
    if (quire_value_kind(string) != QUIRE_STRING || quire_value_text(string, &text, &n, NULL) != QUIRE_OK)
        return;
    if (n >= size)
        for (n = size - 1; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80; n--) {
        }
    memcpy(out, text, n);
    out[n] = 0;
    free(text);
}

static void read_error(struct quire_value error, struct events_facts *out)
{
    const struct quire_value code = quire_value_member(error, "code");
    out->is_error = true;
    copy(is_object(error) ? quire_value_member(error, "message") : error, out->message, sizeof out->message);
    copy(quire_value_kind(code) == QUIRE_STRING ? code : quire_value_member(error, "type"), out->code,
         sizeof out->code);
    if (!out->message[0])
        memcpy(out->message, "an error without a message", sizeof "an error without a message");
}

/* {"error": {...}}, {"error": "text"}; {"object": "error", "message": "text"}. */
static void find_error(struct quire_value root, struct events_facts *out)
{
    const struct quire_value error = quire_value_member(root, "error");
    if (is_object(error) || quire_value_kind(error) == QUIRE_STRING)
        read_error(error, out);
    else if (quire_value_is(quire_value_member(root, "object"), "error") ||
             (quire_value_is(quire_value_member(root, "type"), "error") && has_text(root, "message")))
        read_error(root, out);
}

/* ---- tokens --------------------------------------------------------------------------------- */

static bool has_parts(struct quire_value message)
{
    return has_text(message, "content") || has_text(message, "reasoning_content") || has_text(message, "reasoning") ||
           has_text(message, "refusal") || quire_value_count(quire_value_member(message, "tool_calls")) > 0 ||
           is_object(quire_value_member(message, "function_call"));
}

/* Returns the number of choices. */
static size_t read_choices(struct quire_value choices, struct events_facts *out)
{
    struct quire_value choice;
    size_t n = 0;
    if (quire_value_kind(choices) != QUIRE_ARRAY)
        return 0;
    for (; quire_value_next(&choices, NULL, &choice); n++) {
        const struct quire_value finish = quire_value_member(choice, "finish_reason");
        out->has_token |= has_text(choice, "text") || has_parts(quire_value_member(choice, "delta")) ||
                          has_parts(quire_value_member(choice, "message"));
        out->has_finish |= quire_value_kind(finish) == QUIRE_STRING;
    }
    return n;
}

static bool begins(struct quire_value string, const char *with)
{
    return string.n > strlen(with) + 1 && string.text[0] == '"' && memcmp(string.text + 1, with, strlen(with)) == 0;
}

static bool ends(struct quire_value string, const char *with)
{
    const size_t n = strlen(with);
    return string.n > n + 1 && memcmp(string.text + string.n - 1 - n, with, n) == 0;
}

/* ---- the three APIs ------------------------------------------------------------------------- */

/* Returns the usage object; n is 0 without one. */
static struct quire_value read_openai(struct quire_value root, struct events_facts *out)
{
    const struct quire_value choices = quire_value_member(root, "choices"), usage = quire_value_member(root, "usage");
    const bool is_empty = quire_value_kind(choices) == QUIRE_ARRAY && read_choices(choices, out) == 0;
    out->is_usage_only = is_empty && is_object(usage);
    return usage;
}

static struct quire_value read_messages(struct quire_value root, struct quire_value type, struct events_facts *out)
{
    const struct quire_value message = quire_value_member(root, "message");
    out->has_token = quire_value_is(type, "content_block_delta") ||
                     (quire_value_is(type, "message") && quire_value_count(quire_value_member(root, "content")) > 0);
    out->has_finish = quire_value_is(type, "message_stop") || quire_value_is(type, "message");
    return quire_value_member(is_object(message) ? message : root, "usage");
}

static struct quire_value read_responses(struct quire_value root, struct quire_value type, struct events_facts *out)
{
    const struct quire_value response = quire_value_member(root, "response");
    out->has_token = ends(type, ".delta");
    out->has_finish = quire_value_is(type, "response.completed") || quire_value_is(type, "response.incomplete");
    if (quire_value_is(type, "response.failed"))
        read_error(quire_value_member(response, "error"), out);
    return quire_value_member(response, "usage");
}

static void locate_usage(const char *data, struct quire_value usage, struct events_facts *out)
{
    const struct quire_value cost = quire_value_member(usage, "cost");
    out->usage_at = (size_t)(usage.text - data);
    out->n_usage = usage.n;
    if (cost.n > 0)
        out->cost_at = (size_t)(cost.text - data);
    out->n_cost = cost.n;
}

static bool is_of_messages(struct quire_value type)
{
    return begins(type, "message") || begins(type, "content_block");
}

void events_read(const char *data, size_t n, struct events_facts *out, struct events_usage *usage)
{
    struct upstream_json j;
    *out = (struct events_facts){.is_done = n == 6 && memcmp(data, "[DONE]", 6) == 0};
    if (n == 0 || out->is_done || upstream_json_open(data, n, "an event", &j, NULL) != QUIRE_OK)
        return;
    const struct quire_value root = quire_doc_root(j.doc), type = quire_value_member(root, "type");
    out->is_json = is_object(root);
    if (out->is_json) {
        find_error(root, out);
        const struct quire_value found = is_of_messages(type)        ? read_messages(root, type, out)
                                         : begins(type, "response.") ? read_responses(root, type, out)
                                                                     : read_openai(root, out);
        out->has_usage = is_object(found) && quire_value_count(found) > 0;
        if (out->has_usage && !j.rewritten)
            locate_usage(data, found, out);
        if (out->has_usage && usage)
            read_usage(found, is_of_messages(type), usage);
    }
    upstream_json_close(&j);
}
