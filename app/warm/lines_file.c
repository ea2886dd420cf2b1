#include "app/warm/lines_file.h"

#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES ((size_t)1 << 30)

static int take_line(const char *text, size_t n, size_t line, const char *name, const struct lines_kind *kind,
                     struct lines_items *out, struct quire_error *err)
{
    char where[160];
    json_t *object;
    snprintf(where, sizeof where, "%.100s: line %zu", name, line);
    if (out->n == kind->max_items)
        return quire_fail(err, QUIRE_INVALID, "%s: more than %zu %s", where, kind->max_items, kind->items);
    if ((out->n & (out->n - 1)) == 0) { /* full at each power of two */
        void *more = realloc(out->items, (out->n ? 2 * out->n : 1) * kind->item_bytes);
        if (!more)
            return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
        out->items = more;
    }
    int status = quire_json_parse(text, n, kind->max_depth, where, &object, err);
    if (status != QUIRE_OK)
        return status;
    if (!json_is_object(object)) {
        json_decref(object);
        return quire_fail(err, QUIRE_INVALID, "%s: must be an object", where);
    }
    void *item = (char *)out->items + out->n++ * kind->item_bytes;
    memset(item, 0, kind->item_bytes);
    return kind->take(object, line, where, item, err);
}

int lines_file_parse(const char *text, size_t n_bytes, const char *name, const struct lines_kind *kind,
                     struct lines_items *out, struct quire_error *err)
{
    *out = (struct lines_items){NULL, 0};
    size_t line = 1;
    for (size_t at = 0; at < n_bytes; line++) {
        const char *begin = text + at, *end = memchr(begin, '\n', n_bytes - at);
        size_t n = end ? (size_t)(end - begin) : n_bytes - at, blank = 0;
        at += n + (end != NULL);
        while (blank < n && memchr(" \t\r", begin[blank], 3))
            blank++;
        int status = blank < n ? take_line(begin, n, line, name, kind, out, err) : QUIRE_OK;
        if (status != QUIRE_OK)
            return status;
    }
    return out->n > 0 ? QUIRE_OK : quire_fail(err, QUIRE_INVALID, "%.100s: has no %s", name, kind->items);
}

int lines_file_read(const char *path, const struct lines_kind *kind, struct lines_items *out, struct quire_error *err)
{
    struct buffer text = {0};
    *out = (struct lines_items){NULL, 0};
    FILE *f = fopen(path, "rb");
    if (!f)
        return quire_fail(err, QUIRE_NOT_FOUND, "%s: cannot be opened: %m", path);
    int status = buffer_read(&text, f, MAX_BYTES, path, err);
    fclose(f);
    if (status == QUIRE_OK)
        status = lines_file_parse(text.data, text.n, path, kind, out, err);
    buffer_free(&text);
    return status;
}
