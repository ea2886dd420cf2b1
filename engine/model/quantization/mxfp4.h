/* Experts in MXFP4 as gpt-oss's files have them: of all experts of a layer NAME_blocks [count, rows, cols / 32, 16], two
 * columns in a byte, the lower half first, and NAME_scales [count, rows, cols / 32], both U8. Pure; any thread. */
#ifndef QUIRE_ENGINE_MXFP4_H
#define QUIRE_ENGINE_MXFP4_H

#include "base/status.h"
#include "engine/model/quantization/quantized.h"

#include <stdbool.h>

/* Whether the checkpoint has the matrix so. m->name is without the two endings. */
bool mxfp4_has(const struct quantized_matrix *m);

/* As quantized_view(). The view is of the file, in place. */
int mxfp4_view(const struct quantized_matrix *m, struct k_weight_view *out, struct quire_error *err);

#endif
