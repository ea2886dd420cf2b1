/* The loops that make planes of packed words (struct k_weight_view): elements of 4 bits two in a byte, the low half first,
 * as 0 to 15; of 8 bits, stored as 0 to 255, less 128. Pure; bands of rows by several threads. */
#ifndef QUIRE_ENGINE_REPACK_ROWS_H
#define QUIRE_ENGINE_REPACK_ROWS_H

#include <stdint.h>

enum repack_rows_source {
    REPACK_ROWS_ALONG_K, /* word [k / p, n] holds columns of one row: GPTQ */
    REPACK_ROWS_ALONG_N, /* word [k, n / 8] holds 8 rows of one column, in AWQ's order */
    REPACK_ROWS_BY_ROW, /* word [n, k / p]: compressed-tensors */
};

struct repack_rows {
    enum repack_rows_source source;
    uint32_t bits; /* 4 or 8 */
    uint32_t n_rows, n_cols;
    uint32_t all_rows, first_row; /* those that the words have, and those of them before the plane's first */
    const uint8_t *words; /* little-endian, of 32 bits; of any alignment */
    const uint32_t *permutation; /* NULL, or column i of the plane is column permutation[i] of the words */
    uint8_t *plane; /* [n_rows, n_cols * bits / 8] */
};
/* Repacks all rows on n_threads threads, or on fewer if the system cannot create them. */
void repack_rows_run(const struct repack_rows *r, uint32_t n_threads);

/* Element k of the words' row n, as it is stored. */
uint32_t repack_rows_element(const struct repack_rows *r, uint32_t k, uint32_t n);

#endif
