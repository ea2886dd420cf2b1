/* Parses numbers in options and in lists of numbers. Owns nothing. Any thread. */
#ifndef QUIRE_BASE_ENCODING_NUMBER_H
#define QUIRE_BASE_ENCODING_NUMBER_H

#include <stdbool.h>

/* Reads a number at *text (digits, a point, an exponent) and moves *text past it. Returns false if there is no number
 * or it exceeds most. */
bool quire_take_number(const char **text, double most, double *out);

#endif
