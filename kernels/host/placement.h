/* Where a host backend's compute threads run and where its memory lies: read from the machine by
 * hwloc and decided once, when the backend is opened. Changes speed only, never a bit.
 *
 * How many threads, where none are asked for: the CPUs that cpu_bind lists, else one for each
 * physical core this process may use (its affinity mask and cpuset), but no more than the whole CPUs
 * of its cgroup's quota: a thread past the quota stops all of them for the rest of each period.
 * Pinning: a list gives each thread one CPU, in the order of the list. "auto" pins, to the first
 * CPU of each core, only where the kernel could choose badly (several NUMA nodes, SMT siblings) and
 * the threads fill every core they may use: two servers that pin fewer would share the same ones.
 * Memory: on a machine of several NUMA nodes it is interleaved over those that the threads may run
 * on, or preferred on the one.
 *
 * Immutable once made, so any thread may call; hwloc's variables (HWLOC_SYNTHETIC) are honoured, and
 * of a machine that is not this one nothing is pinned.
 */
#ifndef QUIRE_KERNELS_HOST_PLACEMENT_H
#define QUIRE_KERNELS_HOST_PLACEMENT_H

#include "base/status.h"

#include <stdint.h>

struct k_placement;

/* n_threads and cpu_bind as in k_backend_options. QUIRE_INVALID names the option at fault. The caller
 * destroys it. */
int k_placement_create(uint32_t n_threads, const char *cpu_bind, struct k_placement **out, struct quire_error *err);
void k_placement_destroy(struct k_placement *p); /* NULL is fine */

uint32_t k_placement_n_threads(const struct k_placement *p);
int32_t k_placement_cpu(const struct k_placement *p, uint32_t thread); /* -1: the kernel chooses */
const char *k_placement_text(const struct k_placement *p); /* one line for people; p's own */

/* Pins the calling thread to the CPU of compute thread `thread`. Does nothing where none is chosen
 * or the system refuses: it is about speed. */
void k_placement_pin(const struct k_placement *p, uint32_t thread);

/* Sets where the pages of data[0..bytes), not touched yet, will lie. Small areas stay as they are. */
void k_placement_memory(const struct k_placement *p, void *data, uint64_t bytes);

#endif
