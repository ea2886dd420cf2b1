/* The small files of a model (config.json, tokenizer.json ...), from a directory or made from a GGUF file. Every
 * reader of such a file uses these functions. No state; any thread.
 */
#ifndef QUIRE_FILES_MODEL_FILES_H
#define QUIRE_FILES_MODEL_FILES_H

#include "base/buffer.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* A regular file, and not a directory: then it is taken for GGUF. */
bool model_is_gguf(const char *model);

/* Appends a whole file of a checkpoint's directory, or of the directory that a GGUF file replaces. `name` is
 * relative to it. Returns QUIRE_NOT_FOUND if the file does not exist. Errors begin with its name, or with the GGUF
 * file's name. */
int model_file_read(const char *model, const char *name, size_t max_bytes, struct buffer *out, struct quire_error *err);

#endif
