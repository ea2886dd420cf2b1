#include "tools/cache/pairs_file.h"

#include "app/warm/lines_file.h"

#include <stdlib.h>
#include <string.h>

#define MAX_TEXT_BYTES ((size_t)64 << 10) /* limit of the guards */

static int take(json_t *object, size_t line, const char *where, void *item, struct quire_error *err)
{
    static const char *const names[2] = {"a", "b"};
    struct pair *out = item;
    *out = (struct pair){.line = line, .object = object};
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

static const struct lines_kind kind = {
    .item_bytes = sizeof(struct pair), .max_items = (size_t)1 << 20, .max_depth = 16, .items = "pairs", .take = take};

int pairs_file_parse(const char *text, size_t n_bytes, const char *name, struct pairs_file *out,
                     struct quire_error *err)
{
    struct lines_items all;
    int status = lines_file_parse(text, n_bytes, name, &kind, &all, err);
    *out = (struct pairs_file){all.items, all.n};
    return status;
}

int pairs_file_read(const char *path, struct pairs_file *out, struct quire_error *err)
{
    struct lines_items all;
    int status = lines_file_read(path, &kind, &all, err);
    *out = (struct pairs_file){all.items, all.n};
    return status;
}

void pairs_file_free(struct pairs_file *file)
{
    for (size_t i = 0; i < file->n; i++)
        json_decref(file->pairs[i].object);
    free(file->pairs);
    *file = (struct pairs_file){NULL, 0};
}
