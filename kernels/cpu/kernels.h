/* The kernels of the cpu backend: a table for GEMMs and one for attention (kernels/kernel_table.h). `arch` of a row is
 * the first of enum cpu_arch that has its instructions; each architecture has those of the ones before it. Constant
 * data; any thread. */
#ifndef QUIRE_KERNELS_CPU_KERNELS_H
#define QUIRE_KERNELS_CPU_KERNELS_H

#include "kernels/cpu/attention.h"
#include "kernels/kernel_table.h"
#include "kernels/pool.h"

#include <stdbool.h>
#include <stdint.h>

enum cpu_arch { CPU_AVX2 = 1, CPU_AVX512, CPU_AVX512VNNI, CPU_AMX };

/* The `call` of GEMM rows: parts of a weight that one run of the threads computes. */
struct cpu_gemm_call {
    bool is_plain; /* the parts are not quantized */
    bool is_fast; /* quantized, and the kernels with instruction sets support the parts */
    uint32_t n_tokens;
};

/* Functions for k_pool_run with a struct cpu_gemm. prepare writes the activations into the workspace; it is not called
 * if there is one token and one_token_as_is is set. multiply NULL: ref's plain loops compute each part. */
struct cpu_gemm_kernel {
    struct k_kernel kernel;
    k_pool_fn prepare, multiply;
    bool one_token_as_is;
};
extern const struct k_kernel_table cpu_gemm_kernels;

/* Every row takes every call (NULL). */
struct cpu_attention_kernel {
    struct k_kernel kernel;
    struct cpu_attn_functions run;
};
extern const struct k_kernel_table cpu_attention_kernels;

/* Returns row i of an operation's table, or NULL. */
const struct k_kernel *cpu_kernel_at(enum k_operation operation, uint32_t i);

/* Returns whether this machine's AMX tiles sum as docs/internals/numerics.md §6 specifies, in the cases where they
 * might not. Only for a machine with AMX; without it no function of AMX may be called. */
bool cpu_amx_is_exact(void);

#endif
