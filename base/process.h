/* The state and CPU time of another process, from Linux's /proc. Owns nothing. Any thread. */
#ifndef QUIRE_BASE_PROCESS_H
#define QUIRE_BASE_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

struct quire_process_look {
    bool is_stopped; /* by a signal; not by a debugger */
    bool is_at_disk; /* waits for a disk or a file system */
    /* CPU time in ticks of 10 ms, plus QUIRE_PROCESS_PAGE_NS for each page that was read from a disk. */
    uint64_t work_ns;
};

/* Waiting for pages counts as work, although no CPU is busy. */
#define QUIRE_PROCESS_PAGE_NS UINT64_C(2000000000)

/* thread: a thread id of the process (gettid()), or 0 for all threads; with 0 the two states are the first thread's.
 * Returns false and sets *out to 0 if the process or thread cannot be read. */
bool quire_process_look(int32_t process, int32_t thread, struct quire_process_look *out);

#endif
