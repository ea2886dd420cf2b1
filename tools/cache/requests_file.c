#include "tools/cache/requests_file.h"

#include "app/warm/lines_file.h"

#include <stdlib.h>
#include <string.h>

#define MAX_COUNT 1000000000
#define MAX_TOKENS 1000000000 /* upper bound of expected tokens */
#define BYTES_A_TOKEN 4       /* of text, approximately; used only for the order and the forecast */
#define USUAL_ANSWER 256      /* tokens, for a request without a limit */

static const char *const paths[] = {"/v1/chat/completions", "/v1/completions"};

/* ---- expected cost ---- */

static uint64_t bounded(uint64_t n)
{
    return n < MAX_TOKENS ? n : MAX_TOKENS;
}

static uint64_t tokens_of_text(size_t n_bytes)
{
    return bounded((n_bytes + BYTES_A_TOKEN - 1) / BYTES_A_TOKEN);
}

/* Of all strings in it at any depth, which parsing limits. */
static uint64_t tokens_of_value(const json_t *value)
{
    const char *key;
    const json_t *item;
    size_t i;
    uint64_t n = 0;
    if (json_is_string(value))
        return tokens_of_text(json_string_length(value));
    json_array_foreach(value, i, item) n = bounded(n + tokens_of_value(item));
    json_object_foreach((json_t *)value, key, item) n = bounded(n + tokens_of_value(item));
    return n;
}

/* A text, ids, or a list of either; *n_prompts receives the number of prompts. */
static uint64_t tokens_of_prompt(const json_t *prompt, uint64_t *n_prompts)
{
    const json_t *first = json_array_get(prompt, 0), *item;
    size_t i;
    uint64_t n = 0;
    *n_prompts = 1;
    if (json_is_string(prompt))
        return tokens_of_text(json_string_length(prompt));
    if (json_is_integer(first))
        return json_array_size(prompt);
    *n_prompts = json_array_size(prompt);
    json_array_foreach(prompt, i, item)
        n = bounded(n + (json_is_array(item) ? json_array_size(item) : tokens_of_value(item)));
    return n;
}

static uint64_t number(const json_t *body, const char *key, uint64_t otherwise)
{
    const json_t *value = json_object_get(body, key);
    json_int_t n = json_integer_value(value);
    return json_is_integer(value) && n >= 0 ? bounded((uint64_t)n) : otherwise;
}

static void expect(struct asked_request *r)
{
    const json_t *prompt = json_object_get(r->body, "prompt");
    uint64_t n_prompts = 1, n_choices = number(r->body, "n", 1);
    uint64_t most = number(r->body, "max_completion_tokens", number(r->body, "max_tokens", USUAL_ANSWER));
    r->n_prompt = prompt ? tokens_of_prompt(prompt, &n_prompts) : tokens_of_value(json_object_get(r->body, "messages"));
    r->n_generated = bounded(bounded(most * n_choices) * n_prompts);
}

/* ---- one request ---- */

/* Removes fields that may differ between requests with the same answer. */
static void drop_form(json_t *body)
{
    static const char *const names[] = {"stream",   "stream_options", "stream_interval", "user",       "request_id",
                                        "metadata", "background",     "priority",        "quire_trace"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        json_object_del(body, names[i]);
}

static int check_path(const char **path, const json_t *body, const char *where, struct quire_error *err)
{
    const json_t *messages = json_object_get(body, "messages"), *prompt = json_object_get(body, "prompt");
    if (!messages == !prompt)
        return quire_fail(err, QUIRE_INVALID, "%s: must have one of \"messages\" and \"prompt\"", where);
    if (messages && !json_is_array(messages))
        return quire_fail(err, QUIRE_INVALID, "%s: messages: must be an array", where);
    if (prompt && !json_is_string(prompt) && !json_is_array(prompt))
        return quire_fail(err, QUIRE_INVALID, "%s: prompt: must be a string or an array", where);
    const char *owed = paths[prompt != NULL];
    if (*path && strcmp(*path, owed) != 0)
        return quire_fail(err, QUIRE_INVALID, "%s: path: must be \"%s\" for a body with \"%s\"", where, owed,
                          prompt ? "prompt" : "messages");
    *path = owed;
    return QUIRE_OK;
}

int requests_take(struct asked_request *out, const char *path, json_t *body, const char *where, struct quire_error *err)
{
    out->body = body;
    out->count = 1;
    int status = check_path(&path, body, where, err);
    if (status != QUIRE_OK)
        return status;
    drop_form(body);
    out->path = path;
    out->text = json_dumps(body, JSON_COMPACT | JSON_SORT_KEYS);
    if (!out->text)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    expect(out);
    return QUIRE_OK;
}

/* ---- a line ---- */

static int check_keys(json_t *object, const char *where, struct quire_error *err)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        size_t n = strspn(key, "abcdefghijklmnopqrstuvwxyz0123456789_");
        if (strcmp(key, "path") != 0 && strcmp(key, "body") != 0 && strcmp(key, "count") != 0)
            return quire_fail(err, QUIRE_INVALID, "%s: \"%.*s\" is not \"path\", \"body\" or \"count\"", where,
                              n < 40 ? (int)n : 40, key);
    }
    return QUIRE_OK;
}

/* {"path", "body", "count"} */
static int take_wrapped(json_t *object, const char *where, struct asked_request *out, struct quire_error *err)
{
    const char *path = NULL;
    json_t *body = NULL;
    int64_t count = 1;
    int status = check_keys(object, where, err);
    if (status == QUIRE_OK)
        status = quire_json_string(object, where, "path", &path, err);
    if (status == QUIRE_OK)
        status = quire_json_i64(object, where, "count", 1, MAX_COUNT, &count, err);
    if (status == QUIRE_OK)
        status = quire_json_object(object, where, "body", &body, err);
    if (status == QUIRE_OK && !body)
        status = quire_fail(err, QUIRE_INVALID, "%s: body: must be an object", where);
    if (status == QUIRE_OK)
        status = requests_take(out, path, json_incref(body), where, err);
    out->count = (uint64_t)count;
    return status;
}

static int take(json_t *object, size_t line, const char *where, void *item, struct quire_error *err)
{
    struct asked_request *out = item;
    out->order = line;
    if (!json_object_get(object, "body"))
        return requests_take(out, NULL, object, where, err);
    int status = take_wrapped(object, where, out, err);
    json_decref(object);
    return status;
}

/* ---- the file ---- */

static const struct lines_kind kind = {.item_bytes = sizeof(struct asked_request),
                                       .max_items = REQUESTS_MAX,
                                       .max_depth = 64,
                                       .items = "requests",
                                       .take = take};

int requests_parse(const char *text, size_t n_bytes, const char *name, struct asked_requests *out,
                   struct quire_error *err)
{
    struct lines_items all;
    int status = lines_file_parse(text, n_bytes, name, &kind, &all, err);
    *out = (struct asked_requests){all.items, all.n};
    return status;
}

int requests_read(const char *path, struct asked_requests *out, struct quire_error *err)
{
    struct lines_items all;
    int status = lines_file_read(path, &kind, &all, err);
    *out = (struct asked_requests){all.items, all.n};
    return status;
}

static int compare_texts(const void *a, const void *b)
{
    const struct asked_request *p = a, *q = b;
    int order = p->path == q->path ? strcmp(p->text, q->text) : strcmp(p->path, q->path);
    if (order != 0)
        return order;
    return p->order < q->order ? -1 : p->order > q->order;
}

static int compare_values(const void *a, const void *b)
{
    const struct asked_request *p = a, *q = b;
    double of_p = (double)p->count * (double)request_cost(p), of_q = (double)q->count * (double)request_cost(q);
    if (of_p != of_q)
        return of_p > of_q ? -1 : 1;
    return p->order < q->order ? -1 : p->order > q->order;
}

static void drop(struct asked_request *r)
{
    json_decref(r->body);
    free(r->text);
}

void requests_settle(struct asked_requests *all)
{
    size_t n = 0;
    if (all->n == 0)
        return;
    qsort(all->items, all->n, sizeof *all->items, compare_texts);
    for (size_t i = 0; i < all->n; i++) {
        struct asked_request *r = &all->items[i], *last = n > 0 ? &all->items[n - 1] : NULL;
        if (last && last->path == r->path && strcmp(last->text, r->text) == 0) {
            last->count += r->count;
            drop(r);
        } else {
            all->items[n++] = *r;
        }
    }
    all->n = n;
    for (size_t i = 0; i < n; i++) {
        free(all->items[i].text);
        all->items[i].text = NULL;
    }
    qsort(all->items, n, sizeof *all->items, compare_values);
}

void requests_free(struct asked_requests *all)
{
    for (size_t i = 0; i < all->n; i++)
        drop(&all->items[i]);
    free(all->items);
    *all = (struct asked_requests){NULL, 0};
}
