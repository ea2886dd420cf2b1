/* A file of JSON lines, one object each: the input of quire cache warm and quire cache calibrate. Any thread. */
#ifndef QUIRE_APP_WARM_LINES_FILE_H
#define QUIRE_APP_WARM_LINES_FILE_H

#include "base/encoding/json.h"
#include "base/status.h"

#include <stddef.h>

struct lines_kind {
    size_t item_bytes, max_items;
    unsigned max_depth;
    const char *items; /* name of the items: "pairs" */
    /* For line `line` of the file; `where` names both for errors; item is zeroed. The item owns object in every case.
     */
    int (*take)(json_t *object, size_t line, const char *where, void *item, struct quire_error *err);
};
struct lines_items {
    void *items; /* free() */
    size_t n;
};

/* Skips empty lines. QUIRE_INVALID names the line, or reports an empty file. The caller owns the items in every case.
 */
int lines_file_parse(const char *text, size_t n_bytes, const char *name, const struct lines_kind *kind,
                     struct lines_items *out, struct quire_error *err);
/* QUIRE_NOT_FOUND, QUIRE_IO; at most 1 GiB. */
int lines_file_read(const char *path, const struct lines_kind *kind, struct lines_items *out, struct quire_error *err);

#endif
