/* Chooses the CPUs of a host backend's compute threads and the NUMA nodes of its memory. Reads the machine with hwloc
 * and decides once, when the backend is opened. Affects only speed, never a bit.
 *
 * Default number of threads: the CPUs in cpu_bind's list, otherwise one per physical core that this process may use
 * (its affinity mask and cpuset). It is at most the whole CPUs of the cgroup's quota: a thread beyond the quota stops
 * all threads for the rest of each period. Pinning: a list gives each thread one CPU, in the order of the list. "auto"
 * pins each thread to the first CPU of a core, but only if the kernel could choose badly (several NUMA nodes, SMT
 * siblings) and the threads use every available core: two servers that pin fewer threads would share the same cores.
 * Memory: on a machine with several NUMA nodes it is interleaved over the nodes on which the threads may run, or
 * preferred on a single node.
 *
 * Immutable once created, so any thread may call. hwloc's variables (HWLOC_SYNTHETIC) apply; threads are not pinned on
 * a simulated machine.
 */
#ifndef QUIRE_KERNELS_HOST_PLACEMENT_H
#define QUIRE_KERNELS_HOST_PLACEMENT_H

#include "base/status.h"

#include <stdint.h>

struct k_placement;

/* n_threads and cpu_bind as in k_backend_options. QUIRE_INVALID names the wrong option. The caller destroys the
 * placement. */
int k_placement_create(uint32_t n_threads, const char *cpu_bind, struct k_placement **out, struct quire_error *err);
void k_placement_destroy(struct k_placement *p); /* NULL is allowed */

uint32_t k_placement_n_threads(const struct k_placement *p);
int32_t k_placement_cpu(const struct k_placement *p, uint32_t thread); /* -1: the kernel chooses */
const char *k_placement_text(const struct k_placement *p); /* one line for people; owned by p */

/* Pins the calling thread to the CPU of compute thread `thread`. Does nothing if no CPU is chosen or the system
 * refuses, since only speed depends on it. */
void k_placement_pin(const struct k_placement *p, uint32_t thread);

/* Sets the nodes for the pages of data[0..bytes), which must not have been touched yet. Does nothing for small
 * areas. */
void k_placement_memory(const struct k_placement *p, void *data, uint64_t bytes);

#endif
