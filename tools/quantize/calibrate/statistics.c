#include "tools/quantize/calibrate/statistics.h"

#include "engine/model/quantization/row_threads.h"
#include "tools/quantize/methods/dense.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int site_statistics_begin(struct site_statistics *s, uint32_t n_cols, bool has_square, struct quire_error *err)
{
    *s = (struct site_statistics){.n_cols = n_cols,
                                  .square = has_square ? calloc((uint64_t)n_cols * n_cols, sizeof *s->square) : NULL,
                                  .sum = calloc(n_cols, sizeof *s->sum),
                                  .most = calloc(n_cols, sizeof *s->most)};
    if (s->sum && s->most && (s->square || !has_square))
        return QUIRE_OK;
    site_statistics_free(s);
    return quire_fail(err, QUIRE_NO_MEMORY, "out of memory for the Hessian of %u columns", n_cols);
}

struct square_job {
    struct site_statistics *s;
    const float *x;
    uint32_t n_tokens, n_threads;
};

/* Each thread has every n-th block of rows, since the first blocks are the longest. */
static void add_blocks(void *context, uint32_t share, uint32_t first, uint32_t last)
{
    const struct square_job *j = context;
    (void)share;
    for (uint32_t i = first; i < last; i++)
        dense_add_square(j->x, j->n_tokens, j->s->n_cols, j->s->square, i, j->n_threads);
}

void site_statistics_add(struct site_statistics *s, const float *x, uint32_t n_tokens, uint32_t n_threads)
{
    for (uint32_t t = 0; t < n_tokens; t++)
        for (uint32_t k = 0; k < s->n_cols; k++) {
            const float magnitude = fabsf(x[(uint64_t)t * s->n_cols + k]);
            s->sum[k] += magnitude;
            s->most[k] = magnitude > s->most[k] ? magnitude : s->most[k];
        }
    s->n_tokens += n_tokens;
    struct square_job job = {s, x, n_tokens, n_threads};
    if (s->square)
        row_threads_run(n_threads, 1, UINT64_MAX / 2, n_threads, add_blocks, &job);
}

int site_statistics_add_some(struct site_statistics *s, const float *x, const uint32_t *rows, uint32_t n_rows,
                             uint32_t n_threads, struct quire_error *err)
{
    const uint64_t n_bytes = s->n_cols * sizeof *x;
    float *some = malloc(n_rows * n_bytes + 1);
    if (!some)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < n_rows; i++)
        memcpy(some + (uint64_t)i * s->n_cols, x + (uint64_t)rows[i] * s->n_cols, n_bytes);
    site_statistics_add(s, some, n_rows, n_threads);
    free(some);
    return QUIRE_OK;
}

void site_statistics_finish(struct site_statistics *s)
{
    if (s->square)
        dense_mirror(s->square, s->n_cols);
}

void site_statistics_free(struct site_statistics *s)
{
    free(s->square);
    free(s->sum);
    free(s->most);
    *s = (struct site_statistics){0};
}
