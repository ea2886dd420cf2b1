/* The minimum data and operations of a kernel's case. Pure; any thread. */
#ifndef QUIRE_TOOLS_BENCH_WORK_H
#define QUIRE_TOOLS_BENCH_WORK_H

#include "kernels/cases/op_table.h"

/* Bytes read and written, each once, and floating-point operations. */
void bench_work(const struct op_case *c, double *bytes, double *flops);

/* Bytes that a step reads from memory, not from a cache: weights, the KV of other steps. 0: the op reads the output of
 * the previous op. Logits count, because sampling overwrites them and each run needs its own. */
uint64_t bench_work_cold_bytes(const struct op_case *c);

#endif
