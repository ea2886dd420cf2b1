/* A checkpoint's weights, mapped read-only and used in place: a single model.safetensors, the shards that
 * model.safetensors.index.json lists, or a GGUF file with its splits, whose tensors go by the names that transformers gives
 * them.
 *
 * The files are hostile until checked: header length, JSON, dtypes, shapes and offsets (inside the
 * file, without overlap or gap, size = shape × dtype)
 * are verified when opened; data is never touched. Owns the mappings; every view dies with it. Any
 * thread may read. The files must not be changed in place while they are open.
 */
#ifndef QUIRE_ENGINE_CHECKPOINT_H
#define QUIRE_ENGINE_CHECKPOINT_H

#include "base/hash.h"
#include "base/status.h"
#include "kernels/format.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct checkpoint;

#define CHECKPOINT_MAX_DIMS 8
struct checkpoint_tensor {
    const char *name;
    const char *file; /* the shard it lies in, for messages */
    const char *dtype; /* the file's name of it, "I32" */
    struct k_format format;
    uint32_t n_dims;
    uint64_t shape[CHECKPOINT_MAX_DIMS];
    const void *data;
    uint64_t n_bytes;
    /* Row 2 i + j of each head is row j D / 2 + i of the model's (as GGUF has q and k of the llama family). The code
     * that uses the rows must reorder them. */
    bool interleaved;
};

/* Opens every file of a directory's checkpoint, or of a GGUF: `model` is then its (first) file. Errors name file and tensor. */
int checkpoint_open(const char *model, struct checkpoint **out, struct quire_error *err);
/* Adds the tensors of model.safetensors in a folder of the model's directory, their names behind `prefix`. On failure the
 * checkpoint can only be closed. */
int checkpoint_add_folder(struct checkpoint *st, const char *model, const char *folder, const char *prefix,
                          struct quire_error *err);
/* Gives the tensors of a multimodal checkpoint's text part the names that the text model has alone: "model.layers..." for
 * "language_model.model.layers..." or "model.language_model.layers...". On failure the checkpoint can only be closed. */
int checkpoint_take_text_names(struct checkpoint *st, struct quire_error *err);
/* Checks one file image in memory: what the fuzzer calls. `data` is borrowed. */
int checkpoint_open_memory(const void *data, size_t n_bytes, struct checkpoint **out, struct quire_error *err);
void checkpoint_close(struct checkpoint *st);
/* Takes what has been read of the files out of this process's memory, where it would stay as long as they are mapped. The
 * next read brings it back from the page cache. */
void checkpoint_drop_pages(const struct checkpoint *st);

/* Returns QUIRE_NOT_FOUND if no tensor has that name. A tensor whose dtype Quire cannot use fails only here, with
 * QUIRE_UNSUPPORTED. *out is zero on failure. */
int checkpoint_find(const struct checkpoint *st, const char *name, struct checkpoint_tensor *out,
                    struct quire_error *err);
/* The same of any dtype; format is meaningful where checkpoint_find() gives the tensor. */
int checkpoint_find_any(const struct checkpoint *st, const char *name, struct checkpoint_tensor *out,
                        struct quire_error *err);
/* The i-th tensor by name, of any dtype; of more than CHECKPOINT_MAX_DIMS dimensions shape has the first. false: there are
 * not so many. */
bool checkpoint_at(const struct checkpoint *st, size_t i, struct checkpoint_tensor *out);
uint64_t checkpoint_total_bytes(const struct checkpoint *st);
/* Bytes of memory that checkpoint_align() takes; 0: every tensor lies on a boundary of its dtype. */
uint64_t checkpoint_misaligned_bytes(const struct checkpoint *st);
/* Copies the tensors that files of old tools have at odd bytes, so that all can be read in place. Once is enough; earlier
 * views of them stay. QUIRE_NO_MEMORY. */
int checkpoint_align(struct checkpoint *st, struct quire_error *err);
uint32_t checkpoint_n_files(const struct checkpoint *st);
bool checkpoint_is_gguf(const struct checkpoint *st);

/* Identifies a checkpoint without reading more than about 16 MiB: SHA-256 over every tensor's name, dtype and shape, and
 * over its data. A checkpoint of at most 16 MiB contributes all data. In a larger one, each tensor contributes evenly
 * spaced pieces: 8 of 4 KiB (or all of its data if it has 32 KiB or less) if the checkpoint has at most 512 tensors. With
 * more tensors each contributes fewer pieces, but at least one.
 * protocol.md defines the digest byte by byte and lists the changes that it cannot detect. The distribution of
 * tensors over files does not matter. keeps_pages: whether the pages that it reads stay in memory,
 * because the caller needs them again; if not, it calls checkpoint_drop_pages(). */
struct key256 checkpoint_digest(const struct checkpoint *st, bool keeps_pages);

#endif
