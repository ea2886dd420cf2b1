/* Whether Quire can load a model that was written: what `quire serve` does with its files before it makes a KV cache.
 *
 * Reads all weights into a backend `cpu`, a layer at a time: memory is that of the largest layer. No state; the
 * process's only thread. */
#ifndef QUIRE_TOOLS_QUANTIZE_LOADS_H
#define QUIRE_TOOLS_QUANTIZE_LOADS_H

#include "base/status.h"

struct quantizer_job;

/* written: the complete output, a directory or a GGUF file. It is loaded like the job's model: with the same task, and with
 * --ignore-unused-tensors only if the original needs that. Errors are those of loading. */
int quantizer_loads(const struct quantizer_job *job, const char *written, struct quire_error *err);

#endif
