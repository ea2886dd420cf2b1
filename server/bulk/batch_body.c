#include "server/bulk/batch_body.h"

#include "base/encoding/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_BODY 65536
#define MAX_PAIRS 16
#define MAX_PAIR_KEY 64
#define MAX_PAIR_VALUE 512
#define DAY_S 86400u
#define MAX_WINDOW_S (30 * DAY_S)
#define MIN_TTL_S 3600

static bool read_input(const json_t *o, struct bulk_batch *b, struct api_error *e)
{
    const json_t *id = json_object_get(o, "input_file_id");
    if (!json_is_string(id))
        return api_bad(e, "input_file_id", "is required: the id of a file with the purpose \"batch\"");
    if (!bulk_is_id(json_string_value(id), BULK_FILE_ID))
        return api_bad(e, "input_file_id", "no file has this id: unknown, expired or deleted");
    snprintf(b->input, sizeof b->input, "%s", json_string_value(id));
    return true;
}

static bool read_endpoint(const json_t *o, struct bulk_batch *b, struct api_error *e)
{
    const char *url = json_string_value(json_object_get(o, "endpoint"));
    for (size_t i = 0; url && bulk_endpoint(i); i++)
        if (strcmp(url, bulk_endpoint(i)) == 0) {
            snprintf(b->url, sizeof b->url, "%s", url);
            return true;
        }
    return api_bad(e, "endpoint", "must be /v1/chat/completions, /v1/completions, /v1/embeddings or /v1/responses");
}

/* "24h", "30m", "7d", "90s" */
static bool read_window(const json_t *o, struct bulk_batch *b, struct api_error *e)
{
    static const char units[] = "smhd";
    static const uint32_t seconds[] = {1, 60, 3600, DAY_S};
    const json_t *window = json_object_get(o, "completion_window");
    const char *text = json_string_value(window);
    b->window_s = DAY_S;
    if (!window || json_is_null(window))
        return true;
    char *end = NULL;
    const unsigned long n = text && text[0] >= '0' && text[0] <= '9' ? strtoul(text, &end, 10) : 0;
    const char *unit = end && *end ? strchr(units, *end) : NULL;
    if (!unit || end[1] || n == 0 || n > MAX_WINDOW_S || n * seconds[unit - units] > MAX_WINDOW_S)
        return api_bad(e, "completion_window", "must be a time such as \"24h\", \"30m\" or \"7d\", at most 30 days");
    b->window_s = (uint32_t)(n * seconds[unit - units]);
    return true;
}

static bool read_metadata(const json_t *o, struct bulk_batch *b, struct api_error *e)
{
    const json_t *metadata = json_object_get(o, "metadata");
    const char *key;
    json_t *value;
    if (!metadata || json_is_null(metadata))
        return true;
    if (!json_is_object(metadata) || json_object_size(metadata) > MAX_PAIRS)
        return api_bad(e, "metadata", "must be an object of at most %d pairs", MAX_PAIRS);
    json_object_foreach((json_t *)metadata, key, value)
    {
        if (!json_is_string(value) || strlen(key) > MAX_PAIR_KEY || json_string_length(value) > MAX_PAIR_VALUE)
            return api_bad(e, "metadata", "values must be strings of at most %d bytes, with keys of at most %d",
                           MAX_PAIR_VALUE, MAX_PAIR_KEY);
    }
    b->metadata = json_dumps(metadata, JSON_COMPACT);
    return b->metadata || api_no_memory(e);
}

static bool read_output_expiry(const json_t *o, struct bulk_batch *b, struct api_error *e)
{
    const json_t *after = json_object_get(o, "output_expires_after");
    if (!after || json_is_null(after))
        return true;
    const char *anchor = json_string_value(json_object_get(after, "anchor"));
    const json_t *seconds = json_object_get(after, "seconds");
    if (!anchor || strcmp(anchor, "created_at") != 0 || !json_is_integer(seconds) ||
        json_integer_value(seconds) < MIN_TTL_S || json_integer_value(seconds) > MAX_WINDOW_S)
        return api_bad(e, "output_expires_after",
                       "must be {\"anchor\": \"created_at\", \"seconds\": N} with N from %d to %u", MIN_TTL_S,
                       MAX_WINDOW_S);
    b->output_ttl_s = (uint32_t)json_integer_value(seconds);
    return true;
}

bool batch_body_read(const char *body, size_t n, struct bulk_batch *out, struct api_error *e)
{
    struct quire_error err;
    json_t *o = NULL;
    *out = (struct bulk_batch){.dialect = BULK_OPENAI};
    if (n > MAX_BODY)
        return api_fail(e, 413, NULL, "request_too_large", "the body has more than %d bytes", MAX_BODY);
    if (quire_json_parse(body ? body : "", n, 8, "the body", &o, &err) != QUIRE_OK)
        return api_fail(e, 400, NULL, "invalid_json", "%s", err.text);
    const bool good = json_is_object(o) ? read_input(o, out, e) && read_endpoint(o, out, e) && read_window(o, out, e) &&
                                              read_metadata(o, out, e) && read_output_expiry(o, out, e)
                                        : api_fail(e, 400, NULL, "invalid_json", "the body must be a JSON object");
    json_decref(o);
    out->at[BULK_VALIDATING] = (int64_t)time(NULL);
    return good;
}
