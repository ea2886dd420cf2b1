/* What each operation means, in f64 and in no particular order, with how far the normative
 * arithmetic may lie from it: every tolerance is derived in oracle.c from counts of roundings. */
#ifndef QUIRE_TESTS_ORACLE_H
#define QUIRE_TESTS_ORACLE_H

#include "kernels/cases/op_data.h"

/* False, with the first few differences on stdout, when an output lies outside its tolerance.
 * *worst gets the largest error in units of its tolerance. */
bool oracle_check(const struct op_case *c, const struct op_data *d, const struct op_output *out, double *worst);

#endif
