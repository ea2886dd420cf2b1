#include "tools/cache/pairs_file.h"

#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES ((size_t)1 << 30)
#define MAX_PAIRS ((size_t)1 << 20)
#define MAX_TEXT_BYTES ((size_t)64 << 10) /* what guards take */
#define MAX_DEPTH 16

/* object: consumed, as the pair's. */
static int take_object(json_t *object, size_t line, const char *where, struct pair *out, struct quire_error *err)
{
    static const char *const names[2] = {"a", "b"};
    *out = (struct pair){.line = line, .object = object};
    if (!json_is_object(object))
        return quire_fail(err, QUIRE_INVALID, "%s: must be an object", where);
    for (int i = 0; i < 2; i++) {
        int status = quire_json_string(object, where, names[i], &out->text[i], err);
        if (status != QUIRE_OK)
            return status;
        size_t n = out->text[i] ? strlen(out->text[i]) : 0;
        if (n == 0 || n > MAX_TEXT_BYTES)
            return quire_fail(err, QUIRE_INVALID, "%s: %s: must be a text of 1 to %zu bytes", where, names[i],
                              MAX_TEXT_BYTES);
    }
    const json_t *same = json_object_get(object, "same");
    if (!json_is_boolean(same))
        return quire_fail(err, QUIRE_INVALID, "%s: same: must be true or false", where);
    out->same = json_is_true(same);
    return QUIRE_OK;
}

static int take_line(const char *text, size_t n, size_t line, const char *name, struct pairs_file *file,
                     struct quire_error *err)
{
    char where[160];
    json_t *object;
    snprintf(where, sizeof where, "%.100s: line %zu", name, line);
    if (file->n == MAX_PAIRS)
        return quire_fail(err, QUIRE_INVALID, "%s: more than %zu pairs", where, MAX_PAIRS);
    if ((file->n & (file->n - 1)) == 0) { /* full at each power of two */
        struct pair *more = realloc(file->pairs, (file->n ? 2 * file->n : 1) * sizeof *more);
        if (!more)
            return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
        file->pairs = more;
    }
    int status = quire_json_parse(text, n, MAX_DEPTH, where, &object, err);
    if (status != QUIRE_OK)
        return status;
    return take_object(object, line, where, &file->pairs[file->n++], err);
}

int pairs_file_parse(const char *text, size_t n_bytes, const char *name, struct pairs_file *out,
                     struct quire_error *err)
{
    *out = (struct pairs_file){NULL, 0};
    size_t line = 1;
    for (size_t at = 0; at < n_bytes; line++) {
        const char *begin = text + at, *end = memchr(begin, '\n', n_bytes - at);
        size_t n = end ? (size_t)(end - begin) : n_bytes - at, blank = 0;
        at += n + (end != NULL);
        while (blank < n && memchr(" \t\r", begin[blank], 3))
            blank++;
        int status = blank < n ? take_line(begin, n, line, name, out, err) : QUIRE_OK;
        if (status != QUIRE_OK)
            return status;
    }
    return out->n > 0 ? QUIRE_OK : quire_fail(err, QUIRE_INVALID, "%.100s: has no pairs", name);
}

int pairs_file_read(const char *path, struct pairs_file *out, struct quire_error *err)
{
    struct buffer text = {0};
    *out = (struct pairs_file){NULL, 0};
    FILE *f = fopen(path, "rb");
    if (!f)
        return quire_fail(err, QUIRE_NOT_FOUND, "%s: cannot be opened: %m", path);
    int status = buffer_read(&text, f, MAX_BYTES, path, err);
    fclose(f);
    if (status == QUIRE_OK)
        status = pairs_file_parse(text.data, text.n, path, out, err);
    buffer_free(&text);
    return status;
}

void pairs_file_free(struct pairs_file *file)
{
    for (size_t i = 0; i < file->n; i++)
        json_decref(file->pairs[i].object);
    free(file->pairs);
    *file = (struct pairs_file){NULL, 0};
}
