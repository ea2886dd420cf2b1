#include "app/gateway/ab_data.h"

#include "base/encoding/json.h"

#include <stdlib.h>
#include <string.h>

#define WHERE "the gateway's reply"

void ab_list_free(struct ab_list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        struct ab_experiment *e = &l->items[i];
        free(e->name);
        json_decref(e->warnings);
        for (size_t k = 0; k < GATEWAY_MAX_ARMS; k++)
            free(e->models[k]);
        trial_release(e->trial);
    }
    free(l);
}

/* ---- a reply -------------------------------------------------------------------------------- */

static int no_memory(struct quire_error *err)
{
    return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
}

static int copy_text(const json_t *object, const char *key, char **out, struct quire_error *err)
{
    const char *text = NULL;
    const int status = quire_json_string(object, WHERE, key, &text, err);
    if (status != QUIRE_OK)
        return status;
    if (!text)
        return quire_fail(err, QUIRE_INVALID, WHERE ": %s: is missing", key);
    *out = strdup(text);
    return *out ? QUIRE_OK : no_memory(err);
}

static int read_u64(const json_t *object, const char *key, uint64_t *out, struct quire_error *err)
{
    int64_t n = 0;
    const int status = quire_json_i64(object, WHERE, key, 0, INT64_MAX, &n, err);
    *out = (uint64_t)n;
    return status;
}

static int read_squares(const json_t *object, trial_u128 *out, struct quire_error *err)
{
    const char *text = "";
    trial_u128 n = 0;
    const int status = quire_json_string(object, WHERE, "sum_squares", &text, err);
    if (status != QUIRE_OK)
        return status;
    const size_t length = strlen(text);
    if (length == 0 || length >= TRIAL_SQUARES_BYTES || strspn(text, "0123456789") != length)
        return quire_fail(err, QUIRE_INVALID, WHERE ": sum_squares: must be decimal digits");
    for (size_t i = 0; i < length; i++)
        n = n * 10 + (trial_u128)(text[i] - '0');
    *out = n;
    return QUIRE_OK;
}

static int read_buckets(const json_t *metric, const char *key, bool is_sum, struct trial_sums *out,
                        struct quire_error *err)
{
    const json_t *list = json_object_get(metric, key);
    if (json_array_size(list) != ASSIGN_BUCKETS)
        return quire_fail(err, QUIRE_INVALID, WHERE ": %s: must have %d numbers", key, ASSIGN_BUCKETS);
    for (size_t i = 0; i < ASSIGN_BUCKETS; i++) {
        const json_t *value = json_array_get(list, i);
        if (!json_is_integer(value) || json_integer_value(value) < 0)
            return quire_fail(err, QUIRE_INVALID, WHERE ": %s: must have whole numbers", key);
        *(is_sum ? &out->buckets[i].sum : &out->buckets[i].n) = (uint64_t)json_integer_value(value);
    }
    return QUIRE_OK;
}

/* The comparison divides by what is left without a bucket. */
static int check_buckets(const char *name, const struct trial_sums *s, struct quire_error *err)
{
    uint64_t n = 0;
    for (size_t i = 0; i < ASSIGN_BUCKETS; i++) {
        if (s->buckets[i].n > s->all.n - n)
            return quire_fail(err, QUIRE_INVALID, WHERE ": %s: bucket_n: is more than n", name);
        n += s->buckets[i].n;
    }
    return QUIRE_OK;
}

static int read_metric(const json_t *metrics, enum gateway_metric which, struct trial_sums *out,
                       struct quire_error *err)
{
    const json_t *metric = json_object_get(metrics, gateway_metrics[which].name);
    int status;
    if (!json_is_object(metric)) /* an older gateway does not measure it */
        return QUIRE_OK;
    if ((status = read_u64(metric, "n", &out->all.n, err)) || (status = read_u64(metric, "sum", &out->all.sum, err)) ||
        (status = read_squares(metric, &out->squares, err)) ||
        (status = read_buckets(metric, "bucket_n", false, out, err)) ||
        (status = read_buckets(metric, "bucket_sum", true, out, err)))
        return status;
    return check_buckets(gateway_metrics[which].name, out, err);
}

static int read_arm(const json_t *arm, struct ab_experiment *e, size_t i, struct quire_error *err)
{
    struct trial_arm *out = &e->trial->arms[i];
    int status;
    if (!json_is_object(arm))
        return quire_fail(err, QUIRE_INVALID, WHERE ": arms: must have objects");
    if ((status = copy_text(arm, "arm", &out->name, err)) || (status = copy_text(arm, "model", &e->models[i], err)) ||
        (status = quire_json_u32(arm, WHERE, "weight", 1, UINT32_MAX, &e->weights[i], err)) ||
        (status = read_u64(arm, "requests", &out->n_requests, err)))
        return status;
    for (int k = 0; k < GATEWAY_N_METRICS && status == QUIRE_OK; k++)
        status = read_metric(json_object_get(arm, "metrics"), (enum gateway_metric)k, &out->metrics[k], err);
    return status;
}

static int read_head(const json_t *json, struct ab_experiment *e, struct quire_error *err)
{
    const char *by = "user", *metric = NULL, *run = "";
    int64_t since = 0;
    int status;
    if ((status = copy_text(json, "experiment", &e->name, err)) ||
        (status = quire_json_string(json, WHERE, "by", &by, err)) ||
        (status = quire_json_string(json, WHERE, "metric", &metric, err)) ||
        (status = quire_json_string(json, WHERE, "run", &run, err)) ||
        (status = quire_json_i64(json, WHERE, "since", 0, INT64_MAX, &since, err)))
        return status;
    e->by_request = strcmp(by, "request") == 0;
    for (int i = 0; i < GATEWAY_N_METRICS && metric; i++)
        if (strcmp(metric, gateway_metrics[i].name) == 0) {
            e->has_metric = true;
            e->metric = (enum gateway_metric)i;
        }
    e->trial->since_s = since;
    snprintf(e->trial->run, sizeof e->trial->run, "%s", run);
    return QUIRE_OK;
}

static int read_experiment(const json_t *json, struct ab_experiment *e, struct quire_error *err)
{
    const json_t *arms = json_object_get(json, "arms"), *warnings = json_object_get(json, "warnings"), *text;
    const size_t n = json_array_size(arms);
    size_t i;
    if (n < 2 || n > GATEWAY_MAX_ARMS)
        return quire_fail(err, QUIRE_INVALID, WHERE ": arms: must have 2 to %d entries", GATEWAY_MAX_ARMS);
    e->trial = trial_of_arms((uint32_t)n);
    e->warnings = json_array();
    if (!e->trial || !e->warnings)
        return no_memory(err);
    json_array_foreach(warnings, i, text) if (json_is_string(text))
        json_array_append_new(e->warnings, json_string(json_string_value(text)));
    int status = read_head(json, e, err);
    for (i = 0; i < n && status == QUIRE_OK; i++)
        status = read_arm(json_array_get(arms, i), e, i, err);
    return status;
}

int ab_read_reply(const json_t *reply, struct ab_list *out, struct quire_error *err)
{
    const json_t *list = json_object_get(reply, "data"), *json;
    size_t i;
    int status = QUIRE_OK;
    if (!json_is_array(list) || json_array_size(list) > GATEWAY_MAX_MODELS)
        return quire_fail(err, QUIRE_INVALID, WHERE ": data: must be a list of experiments");
    json_array_foreach(list, i, json)
    {
        out->n++;
        status = read_experiment(json, &out->items[i], err);
        if (status != QUIRE_OK)
            break;
    }
    return status;
}
