#include "kernels/cpu/gemm_runs.h"

#include "kernels/cpu/cpu.h"
#include "kernels/quant.h"

struct cpu_gemm cpu_gemm_task(struct k_backend *b, const struct k_gemm_args *a)
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

static bool has_plain(const struct k_weight *w)
{
    for (uint32_t p = 0; p < w->n_parts; p++)
        if (k_format_is_plain(w->parts[p].view.format))
            return true;
    return false;
}

/* The plain parts come first and together; the kernels of quantized parts need the workspace for themselves. */
const struct cpu_gemm_kernel *cpu_gemm_next(struct k_backend *b, struct cpu_gemm *task, uint32_t most_tokens,
                                            uint32_t *cursor)
{
    const struct k_weight *w = task->args.weight;
    struct cpu_gemm_call call = {.is_plain = true, .n_tokens = least_of(task->args.n_tokens, most_tokens)};
    if ((*cursor)++ == 0 && has_plain(w))
        return choose(b, &call);
    uint32_t p = task->last_part;
    while (p < w->n_parts && k_format_is_plain(w->parts[p].view.format))
        p++;
    if (p == w->n_parts)
        return NULL;
    call.is_plain = false;
    call.is_fast = is_fast(task, p);
    const struct cpu_gemm_kernel *kernel = choose(b, &call);
    task->first_part = p;
    task->last_part = p + 1;
    if (!kernel->multiply)
        return kernel;
    while (task->last_part < w->n_parts && is_fast(task, task->last_part) &&
           share_inputs(&w->parts[p].view, &w->parts[task->last_part].view))
        task->last_part++;
    find_runs(task, b->form == K_FORM_INT8);
    return kernel;
}
