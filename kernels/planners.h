/* The planners of this build, for look-ups and for the backends that point to them. The planners of host backends are
 * in plan.c and compiled for any machine. cuda's planner is also built into libquire_cuda.so. All are constant; any
 * thread. */
#ifndef QUIRE_KERNELS_PLANNERS_H
#define QUIRE_KERNELS_PLANNERS_H

#include "kernels/kv.h"
#include "kernels/planner.h"

extern const struct k_planner ref_planner, cpu_planner, cuda_planner;

#endif
