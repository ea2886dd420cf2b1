#include "server/front/llama_cpp/llama_cpp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TEXT 256 /* bytes of a text in logit_bias */

struct list {
    struct request_bias *items;
    size_t n, capacity;
};

static bool add(struct list *l, uint32_t id, float bias, struct api_error *e)
{
    if (l->n == REQUEST_MAX_BIASES)
        return api_bad(e, "logit_bias", "more than %u tokens", REQUEST_MAX_BIASES);
    if (l->n == l->capacity) {
        const size_t capacity = l->capacity ? 2 * l->capacity : 16;
        struct request_bias *grown = realloc(l->items, capacity * sizeof *grown);
        if (!grown)
            return api_no_memory(e);
        l->items = grown;
        l->capacity = capacity;
    }
    l->items[l->n++] = (struct request_bias){id, bias};
    return true;
}

/* Every token of a text gets the bias. */
static bool add_text(struct list *l, struct quire_value string, float bias, const struct model_view *served,
                     struct api_error *e)
{
    char *text;
    size_t n, n_ids = 0;
    uint32_t *ids = NULL;
    if (!json_value_text(string, "logit_bias", &text, &n, e))
        return false;
    bool ok = n <= MAX_TEXT || api_bad(e, "logit_bias", "a text may have %d bytes, got %zu", MAX_TEXT, n);
    if (ok) {
        const int status = quire_text_encode(served->config->text, text, n, false, &ids, &n_ids, &e->why);
        ok = status == QUIRE_OK || api_fail_status(e, status, "logit_bias");
    }
    for (size_t i = 0; ok && i < n_ids; i++)
        ok = add(l, ids[i], bias, e);
    free(ids);
    free(text);
    return ok;
}

static bool read_bias(struct quire_value value, float *out, struct api_error *e)
{
    const double number = quire_value_double(value);
    if (json_is(value, QUIRE_BOOL) && value.text[0] == 'f') {
        *out = -INFINITY;
        return true;
    }
    if (!(number >= -100 && number <= 100))
        return api_bad(e, "logit_bias", "a bias must be false or a number between -100 and 100, got %.*s",
                       JSON_SHOWN(value));
    *out = (float)number;
    return true;
}

static bool read_pair(struct list *l, struct quire_value token, struct quire_value value,
                      const struct model_view *served, struct api_error *e)
{
    float bias = 0;
    uint64_t id;
    if (!read_bias(value, &bias, e))
        return false;
    if (json_is(token, QUIRE_STRING))
        return add_text(l, token, bias, served, e);
    if (served->facts->vocab_size == 0)
        return api_bad(e, "logit_bias", "the model has no tokens yet");
    return json_value_whole(token, "logit_bias", 0, served->facts->vocab_size - 1, &id, e) &&
           add(l, (uint32_t)id, bias, e);
}

/* An object's keys are ids or texts. */
static bool read_key(struct list *l, struct quire_value key, struct quire_value value, const struct model_view *served,
                     struct api_error *e)
{
    const struct quire_value digits = {key.text + 1, key.n - 2};
    bool is_id = digits.n > 0;
    for (size_t i = 0; i < digits.n; i++)
        is_id = is_id && digits.text[i] >= '0' && digits.text[i] <= '9';
    return read_pair(l, is_id ? digits : key, value, served, e);
}

static bool read_item(struct list *l, struct quire_value pair, const struct model_view *served, struct api_error *e)
{
    struct quire_value rest = pair, token, bias;
    if (!json_is(pair, QUIRE_ARRAY) || quire_value_count(pair) != 2)
        return api_bad(e, "logit_bias", "must be an array of [token, bias]");
    quire_value_next(&rest, NULL, &token);
    quire_value_next(&rest, NULL, &bias);
    return read_pair(l, token, bias, served, e);
}

static bool read_all(struct list *l, struct quire_value value, const struct model_view *served, struct api_error *e)
{
    const bool is_object = json_is(value, QUIRE_OBJECT);
    struct quire_value rest = value, key, item;
    if (!is_object && !json_is(value, QUIRE_ARRAY))
        return api_bad(e, "logit_bias", "must be an array of [token, bias], or an object");
    while (quire_value_next(&rest, &key, &item))
        if (!(is_object ? read_key(l, key, item, served, e) : read_item(l, item, served, e)))
            return false;
    return true;
}

static int by_id(const void *a, const void *b)
{
    const struct request_bias *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* The biases of a token add up, up to the limit of one. */
static void join(struct list *l)
{
    size_t n = 0;
    if (l->n > 0)
        qsort(l->items, l->n, sizeof *l->items, by_id);
    for (size_t i = 0; i < l->n; i++) {
        if (n == 0 || l->items[n - 1].id != l->items[i].id) {
            l->items[n++] = l->items[i];
            continue;
        }
        const float sum = l->items[n - 1].bias + l->items[i].bias;
        l->items[n - 1].bias = sum > 100 ? 100 : sum < -100 && isfinite(sum) ? -100 : sum;
    }
    l->n = n;
}

bool llama_cpp_read_bias(struct request_spec *spec, const struct quire_doc *body, const struct model_view *served,
                         struct api_error *e)
{
    struct quire_value value = json_field_get(body, "logit_bias");
    struct list l = {0};
    if (!value.n)
        return true;
    if (!read_all(&l, value, served, e)) {
        free(l.items);
        return false;
    }
    join(&l);
    spec->biases = l.items;
    spec->n_biases = (uint32_t)l.n;
    return true;
}
