/* Checks the views of a weight, for every backend. Owns nothing. Any thread. */
#ifndef QUIRE_KERNELS_WEIGHT_VIEW_H
#define QUIRE_KERNELS_WEIGHT_VIEW_H

#include "base/status.h"
#include "kernels/weight.h"

/* Returns QUIRE_OK and the total number of rows of all parts, which must have equal numbers of columns. Otherwise err
 * names the faulty part. */
int k_weight_check(const struct k_weight_view *parts, uint32_t n_parts, uint32_t *n_rows, struct quire_error *err);
/* The same of each of n_experts weights [n_experts][n_parts], which must have one shape. *n_rows: of one. */
int k_weight_check_experts(const struct k_weight_view *parts, uint32_t n_experts, uint32_t n_parts, uint32_t *n_rows,
                           struct quire_error *err);

#endif
