/* Whether a checkpoint has experts apart that others have in one tensor (experts/apart.h). Pure; any thread. */
#ifndef QUIRE_ENGINE_EXPERTS_ARE_APART_H
#define QUIRE_ENGINE_EXPERTS_ARE_APART_H

#include "engine/checkpoint/checkpoint.h"
#include "engine/model/model.h"
#include "engine/model/tensor_table.h"

#include <stdbool.h>

/* Whether the checkpoint has the row's experts apart, plain or quantized, and not in the one tensor that the row names. The
 * first stands for all: a missing one is then called by its own name. desc->facts->quantization is set. */
bool experts_are_apart(const struct checkpoint *checkpoint, const struct model_desc *desc,
                       const struct model_tensor *row, uint32_t layer, bool bare);

#endif
