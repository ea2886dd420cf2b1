/* The planners of this build, for who looks them up and for the backends that point to them. Those of host backends are
 * in plan.c, built for any machine; cuda's is built into libquire_cuda.so once more. */
#ifndef QUIRE_KERNELS_PLANNERS_H
#define QUIRE_KERNELS_PLANNERS_H

#include "kernels/kernels.h"

extern const struct k_planner ref_planner, cpu_planner, cuda_planner;

#endif
