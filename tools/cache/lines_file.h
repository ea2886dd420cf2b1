/* A file of JSON lines, an object each: what quire cache warm and quire cache calibrate read. Any thread. */
#ifndef QUIRE_TOOLS_LINES_FILE_H
#define QUIRE_TOOLS_LINES_FILE_H

#include "base/json.h"
#include "base/status.h"

#include <stddef.h>

struct lines_kind {
    size_t item_bytes, max_items;
    unsigned max_depth;
    const char *items; /* what they are called: "pairs" */
    /* Of line `line` of the file, which `where` says; item is zeros. object becomes the item's, in every case. */
    int (*take)(json_t *object, size_t line, const char *where, void *item, struct quire_error *err);
};
struct lines_items {
    void *items; /* free() */
    size_t n;
};

/* Empty lines are skipped. QUIRE_INVALID names the line; a file without any is one, too. The items that were taken are the caller's in
 * every case. */
int lines_file_parse(const char *text, size_t n_bytes, const char *name, const struct lines_kind *kind,
                     struct lines_items *out, struct quire_error *err);
/* QUIRE_NOT_FOUND, QUIRE_IO; at most 1 GiB. */
int lines_file_read(const char *path, const struct lines_kind *kind, struct lines_items *out, struct quire_error *err);

#endif
