/* How much CPU time this process's control groups allow it. */
#ifndef QUIRE_KERNELS_HOST_CPU_QUOTA_H
#define QUIRE_KERNELS_HOST_CPU_QUOTA_H

#include <stdint.h>

/* Whole CPUs, rounded down, at least 1; 0 = no limit. The least of the group's own and those above it
 * counts, in cgroup v2 (cpu.max) and v1 (cpu.cfs_quota_us). root: "" for this machine; a directory
 * that holds proc/ and sys/ for tests. */
uint32_t cpu_quota(const char *root);

#endif
