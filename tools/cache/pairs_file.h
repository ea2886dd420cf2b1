/* A file of pairs of questions for quire cache calibrate: JSON lines {"a", "b", "same"}. Any thread. */
#ifndef QUIRE_TOOLS_PAIRS_FILE_H
#define QUIRE_TOOLS_PAIRS_FILE_H

#include "base/encoding/json.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

struct pair {
    size_t line;         /* in the file, from 1 */
    const char *text[2]; /* not empty; owned by the object */
    bool same;           /* they have the same answer */
    json_t *object;
};
struct pairs_file {
    struct pair *pairs;
    size_t n;
};

/* Skips empty lines and ignores other members. QUIRE_INVALID names the line and the field. Call pairs_file_free() in
 * every case. */
int pairs_file_parse(const char *text, size_t n_bytes, const char *name, struct pairs_file *out,
                     struct quire_error *err);
/* QUIRE_NOT_FOUND, QUIRE_IO; at most 1 GiB. */
int pairs_file_read(const char *path, struct pairs_file *out, struct quire_error *err);
void pairs_file_free(struct pairs_file *file);

#endif
