/* The fields of a request that a reply of /v1/responses repeats. */
#include "server/front/body/generation_job.h"
#include "server/front/front_internal.h"
#include "server/front/responses/responses_read.h"

#include <stdio.h>

static bool check_metadata(const struct quire_doc *body, struct api_error *e)
{
    struct quire_value metadata = json_field_get(body, "metadata"), rest = metadata, value;
    if (metadata.n && !json_is(metadata, QUIRE_OBJECT))
        return api_bad(e, "metadata", "must be an object of strings");
    while (metadata.n && quire_value_next(&rest, NULL, &value))
        if (!json_is(value, QUIRE_STRING))
            return api_bad(e, "metadata", "must be an object of strings");
    return true;
}

/* Writes the request's value as written, or a default if it is absent. */
static void put_echo(struct buffer *o, const struct quire_doc *body, const char *key, const char *otherwise)
{
    struct quire_value value = json_field_get(body, key);
    json_out_raw(o, ",");
    json_out_text(o, key);
    json_out_raw(o, ":");
    if (value.n)
        buffer_append(o, value.text, value.n);
    else
        json_out_raw(o, otherwise);
}

static void put_state(struct buffer *o, const struct response_record *response)
{
    json_out_raw(o, "{\"background\":false,\"service_tier\":\"default\",\"previous_response_id\":");
    json_out_text_or_null(o, response->previous[0] ? response->previous : NULL);
    json_out_raw(o, response->is_stored ? ",\"store\":true" : ",\"store\":false");
}

/* The SDK's types need all of them. */
bool responses_echo(struct generation_job *g, const struct quire_doc *body)
{
    const struct sampling_defaults *d = g->job.served->config->sampling;
    const char *user = NULL;
    char temperature[32], top_p[32];
    const struct quire_value format = json_field_member(json_field_get(body, "text"), "format");
    struct buffer o = {0};
    if (!check_metadata(body, &g->job.error) || !json_field_string(body, "user", &user, &g->job.error))
        return false;
    /* 15 digits reproduce a decimal number as it was written. */
    snprintf(temperature, sizeof temperature, "%.15g", d->has_temperature ? d->temperature : 1);
    snprintf(top_p, sizeof top_p, "%.15g", d->has_top_p ? d->top_p : 1);
    put_state(&o, g->params->response);
    json_out_raw(&o, ",\"text\":{\"format\":");
    if (format.n)
        buffer_append(&o, format.text, format.n);
    else
        json_out_raw(&o, "{\"type\":\"text\"}");
    json_out_raw(&o, "}");
    put_echo(&o, body, "parallel_tool_calls", "true");
    put_echo(&o, body, "instructions", "null");
    put_echo(&o, body, "max_output_tokens", "null");
    put_echo(&o, body, "metadata", "{}");
    put_echo(&o, body, "temperature", temperature);
    put_echo(&o, body, "top_p", top_p);
    put_echo(&o, body, "top_logprobs", "0");
    put_echo(&o, body, "tools", "[]");
    put_echo(&o, body, "max_tool_calls", "null");
    put_echo(&o, body, "reasoning", "{\"effort\":null,\"summary\":null}");
    put_echo(&o, body, "tool_choice", "\"auto\"");
    put_echo(&o, body, "truncation", "\"disabled\"");
    put_echo(&o, body, "user", "null");
    json_out_raw(&o, "}");
    g->echo = buffer_text(&o) ? o.data : NULL;
    if (!g->echo)
        buffer_free(&o);
    return g->echo || api_no_memory(&g->job.error);
}
