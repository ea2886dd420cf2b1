/* Files as a whole. Any thread on its own values. */
#ifndef QUIRE_BASE_FILE_H
#define QUIRE_BASE_FILE_H

#include "base/buffer.h"

#include <stdio.h>

/* Appends what is left of a file. QUIRE_INVALID when the buffer would then hold more than max_bytes, QUIRE_IO,
 * QUIRE_NO_MEMORY; `name` begins the error. */
int buffer_read(struct buffer *b, FILE *file, size_t max_bytes, const char *name, struct quire_error *err);

#endif
