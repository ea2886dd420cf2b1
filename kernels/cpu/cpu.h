/* kernels/cpu: docs/internals/numerics.md at the speed of the machine. Computes the same bits as kernels/ref. Calls
 * come from the engine's thread (backend.h).
 *
 * One binary contains the arithmetic once for each instruction set. cpu_open() selects the best set that the machine
 * has, or the set that the environment variable QUIRE_ISA names. Operations that do not justify an instruction set of
 * their own come from ref, as plain loops that compilers vectorize for AVX2. On a Zen 4 core, for a model of 0.5B
 * parameters, one token takes 0.2 us in an RMSNorm, 0.2 us in RoPE with its KV write, and 2.3 us in SiLU-mul. With 24
 * layers that is 70 us, of at least 15,000 us for a single decoded token and 3,600 us for a token of a chunk. Embedding
 * and gather are copies, angles are computed once per step, and sampling takes 50 us for a greedy row of 152,000
 * logits, and 340 us with top_k, top_p and logprobs. */
#ifndef QUIRE_KERNELS_CPU_CPU_H
#define QUIRE_KERNELS_CPU_CPU_H

#include "kernels/backend.h"
#include "kernels/cpu/kernels.h"
#include "kernels/host/host.h"
#include "kernels/open.h"

#include <stdbool.h>
#include <stdint.h>

#define CPU_MAX_ISAS 4

struct cpu_backend {
    struct host_backend host;
    enum cpu_arch arch; /* the best instruction set that it uses */
};

static inline enum cpu_arch cpu_arch_of(struct k_backend *b)
{
    return ((struct cpu_backend *)b)->arch;
}

/* Returns the set's name, as in QUIRE_ISA. */
const char *cpu_arch_name(enum cpu_arch arch);

/* The implementation of k_instruction_set_at() for a machine that has the first set. */
bool cpu_instruction_set(uint32_t i, struct k_instruction_set *out);

/* Returns QUIRE_UNSUPPORTED if this machine lacks the requested instructions. */
int cpu_open(const struct k_backend_options *options, struct k_backend **out, struct quire_error *err);

#endif
