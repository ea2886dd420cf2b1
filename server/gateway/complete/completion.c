#include "server/gateway/complete/completion.h"

#include "server/gateway/upstream_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool fail(struct api_error *e, const char *why)
{
    return api_fail(e, 502, NULL, "upstream_error", "%s", why);
}

static void read_count(struct quire_value object, const char *key, uint64_t *out)
{
    bool is_negative;
    uint64_t n;
    if (quire_value_integer(quire_value_member(object, key), &is_negative, &n) == QUIRE_INTEGER && !is_negative)
        *out = n;
}

/* Dollars with at most 12 decimals → picodollars; 0 for another form. */
static uint64_t picodollars_of(const char *text)
{
    uint64_t value = 0;
    int decimals = -1;
    for (; *text; text++) {
        if (*text == '.' && decimals < 0)
            decimals = 0;
        else if (*text < '0' || *text > '9' || decimals == 12 || value > UINT64_MAX / 10 - 1)
            return 0;
        else
            value = value * 10 + (uint64_t)(*text - '0'), decimals += decimals >= 0;
    }
    for (int i = decimals < 0 ? 0 : decimals; i < 12; i++) {
        if (value > UINT64_MAX / 10)
            return 0;
        value *= 10;
    }
    return value;
}

static void read_cost(struct quire_value cost, struct completion *out)
{
    if (quire_value_kind(cost) != QUIRE_NUMBER || cost.n >= sizeof out->cost)
        return;
    memcpy(out->cost, cost.text, cost.n);
    out->cost[cost.n] = 0;
    out->picodollars = picodollars_of(out->cost);
}

/* choices[0] of a reply; n is 0 without one. */
static struct quire_value first_choice(struct quire_value root)
{
    struct quire_value choices = quire_value_member(root, "choices"), choice = {0};
    return quire_value_kind(choices) == QUIRE_ARRAY && quire_value_next(&choices, NULL, &choice)
               ? choice
               : (struct quire_value){0};
}

static bool take_text(struct quire_value value, char **out, size_t *n, struct api_error *e)
{
    if (quire_value_kind(value) != QUIRE_STRING)
        return true;
    return quire_value_text(value, out, n, NULL) == QUIRE_OK || api_no_memory(e);
}

bool completion_read(struct completion *out, const char *text, size_t n, struct api_error *e)
{
    struct upstream_json j;
    *out = (struct completion){0};
    if (upstream_json_open(text, n, "reply", &j, NULL) != QUIRE_OK)
        return fail(e, "the model's reply is not JSON");
    const struct quire_value root = quire_doc_root(j.doc), message = quire_value_member(first_choice(root), "message");
    const struct quire_value usage = quire_value_member(root, "usage");
    bool ok = quire_value_kind(message) == QUIRE_OBJECT || fail(e, "the model's reply has no choices[0].message");
    ok = ok && take_text(quire_value_member(message, "content"), &out->content, &out->n_content, e);
    read_count(usage, "prompt_tokens", &out->input);
    read_count(usage, "completion_tokens", &out->output);
    read_cost(quire_value_member(usage, "cost"), out);
    upstream_json_close(&j);
    return ok;
}

void completion_free(struct completion *c)
{
    free(c->content);
    *c = (struct completion){0};
}

void completion_put(struct buffer *o, const struct completion_reply *r)
{
    char latency[40];
    snprintf(latency, sizeof latency, "%llu.%03llu", (unsigned long long)(r->latency_us / 1000),
             (unsigned long long)(r->latency_us % 1000));
    json_out_raw(o, "{\"content\":");
    json_out_string(o, r->content ? r->content : "", r->n_content);
    json_out_raw(o, ",\"model_used\":");
    json_out_text(o, r->model ? r->model : "cache");
    json_out_raw(o, r->model ? ",\"cached\":false,\"latency_ms\":" : ",\"cached\":true,\"latency_ms\":");
    json_out_raw(o, latency);
    json_out_raw(o, ",\"tokens\":{\"input\":");
    json_out_u64(o, r->model ? r->input : 0);
    json_out_raw(o, ",\"output\":");
    json_out_u64(o, r->model ? r->output : 0);
    json_out_raw(o, "},\"cost\":");
    json_out_raw(o, r->model && r->cost[0] ? r->cost : "0");
    json_out_raw(o, "}");
}

void completion_model(const char *route, char out[COMPLETION_MODEL_BYTES])
{
    const char *end = route ? strstr(route, "; target=") : NULL;
    out[0] = 0;
    if (end && strncmp(route, "model=", 6) == 0)
        snprintf(out, COMPLETION_MODEL_BYTES, "%.*s", (int)(end - route - 6), route + 6);
}

static bool read_error(struct quire_value error, struct api_error *e)
{
    char *text = NULL;
    size_t n;
    if (!take_text(quire_value_member(error, "message"), &text, &n, e))
        return false;
    api_fail(e, 502, NULL, "upstream_error", "%.500s", text ? text : "the model's answer failed");
    free(text);
    return false;
}

bool completion_piece(const char *data, size_t n, char **out, size_t *n_out, struct api_error *e)
{
    struct upstream_json j;
    *out = NULL;
    *n_out = 0;
    if (upstream_json_open(data, n, "event", &j, NULL) != QUIRE_OK)
        return fail(e, "the model's stream has an event that is not JSON");
    const struct quire_value root = quire_doc_root(j.doc), error = quire_value_member(root, "error");
    const struct quire_value delta = quire_value_member(first_choice(root), "delta");
    const bool ok = quire_value_kind(error) == QUIRE_OBJECT
                        ? read_error(error, e)
                        : take_text(quire_value_member(delta, "content"), out, n_out, e);
    upstream_json_close(&j);
    return ok;
}
