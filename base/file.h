/* Reads whole files. Owns nothing. Any thread on its own values. */
#ifndef QUIRE_BASE_FILE_H
#define QUIRE_BASE_FILE_H

#include "base/buffer.h"

#include <stdio.h>

/* Appends the rest of a file to b. Returns QUIRE_INVALID if the buffer would hold more than max_bytes, QUIRE_IO if a
 * read fails, and QUIRE_NO_MEMORY. `name` starts the error message. */
int buffer_read(struct buffer *b, FILE *file, size_t max_bytes, const char *name, struct quire_error *err);

#endif
