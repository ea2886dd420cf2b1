/* Checks that every block scale of a GGUF tensor is a finite number. An invalid scale would otherwise show only as
 * NaN logits. Zero is valid: blocks of zeros are stored that way. A plain tensor has no scales. Reads the tensor's
 * data on n_threads.
 */
#ifndef QUIRE_ENGINE_BLOCK_SCALES_H
#define QUIRE_ENGINE_BLOCK_SCALES_H

#include "base/status.h"
#include "engine/checkpoint/checkpoint.h"

#include <stdint.h>

/* A matrix. QUIRE_INVALID: one line names the file, the tensor, the row and the block. */
int block_scales_check(const struct checkpoint_tensor *t, uint32_t n_threads, struct quire_error *err);

#endif
