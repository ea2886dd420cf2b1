/* The GEMMs of experts: a step's choices are sorted by expert, and each expert multiplies its tokens as one GEMM, with the
 * kernels of all GEMMs. The threads divide the rows of all experts in one run, so that a decoded token, whose few experts
 * have small matrices, waits once for the threads and not once for each expert. Like cpu.c it is compiled for the oldest
 * machine of the architecture. */
#include "kernels/cpu/moe.h"

#include "kernels/args/moe.h"
#include "kernels/cpu/gemm_runs.h"
#include "kernels/cpu/lane_rows.h"
#include "kernels/ref/ref.h"

#include <string.h>

/* An expert's GEMM on its way. */
struct run {
    struct cpu_gemm task;
    const struct cpu_gemm_kernel *kernel; /* of the current run, or NULL after the last */
    uint32_t cursor;
    uint32_t first_piece, n_pieces; /* of all pieces of the threads' run */
};
_Static_assert(sizeof(struct run) <= CPU_MOE_RUN_BYTES && CPU_MOE_RUN_BYTES % 64 == 0, "the layout's runs");

/* Some tokens, at most CPU_MOE_TOKENS. Places: their choices, sorted by expert, in each by token; those whose expert is
 * another rank's stand last. */
struct batch {
    struct k_moe_gemm_args args; /* of these tokens alone */
    struct cpu_moe_layout layout;
    struct run *runs; /* [n_runs] of the experts that have a token here */
    uint32_t n_runs;
    uint32_t *order; /* [n] the choice at a place: token * n_used + index */
    uint32_t n, n_held; /* choices, and those whose expert is here */
    bool in_order; /* places are choices, so that nothing is copied: one token */
    const float *x; /* [n, K] by place */
    float *y; /* [n, N] by place */
    float *out; /* the gate's output, or NULL */
    struct k_gate gate;
};

/* ---- sorting --------------------------------------------------------------------------------- */

/* Of an expert below the first it is a number beyond the last. */
static uint32_t expert_of(const struct k_moe_gemm_args *a, uint64_t choice)
{
    const uint32_t e = a->experts_dev[choice] - a->first_expert;
    return e < a->weight->n_experts ? e : a->weight->n_experts;
}

/* Sets order, and starts[e], where expert e's places begin. */
static void sort(struct batch *batch, uint32_t *starts)
{
    const struct k_moe_gemm_args *a = &batch->args;
    const uint32_t n_experts = a->weight->n_experts;
    memset(starts, 0, (n_experts + 2) * sizeof *starts);
    for (uint32_t i = 0; i < batch->n; i++)
        starts[expert_of(a, i) + 1]++;
    for (uint32_t e = 0; e <= n_experts; e++)
        starts[e + 1] += starts[e];
    for (uint32_t i = 0; i < batch->n; i++)
        batch->order[starts[expert_of(a, i)]++] = i;
    for (uint32_t e = n_experts + 1; e > 0; e--)
        starts[e] = starts[e - 1];
    starts[0] = 0;
    batch->n_held = starts[n_experts];
    batch->in_order = a->n_tokens == 1 && batch->n_held == batch->n;
}

static void gather_task(void *context, struct k_piece piece)
{
    const struct batch *batch = context;
    const struct k_moe_gemm_args *a = &batch->args;
    const uint64_t n_cols = a->weight->n_cols;
    uint64_t begin, end;
    k_pool_share(batch->n_held, piece, &begin, &end);
    for (uint64_t i = begin; i < end; i++) {
        const uint64_t from = a->per_choice ? batch->order[i] : batch->order[i] / a->n_used;
        memcpy((float *)batch->x + i * n_cols, a->x_dev + from * n_cols, n_cols * sizeof(float));
    }
}

static void *at(const struct batch *batch, uint64_t offset)
{
    return (char *)batch->args.workspace_dev + offset;
}

/* The input and the output of place i. One token: all its choices read the same x. */
static const float *x_at(const struct batch *batch, uint64_t i)
{
    const bool is_shared = batch->in_order && !batch->args.per_choice;
    return batch->x + (is_shared ? 0 : i * batch->args.weight->n_cols);
}

static void start_runs(struct k_backend *b, struct batch *batch, const uint32_t *starts)
{
    const struct k_moe_gemm_args *a = &batch->args;
    float *workspace = at(batch, batch->layout.gemm);
    batch->n_runs = 0;
    for (uint32_t e = 0; e < a->weight->n_experts; e++) {
        const uint32_t first = starts[e], n = starts[e + 1] - first;
        if (n == 0)
            continue;
        struct k_gemm_args gemm = {.weight = host_expert(a->weight, e),
                                   .x_dev = x_at(batch, first),
                                   .bias_dev = a->bias_dev ? a->bias_dev + (uint64_t)e * a->weight->n_rows : NULL,
                                   .y_dev = batch->y + (uint64_t)first * a->weight->n_rows,
                                   .workspace_dev = workspace,
                                   .n_tokens = n,
                                   .unit = a->unit,
                                   .n_whole = a->n_whole,
                                   .first_col = a->first_col};
        batch->runs[batch->n_runs++] = (struct run){.task = cpu_gemm_task(b, &gemm)};
        workspace += cpu_moe_gemm_floats(n, a->weight->n_cols);
    }
}

/* ---- multiplying ----------------------------------------------------------------------------- */

static void prepare_task(void *context, struct k_piece piece)
{
    const struct batch *batch = context;
    uint64_t begin, end;
    k_pool_share(batch->n_runs, piece, &begin, &end);
    for (uint64_t i = begin; i < end; i++) {
        struct run *run = &batch->runs[i];
        if (run->kernel && run->kernel->multiply && cpu_gemm_prepares(run->kernel, &run->task))
            run->kernel->prepare(&run->task, (struct k_piece){0, 1, piece.thread});
    }
}

static void multiply_task(void *context, struct k_piece piece)
{
    const struct batch *batch = context;
    uint32_t low = 0, high = batch->n_runs;
    while (high - low > 1) { /* the last run that begins at or before the piece */
        const uint32_t middle = (low + high) / 2;
        if (batch->runs[middle].first_piece <= piece.index)
            low = middle;
        else
            high = middle;
    }
    struct run *run = &batch->runs[low];
    if (run->kernel && run->kernel->multiply)
        run->kernel->multiply(&run->task,
                              (struct k_piece){piece.index - run->first_piece, run->n_pieces, piece.thread});
}

/* Gives each run a share of about `wanted` pieces by its tokens, at least one. Returns the number of pieces. */
static uint32_t deal_pieces(struct batch *batch, uint32_t wanted)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < batch->n_runs; i++) {
        struct run *run = &batch->runs[i];
        const uint64_t share = (uint64_t)wanted * run->task.args.n_tokens / batch->n_held;
        run->first_piece = n;
        run->n_pieces = share > 1 ? (uint32_t)share : 1;
        n += run->n_pieces;
    }
    return n;
}

/* Every expert's GEMM has as many runs as its parts need, nearly always one. */
static void multiply(struct k_backend *b, struct batch *batch)
{
    const struct k_weight *w = batch->args.weight;
    const uint64_t inputs = (uint64_t)batch->n_held * w->n_cols;
    struct k_pool *pool = host_of(b)->pool;
    bool is_left = batch->n_runs > 0;
    while (is_left) {
        is_left = false;
        for (uint32_t i = 0; i < batch->n_runs; i++) {
            struct run *run = &batch->runs[i];
            run->kernel = run->cursor > 0 && !run->kernel
                              ? NULL
                              : cpu_gemm_next(b, &run->task, CPU_LANE_ROWS_TOKENS - 1, &run->cursor);
            is_left |= run->kernel != NULL;
        }
        if (!is_left)
            return;
        host_run(b, inputs, prepare_task, batch);
        const uint32_t wanted = host_pieces(b, inputs * w->n_rows, HOST_LARGE_PIECES_PER_THREAD);
        k_pool_run(pool, deal_pieces(batch, wanted), multiply_task, batch);
        for (uint32_t i = 0; i < batch->n_runs; i++) {
            const struct run *run = &batch->runs[i];
            if (run->kernel && !run->kernel->multiply)
                ref_gemm_quant(b, &run->task.args, &run->task.args.weight->parts[run->task.first_part]);
        }
    }
}

/* ---- putting back ---------------------------------------------------------------------------- */

static void scatter_task(void *context, struct k_piece piece)
{
    const struct batch *batch = context;
    const uint64_t n_rows = batch->args.weight->n_rows;
    uint64_t begin, end;
    k_pool_share(batch->n, piece, &begin, &end);
    for (uint64_t i = begin; i < end; i++)
        memcpy(batch->args.y_dev + batch->order[i] * n_rows, batch->y + i * n_rows, n_rows * sizeof(float));
}

static void gate_task(void *context, struct k_piece piece)
{
    const struct batch *batch = context;
    const uint64_t n = batch->args.weight->n_rows / 2;
    uint64_t begin, end;
    k_pool_share(batch->n, piece, &begin, &end);
    for (uint64_t i = begin; i < end; i++)
        ref_gate_row(batch->gate, batch->y + 2 * i * n, batch->out + batch->order[i] * n, (uint32_t)n);
}

static void fill_missing(struct batch *batch)
{
    const uint64_t n_rows = batch->args.weight->n_rows;
    for (uint64_t i = batch->n_held * n_rows; i < batch->n * n_rows; i++)
        batch->y[i] = CPU_NO_TERM;
}

/* The tokens of batch->args. */
static void compute(struct k_backend *b, struct batch *batch)
{
    const struct k_moe_gemm_args *a = &batch->args;
    const struct k_weight *w = a->weight;
    uint32_t *starts = at(batch, batch->layout.starts);
    batch->runs = at(batch, batch->layout.runs);
    batch->order = at(batch, batch->layout.order);
    batch->n = a->n_tokens * a->n_used;
    sort(batch, starts);
    const bool is_direct = batch->in_order || batch->out; /* y_dev is scratch before a gate */
    batch->x = batch->in_order ? a->x_dev : at(batch, batch->layout.x);
    batch->y = is_direct ? a->y_dev : at(batch, batch->layout.y);
    if (!batch->in_order)
        host_run(b, (uint64_t)batch->n * w->n_cols, gather_task, batch);
    start_runs(b, batch, starts);
    multiply(b, batch);
    fill_missing(batch);
    if (batch->out)
        host_run(b, (uint64_t)batch->n * w->n_rows * 4, gate_task, batch);
    else if (!is_direct)
        host_run(b, (uint64_t)batch->n * w->n_rows, scatter_task, batch);
}

/* gated: or NULL, and a is its GEMM. */
static int run_all(struct k_backend *b, const struct k_moe_gemm_args *a, const struct k_moe_gemm_gated_args *gated,
                   struct quire_error *err)
{
    const struct k_weight *w = a->weight;
    int status = k_check_moe_gemm(a, err);
    if (status == QUIRE_OK)
        status = host_check_form(b, w, err);
    for (uint32_t t = 0; status == QUIRE_OK && t < a->n_tokens; t += CPU_MOE_TOKENS) {
        const uint64_t choice = (uint64_t)t * a->n_used;
        struct batch batch = {.args = *a,
                              .layout = cpu_moe_layout(a->n_tokens, a->n_used, w->n_experts, w->n_cols, w->n_rows),
                              .out = gated ? gated->out_dev + choice * (w->n_rows / 2) : NULL};
        if (gated)
            batch.gate = gated->gate;
        batch.args.n_tokens = a->n_tokens - t < CPU_MOE_TOKENS ? a->n_tokens - t : CPU_MOE_TOKENS;
        batch.args.x_dev += (a->per_choice ? choice : t) * w->n_cols;
        batch.args.experts_dev += choice;
        batch.args.y_dev += choice * w->n_rows;
        compute(b, &batch);
    }
    return status;
}

int cpu_moe_gemm(struct k_backend *b, const struct k_moe_gemm_args *a, struct quire_error *err)
{
    return run_all(b, a, NULL, err);
}

int cpu_moe_gemm_gated(struct k_backend *b, const struct k_moe_gemm_gated_args *a, struct quire_error *err)
{
    int status = k_check_gate_up(a->gemm.weight->n_rows, err);
    return status == QUIRE_OK ? run_all(b, &a->gemm, a, err) : status;
}
