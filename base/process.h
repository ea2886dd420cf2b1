/* What another process does, as Linux tells it in /proc. Any thread. */
#ifndef QUIRE_BASE_PROCESS_H
#define QUIRE_BASE_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

struct quire_process_look {
    bool is_stopped; /* by a signal; not by a debugger */
    bool is_at_disk; /* waits for one, or for a file system */
    uint64_t
        work_ns; /* CPU time, in ticks of 10 ms, and for each page that had to come from a disk QUIRE_PROCESS_PAGE_NS */
};

/* Who waits for pages works, too, although no CPU does. */
#define QUIRE_PROCESS_PAGE_NS UINT64_C(2000000000)

/* thread: one of the process', by gettid(); 0: all, the two states being the first one's. False: it cannot be seen, and *out is all 0. */
bool quire_process_look(int32_t process, int32_t thread, struct quire_process_look *out);

#endif
