/* Selects a backend. Unlike the arithmetic, this file is compiled for the oldest machine of the architecture, so a
 * machine that lacks instructions gets a message instead of an illegal instruction. */
#include "kernels/backend.h"
#include "kernels/open.h"
#include "kernels/planner.h"
#if defined(QUIRE_CPU_BACKEND)
#include "kernels/cpu/cpu.h"
#endif
#include "kernels/cuda/host/open.h"
#include "kernels/planners.h"
#include "kernels/ref/ref.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static int check_machine(struct quire_error *err)
{
#if defined(__x86_64__)
    __builtin_cpu_init(); /* the result accounts for whether the system saves the wide registers */
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

bool k_instruction_set_at(uint32_t i, struct k_instruction_set *out)
{
#if defined(QUIRE_CPU_BACKEND)
    if (check_machine(NULL) == QUIRE_OK)
        return cpu_instruction_set(i, out);
    *out = (struct k_instruction_set){"avx2", "this CPU lacks AVX2, FMA or F16C"};
    return i == 0;
#else
    (void)i;
    (void)out;
    return false;
#endif
}

/* ---- the CUDA library -------------------------------------------------------------------------- */

#define CUDA_LIBRARY "libquire_cuda.so"

#if !defined(QUIRE_CUDA_LINKED)
/* Searches next to the program, in ../lib/ relative to it, and on the loader's path. Uses the first library found. */
static void *load_library(struct quire_error *err)
{
    static const char *const places[] = {"", "../lib/"};
    char program[PATH_MAX], path[PATH_MAX + sizeof "../lib/" CUDA_LIBRARY];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    while (n > 0 && program[n - 1] != '/')
        n--;
    for (int i = 0; i < 2 && n > 0; i++) {
        snprintf(path, sizeof path, "%.*s%s" CUDA_LIBRARY, (int)n, program, places[i]);
        if (access(path, F_OK) != 0)
            continue;
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!library)
            quire_fail(err, QUIRE_UNSUPPORTED, "%s", dlerror());
        return library;
    }
    void *library = dlopen(CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        quire_fail(err, QUIRE_UNSUPPORTED,
                   "no " CUDA_LIBRARY " next to the program, in ../lib or on the loader's path");
    return library;
}

/* The library is never unloaded, because CUDA's threads may run in it. */
static int find_cuda(quire_cuda_open_fn **open, struct quire_error *err)
{
    void *library = load_library(err);
    if (!library)
        return QUIRE_UNSUPPORTED;
    const char *version = dlsym(library, "quire_cuda_version");
    void *symbol = dlsym(library, "quire_cuda_open");
    if (!version || !symbol)
        return quire_fail(err, QUIRE_UNSUPPORTED, CUDA_LIBRARY " is not a Quire library");
    if (strcmp(version, QUIRE_VERSION) != 0)
        return quire_fail(err, QUIRE_UNSUPPORTED, CUDA_LIBRARY " is from Quire %.40s, but this is Quire %s", version,
                          QUIRE_VERSION);
    memcpy(open, &symbol, sizeof symbol);
    return QUIRE_OK;
}
#else
static int find_cuda(quire_cuda_open_fn **open, struct quire_error *err)
{
    (void)err;
    *open = quire_cuda_open;
    return QUIRE_OK;
}
#endif

bool k_cuda_library(struct quire_error *err)
{
    quire_cuda_open_fn *open;
    return find_cuda(&open, err) == QUIRE_OK;
}

/* err contains only the reason. */
static int open_cuda(const struct k_backend_options *options, struct k_backend **out, const char **why,
                     struct quire_error *err)
{
    quire_cuda_open_fn *open;
    int status = find_cuda(&open, err);
    return status == QUIRE_OK ? open(options, out, why, err) : status;
}

/* ---- choosing ---------------------------------------------------------------------------------- */

#if !defined(QUIRE_CUDA_LINKED)
/* Whether NVIDIA's driver runs here: also in WSL, whose device file is another. */
static bool has_gpu(void)
{
    return access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
}
#endif

/* Opens the GPU if it is suitable. A GEMM form that only a CPU has selects the CPU. Returns QUIRE_UNSUPPORTED to select
 * the CPU, and QUIRE_INVALID with an error if the options are impossible on the GPU. */
static int open_auto_on_gpu(const struct k_backend_options *options, struct k_backend **out, const char **why,
                            struct quire_error *err)
{
    static _Thread_local char reason[QUIRE_ERROR_BYTES + 8];
    struct quire_error lacking;
#if defined(QUIRE_CUDA_LINKED)
    (void)options;
    (void)out;
    (void)err;
    quire_fail(&lacking, QUIRE_UNSUPPORTED, "the CUDA backend of this build is an emulator");
#else
    int status = open_cuda(options, out, why, &lacking);
    *why = "cuda: a GPU is available";
    if (status == QUIRE_OK)
        return QUIRE_OK;
    if (status == QUIRE_INVALID)
        return quire_fail(err, QUIRE_INVALID, "%s", lacking.text);
    if (!has_gpu()) /* then nothing is wrong, and the library that is missing is no one's concern */
        quire_fail(&lacking, QUIRE_UNSUPPORTED, "this machine has no NVIDIA GPU");
#endif
    snprintf(reason, sizeof reason, "cpu: %s", lacking.text);
    *why = reason;
    return QUIRE_UNSUPPORTED;
}

int k_backend_open(const struct k_backend_options *options, struct k_backend **out, const char **why,
                   struct quire_error *err)
{
    const char *device = options->device;
    *out = NULL;
    const struct k_planner *named = k_planner_find(device);
    bool is_ref = named == &ref_planner, is_auto = strcmp(device, "auto") == 0;
    if (!named && !is_auto)
        return quire_fail(err, QUIRE_INVALID, "device %s: must be auto, ref, cpu, cuda or cuda:N", device);
    int status = check_machine(err);
    if (status != QUIRE_OK)
        return status;
    if (named == &cuda_planner) {
        status = open_cuda(options, out, why, err);
        if (status != QUIRE_OK)
            quire_error_prefix(err, "device %s", device);
        return status;
    }
    *why = is_ref ? "ref: requested" : "cpu: requested";
    status = is_auto ? open_auto_on_gpu(options, out, why, err) : QUIRE_UNSUPPORTED;
    if (status != QUIRE_UNSUPPORTED)
        return status;
#if defined(QUIRE_CPU_BACKEND)
    if (!is_ref)
        return cpu_open(options, out, err);
#endif
    if (!is_ref)
        *why = "ref: no faster kernels in this build; the bits are equal";
    return ref_open(options, out, err);
}
