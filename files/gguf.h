/* A GGUF file (versions 2 and 3, little-endian), mapped read-only: its metadata by key, and the location of its
 * tensors.
 *
 * A file is untrusted: opening it verifies every count, length, type, dimension and offset. Tensors lie inside the
 * file, are aligned, consist of whole blocks, and do not overlap. Opening does not read the data of tensors. Values and
 * names point into the file and become invalid when it is closed. Any thread may read. The file must not be changed
 * in place while it is open.
 */
#ifndef QUIRE_FILES_GGUF_H
#define QUIRE_FILES_GGUF_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gguf;

enum gguf_kind {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_N_KINDS
};

/* Not NUL-terminated, any bytes. */
struct gguf_text {
    const char *data;
    size_t n;
};

/* Scalars have n == 1. */
struct gguf_value {
    enum gguf_kind kind; /* for an array, the kind of its elements; arrays of arrays are skipped and not found */
    bool is_array;
    uint64_t n;
    const uint8_t *data;
};

#define GGUF_MAX_DIMS 4
struct gguf_tensor {
    char name[65]; /* the format's limit is 64 bytes; without control characters */
    uint32_t type; /* GGML's number of it */
    uint32_t n_dims;
    uint64_t size[GGUF_MAX_DIMS]; /* size[0]: columns; 1 past n_dims */
    const uint8_t *data;
    uint64_t begin, n_bytes; /* begin: of the file's data */
};

/* `path` names the file in errors by its last part. */
int gguf_open(const char *path, struct gguf **out, struct quire_error *err);
/* The same of an image in memory, which is borrowed: what the fuzzer calls. */
int gguf_open_memory(const void *data, size_t n_bytes, const char *name, struct gguf **out, struct quire_error *err);
/* All files of a model, given the first (or the only one): each is the next of the one before, and all are closed with the
 * first. */
int gguf_open_model(const char *path, struct gguf **out, struct quire_error *err);
void gguf_close(struct gguf *g); /* NULL is fine */
/* Takes what has been read of a model's files out of this process's memory. The next read brings it back. */
void gguf_drop_pages(const struct gguf *g); /* NULL is fine */
const struct gguf *gguf_next(const struct gguf *g); /* NULL: the last */

const char *gguf_name(const struct gguf *g); /* the file's */
/* The number of this file among its splits, counted from 0, and the number of splits: 0 and 1 for a single file. */
int gguf_split(const struct gguf *g, uint32_t *number, uint32_t *n, struct quire_error *err);

size_t gguf_n_tensors(const struct gguf *g);
const struct gguf_tensor *gguf_tensor(const struct gguf *g, size_t i);
/* Searches this file and the following splits; returns NULL if no tensor has that name. */
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name);
const char *gguf_type_name(uint32_t type); /* "Q4_K"; NULL: it is no type */

/* false: no such key. */
bool gguf_find(const struct gguf *g, const char *key, struct gguf_value *out);
/* The i-th key, in alphabetical order, and the bytes of its pair in the file: key, kind and value. false: past the last. */
bool gguf_pair(const struct gguf *g, size_t i, struct gguf_text *key, struct gguf_text *bytes);
/* If the key is absent, *out stays unchanged, as with base/encoding/json.h. Returns QUIRE_INVALID if the value has another
 * kind. Integers have any width and sign, where a floating-point number is read, too; an array of equal numbers, one a
 * layer, is that number. */
int gguf_u64(const struct gguf *g, const char *key, uint64_t *out, struct quire_error *err);
int gguf_i64(const struct gguf *g, const char *key, int64_t *out, struct quire_error *err);
int gguf_f64(const struct gguf *g, const char *key, double *out, struct quire_error *err);
int gguf_bool(const struct gguf *g, const char *key, bool *out, struct quire_error *err);
int gguf_string(const struct gguf *g, const char *key, struct gguf_text *out, struct quire_error *err);
/* Of this kind. */
int gguf_array(const struct gguf *g, const char *key, enum gguf_kind kind, struct gguf_value *out,
               struct quire_error *err);

/* The next string of an array of them, `at` being value->data at first; the file was checked. */
struct gguf_text gguf_next_string(const uint8_t **at);

#endif
