/* How a GEMM becomes runs of the threads: which parts of its weight one kernel computes at a time. The calling thread's.
 * Like cpu.c it is compiled for the oldest machine of the architecture. */
#ifndef QUIRE_KERNELS_CPU_GEMM_RUNS_H
#define QUIRE_KERNELS_CPU_GEMM_RUNS_H

#include "kernels/backend.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/kernels.h"

/* Whether the activations are written to the workspace first. */
static inline bool cpu_gemm_prepares(const struct cpu_gemm_kernel *kernel, const struct cpu_gemm *task)
{
    return task->args.n_tokens > 1 || !kernel->one_token_as_is;
}

/* A GEMM's context, before its first run. */
struct cpu_gemm cpu_gemm_task(struct k_backend *b, const struct k_gemm_args *a);

/* Prepares the next of a GEMM's runs and returns its kernel, or NULL after the last. A kernel without `multiply` leaves
 * part task->first_part to ref_gemm_quant(). *cursor starts as 0. most_tokens: kernels for more are not chosen. */
const struct cpu_gemm_kernel *cpu_gemm_next(struct k_backend *b, struct cpu_gemm *task, uint32_t most_tokens,
                                            uint32_t *cursor);

#endif
