/* A quantized matrix of a safetensors checkpoint as a view: which tensors make it, whether they say what config.json says,
 * and where its planes lie: in the file, or in room that the caller has, where rows lie otherwise than kernels read them.
 * Pure; any thread. */
#ifndef QUIRE_ENGINE_QUANTIZED_H
#define QUIRE_ENGINE_QUANTIZED_H

#include "base/status.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/model/quantization/quantization.h"
#include "kernels/weight.h"

#include <stdbool.h>
#include <stdint.h>

#define QUANTIZED_NAME_BYTES 192

/* Memory that is taken from its front, a piece on each 64 bytes. */
struct quantized_arena {
    uint8_t *base; /* NULL: only counts */
    uint64_t used;
    bool is_filled; /* base has what the views would write (repack_cache.h): it is only read */
};

/* Room's next piece; NULL where it only counts. */
void *quantized_take(struct quantized_arena *arena, uint64_t bytes);
/* Whether what is taken must be written. */
static inline bool quantized_fills(const struct quantized_arena *arena)
{
    return arena->base && !arena->is_filled;
}

/* Where a matrix lies in a tensor of several, whose parts' rows may stand in turn. */
struct quantized_place {
    uint32_t count, index; /* count 0: the matrix has tensors of its own */
    uint32_t first, step; /* row r is the tensor's row first + r step of the matrix */
};

/* What is asked for. */
struct quantized_matrix {
    const struct checkpoint *checkpoint;
    const struct quantization *how;
    char name[QUANTIZED_NAME_BYTES]; /* the layer's name, without ".weight" */
    uint32_t n_rows, n_cols;
    uint32_t all_rows, first_row; /* of tensors with the rows of several matrices: theirs together, and those before
                                     this one's; else n_rows and 0 */
    struct quantized_place place; /* of MXFP4 */
    uint32_t n_threads; /* threads for repacking */
    bool is_read; /* data, too: scales are looked at wherever they lie. Else sizes alone */
};

/* A layer's name: that of its tensor without ".weight". */
void quantized_take_name(const char *tensor, char out[QUANTIZED_NAME_BYTES]);

/* Whether the checkpoint has this matrix quantized; else it is a plain one or missing. */
bool quantized_has(const struct quantized_matrix *m);

/* Makes the view. If the matrix is not read, only its format and the growth of room->used are meaningful. The error
 * is one line with the file, the tensor and the fault. */
int quantized_view(const struct quantized_matrix *m, struct quantized_arena *arena, struct k_weight_view *out,
                   struct quire_error *err);

#endif
