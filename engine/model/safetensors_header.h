/* One safetensors file image: its header, checked, as entries of a table.
 *
 * Format: 8 bytes little-endian header length, that many bytes of JSON, then the tensors' data,
 * which the header's data_offsets must cover from the first byte to the last, in any order,
 * without overlap or gap. Private to engine/safetensors*.c; one thread, while a checkpoint is
 * opened.
 */
#ifndef QUIRE_ENGINE_SAFETENSORS_HEADER_H
#define QUIRE_ENGINE_SAFETENSORS_HEADER_H

#include "engine/model/safetensors.h"

#include <stdbool.h>

/* What the format allows a header to be. */
#define ST_MAX_HEADER_BYTES 100000000u

struct st_entry {
    char *name;             /* owned by the table */
    const char *dtype_name; /* the format's name, "BF16": static storage */
    enum k_dtype dtype;     /* meaningful when usable_dtype */
    bool usable_dtype;
    uint32_t n_dims;        /* as in the file; shape holds the first SAFETENSORS_MAX_DIMS */
    uint64_t shape[SAFETENSORS_MAX_DIMS];
    uint32_t file;
    uint64_t begin, end;    /* in the file's data */
    const uint8_t *data;    /* the mapping's byte `begin` */
};

struct st_table {
    struct st_entry *entries;
    size_t n, capacity;
};

/* Appends every tensor of the image, which must outlive the table. `file` is its number, where its
 * name in errors. On failure the table holds what it held before or more; free it either way. */
int st_table_add_image(struct st_table *table, const uint8_t *bytes, uint64_t n_bytes, uint32_t file, const char *where,
                       struct quire_error *err);
void st_table_free(struct st_table *table);

/* True when text can stand in an error line: no control characters. */
bool st_is_printable(const char *text);

#endif
