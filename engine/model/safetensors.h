/* A checkpoint's weights, mapped read-only and used in place: a single model.safetensors, or the
 * shards that model.safetensors.index.json lists.
 *
 * The files are hostile until checked: header length, JSON, dtypes, shapes and offsets (inside the
 * file, aligned to a dtype that Quire computes with, without overlap or gap, size = shape × dtype)
 * are verified when opened; data is never touched. Owns the mappings; every view dies with it. Any
 * thread may read. The files must not be changed in place while they are open.
 */
#ifndef QUIRE_ENGINE_SAFETENSORS_H
#define QUIRE_ENGINE_SAFETENSORS_H

#include "base/hash.h"
#include "base/status.h"
#include "kernels/kernels.h"

#include <stddef.h>
#include <stdint.h>

struct safetensors;

#define SAFETENSORS_MAX_DIMS 8
struct safetensors_tensor {
    const char *name;
    const char *file; /* the shard it lies in, for messages */
    struct k_format format;
    uint32_t n_dims;
    uint64_t shape[SAFETENSORS_MAX_DIMS];
    const void *data;
    uint64_t n_bytes;
};

/* Opens every file of the directory's checkpoint. Errors name file and tensor. */
int safetensors_open(const char *model_dir, struct safetensors **out, struct quire_error *err);
/* Checks one file image in memory: what the fuzzer calls. `data` is borrowed. */
int safetensors_open_memory(const void *data, size_t n_bytes, struct safetensors **out, struct quire_error *err);
void safetensors_close(struct safetensors *st);

/* QUIRE_NOT_FOUND when there is none of that name. A tensor of a dtype that Quire cannot use fails
 * only here, when it is asked for: QUIRE_UNSUPPORTED. *out is zero on failure. */
int safetensors_find(const struct safetensors *st, const char *name, struct safetensors_tensor *out,
                     struct quire_error *err);
uint64_t safetensors_total_bytes(const struct safetensors *st);
uint32_t safetensors_n_files(const struct safetensors *st);

/* Tells checkpoints apart without reading them whole: SHA-256 over every tensor's name, dtype and shape and over pieces
 * of its data, evenly spaced. Of a checkpoint of at most 512 tensors each gives 8 pieces of 4 KiB (32 KiB or less: all
 * of it), of one with more fewer, at least one. docs/protocol.md has it byte for byte, and what it cannot see. How
 * the tensors are spread over files does not matter. */
struct key256 safetensors_digest(const struct safetensors *st);

#endif
