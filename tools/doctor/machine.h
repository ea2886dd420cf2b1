/* The resources of this machine for an engine, from /proc, /sys, system calls and the backends. Main thread. */
#ifndef QUIRE_TOOLS_MACHINE_H
#define QUIRE_TOOLS_MACHINE_H

#include "kernels/open.h"

#include <stdbool.h>
#include <stdint.h>

#define MACHINE_NO_LIMIT UINT64_MAX
#define MACHINE_MAX_SETS 4u

struct machine {
    char cpu[128];                 /* "AMD EPYC 9454P 48-Core Processor"; "" if unknown */
    char system[160];              /* "Linux 6.1.0, x86_64" */
    struct k_instruction_set sets[MACHINE_MAX_SETS];
    uint32_t n_sets;
    uint32_t n_online, n_allowed;  /* CPUs of the machine, and of this process's affinity mask */
    uint32_t quota;                /* whole CPUs that the control groups allow; 0: no limit */
    char nodes[64];                /* NUMA nodes, "0-1" */
    uint32_t n_threads;            /* default number of compute threads */
    char placement[200];           /* placement of threads and memory, in words */
    uint64_t memory_bytes, free_bytes, limit_bytes; /* limit: of the control group */
    uint64_t files_now, files_most, locked_bytes;   /* RLIMIT_NOFILE soft and hard, RLIMIT_MEMLOCK */
    char huge_pages[16];           /* "madvise"; "" if unavailable */
    bool has_gpu;
    char gpu[QUIRE_ERROR_BYTES];   /* its name, or why no GPU can be used */
    char driver[160];              /* NVIDIA's version in the kernel; "" without a driver */
};

/* Opens the GPU's driver for a moment. Main thread. */
void machine_look(struct machine *out);

#endif
