/* Matrices of a file that has an input's weights side by side: [cols, rows of all parts], where the parts' rows stand in
 * turn (gpt-oss). Pure; any thread. */
#ifndef QUIRE_ENGINE_TRANSPOSE_H
#define QUIRE_ENGINE_TRANSPOSE_H

#include "engine/checkpoint/checkpoint.h"

#include <stdint.h>

/* Which rows a part of a tensor is: row r is the file's row first + r step. */
struct transpose_rows {
    uint32_t first, step, n;
};

/* Writes rows of a plain matrix [cols, all rows] to `to`, [n, cols], on n_threads at most. */
void transpose_take(const struct checkpoint_tensor *t, struct transpose_rows rows, uint32_t n_threads, void *to);

#endif
