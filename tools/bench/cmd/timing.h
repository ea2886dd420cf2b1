/* Times one case of the kernels on an open backend, as it runs within a step.
 *
 * On host memory: call after call, alternating with samples of the read and multiply limits of the same threads. On a
 * device, the host only queues: a sample is a burst of calls, recorded as a graph if possible, so that the device is
 * timed and not the launches; its limits must be given. Data that a step reads from memory is not in a cache here
 * either: calls alternate between copies.
 *
 * One thread: the owner of the backend.
 */
#ifndef QUIRE_TOOLS_BENCH_TIMING_H
#define QUIRE_TOOLS_BENCH_TIMING_H

#include "kernels/cases/op_table.h"
#include "tools/bench/cmd/limits.h"

struct bench_timing {
    double median_us, low_us, high_us; /* of a call; the 10th and 90th percentiles */
    uint32_t n_runs;   /* samples */
    uint32_t n_calls;  /* in each of them */
    double read_gb_s, fma_gflop_s; /* medians of the threads' limits at the same time; 0: not measured */
};

/* *limits: opened by the first case on host memory; the caller closes it. wide: as in bench_limits_open(). quick: one
 * call, without control of caches: to check that a case runs. */
int bench_timing_run(struct k_backend *b, const struct op_case *c, uint32_t n_threads, bool quick, bool wide,
                     struct bench_limits **limits, struct bench_timing *out, struct quire_error *err);

/* Returns whether the backend has its own memory, which the host fills through copies. */
static inline bool bench_is_device(const struct k_backend *b)
{
    return b->ops->memory != NULL;
}

#endif
