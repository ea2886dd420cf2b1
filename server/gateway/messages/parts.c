#include "server/gateway/messages/parts.h"

#include "server/gateway/upstream_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct quire_value part_member(struct quire_value object, const char *key)
{
    const struct quire_value value = quire_value_member(object, key);
    return part_is(value, QUIRE_NULL) ? (struct quire_value){0} : value;
}

struct quire_value part_field(const struct quire_doc *body, const char *key)
{
    const struct quire_value value = quire_doc_field(body, key);
    return part_is(value, QUIRE_NULL) ? (struct quire_value){0} : value;
}

void part_put_member(struct buffer *o, const char *key, struct quire_value value)
{
    json_out_raw(o, ",\"");
    json_out_raw(o, key);
    json_out_raw(o, "\":");
    part_put(o, value);
}

/* ---- texts ---------------------------------------------------------------------------------- */

enum { STEP_REASONING, STEP_CONTENT, STEP_PARTS, STEP_REFUSAL, STEP_END };

/* A part of a list of content: text, or thinking as Mistral's models send it. */
static struct quire_value text_of_part(struct quire_value part, enum block_kind *kind)
{
    struct quire_value thinking = part_member(part, "thinking"), first;
    *kind = BLOCK_TEXT;
    if (!thinking.n)
        return part_member(part, "text");
    *kind = BLOCK_THINKING;
    return part_is(thinking, QUIRE_ARRAY) && quire_value_next(&thinking, NULL, &first) ? part_member(first, "text")
                                                                                       : thinking;
}

bool part_next_text(struct quire_value message, struct part_texts *at, enum block_kind *kind, struct quire_value *text)
{
    struct quire_value part;
    while (at->step != STEP_END) {
        *text = (struct quire_value){0};
        switch (at->step) {
        case STEP_REASONING:
            *kind = BLOCK_THINKING;
            *text = part_member(message, "reasoning_content");
            if (!part_has_text(*text))
                *text = part_member(message, "reasoning");
            at->step = STEP_CONTENT;
            break;
        case STEP_CONTENT:
            *kind = BLOCK_TEXT;
            *text = part_member(message, "content");
            at->rest = *text;
            at->step = part_is(*text, QUIRE_ARRAY) ? STEP_PARTS : STEP_REFUSAL;
            break;
        case STEP_PARTS:
            if (quire_value_next(&at->rest, NULL, &part))
                *text = text_of_part(part, kind);
            else
                at->step = STEP_REFUSAL;
            break;
        case STEP_REFUSAL:
            *kind = BLOCK_TEXT;
            *text = part_member(message, "refusal");
            at->step = STEP_END;
            break;
        }
        if (part_has_text(*text))
            return true;
    }
    return false;
}

/* ---- the end -------------------------------------------------------------------------------- */

const char *part_stop_reason(struct quire_value finish_reason, bool has_calls)
{
    if (quire_value_is(finish_reason, "length"))
        return "max_tokens";
    if (quire_value_is(finish_reason, "content_filter"))
        return "refusal";
    return has_calls ? "tool_use" : "end_turn";
}

static void read_count(struct quire_value object, const char *key, uint64_t *out)
{
    bool is_negative;
    uint64_t n;
    if (quire_value_integer(quire_value_member(object, key), &is_negative, &n) == QUIRE_INTEGER && !is_negative)
        *out = n < UINT32_MAX ? n : UINT32_MAX;
}

void part_read_usage(struct quire_value usage, struct part_usage *out)
{
    read_count(usage, "prompt_tokens", &out->input);
    read_count(usage, "completion_tokens", &out->output);
    read_count(quire_value_member(usage, "prompt_tokens_details"), "cached_tokens", &out->cached_input);
    if (out->cached_input > out->input)
        out->cached_input = out->input;
}

void part_put_usage(struct buffer *o, const struct part_usage *usage, const char *cost)
{
    json_out_raw(o, "\"usage\":{\"input_tokens\":");
    json_out_u64(o, usage->input - usage->cached_input);
    json_out_raw(o, ",\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":");
    json_out_u64(o, usage->cached_input);
    json_out_raw(o, ",\"output_tokens\":");
    json_out_u64(o, usage->output);
    if (cost) {
        json_out_raw(o, ",\"cost\":");
        json_out_raw(o, cost);
    }
    json_out_raw(o, "}");
}

void part_put_stop(struct buffer *o, const char *reason, struct quire_value stop)
{
    json_out_raw(o, "\"stop_reason\":\"");
    json_out_raw(o, reason);
    json_out_raw(o, "\",\"stop_sequence\":");
    if (stop.n)
        part_put(o, stop);
    else
        json_out_raw(o, "null");
}

void part_put_head(struct buffer *o, const char *id, const char *model)
{
    char full[160];
    snprintf(full, sizeof full, "msg_%s", id);
    json_out_raw(o, "{\"id\":");
    json_out_text(o, full);
    json_out_raw(o, ",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
    json_out_text(o, model);
}

/* ---- calls ---------------------------------------------------------------------------------- */

void part_put_call_head(struct buffer *o, const char *id, size_t n_id, const char *name, size_t n_name,
                        const char *request, uint32_t number)
{
    char made[160];
    json_out_raw(o, "{\"type\":\"tool_use\",\"id\":");
    if (n_id > 0) {
        json_out_string(o, id, n_id);
    } else {
        snprintf(made, sizeof made, "toolu_%.128s_%u", request, number);
        json_out_text(o, made);
    }
    json_out_raw(o, ",\"name\":");
    json_out_string(o, name, n_name);
    json_out_raw(o, ",\"input\":");
}

bool part_is_object(const char *text, size_t n)
{
    struct quire_doc *doc = NULL;
    if (n == 0)
        return true;
    const bool is = quire_doc_open(text, n, UPSTREAM_JSON_MAX_DEPTH - 8, "arguments", &doc, NULL) == QUIRE_OK &&
                    part_is(quire_doc_root(doc), QUIRE_OBJECT);
    quire_doc_close(doc);
    return is;
}

void part_put_malformed(struct buffer *text, const char *name, size_t n_name, const char *arguments, size_t n)
{
    json_out_raw(text, "{\"name\": ");
    json_out_string(text, name, n_name);
    json_out_raw(text, ", \"arguments\": ");
    buffer_append(text, arguments, n);
    json_out_raw(text, "}");
}

/* ---- errors --------------------------------------------------------------------------------- */

struct quire_value part_error_of(struct quire_value root)
{
    const struct quire_value error = part_member(root, "error");
    if (part_is(error, QUIRE_OBJECT) || part_has_text(error))
        return error;
    return quire_value_is(quire_value_member(root, "object"), "error") ? root : (struct quire_value){0};
}

bool part_fail(struct api_error *e, struct quire_value error)
{
    const struct quire_value code = part_member(error, "code");
    const struct quire_value message = part_is(error, QUIRE_STRING) ? error : part_member(error, "message");
    char *text = NULL;
    size_t n = 0;
    if (!part_has_text(message) || quire_value_text(message, &text, &n, NULL) != QUIRE_OK)
        text = NULL;
    api_fail(e, 502, NULL,
             quire_value_is(code, "context_length_exceeded") ? "context_length_exceeded" : "upstream_error",
             "the upstream server: %.400s", text ? text : "an error without a message");
    free(text);
    return false;
}
