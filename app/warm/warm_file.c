#include "app/warm/warm_file.h"

#include "app/warm/lines_file.h"

#include <stdlib.h>
#include <string.h>

#define MAX_VALUE 1e12

/* ---- one line ---- */

static int check_keys(json_t *object, const char *where, struct quire_error *err)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        size_t n = strspn(key, "abcdefghijklmnopqrstuvwxyz0123456789_");
        if (strcmp(key, "prompt") != 0 && strcmp(key, "messages") != 0 && strcmp(key, "value") != 0)
            return quire_fail(err, QUIRE_INVALID, "%s: \"%.*s\" is not \"prompt\", \"messages\" or \"value\"", where,
                              n < 40 ? (int)n : 40, key);
    }
    return QUIRE_OK;
}

static int take(json_t *object, size_t line, const char *where, void *item, struct quire_error *err)
{
    struct warm_prompt *out = item;
    *out = (struct warm_prompt){.line = line, .what = object, .value = 1};
    const json_t *prompt = json_object_get(object, "prompt"), *messages = json_object_get(object, "messages");
    int status = check_keys(object, where, err);
    if (status == QUIRE_OK)
        status = quire_json_f64(object, where, "value", 0, MAX_VALUE, &out->value, err);
    if (status != QUIRE_OK)
        return status;
    if (!prompt == !messages)
        return quire_fail(err, QUIRE_INVALID, "%s: must have one of \"prompt\" and \"messages\"", where);
    if (prompt && !json_is_string(prompt) && !json_is_array(prompt))
        return quire_fail(err, QUIRE_INVALID, "%s: prompt: must be a string or an array of token ids", where);
    if (messages && !json_is_array(messages))
        return quire_fail(err, QUIRE_INVALID, "%s: messages: must be an array", where);
    json_object_del(object, "value");
    return QUIRE_OK;
}

/* ---- the file ---- */

static const struct lines_kind kind = {.item_bytes = sizeof(struct warm_prompt),
                                       .max_items = (size_t)1 << 20,
                                       .max_depth = 64,
                                       .items = "prompts",
                                       .take = take};

int warm_file_parse(const char *text, size_t n_bytes, const char *name, struct warm_file *out, struct quire_error *err)
{
    struct lines_items all;
    int status = lines_file_parse(text, n_bytes, name, &kind, &all, err);
    *out = (struct warm_file){all.items, all.n};
    return status;
}

int warm_file_read(const char *path, struct warm_file *out, struct quire_error *err)
{
    struct lines_items all;
    int status = lines_file_read(path, &kind, &all, err);
    *out = (struct warm_file){all.items, all.n};
    return status;
}

static int compare(const void *a, const void *b)
{
    const struct warm_prompt *p = a, *q = b;
    double of_p = p->value * (double)p->n_tokens, of_q = q->value * (double)q->n_tokens;
    if (of_p != of_q)
        return of_p > of_q ? -1 : 1;
    return p->line < q->line ? -1 : p->line > q->line;
}

void warm_file_sort(struct warm_file *file)
{
    if (file->n > 0)
        qsort(file->prompts, file->n, sizeof *file->prompts, compare);
}

void warm_file_free(struct warm_file *file)
{
    for (size_t i = 0; i < file->n; i++)
        json_decref(file->prompts[i].what);
    free(file->prompts);
    *file = (struct warm_file){NULL, 0};
}
