/* The table that every format of file is read into: one entry a tensor, checked. Private to engine/checkpoint/checkpoint.c and
 * the parsers beside it; one thread, while a checkpoint is opened.
 */
#ifndef QUIRE_ENGINE_CHECKPOINT_TABLE_H
#define QUIRE_ENGINE_CHECKPOINT_TABLE_H

#include "engine/checkpoint/checkpoint.h"

#include <stdbool.h>

struct gguf;

/* The longest header that the format allows. */
#define ST_MAX_HEADER_BYTES 100000000u

struct checkpoint_entry {
    char *name; /* owned by the table */
    const char *dtype_name; /* the file's name of it, "BF16": static storage */
    struct k_format format; /* meaningful when usable */
    bool usable;
    bool misaligned; /* data lies on no boundary of its dtype */
    bool interleaved; /* struct checkpoint_tensor's */
    uint32_t n_dims; /* as in the file; shape holds the first CHECKPOINT_MAX_DIMS */
    uint64_t shape[CHECKPOINT_MAX_DIMS];
    uint32_t file;
    uint64_t begin, end; /* in the file's data */
    const uint8_t *data; /* the mapping's byte `begin` */
};

struct checkpoint_table {
    struct checkpoint_entry *entries;
    size_t n, capacity;
};

/* Appends every tensor of a safetensors image, which must outlive the table. `file` is its number, where its name in
 * errors. The format: 8 bytes little-endian header length, that many bytes of JSON, then the tensors' data, which the
 * header's data_offsets must cover from the first byte to the last, in any order, without overlap or gap. On failure the table holds what it held before or more; free it either way. */
int checkpoint_add_safetensors(struct checkpoint_table *table, const uint8_t *bytes, uint64_t n_bytes, uint32_t file,
                               const char *where, struct quire_error *err);
/* Likewise of a GGUF file, under the names that transformers gives them. `first`: of a split one the first, which alone says
 * what model it is; else the same. */
int checkpoint_add_gguf(struct checkpoint_table *table, const struct gguf *g, const struct gguf *first, uint32_t file,
                        struct quire_error *err);

/* A new entry that is zero but for its name; NULL: out of memory. For the parsers. */
struct checkpoint_entry *checkpoint_table_append(struct checkpoint_table *table, const char *name);
void checkpoint_table_free(struct checkpoint_table *table);

/* True when text can stand in an error line: no control characters. */
bool checkpoint_is_printable(const char *text);

#endif
