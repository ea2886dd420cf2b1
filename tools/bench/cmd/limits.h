/* What this machine can do at most, so that a kernel's figure has something to be held against: bytes read from memory a
 * second, and fused multiply-adds a second. Each is taken in samples as short as a kernel's call, on the threads that run
 * the kernel, so that the two can take turns: on a shared machine what one of them meets, the other meets too.
 *
 * One thread calls: the pool's owner.
 */
#ifndef QUIRE_TOOLS_BENCH_LIMITS_H
#define QUIRE_TOOLS_BENCH_LIMITS_H

#include "kernels/pool.h"

#include <stdbool.h>

struct bench_limits;

/* wide: AVX-512 instead of AVX2, where the backend under test uses it. Allocates and fills, on the pool's threads, the
 * larger of 1 GiB and four times the last-level cache. The pool is needed until this returns. */
int bench_limits_open(struct k_pool *pool, bool wide, struct bench_limits **out, struct quire_error *err);
void bench_limits_close(struct bench_limits *l); /* NULL is fine */

/* Reads the next 16 MiB of the buffer, each thread n_streams (at most 8) rows of 8 KiB side by side. GB/s. */
double bench_limits_read(struct bench_limits *l, struct k_pool *pool, uint32_t n_streams);
/* Half a millisecond of fp32 multiply-adds in registers. GFLOP/s. */
double bench_limits_fma(struct bench_limits *l, struct k_pool *pool);
/* Reads the whole buffer: afterwards nothing of before is in a cache. */
void bench_limits_sweep(struct bench_limits *l, struct k_pool *pool);

/* The last-level cache as the system tells it; 32 MiB when it does not. */
uint64_t bench_cache_bytes(void);

#endif
