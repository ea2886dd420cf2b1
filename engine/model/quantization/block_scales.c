#include "engine/model/quantization/block_scales.h"

#include "engine/model/quantization/row_threads.h"
#include "kernels/quant.h"

#include <math.h>
#include <stdbool.h>

struct place {
    bool is_set;
    uint32_t row, block;
};

struct check {
    struct k_weight_view view;
    const struct k_blocks *blocks;
    struct place bad[ROW_THREADS_MAX]; /* each share's first */
};

/* A block's own numbers are one or two in f16, which those of its first group are integers times. */
static void check_rows(void *context, uint32_t share, uint32_t first, uint32_t last)
{
    struct check *c = context;
    for (uint32_t n = first; n < last; n++)
        for (uint32_t k = 0; k < c->view.n_cols; k += c->blocks->columns) {
            float scale, least;
            k_quant_scale(&c->view, n, k, &scale, &least);
            if (isfinite(scale) && isfinite(least))
                continue;
            c->bad[share] = (struct place){true, n, k / c->blocks->columns};
            return;
        }
}

int block_scales_check(const struct checkpoint_tensor *t, uint32_t n_threads, struct quire_error *err)
{
    struct check c = {.view = {.data = t->data,
                               .format = t->format,
                               .n_rows = (uint32_t)t->shape[0],
                               .n_cols = (uint32_t)t->shape[1],
                               .row_stride_bytes = k_format_bytes(t->format, t->shape[1])},
                      .blocks = k_blocks_of(t->format.packing)};
    if (!c.blocks)
        return QUIRE_OK;
    row_threads_run(c.view.n_rows, 1, t->n_bytes, n_threads, check_rows, &c);
    for (uint32_t i = 0; i < ROW_THREADS_MAX; i++)
        if (c.bad[i].is_set)
            return quire_fail(err, QUIRE_INVALID,
                              "%.100s: tensor '%.150s': row %u, block %u: its scale (%s) is not a finite number",
                              t->file, t->name, c.bad[i].row, c.bad[i].block, c.blocks->name);
    return QUIRE_OK;
}
