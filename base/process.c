#include "base/process.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool read_stat(int32_t process, int32_t thread, char *text, size_t n_text)
{
    char path[64];
    if (thread)
        snprintf(path, sizeof path, "/proc/%d/task/%d/stat", (int)process, (int)thread);
    else
        snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    const int fd = process > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    const ssize_t n = fd >= 0 ? read(fd, text, n_text - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

bool quire_process_look(int32_t process, int32_t thread, struct quire_process_look *out)
{
    char text[512], state = '\0';
    uint64_t n_pages = 0, user = 0, system = 0;
    const uint64_t tick_ns = UINT64_C(1000000000) / (uint64_t)sysconf(_SC_CLK_TCK);
    memset(out, 0, sizeof *out);
    /* The format is "77 (a name) S 1 2 ...". The name has at most 15 bytes, which may have any value. */
    const char *name_end = read_stat(process, thread, text, sizeof text) ? strrchr(text, ')') : NULL;
    if (!name_end || sscanf(name_end, ") %c %*d %*d %*d %*d %*d %*u %*u %*u %" SCNu64 " %*u %" SCNu64 " %" SCNu64,
                            &state, &n_pages, &user, &system) != 4)
        return false;
    out->is_stopped = state == 'T';
    out->is_at_disk = state == 'D';
    out->work_ns = (user + system) * tick_ns + n_pages * QUIRE_PROCESS_PAGE_NS;
    return true;
}
