/* Times one case of the kernels on an open backend, as it runs within a step.
 *
 * On host memory: call after call, in turns with samples of what the same threads read and multiply at most. On a device
 * the host only queues: a sample is a burst of calls, recorded as a graph where the operation can be, so that what is
 * timed is the device and not the launches; its limits have to be told.
 * What a step finds in memory is not in a cache here either: calls take turns on copies.
 */
#ifndef QUIRE_TOOLS_BENCH_TIMING_H
#define QUIRE_TOOLS_BENCH_TIMING_H

#include "kernels/cases/op_table.h"
#include "tools/bench/cmd/limits.h"

struct bench_timing {
    double median_us, low_us, high_us; /* of a call; the 10th and 90th percentiles */
    uint32_t n_runs;   /* samples */
    uint32_t n_calls;  /* in each of them */
    double read_gb_s, fma_gflop_s; /* what the threads managed at the same time, medians; 0: not measured */
};

/* *limits: opened by the first case on host memory; the caller closes it. wide: as bench_limits_open() says.
 * quick: one call, of data wherever it lies: to see that a case runs. */
int bench_timing_run(struct k_backend *b, const struct op_case *c, uint32_t n_threads, bool quick, bool wide,
                     struct bench_limits **limits, struct bench_timing *out, struct quire_error *err);

/* Memory of its own, which the host fills through copies. */
static inline bool bench_is_device(const struct k_backend *b)
{
    return b->ops->memory != NULL;
}

#endif
