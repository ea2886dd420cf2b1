#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

const char *file_make_private(const char *path)
{
    struct stat st;
    /* O_NONBLOCK: a pipe must not stop the caller before it is refused. */
    const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (file < 0)
        return strerror(errno);
    const bool is_mine = fstat(file, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid();
    const bool ok = is_mine && ((st.st_mode & 077) == 0 || fchmod(file, 0600) == 0);
    close(file);
    return ok ? NULL : "is not a regular file of this user";
}
