/* The first failure in a file of results, for the last line of `quire batch`. No state; any thread; blocks on the file. */
#ifndef QUIRE_APP_BATCH_FIRST_ERROR_H
#define QUIRE_APP_BATCH_FIRST_ERROR_H

#include <stddef.h>
#include <stdint.h>

/* Writes the message of the first failed line, cut to the size; "" if the file cannot be read or no line has one. Lines
 * after the first max_bytes are not read. */
void batch_first_error(const char *path, uint64_t max_bytes, char *text, size_t size);

#endif
