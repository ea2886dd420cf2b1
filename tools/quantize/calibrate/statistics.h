/* Sums over the inputs of a site's matrices. One thread calls; threads that end with the call share the work. */
#ifndef QUIRE_TOOLS_QUANTIZE_STATISTICS_H
#define QUIRE_TOOLS_QUANTIZE_STATISTICS_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct site_statistics {
    uint32_t n_cols; /* 0: the site has no matrices */
    float *square;   /* [n_cols, n_cols]: Σ x x^T, owned; complete after site_statistics_finish() */
    double *sum;     /* [n_cols]: Σ |x|, owned */
    float *most;     /* [n_cols]: max |x|, owned */
    uint64_t n_tokens;
};

/* has_square: square is needed. */
int site_statistics_begin(struct site_statistics *s, uint32_t n_cols, bool has_square, struct quire_error *err);
void site_statistics_add(struct site_statistics *s, const float *x, uint32_t n_tokens, uint32_t n_threads);
/* Of the n_rows rows of x [.., n_cols] whose numbers are in `rows`. QUIRE_NO_MEMORY */
int site_statistics_add_some(struct site_statistics *s, const float *x, const uint32_t *rows, uint32_t n_rows,
                             uint32_t n_threads, struct quire_error *err);
void site_statistics_finish(struct site_statistics *s);
void site_statistics_free(struct site_statistics *s);

#endif
