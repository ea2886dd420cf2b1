#include "tools/cache/warm_file.h"

#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES ((size_t)1 << 30)
#define MAX_PROMPTS ((size_t)1 << 20)
#define MAX_DEPTH 64
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

/* object: consumed. */
static int take_object(json_t *object, size_t line, const char *where, struct warm_prompt *out, struct quire_error *err)
{
    *out = (struct warm_prompt){.line = line, .what = object, .value = 1};
    if (!json_is_object(object))
        return quire_fail(err, QUIRE_INVALID, "%s: must be an object", where);
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

static int take_line(const char *text, size_t n, size_t line, const char *name, struct warm_file *file,
                     struct quire_error *err)
{
    char where[160];
    json_t *object;
    snprintf(where, sizeof where, "%.100s: line %zu", name, line);
    if (file->n == MAX_PROMPTS)
        return quire_fail(err, QUIRE_INVALID, "%s: more than %zu prompts", where, MAX_PROMPTS);
    if ((file->n & (file->n - 1)) == 0) { /* full at each power of two */
        struct warm_prompt *more = realloc(file->prompts, (file->n ? 2 * file->n : 1) * sizeof *more);
        if (!more)
            return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
        file->prompts = more;
    }
    int status = quire_json_parse(text, n, MAX_DEPTH, where, &object, err);
    if (status != QUIRE_OK)
        return status;
    return take_object(object, line, where, &file->prompts[file->n++], err);
}

/* ---- the file ---- */

int warm_file_parse(const char *text, size_t n_bytes, const char *name, struct warm_file *out, struct quire_error *err)
{
    *out = (struct warm_file){NULL, 0};
    size_t line = 1;
    for (size_t at = 0; at < n_bytes; line++) {
        const char *begin = text + at, *end = memchr(begin, '\n', n_bytes - at);
        size_t n = end ? (size_t)(end - begin) : n_bytes - at;
        at += n + (end != NULL);
        size_t blank = 0;
        while (blank < n && memchr(" \t\r", begin[blank], 3))
            blank++;
        int status = blank < n ? take_line(begin, n, line, name, out, err) : QUIRE_OK;
        if (status != QUIRE_OK)
            return status;
    }
    return out->n > 0 ? QUIRE_OK : quire_fail(err, QUIRE_INVALID, "%.100s: has no prompts", name);
}

int warm_file_read(const char *path, struct warm_file *out, struct quire_error *err)
{
    struct buffer text = {0};
    *out = (struct warm_file){NULL, 0};
    FILE *f = fopen(path, "rb");
    if (!f)
        return quire_fail(err, QUIRE_NOT_FOUND, "%s: cannot be opened: %m", path);
    int status = buffer_read(&text, f, MAX_BYTES, path, err);
    fclose(f);
    if (status == QUIRE_OK)
        status = warm_file_parse(text.data, text.n, path, out, err);
    buffer_free(&text);
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
