/* The result of each operation in f64, in no particular order, and the tolerance of the normative arithmetic. oracle.c
 * derives every tolerance from counts of roundings. */
#ifndef QUIRE_TESTS_ORACLE_H
#define QUIRE_TESTS_ORACLE_H

#include "kernels/cases/op_data.h"

/* Returns false, and prints the first few differences, if an output exceeds its tolerance. Sets *worst to the largest
 * error in units of its tolerance. */
bool oracle_check(const struct op_case *c, const struct op_data *d, const struct op_output *out, double *worst);

#endif
