#include "engine/model/experts/transpose.h"

#include "engine/model/quantization/row_threads.h"
#include "kernels/format.h"

#include <string.h>

/* Rows that are written together, so that a line of the file is read once. */
#define TILE_ROWS 32u

struct job {
    const struct checkpoint_tensor *tensor;
    struct transpose_rows rows;
    uint8_t *to;
};

static void take_share(void *context, uint32_t share, uint32_t first, uint32_t last)
{
    const struct job *job = context;
    const uint64_t n_cols = job->tensor->shape[0], n_rows = job->tensor->shape[1];
    const size_t size = k_dtype_bytes(job->tensor->format.kind);
    (void)share;
    for (uint32_t tile = first; tile < last; tile += TILE_ROWS) {
        const uint32_t end = last - tile < TILE_ROWS ? last : tile + TILE_ROWS;
        for (uint64_t k = 0; k < n_cols; k++) {
            const uint8_t *from = (const uint8_t *)job->tensor->data + (k * n_rows + job->rows.first) * size;
            for (uint32_t r = tile; r < end; r++)
                memcpy(job->to + (r * n_cols + k) * size, from + (uint64_t)r * job->rows.step * size, size);
        }
    }
}

void transpose_take(const struct checkpoint_tensor *t, struct transpose_rows rows, uint32_t n_threads, void *to)
{
    struct job job = {t, rows, to};
    const uint64_t bytes = rows.n * t->shape[0] * k_dtype_bytes(t->format.kind);
    row_threads_run(rows.n, TILE_ROWS, bytes, n_threads, take_share, &job);
}
