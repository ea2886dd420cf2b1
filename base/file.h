/* Reads whole files, and makes files private. Owns nothing. Any thread on its own values. */
#ifndef QUIRE_BASE_FILE_H
#define QUIRE_BASE_FILE_H

#include "base/buffer.h"

#include <stdio.h>

/* Appends the rest of a file to b. Returns QUIRE_INVALID if the buffer would hold more than max_bytes, QUIRE_IO if a
 * read fails, and QUIRE_NO_MEMORY. `name` starts the error message. */
int buffer_read(struct buffer *b, FILE *file, size_t max_bytes, const char *name, struct quire_error *err);

/* Creates a file if it does not exist, and takes all access from other users. Returns NULL, or why the file cannot be
 * used: it is a link, no regular file, or another user's. */
const char *file_make_private(const char *path);

#endif
