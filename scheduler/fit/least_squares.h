/* Least squares with non-negative terms (Lawson and Hanson), from normal equations. `quire bench steps` and the fit of a
 * running engine share it. Pure; no allocation; any thread.
 */
#ifndef QUIRE_SCHEDULER_FIT_LEAST_SQUARES_H
#define QUIRE_SCHEDULER_FIT_LEAST_SQUARES_H

#include <stdint.h>

#define LEAST_SQUARES_MAX_TERMS 28

/* With rows a and targets y: gram is the sum of a aT, right the sum of y a. Finite. */
struct least_squares {
    uint32_t n; /* terms */
    double gram[LEAST_SQUARES_MAX_TERMS][LEAST_SQUARES_MAX_TERMS]; /* only [a][b] with b <= a is read */
    double right[LEAST_SQUARES_MAX_TERMS];
};

/* The x >= 0 of least squares, x[n]. Changes the problem: it scales the terms. Of terms that no row distinguishes, the
 * first gets most. */
void least_squares_solve(struct least_squares *p, double *x);

#endif
