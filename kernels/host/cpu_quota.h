/* The CPU time that this process's control groups allow. Owns nothing. Any thread. */
#ifndef QUIRE_KERNELS_HOST_CPU_QUOTA_H
#define QUIRE_KERNELS_HOST_CPU_QUOTA_H

#include <stdint.h>

/* Returns whole CPUs, rounded down, at least 1; 0 means no limit. The smallest limit of the group and those above it
 * counts, in cgroup v2 (cpu.max) and v1 (cpu.cfs_quota_us). root: "" for this machine; for tests, a directory that
 * contains proc/ and sys/. */
uint32_t cpu_quota(const char *root);

#endif
