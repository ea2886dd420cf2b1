/* Opens a backend, and lists what this machine can compute with: instruction sets and threads. One thread at a time.
 * close() of kernels/backend.h frees a backend. */
#ifndef QUIRE_KERNELS_OPEN_H
#define QUIRE_KERNELS_OPEN_H

#include "base/status.h"
#include "kernels/format.h"
#include "kernels/gemm_form.h"

#include <stdbool.h>
#include <stdint.h>

struct k_backend; /* kernels/backend.h */

/* The UUID of a GPU, which is the same in every process, unlike the GPU's number. */
#define K_GPU_ID_BYTES 16
struct k_gpu_id {
    unsigned char bytes[K_GPU_ID_BYTES];
};
#define K_MAX_GPUS 32u /* per host; others are ignored */

/* Called once while a GPU's backend is opened. Chooses one of the GPUs that this process sees, starting at the device's
 * number. n is at least 1, and the function sets *out below n. If it fails, k_backend_open() returns its status. */
struct k_gpu_choice {
    void *context;
    int (*choose)(void *context, const struct k_gpu_id *seen, uint32_t n, uint32_t *out, struct quire_error *err);
};

struct k_backend_options {
    const char *device; /* "auto", "ref", "cpu", "cuda", "cuda:N" */
    uint32_t n_threads; /* 0 = the result of k_backend_threads() */
    enum k_gemm_form form; /* K_FORM_AUTO: mma on a GPU, tile where it is faster, otherwise lane */
    struct k_format weight_format; /* the weight format for which K_FORM_AUTO chooses */
    const char *cpu_bind; /* NULL or "auto", "none", or the CPU of each thread: "0-3,8" */
    bool not_invariant; /* a GPU uses NVIDIA's library for GEMMs of many tokens in the mma form; no effect on a host */
    const struct k_gpu_choice *choice; /* NULL selects the first GPU; read before k_backend_open() returns */
};

/* Opens a backend. "auto" selects the best one that this machine has. *why says in one line which one and why (static
 * or owned by the backend). Returns QUIRE_UNSUPPORTED if the machine or the build lacks it. If threads are bound to
 * CPUs, the thread that begins the first step stays on its CPU too. */
int k_backend_open(const struct k_backend_options *options, struct k_backend **out, const char **why,
                   struct quire_error *err);

/* Lists the instruction sets of the cpu backend, best last. Returns false past the last. Other architectures have no
 * entries. */
struct k_instruction_set {
    const char *name; /* "avx2", "avx512", "amx": static, as in QUIRE_ISA */
    const char *lacks; /* NULL if this machine has it, otherwise the reason, static */
};
bool k_instruction_set_at(uint32_t i, struct k_instruction_set *out);

/* Returns whether the library for GPUs is there and has this version. Otherwise err, which may be NULL, has the reason.
 * Loads the library and does not start the driver. */
bool k_cuda_library(struct quire_error *err);

/* Returns the number of compute threads for these options: n_threads, or the CPUs in cpu_bind's list, or the physical
 * cores that this process may use, within its CPU quota. QUIRE_INVALID names the option. */
int k_backend_threads(const struct k_backend_options *options, uint32_t *out, struct quire_error *err);
uint32_t k_default_threads(void); /* for default options; at least 1 */
#define K_MAX_THREADS 512u

#endif
