#include "app/watch/timeline_keep.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* More than the last two events. */
#define TAIL_BYTES 4096

/* Returns the end of the last whole event in the tail of a file: an object with as many closing as opening braces, at the
 * beginning of a line. No string of an event has braces. 0: there is none. */
static size_t whole_events(const char *tail, size_t n)
{
    size_t end = 0;
    for (size_t from = 0; from < n; from++) {
        size_t at = from;
        uint32_t depth = 0;
        if (tail[from] != '{' || (from > 0 && tail[from - 1] != '\n'))
            continue;
        do
            depth += tail[at] == '{' ? 1 : tail[at] == '}' ? -1u : 0;
        while (depth > 0 && ++at < n);
        if (depth == 0)
            end = at + 1;
    }
    return end;
}

/* Returns the length of a timeline without its end, up to its last whole event. 0: the file is something else. */
static off_t unfinished_bytes(int fd)
{
    char tail[TAIL_BYTES], begin[sizeof TIMELINE_BEGIN - 1];
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || pread(fd, begin, sizeof begin, 0) != (ssize_t)sizeof begin ||
        memcmp(begin, TIMELINE_BEGIN, sizeof begin) != 0)
        return 0;
    off_t from = st.st_size > TAIL_BYTES ? st.st_size - TAIL_BYTES : 0;
    ssize_t n = pread(fd, tail, sizeof tail, from);
    if (n < 2 || memcmp(tail + n - 2, "]\n", 2) == 0)
        return 0;
    size_t end = whole_events(tail, (size_t)n);
    return end > 0 ? from + (off_t)end : 0;
}

int timeline_keep(const char *path, bool *kept, struct quire_error *err)
{
    static const char ending[] = "\n]\n";
    char name[PATH_MAX];
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    off_t end = fd >= 0 ? unfinished_bytes(fd) : 0;
    *kept = false;
    bool closed = end > 0 && pwrite(fd, ending, sizeof ending - 1, end) == (ssize_t)sizeof ending - 1 &&
                  ftruncate(fd, end + (off_t)sizeof ending - 1) == 0;
    if (fd >= 0)
        close(fd);
    if (end == 0)
        return QUIRE_OK;
    if (!closed || snprintf(name, sizeof name, "%s.unfinished", path) >= (int)sizeof name || rename(path, name) != 0)
        return quire_fail(err, QUIRE_IO,
                          "--trace-file %s: the trace of an ended process cannot be closed and renamed to "
                          "%s.unfinished: %s",
                          path, path, strerror(errno));
    *kept = true;
    return QUIRE_OK;
}
