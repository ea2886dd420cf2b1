/* What this machine offers an engine: read from /proc, /sys and the system's calls, and asked of the backends. */
#ifndef QUIRE_TOOLS_MACHINE_H
#define QUIRE_TOOLS_MACHINE_H

#include "kernels/kernels.h"

#include <stdbool.h>
#include <stdint.h>

#define MACHINE_NO_LIMIT UINT64_MAX
#define MACHINE_MAX_SETS 4u

struct machine {
    char cpu[128];                 /* "AMD EPYC 9454P 48-Core Processor"; "" where the system does not say */
    char system[160];              /* "Linux 6.1.0, x86_64" */
    struct k_instruction_set sets[MACHINE_MAX_SETS];
    uint32_t n_sets;
    uint32_t n_online, n_allowed;  /* CPUs: of the machine, and of this process's affinity mask */
    uint32_t quota;                /* whole CPUs that the control groups allow; 0: no limit */
    char nodes[64];                /* NUMA nodes, "0-1" */
    uint32_t n_threads;            /* compute threads by default */
    char placement[200];           /* where they and memory are put, in words */
    uint64_t memory_bytes, free_bytes, limit_bytes; /* limit: of the control group */
    uint64_t files_now, files_most, locked_bytes;   /* RLIMIT_NOFILE soft and hard, RLIMIT_MEMLOCK */
    char huge_pages[16];           /* "madvise"; "" where there are none */
    bool has_gpu;
    char gpu[QUIRE_ERROR_BYTES];   /* what it is, else why there is none */
    char driver[160];              /* NVIDIA's, as the kernel has it; "" without one */
};

/* Opens the GPU's driver for a moment. Main thread. */
void machine_look(struct machine *out);

#endif
