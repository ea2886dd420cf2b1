/* Ollama's options, as fields of a chat. */
#include "server/front/ollama/ollama_read.h"

#include "server/front/output/json_out.h"

#include <stdio.h>
#include <string.h>

void ollama_put_field(struct buffer *o, const char *name, struct quire_value value)
{
    if (!value.n || json_is(value, QUIRE_NULL))
        return;
    json_out_raw(o, ",");
    json_out_text(o, name);
    json_out_raw(o, ":");
    buffer_append(o, value.text, value.n);
}

/* Options of both APIs. Options that only concern the machine or the context's memory are not read: num_ctx, num_keep,
 * num_batch, num_gpu, num_thread, use_mmap and others. repeat_last_n is not read either: penalties count all tokens. */
static const struct {
    const char *option, *field;
} same[] = {
    {"temperature", "temperature"},
    {"top_k", "top_k"},
    {"top_p", "top_p"},
    {"min_p", "min_p"},
    {"repeat_penalty", "repetition_penalty"},
    {"presence_penalty", "presence_penalty"},
    {"frequency_penalty", "frequency_penalty"},
    {"stop", "stop"},
};

/* Options that change the answer and are not built. Their neutral values are taken. */
static const struct {
    const char *option;
    double neutral;
} absent[] = {{"typical_p", 1}, {"tfs_z", 1}, {"mirostat", 0}};

static bool check_absent(struct quire_value options, struct api_error *e)
{
    char path[40];
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) {
        const struct quire_value value = json_field_member(options, absent[i].option);
        if (!value.n || quire_value_double(value) == absent[i].neutral)
            continue;
        snprintf(path, sizeof path, "options.%s", absent[i].option);
        return api_unsupported(e, path, "is not supported; only %g, which switches it off, is taken",
                               absent[i].neutral);
    }
    return true;
}

/* 0 and less mean up to the end of the context, as does an absent value. */
static bool put_length(struct buffer *o, struct quire_value options, struct api_error *e)
{
    const struct quire_value value = json_field_member(options, "num_predict");
    uint64_t n = 0;
    if (!value.n)
        return true;
    if (!json_value_whole(value, "options.num_predict", INT32_MIN, INT32_MAX, &n, e))
        return false;
    if ((int64_t)n > 0)
        ollama_put_field(o, "max_tokens", value);
    return true;
}

/* Below 0 the seed is random, as without one. */
static bool put_seed(struct buffer *o, struct quire_value options, struct api_error *e)
{
    const struct quire_value value = json_field_member(options, "seed");
    uint64_t seed = 0;
    if (!value.n)
        return true;
    if (!json_value_whole(value, "options.seed", INT64_MIN, INT64_MAX, &seed, e))
        return false;
    if ((int64_t)seed >= 0)
        ollama_put_field(o, "seed", value);
    return true;
}

bool ollama_put_options(struct buffer *o, struct quire_value options, struct api_error *e)
{
    if (options.n && !json_is(options, QUIRE_OBJECT))
        return api_bad(e, "options", "must be an object");
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        ollama_put_field(o, same[i].field, json_field_member(options, same[i].option));
    return check_absent(options, e) && put_length(o, options, e) && put_seed(o, options, e);
}

/* An error's text begins with its field. */
static void rename_field(struct api_error *e, const char *path, const char *name)
{
    char text[sizeof e->why.text];
    const size_t n = strlen(e->param);
    if (strncmp(e->why.text, e->param, n) == 0) {
        snprintf(text, sizeof text, "%s%s%s", path, name, e->why.text + n);
        memcpy(e->why.text, text, sizeof text);
    }
    snprintf(e->param, sizeof e->param, "%s%s", path, name);
}

void ollama_name_error(struct api_error *e)
{
    if (strncmp(e->param, "response_format", strlen("response_format")) == 0)
        rename_field(e, "", "format");
    size_t i = 0;
    while (i < sizeof same / sizeof *same && strcmp(e->param, same[i].field) != 0)
        i++;
    if (i < sizeof same / sizeof *same)
        rename_field(e, "options.", same[i].option);
}

bool ollama_put_format(struct buffer *o, struct quire_value format, struct api_error *e)
{
    if (!format.n || quire_value_is(format, ""))
        return true;
    if (quire_value_is(format, "json")) {
        json_out_raw(o, ",\"response_format\":{\"type\":\"json_object\"}");
        return true;
    }
    if (!json_is(format, QUIRE_OBJECT))
        return api_bad(e, "format", "must be \"json\" or a JSON schema");
    json_out_raw(o, ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"format\",\"schema\":");
    buffer_append(o, format.text, format.n);
    json_out_raw(o, "}}");
    return true;
}

/* Templates have two names for the same variable. */
bool ollama_put_think(struct buffer *o, struct quire_value think, struct api_error *e)
{
    static const char *const efforts[] = {"low", "medium", "high"};
    const bool is_off = think.n > 0 && think.text[0] == 'f';
    bool is_effort = false;
    for (size_t i = 0; i < sizeof efforts / sizeof *efforts; i++)
        is_effort |= quire_value_is(think, efforts[i]);
    if (!think.n)
        return true;
    if (!is_effort && !json_is(think, QUIRE_BOOL))
        return api_bad(e, "think", "must be true, false, \"low\", \"medium\" or \"high\"");
    json_out_raw(o, ",\"chat_template_kwargs\":");
    json_out_raw(o, is_off ? "{\"enable_thinking\":false,\"thinking\":false}"
                           : "{\"enable_thinking\":true,\"thinking\":true}");
    if (is_effort)
        ollama_put_field(o, "reasoning_effort", think);
    return true;
}
