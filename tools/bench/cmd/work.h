/* What an operation of the kernels must move and compute at the least, from its case alone. */
#ifndef QUIRE_TOOLS_BENCH_WORK_H
#define QUIRE_TOOLS_BENCH_WORK_H

#include "kernels/cases/op_table.h"

/* Bytes read and written, each once, and floating-point operations. */
void bench_work(const struct op_case *c, double *bytes, double *flops);

/* What a step finds in memory and not in a cache: weights, the KV of other steps. 0: the op reads what the op before
 * it has written. Logits count, since sampling destroys them and each run needs its own. */
uint64_t bench_work_cold_bytes(const struct op_case *c);

#endif
