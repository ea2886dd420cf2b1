/* A file of prompts for the prefix cache: JSON lines {"prompt" or "messages", "value"}. Any thread. */
#ifndef QUIRE_APP_WARM_WARM_FILE_H
#define QUIRE_APP_WARM_WARM_FILE_H

#include "base/encoding/json.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct warm_prompt {
    size_t line;       /* in the file, from 1 */
    json_t *what;      /* {"prompt": ...} or {"messages": ...}, as in the file */
    double value;      /* per token; default 1 */
    uint64_t n_tokens; /* set by the caller */
};
struct warm_file {
    struct warm_prompt *prompts;
    size_t n;
};

/* Skips empty lines. QUIRE_INVALID names the line and the field. Call warm_file_free() in every case. */
int warm_file_parse(const char *text, size_t n_bytes, const char *name, struct warm_file *out, struct quire_error *err);
/* QUIRE_NOT_FOUND, QUIRE_IO; at most 1 GiB. */
int warm_file_read(const char *path, struct warm_file *out, struct quire_error *err);
/* Sorts the most valuable first: value times tokens, then the file's order. */
void warm_file_sort(struct warm_file *file);
void warm_file_free(struct warm_file *file);

#endif
