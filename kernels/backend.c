/* Chooses a backend. Unlike the arithmetic, this file is built for the oldest machine of the
 * architecture: one that lacks the instructions gets a message and not an illegal instruction. */
#include "kernels/kernels.h"
#if defined(__x86_64__)
#include "kernels/cpu/cpu.h"
#endif
#include "kernels/ref/ref.h"

#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static int check_machine(struct quire_error *err)
{
#if defined(__x86_64__)
    __builtin_cpu_init(); /* its answers include whether the system saves the wide registers */
    unsigned eax, ebx, ecx = 0, edx;
    bool has_f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c)
        return quire_fail(err, QUIRE_UNSUPPORTED,
                          "this CPU lacks AVX2, FMA or F16C: Quire needs x86-64-v3 (Intel since "
                          "2013, AMD since 2015) or aarch64");
#else
    (void)err;
#endif
    return QUIRE_OK;
}

int k_backend_open(const struct k_backend_options *options, struct k_backend **out,
                   const char **why, struct quire_error *err)
{
    const char *device = options->device;
    *out = NULL;
    if (strcmp(device, "cuda") == 0 || strncmp(device, "cuda:", 5) == 0)
        return quire_fail(err, QUIRE_UNSUPPORTED, "device %s: this build has no CUDA backend",
                          device);
    bool is_ref = strcmp(device, "ref") == 0, is_auto = strcmp(device, "auto") == 0;
    if (!is_ref && !is_auto && strcmp(device, "cpu") != 0)
        return quire_fail(err, QUIRE_INVALID,
                          "device %s: must be auto, ref, cpu, cuda or cuda:N", device);
    int status = check_machine(err);
    if (status != QUIRE_OK)
        return status;
#if defined(__x86_64__)
    if (!is_ref) {
        *why = is_auto ? "cpu: this build has no CUDA backend" : "cpu: asked for";
        return cpu_open(options, out, err);
    }
#endif
    *why = is_ref ? "ref: asked for" : "ref: no faster kernels for this architecture; the bits are equal";
    return ref_open(options, out, err);
}
