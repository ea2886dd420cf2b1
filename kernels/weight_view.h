/* What every backend asks of the views that a weight is made of. */
#ifndef QUIRE_KERNELS_WEIGHT_VIEW_H
#define QUIRE_KERNELS_WEIGHT_VIEW_H

#include "kernels/kernels.h"

/* QUIRE_OK and the rows of all parts, which have as many columns each; else err names the part at fault. */
int k_weight_check(const struct k_weight_view *parts, uint32_t n_parts, uint32_t *n_rows, struct quire_error *err);

#endif
