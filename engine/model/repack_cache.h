/* --repack-cache DIR: rows that loading made anew, kept in a file that the next start maps.
 *
 * A file's name and header hold a key: the checkpoint's digest, its files' names, sizes and times, the model's description, what
 * was made of it, and how (REPACK_VERSION); and a hash of all that follows. Whatever does not agree, a broken, truncated, foreign or stale file, is set
 * aside under its name with ".bad" behind it, logged, and never used; a new one is written whole under another name and then
 * renamed, or not at all. Who can write to DIR decides what the model computes, as who can write to the model's files does;
 * what is read is checked as the rows of a file are (k_weight_check()). Engine thread.
 */
#ifndef QUIRE_ENGINE_REPACK_CACHE_H
#define QUIRE_ENGINE_REPACK_CACHE_H

#include "base/hash.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REPACK_VERSION \
    1u /* moves with any byte that engine/model/quantized.c, regroup.c or quantize.c would write otherwise */

/* What the rows depend on. */
struct repack_source {
    const char *dir; /* of the cache; NULL: there is none */
    const char *model; /* the checkpoint's directory, or its file */
    struct key256 checkpoint; /* checkpoint_digest() */
    const char *made; /* quantization_made.identity, or "" */
    struct key256 description; /* of the model, model_identity(): how a file's rows are to be read is in it */
    uint32_t first_layer, end_layer; /* of a stage; else both 0 */
    uint32_t n_threads; /* that hash */
};

/* A mapping of n_bytes, read-only; NULL where there is none that is whole and right, which is no failure. QUIRE_INVALID: DIR is
 * no directory. */
int repack_find(const struct repack_source *source, uint64_t n_bytes, const void **rows, struct quire_error *err);
void repack_unmap(const void *rows, uint64_t n_bytes);

/* Writes the file. A failure is logged and costs nothing but the file. */
void repack_keep(const struct repack_source *source, const void *rows, uint64_t n_bytes);

#endif
