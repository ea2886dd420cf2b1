/* Numbers in what people write: options and lists of them. Any thread. */
#ifndef QUIRE_BASE_NUMBER_H
#define QUIRE_BASE_NUMBER_H

#include <stdbool.h>

/* At *text: digits, a point, an exponent. Then *text stands behind it. False: there is none, or it is above most. */
bool quire_take_number(const char **text, double most, double *out);

#endif
