/* Copies what a checkpoint's directory has besides weights into an output. No state; one thread. */
#ifndef QUIRE_TOOLS_QUANTIZE_MODEL_FILES_COPY_H
#define QUIRE_TOOLS_QUANTIZE_MODEL_FILES_COPY_H

#include "tools/quantize/writer/output.h"

/* Copies the small files that describe a model, except config.json, and the folders of sentence-transformers that
 * modules.json names. */
int model_files_copy(const char *dir, struct quantizer_output *output, struct quire_error *err);

#endif
