#include "base/file.h"

#define READ_BYTES 16384 /* at a time */

int buffer_read(struct buffer *b, FILE *file, size_t max_bytes, const char *name, struct quire_error *err)
{
    for (;;) {
        char *room = buffer_reserve(b, READ_BYTES);
        if (!room)
            return quire_fail(err, QUIRE_NO_MEMORY, "%s: out of memory", name);
        size_t got = fread(room, 1, READ_BYTES, file);
        b->n += got;
        if (b->n > max_bytes)
            return quire_fail(err, QUIRE_INVALID, "%s: larger than the %zu bytes allowed", name, max_bytes);
        if (got == 0)
            return ferror(file) ? quire_fail(err, QUIRE_IO, "%s: cannot be read: %m", name) : QUIRE_OK;
    }
}
