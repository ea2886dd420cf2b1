/* Opens the cpu backend. Like kernels/backend.c it is compiled for the oldest machine of the architecture: it selects
 * an instruction set and uses none. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm_runs.h"
#include "kernels/cpu/moe.h"
#include "kernels/planners.h"
#include "kernels/ref/ref.h"

#include <cpuid.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- which instructions ---------------------------------------------------------------------- */

static const char *lacks_avx512(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
               ? NULL
               : "this CPU lacks AVX-512 F, BW, DQ or VL";
}

static const char *lacks_vnni(void)
{
    const char *lacks = lacks_avx512();
    return lacks || __builtin_cpu_supports("avx512vnni") ? lacks : "this CPU lacks AVX-512 VNNI";
}

/* The kernel adds the tiles' 8 KiB to a thread's state only after the process has requested permission. */
static const char *lacks_tiles(void)
{
#if defined(QUIRE_AMX_STUB) /* the test's tiles need no permission */
    return NULL;
#else
    enum { TILE_BIT = 1 << 24, INT8_BIT = 1 << 25, BF16_BIT = 1 << 22, REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    unsigned eax, ebx, ecx, edx, low, high;
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || !(edx & TILE_BIT) || !(edx & INT8_BIT) || !(edx & BF16_BIT))
        return "this CPU lacks AMX's tiles, or their int8 or bf16";
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0)); /* AVX-512 exists, so this instruction does too */
    const unsigned saved = 3u << (TILE_DATA - 1);
    return (low & saved) == saved && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0
               ? NULL
               : "this system lets no process use AMX's tiles";
#endif
}

static const char *lacks_amx(void)
{
    const char *lacks = lacks_vnni();
    if (!lacks)
        lacks = lacks_tiles();
    if (!lacks && !cpu_amx_is_exact())
        lacks = "this machine's AMX tiles sum differently than docs/internals/numerics.md specifies";
    return lacks;
}

/* By enum cpu_arch, best last. lacks NULL: k_backend_open has checked for it. */
static const struct {
    const char *name, *description;
    const char *(*lacks)(void);
} sets[CPU_MAX_ISAS] = {
    [CPU_AVX2 - 1] = {"avx2", "the CPU, with AVX2", NULL},
    [CPU_AVX512 - 1] = {"avx512", "the CPU, with AVX-512", lacks_avx512},
    [CPU_AVX512VNNI - 1] = {"avx512vnni", "the CPU, with AVX-512 and VNNI", lacks_vnni},
    [CPU_AMX - 1] = {"amx", "the CPU, with AVX-512 and AMX", lacks_amx},
};

const char *cpu_arch_name(enum cpu_arch arch)
{
    return sets[arch - 1].name;
}

bool cpu_instruction_set(uint32_t i, struct k_instruction_set *out)
{
    if (i >= CPU_MAX_ISAS)
        return false;
    *out = (struct k_instruction_set){sets[i].name, sets[i].lacks ? sets[i].lacks() : NULL};
    return true;
}

static int choose_arch(enum cpu_arch *out, struct quire_error *err)
{
    const char *asked = getenv("QUIRE_ISA");
    *out = CPU_AVX2;
    for (uint32_t i = 1; i < CPU_MAX_ISAS && !sets[i].lacks(); i++)
        *out = (enum cpu_arch)(i + 1);
    if (!asked || asked[0] == '\0')
        return QUIRE_OK;
    for (uint32_t i = 0; i < CPU_MAX_ISAS; i++) {
        if (strcmp(asked, sets[i].name) != 0)
            continue;
        if (i >= *out)
            return quire_fail(err, QUIRE_UNSUPPORTED, "QUIRE_ISA=%s: this machine does not have it%s; its best is %s",
                              asked, i + 1 == CPU_AMX ? ", or its sums differ from docs/internals/numerics.md" : "",
                              cpu_arch_name(*out));
        *out = (enum cpu_arch)(i + 1);
        return QUIRE_OK;
    }
    return quire_fail(err, QUIRE_INVALID, "QUIRE_ISA=%.40s: must be avx2, avx512, avx512vnni or amx", asked);
}

/* ---- operations: check, then all threads ------------------------------------------------------ */

static void run(struct k_backend *b, const struct cpu_gemm_kernel *kernel, struct cpu_gemm *task)
{
    const struct k_weight *w = task->args.weight;
    const uint64_t inputs = (uint64_t)w->n_cols * task->args.n_tokens;
    if (cpu_gemm_prepares(kernel, task))
        host_run(b, inputs, kernel->prepare, task);
    host_run(b, inputs * w->n_rows, kernel->multiply, task);
}

static int cpu_gemm(struct k_backend *b, const struct k_gemm_args *a, struct quire_error *err)
{
    int status = host_check_form(b, a->weight, err);
    if (status != QUIRE_OK)
        return status;
    struct cpu_gemm task = cpu_gemm_task(b, a);
    const struct cpu_gemm_kernel *kernel;
    for (uint32_t cursor = 0; (kernel = cpu_gemm_next(b, &task, UINT32_MAX, &cursor));) {
        if (kernel->multiply)
            run(b, kernel, &task);
        else
            ref_gemm_quant(b, a, &a->weight->parts[task.first_part]);
    }
    return QUIRE_OK;
}

static int cpu_gemm_gated(struct k_backend *b, const struct k_gemm_gated_args *a, struct quire_error *err)
{
    int status = k_check_gate_up(a->gemm.weight->n_rows, err);
    if (status == QUIRE_OK)
        status = cpu_gemm(b, &a->gemm, err);
    if (status == QUIRE_OK)
        ref_gate(b, a);
    return status;
}

/* ---- weights --------------------------------------------------------------------------------- */

static int repack_all(struct k_backend *b, struct k_weight *w, struct quire_error *err)
{
    int status = w->experts ? QUIRE_OK : cpu_repack(b, w, err);
    for (uint32_t e = 0; status == QUIRE_OK && w->experts && e < w->n_experts; e++)
        status = cpu_repack(b, w->experts[e], err);
    return status;
}

static int cpu_weight_create(struct k_backend *b, const struct k_weight_view *parts, uint32_t n_experts,
                             uint32_t n_parts, struct k_weight **out, struct quire_error *err)
{
    int status = host_weight_create(b, parts, n_experts, n_parts, out, err);
    if (status != QUIRE_OK || b->form != K_FORM_INT8)
        return status;
    status = repack_all(b, *out, err);
    if (status != QUIRE_OK) {
        host_weight_destroy(b, *out);
        *out = NULL;
    }
    return status;
}

/* ---- the table ------------------------------------------------------------------------------- */

static void cpu_close(struct k_backend *b)
{
    host_close(host_of(b));
}

static struct k_backend_ops cpu_ops;

/* Copies ref's table and replaces the entries that cpu computes faster. */
static void fill_ops(void)
{
    cpu_ops = ref_ops;
    cpu_ops.planner = &cpu_planner;
    cpu_ops.close = cpu_close;
    cpu_ops.weight_create = cpu_weight_create;
    cpu_ops.kernel_at = cpu_kernel_at;
    cpu_ops.gemm = cpu_gemm;
    cpu_ops.gemm_gated = cpu_gemm_gated;
    cpu_ops.moe_gemm = cpu_moe_gemm;
    cpu_ops.moe_gemm_gated = cpu_moe_gemm_gated;
    cpu_ops.attention = cpu_attention;
}

int cpu_open(const struct k_backend_options *options, struct k_backend **out, struct quire_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    enum cpu_arch arch;
    *out = NULL;
    int status = choose_arch(&arch, err);
    if (status != QUIRE_OK)
        return status;
    struct cpu_backend *c = calloc(1, sizeof *c);
    if (!c)
        return quire_fail(err, QUIRE_NO_MEMORY, "backend cpu: out of memory");
    pthread_once(&once, fill_ops);
    c->arch = arch;
    struct k_backend_options chosen = *options;
    if (options->form == K_FORM_AUTO && options->weight_format.kind == K_BF16 && arch == CPU_AMX)
        chosen.form = K_FORM_TILE;
    status = host_open(&c->host, &cpu_ops, &chosen, err);
    if (status != QUIRE_OK) {
        host_close(&c->host);
        return status;
    }
    c->host.base.description = sets[arch - 1].description;
    *out = &c->host.base;
    return QUIRE_OK;
}
