/* Opens the cpu backend. Like kernels/backend.c it is compiled for the oldest machine of the architecture: it selects
 * an instruction set and uses none. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm.h"
#include "kernels/planners.h"
#include "kernels/quant.h"
#include "kernels/ref/ref.h"
#include "kernels/weight_view.h"

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

static struct cpu_gemm gemm_task(struct k_backend *b, const struct k_gemm_args *a)
{
    struct cpu_gemm task = {.args = *a, .n_segments = a->unit ? K_SEGMENTS : 1};
    task.n_terms = b->form == K_FORM_TILE ? 2 : 1;
    for (uint32_t i = 0; i < task.n_segments; i++) {
        task.column[i + 1] = k_segment_begin_in(a->weight->n_cols, a->n_whole, a->first_col, a->unit, i + 1);
        task.tile[i + 1] = task.tile[i] + (task.column[i + 1] - task.column[i] + 31) / 32;
    }
    return task;
}

/* ---- quantized weights ---- */

static uint32_t least_of(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Writes the runs of a GEMM after its inputs in the workspace, for the group size of its parts. */
static void find_runs(struct cpu_gemm *g, bool as_int8)
{
    const struct k_weight_view *w = &g->args.weight->parts[g->first_part].view;
    const uint32_t n_cols = w->n_cols, group = w->format.group;
    const uint64_t columns = ((uint64_t)n_cols + 31) / 32 * 32;
    const uint64_t words = as_int8 ? CPU_QUANT_INPUT_WORDS(columns) : columns + 16;
    struct cpu_quant_run *runs = (void *)((uint32_t *)g->args.workspace_dev + g->args.n_tokens * words);
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_segments; i++)
        for (uint32_t k = g->column[i], stop; k < g->column[i + 1]; k = stop) {
            const uint32_t end = least_of(g->column[i + 1], k_group_end(w->format, n_cols, k)), chunk = k / 256 * 256;
            stop = least_of(end, chunk + 256);
            if (group > 0 && as_int8)
                stop = least_of(stop, k / 32 * 32 + 32);
            runs[n] = (struct cpu_quant_run){
                .column = k,
                .scale = group > 0 ? k / 32 + i : 0,
                .step = (uint8_t)((k - chunk) / 4),
                .n_steps = (uint8_t)((stop - k + 15) / 16 * 4),
                .group = (uint8_t)(group > 0 ? k / group - chunk / group : 0),
                .segment = (uint8_t)i,
                .ends = (group > 0 && as_int8) || stop == end,
                .is_rest = n > 0 && !runs[n - 1].ends,
            };
            n++;
        }
    g->runs = runs;
    g->n_runs = n;
}

static bool is_fast(const struct cpu_gemm *g, uint32_t part)
{
    const struct host_part *p = &g->args.weight->parts[part];
    const bool is_float = p->view.format.kind == K_E4M3 || p->view.format.kind == K_E5M2;
    return (p->is_bytes || is_float) && g->args.weight->n_cols <= CPU_QUANT_MAX_COLUMNS;
}

/* Returns whether two parts may be computed in one run of the threads. */
static bool share_inputs(const struct k_weight_view *a, const struct k_weight_view *b)
{
    return a->format.group == b->format.group && a->permutation == b->permutation && a->x_scale == b->x_scale;
}

static const struct cpu_gemm_kernel *choose(struct k_backend *b, const struct cpu_gemm_call *call)
{
    uint32_t from = 0;
    return (const void *)k_kernel_choose(&cpu_gemm_kernels, &b->choice, b->form, cpu_arch_of(b), call, &from);
}

static void run(struct k_backend *b, const struct cpu_gemm_kernel *kernel, struct cpu_gemm *task)
{
    const struct k_weight *w = task->args.weight;
    const uint64_t inputs = (uint64_t)w->n_cols * task->args.n_tokens;
    if (task->args.n_tokens > 1 || !kernel->one_token_as_is)
        host_run(b, inputs, kernel->prepare, task);
    host_run(b, inputs * w->n_rows, kernel->multiply, task);
}

/* Computes the plain parts of a weight together. */
static void gemm_plain(struct k_backend *b, struct cpu_gemm *task)
{
    const struct cpu_gemm_call call = {.is_plain = true, .n_tokens = task->args.n_tokens};
    run(b, choose(b, &call), task);
}

/* Computes a weight with quantized parts. The plain parts, in the lane form, come first, because there is only one
 * workspace. */
static void gemm_parts(struct k_backend *b, struct cpu_gemm *task)
{
    const struct k_gemm_args *a = &task->args;
    const struct k_weight *w = a->weight;
    bool has_plain = false;
    for (uint32_t p = 0; p < w->n_parts; p++)
        has_plain = has_plain || k_format_is_plain(w->parts[p].view.format);
    if (has_plain)
        gemm_plain(b, task);
    for (uint32_t p = 0, end; p < w->n_parts; p = end) {
        const struct host_part *part = &w->parts[p];
        end = p + 1;
        if (k_format_is_plain(part->view.format))
            continue;
        const struct cpu_gemm_call call = {.is_fast = is_fast(task, p), .n_tokens = a->n_tokens};
        const struct cpu_gemm_kernel *kernel = choose(b, &call);
        if (!kernel->multiply) {
            ref_gemm_quant(b, a, part);
            continue;
        }
        while (end < w->n_parts && is_fast(task, end) && share_inputs(&part->view, &w->parts[end].view))
            end++;
        task->first_part = p;
        task->last_part = end;
        find_runs(task, b->form == K_FORM_INT8);
        run(b, kernel, task);
    }
}

static int cpu_gemm(struct k_backend *b, const struct k_gemm_args *a, struct quire_error *err)
{
    int status = host_check_form(b, a->weight, err);
    if (status != QUIRE_OK)
        return status;
    struct cpu_gemm task = gemm_task(b, a);
    if (host_is_quantized(a->weight))
        gemm_parts(b, &task);
    else
        gemm_plain(b, &task);
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

static int cpu_weight_create(struct k_backend *b, const struct k_weight_view *parts, uint32_t n_experts,
                             uint32_t n_parts, struct k_weight **out, struct quire_error *err)
{
    int status = k_weight_one_expert(n_experts, err);
    if (status == QUIRE_OK)
        status = host_weight_create(b, parts, n_experts, n_parts, out, err);
    if (status != QUIRE_OK || b->form != K_FORM_INT8)
        return status;
    status = cpu_repack(b, *out, err);
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
