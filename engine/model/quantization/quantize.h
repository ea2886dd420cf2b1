/* A plain matrix quantized when it is loaded (--quantization int8, int4-block, fp8), in room that the caller has. The numbers are
 * those of numerics.md §19, whatever the machine and the threads. Pure; any thread. */
#ifndef QUIRE_ENGINE_QUANTIZE_H
#define QUIRE_ENGINE_QUANTIZE_H

#include "base/status.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/model/quantization/quantized.h"
#include "kernels/format.h"
#include "kernels/weight.h"

#include <stdint.h>

#define QUANTIZE_BLOCK_ROWS 128u /* that share a scale, of e4m3 */

struct quantize {
    const struct checkpoint_tensor *tensor; /* F16, BF16 or F32; not read to count */
    struct k_format to; /* Q8_0, Q4_0, or e4m3 in groups */
    uint32_t n_rows, n_cols;
    uint32_t n_threads;
};

/* As quantized_view(). A weight that is not finite, or too large for its scale, is refused by its place. */
int quantize_view(const struct quantize *q, struct quantized_arena *arena, struct k_weight_view *out,
                  struct quire_error *err);

#endif
