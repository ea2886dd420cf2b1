/* The small files of a model (config.json, tokenizer.json ...), whether they lie in a directory or are made from a GGUF file.
 * Whoever reads one reads it here. No state; any thread.
 */
#ifndef QUIRE_FILES_MODEL_FILES_H
#define QUIRE_FILES_MODEL_FILES_H

#include "base/buffer.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* A regular file, and not a directory: then it is taken for GGUF. */
bool model_is_gguf(const char *model);

/* Appends the whole of a file that a checkpoint's directory has, or would have: `name` is below it. QUIRE_NOT_FOUND when there
 * is none; errors begin with its name, of a GGUF with the GGUF's. */
int model_file_read(const char *model, const char *name, size_t max_bytes, struct buffer *out, struct quire_error *err);

#endif
