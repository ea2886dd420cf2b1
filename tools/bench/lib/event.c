#include "tools/bench/lib/event.h"

#include "base/encoding/json.h"

#include <stdio.h>
#include <string.h>

/* "" and null both mean no text. */
static bool has_text(const json_t *object, const char *key)
{
    return json_string_length(json_object_get(object, key)) > 0;
}

static void read_choice(const json_t *choice, struct bench_event *out)
{
    const json_t *delta = json_object_get(choice, "delta"), *finish = json_object_get(choice, "finish_reason");
    bool text = has_text(choice, "text") || has_text(delta, "content") || has_text(delta, "reasoning_content") ||
                has_text(delta, "reasoning") || json_array_size(json_object_get(delta, "tool_calls")) > 0;
    out->has_choice = true;
    out->is_finish = finish && !json_is_null(finish);
    /* A token may have no text to show: half a character. */
    out->has_token = text || (!out->is_finish && !json_object_get(delta, "role"));
}

static uint32_t count_of(const json_t *usage, const char *key)
{
    json_int_t n = json_integer_value(json_object_get(usage, key));
    return n > 0 && n <= UINT32_MAX ? (uint32_t)n : 0;
}

/* {"error": {"message": ...}}, {"error": "..."}, {"message": ...}, {"detail": ...}: NULL if there is none. */
static const char *error_of(const json_t *object)
{
    const json_t *error = json_object_get(object, "error");
    const char *text = json_string_value(json_object_get(error, "message"));
    if (!text)
        text = json_string_value(error);
    if (!text && json_is_object(error))
        text = "an error without a message";
    return text;
}

/* Only printable ASCII: text cut in the middle of a character would not be valid JSON. */
static void show(const char *text, size_t n, char *out, size_t size)
{
    size_t k = 0;
    for (; k < n && k + 1 < size; k++) {
        unsigned char c = (unsigned char)text[k];
        out[k] = c < 0x20 || c == 0x7f ? ' ' : c > 0x7f ? '?' : (char)c;
    }
    out[k] = 0;
}

int bench_event_read(const char *data, size_t n, struct bench_event *out, struct quire_error *err)
{
    json_t *object;
    *out = (struct bench_event){0};
    if (n == 6 && memcmp(data, "[DONE]", 6) == 0) {
        out->is_end = true;
        return QUIRE_OK;
    }
    int status = quire_json_parse_python(data, n, "an event of the stream", &object, err); /* a token may be a NUL */
    if (status != QUIRE_OK)
        return status;
    const char *error = error_of(object);
    const json_t *usage = json_object_get(object, "usage"),
                 *choice = json_array_get(json_object_get(object, "choices"), 0);
    if (error) {
        char text[256];
        show(error, strlen(error), text, sizeof text);
        status = quire_fail(err, QUIRE_INVALID, "%s", text);
    } else {
        if (choice)
            read_choice(choice, out);
        out->has_usage = json_is_object(usage);
        out->n_prompt = count_of(usage, "prompt_tokens");
        out->n_output = count_of(usage, "completion_tokens");
    }
    json_decref(object);
    return status;
}

void bench_error_text(const char *body, size_t n, char *out, size_t size)
{
    json_t *object = NULL;
    const char *error = NULL;
    if (quire_json_parse(body, n, 32, "", &object, NULL) == QUIRE_OK) {
        error = error_of(object);
        if (!error)
            error = json_string_value(json_object_get(object, "message"));
        if (!error)
            error = json_string_value(json_object_get(object, "detail"));
    }
    if (error)
        show(error, strlen(error), out, size);
    else
        show(body, n, out, size);
    json_decref(object);
}
