/* How much memory this process may still take: the machine's, or its container's where that is
 * less. */
#ifndef QUIRE_BASE_HOST_MEMORY_H
#define QUIRE_BASE_HOST_MEMORY_H

#include <stdint.h>

/* Bytes; page cache that can be dropped counts as free. Reads /proc and the cgroup. */
uint64_t host_memory_available(void);

#endif
