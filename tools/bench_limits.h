/* What this machine can do at most, measured, so that a kernel's figure has something to be held against
 * in the same run: bytes read from memory a second, and fused multiply-adds a second.
 *
 * One thread calls; the threads that measure are the object's own.
 */
#ifndef QUIRE_TOOLS_BENCH_LIMITS_H
#define QUIRE_TOOLS_BENCH_LIMITS_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct bench_limits;

struct bench_limits_result {
    double read_gb_s;    /* all threads together, each reading 4 or 8 streams (the better) of rows of 8 KiB */
    double fma_gflop_s;  /* all threads together, fp32, in registers */
};

/* wide: AVX-512 instead of AVX2, where the backend under test uses it. Allocates and fills the larger of
 * 1 GiB and four times the last-level cache. */
int bench_limits_open(uint32_t n_threads, bool wide, struct bench_limits **out, struct quire_error *err);
void bench_limits_close(struct bench_limits *l); /* NULL is fine */

/* Raises each figure of *best that is beaten. About 150 ms; afterwards nothing of before is in a cache. */
void bench_limits_measure(struct bench_limits *l, struct bench_limits_result *best);

/* The last-level cache as the system tells it; 32 MiB when it does not. */
uint64_t bench_cache_bytes(void);

#endif
