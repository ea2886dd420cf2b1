/* The memory that this process may still use: the machine's, or its container's if that is less. Owns nothing. Any
 * thread. */
#ifndef QUIRE_BASE_HOST_MEMORY_H
#define QUIRE_BASE_HOST_MEMORY_H

#include <stdint.h>

/* Returns available bytes. Page cache that can be dropped counts as free. Reads /proc and the cgroup. */
uint64_t host_memory_available(void);

#endif
