/* "response_fields": the fields of a result that a request wants. */
#include "server/front/llama_cpp/llama_cpp.h"

#include <stdlib.h>
#include <string.h>

#define MAX_PATHS 32
#define MAX_PATH_BYTES 128

/* ---- reading ---- */

/* Takes the path; frees it if it is already there, so that a reply has no field twice. */
static size_t add_path(char **paths, size_t n, char *path)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(paths[i], path) == 0) {
            free(path);
            return n;
        }
    }
    paths[n] = path;
    return n + 1;
}

static bool read_paths(struct quire_value list, char *paths[MAX_PATHS], size_t *n, struct api_error *e)
{
    static const char name[] = "response_fields";
    struct quire_value item;
    if (!json_is(list, QUIRE_ARRAY))
        return api_bad(e, name, "must be an array of strings");
    while (quire_value_next(&list, NULL, &item)) {
        char *path = NULL;
        size_t n_bytes = 0;
        if (!json_is(item, QUIRE_STRING))
            return api_bad(e, name, "must be an array of strings, got %.*s", JSON_SHOWN(item));
        if (!json_value_text(item, name, &path, &n_bytes, e))
            return false;
        if (*n == MAX_PATHS || n_bytes > MAX_PATH_BYTES) {
            free(path);
            return api_bad(e, name, "must be at most %d strings of at most %d bytes", MAX_PATHS, MAX_PATH_BYTES);
        }
        *n = add_path(paths, *n, path);
    }
    return true;
}

bool llama_cpp_read_fields(struct buffer *o, const struct quire_doc *body, struct api_error *e)
{
    const struct quire_value list = json_field_get(body, "response_fields");
    char *paths[MAX_PATHS];
    size_t n = 0;
    bool ok = !list.n || read_paths(list, paths, &n, e);
    json_out_raw(o, "[");
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            json_out_raw(o, ",");
        json_out_text(o, paths[i]);
        free(paths[i]);
    }
    json_out_raw(o, "]");
    return ok && (!o->failed || api_no_memory(e));
}

/* ---- writing ---- */

/* The value at a path whose names are separated by slashes; empty if it is absent. Splits the path. */
static struct quire_value find(struct quire_value object, char *path)
{
    const char *name;
    while (object.n > 0 && (name = strsep(&path, "/")))
        object = json_is(object, QUIRE_OBJECT) ? quire_value_member(object, name) : (struct quire_value){0};
    return object;
}

void llama_cpp_put_picked(struct buffer *o, const struct buffer *result, const struct buffer *fields)
{
    struct quire_value rest = {fields->data, fields->n}, name;
    const char *comma = "";
    o->failed |= result->failed || fields->failed;
    json_out_raw(o, "{");
    while (!o->failed && quire_value_next(&rest, NULL, &name)) {
        char *path = NULL;
        size_t n_bytes = 0;
        struct quire_value value = {0};
        if (quire_value_text(name, &path, &n_bytes, NULL) == QUIRE_OK)
            value = find((struct quire_value){result->data, result->n}, path);
        else
            o->failed = true;
        free(path);
        if (!value.n)
            continue;
        json_out_raw(o, comma);
        buffer_append(o, name.text, name.n);
        json_out_raw(o, ":");
        buffer_append(o, value.text, value.n);
        comma = ",";
    }
    json_out_raw(o, "}");
}
