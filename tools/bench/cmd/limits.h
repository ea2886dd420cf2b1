/* The limits of this machine, as a reference for a kernel's figure: bytes read from memory per second, and fused
 * multiply-adds per second. Each sample is as short as a kernel's call and uses the same threads, so that the two can
 * alternate: on a shared machine, disturbances affect both.
 *
 * One thread calls: the pool's owner.
 */
#ifndef QUIRE_TOOLS_BENCH_LIMITS_H
#define QUIRE_TOOLS_BENCH_LIMITS_H

#include "kernels/pool.h"

#include <stdbool.h>

struct bench_limits;

/* wide: AVX-512 instead of AVX2, if the backend under test uses it. Allocates and fills, on the pool's threads, the
 * larger of 1 GiB and four times the last-level cache. The pool is needed until this returns. */
int bench_limits_open(struct k_pool *pool, bool wide, struct bench_limits **out, struct quire_error *err);
void bench_limits_close(struct bench_limits *l); /* NULL is allowed */

/* Reads the next 16 MiB of the buffer; each thread reads n_streams (at most 8) rows of 8 KiB in parallel. GB/s. */
double bench_limits_read(struct bench_limits *l, struct k_pool *pool, uint32_t n_streams);
/* Half a millisecond of fp32 multiply-adds in registers. GFLOP/s. */
double bench_limits_fma(struct bench_limits *l, struct k_pool *pool);
/* Reads the whole buffer: afterwards no earlier data is in a cache. */
void bench_limits_sweep(struct bench_limits *l, struct k_pool *pool);

/* The last-level cache as reported by the system; 32 MiB if unknown. */
uint64_t bench_cache_bytes(void);

#endif
