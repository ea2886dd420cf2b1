/* --repack-cache DIR: repacked rows, stored in a file that the next start maps.
 *
 * A file's name and header hold a key over the checkpoint's digest, its files' names, sizes and times, the model's
 * description, the kind of repacking and its version (REPACK_VERSION), and a hash of everything that follows. A file
 * that does not match, because it is broken, truncated, foreign or stale, is renamed with the suffix ".bad", logged
 * and never used. A new file is written completely under another name and then renamed, or not created at all. Write
 * access to DIR controls what the model computes, exactly like write access to the model's files. The rows are
 * checked like the rows of a model file (k_weight_check()). Engine thread.
 */
#ifndef QUIRE_ENGINE_REPACK_CACHE_H
#define QUIRE_ENGINE_REPACK_CACHE_H

#include "base/hash.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REPACK_VERSION 1u /* increment if quantized.c, repack_rows.c or quantize.c write any different byte */

/* Everything that the repacked rows depend on. */
struct repack_source {
    const char *dir; /* directory of the cache; NULL disables it */
    const char *model; /* the checkpoint's directory, or its file */
    struct key256 checkpoint; /* checkpoint_digest() */
    const char *made; /* quantization_made.identity, or "" */
    struct key256 description; /* model_identity() of the model, which covers how to read a file's rows */
    uint32_t first_layer, end_layer; /* layers of a stage; otherwise both 0 */
    uint32_t rank, n_ranks; /* of ranks that hold whole experts; otherwise both 0: each has the rows of all */
    uint32_t n_threads; /* that hash */
};

/* Returns a read-only mapping of n_bytes in *rows, or NULL if no complete and matching file exists, which is not an
 * error. Returns QUIRE_INVALID if DIR is not a directory. */
int repack_find(const struct repack_source *source, uint64_t n_bytes, const void **rows, struct quire_error *err);
void repack_unmap(const void *rows, uint64_t n_bytes);

/* Writes the file. A failure is logged and costs nothing but the file. */
void repack_keep(const struct repack_source *source, const void *rows, uint64_t n_bytes);

#endif
