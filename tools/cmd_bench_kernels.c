/* quire bench kernels: the cases of kernels/cases on one backend, timed as they run within a step, each held against
 * what the machine reads and multiplies at most, measured right before and after it. */
#include "kernels/cases/op_run.h"
#include "kernels/cpu/cpu.h"
#include "tools/bench_clock.h"
#include "tools/bench_limits.h"
#include "tools/bench_metrics.h"
#include "tools/bench_progress.h"
#include "tools/cli.h"
#include "tools/cmd_bench.h"
#include "tools/commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RUNS 31
#define MIN_RUNS 5
#define ENOUGH_US 1e6 /* of runs that are counted, once there are MIN_RUNS */

struct bench {
    /* from the command line */
    const char *device, *filter;
    uint32_t n_threads;
    bool json;

    struct bench_limits *limits;
    struct bench_limits_result best; /* of the whole run */
    const char *description, *isa;
    json_t *rows; /* NULL without --json */
    uint32_t n_cases;
    int name_width; /* of the longest case's name */
};

struct timing {
    double median_us, low_us, high_us; /* the 10th and 90th percentiles */
    uint32_t n_runs;
};

/* ---- what an op must move and compute, at the least ---- */

/* Positions that attention reads, each once, and pairs of a token and a position that it sees. */
static void attention_work(const struct op_case *c, double *positions, double *pairs)
{
    *positions = *pairs = 0;
    for (uint32_t s = 0; s < op_n_seqs(c); s++) {
        uint32_t first = c->seqs[s].position, end = first + c->seqs[s].n_tokens;
        bool is_cut = c->window > 0 && first >= c->window;
        *positions += is_cut ? end - (first + 1 - c->window) : end;
        for (uint32_t p = first; p < end; p++)
            *pairs += c->window > 0 && p >= c->window ? c->window : p + 1;
    }
}

static void cost(const struct op_case *c, double *bytes, double *flops)
{
    double t = op_n_tokens(c), n = c->n_rows, k = c->n_cols, size = (double)k_dtype_bytes(c->dtype);
    double heads = (double)(c->n_q_heads + 2 * c->n_kv_heads) * c->head_dim, pairs, read;
    attention_work(c, &read, &pairs);
    *flops = 0;
    switch (c->op) {
    case OP_GEMM:
        *bytes = n * k * size + 4 * t * (n + k);
        *flops = 2 * t * n * k;
        break;
    case OP_ATTENTION:
        *bytes = 2 * read * c->n_kv_heads * c->head_dim * size;
        *flops = 4 * pairs * c->n_q_heads * c->head_dim;
        break;
    case OP_ROPE_KV: *bytes = 8 * t * heads; break;
    case OP_ROPE_ANGLES: *bytes = 8 * t * k; break;
    case OP_SILU_MUL: *bytes = 12 * t * k; break;
    case OP_RMSNORM: *bytes = 16 * t * k; break;
    case OP_SAMPLE: *bytes = 4 * t * n; break;
    default: *bytes = t * k * (size + 4); break;
    }
}

/* What a step finds in memory and not in a cache: weights, the KV of other steps. 0: the op reads what the op before
 * it has written. Logits count, since sampling destroys them and each run needs its own. */
static uint64_t cold_bytes(const struct op_case *c)
{
    double read, pairs;
    attention_work(c, &read, &pairs);
    switch (c->op) {
    case OP_GEMM:
    case OP_EMBED: return (uint64_t)c->n_rows * c->n_cols * k_dtype_bytes(c->dtype);
    case OP_ATTENTION: return 2 * (uint64_t)read * c->n_kv_heads * c->head_dim * k_dtype_bytes(c->dtype);
    case OP_SAMPLE: return (uint64_t)4 * c->n_tokens * c->n_rows;
    default: return 0;
    }
}

/* ---- a case ---- */

/* Runs take turns on copies that together are larger than the last-level cache, or use each copy once. */
static uint32_t copies_of(const struct op_case *c)
{
    uint64_t bytes = cold_bytes(c), all = bench_cache_bytes() + bench_cache_bytes() / 2;
    uint64_t n = bytes ? (all + bytes - 1) / bytes : 1;
    return n < MAX_RUNS + 1 ? (uint32_t)n : MAX_RUNS + 1;
}

/* Sampling with everything on: no row is bad, most of the work is done. */
static void sample_for_real(const struct op_case *c, struct op_data *d)
{
    for (uint32_t t = 0; t < c->n_tokens; t++)
        d->rows[t] = (struct k_sample_row){.temperature = 0.7f, .top_p = 0.9f, .top_k = 50,
                                           .repetition_penalty = 1, .n_logprobs = 5, .forced = -1};
}

static int time_copies(struct bench *bench, struct k_backend *b, struct op_binding *const *copies, uint32_t n_copies,
                       struct bench_limits_result *limit, struct timing *out, struct quire_error *err)
{
    double us[MAX_RUNS], spent = 0;
    uint32_t n = 0;
    bench_limits_measure(bench->limits, limit);
    int status = b->ops->step_begin(b, err);
    /* The first call is not counted: it wakes the threads. */
    if (status == QUIRE_OK)
        status = op_call_in_step(copies[0], err);
    while (status == QUIRE_OK && n < MAX_RUNS && (n < MIN_RUNS || spent < ENOUGH_US)) {
        double start = bench_now();
        status = op_call_in_step(copies[(n + 1) % n_copies], err);
        us[n] = (bench_now() - start) * 1e6;
        spent += us[n++];
    }
    if (status == QUIRE_OK)
        status = b->ops->step_end(b, err);
    if (status != QUIRE_OK)
        return status;
    bench_limits_measure(bench->limits, limit);
    bench_sort(us, n);
    *out = (struct timing){bench_percentile(us, n, 50), bench_percentile(us, n, 10), bench_percentile(us, n, 90), n};
    return QUIRE_OK;
}

static int time_case(struct bench *bench, struct k_backend *b, const struct op_case *c,
                     struct bench_limits_result *limit, struct timing *out, struct quire_error *err)
{
    const struct op_variant variant = {.as_checkpoint = true, .n_threads = bench->n_threads};
    struct op_binding *copies[MAX_RUNS + 1];
    uint32_t n_copies = copies_of(c);
    struct op_data d;
    op_data_make(c, &d);
    if (c->op == OP_SAMPLE)
        sample_for_real(c, &d);
    for (uint32_t i = 0; i < n_copies; i++)
        copies[i] = op_bind(b, c, &d, &variant);
    int status = time_copies(bench, b, copies, n_copies, limit, out, err);
    for (uint32_t i = 0; i < n_copies; i++)
        op_release(copies[i]);
    op_data_free(&d);
    return status;
}

/* ---- the report ---- */

static void print_heading(const struct bench *bench)
{
    printf("%s, %u threads; median of %d to %d calls within a step, with the 10th and 90th percentiles\n"
           "share: of the limit that binds (reading memory, or FMA), measured around each case; cases\n"
           "whose data the step has in a cache have none\n\n"
           "%-*s %10s %21s %8s %9s  %s\n",
           bench->description, bench->n_threads, MIN_RUNS, MAX_RUNS, bench->name_width, "case", "median us", "10 %  -  90 %", "GB/s", "GFLOP/s",
           "share");
}

static int report(struct bench *bench, const struct op_case *c, const struct bench_limits_result *limit,
                  const struct timing *t)
{
    double bytes, flops;
    cost(c, &bytes, &flops);
    double gb_s = bytes / t->median_us * 1e-3, gflop_s = flops / t->median_us * 1e-3;
    double read_us = bytes / limit->read_gb_s * 1e-3, fma_us = flops / limit->fma_gflop_s * 1e-3;
    bool is_cold = cold_bytes(c) > 0, by_fma = fma_us > read_us;
    double share = (by_fma ? fma_us : read_us) / t->median_us;
    if (!bench->rows) {
        char text[32] = "-";
        if (is_cold)
            snprintf(text, sizeof text, "%.0f %% of %s", share * 100, by_fma ? "FMA" : "read");
        printf("%-*s %10.1f %9.1f - %9.1f %8.2f %9.2f  %s\n", bench->name_width, op_name(c), t->median_us, t->low_us,
               t->high_us, gb_s, gflop_s, text);
        fflush(stdout);
        return QUIRE_OK;
    }
    json_t *row = json_pack("{s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "case", op_name(c), "calls", (int)t->n_runs,
                            "median_us", t->median_us, "p10_us", t->low_us, "p90_us", t->high_us, "gb_s", gb_s, "gflop_s", gflop_s,
                            "read_limit_gb_s", limit->read_gb_s, "fma_limit_gflop_s", limit->fma_gflop_s);
    if (!row || json_object_set_new(row, "limit", is_cold ? json_string(by_fma ? "fma" : "read") : json_null()) != 0 ||
        json_object_set_new(row, "share_of_limit", is_cold ? json_real(share) : json_null()) != 0 ||
        json_array_append_new(bench->rows, row) != 0) {
        return QUIRE_NO_MEMORY;
    }
    return QUIRE_OK;
}

static int bench_case(struct bench *bench, const struct op_case *c, struct quire_error *err)
{
    const struct k_backend_options options = {
        .device = bench->device, .n_threads = bench->n_threads, .form = c->form};
    struct bench_limits_result limit = {0};
    struct k_backend *b;
    struct timing t = {0};
    const char *why;
    int status = k_backend_open(&options, &b, &why, err);
    if (status != QUIRE_OK)
        return status;
    status = time_case(bench, b, c, &limit, &t, err);
    b->ops->close(b);
    if (status != QUIRE_OK)
        return status;
    if (limit.read_gb_s > bench->best.read_gb_s)
        bench->best.read_gb_s = limit.read_gb_s;
    if (limit.fma_gflop_s > bench->best.fma_gflop_s)
        bench->best.fma_gflop_s = limit.fma_gflop_s;
    return report(bench, c, &limit, &t) == QUIRE_OK ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
}

static bool is_chosen(const struct bench *bench, const struct op_case *c)
{
    return !bench->filter || strstr(op_name(c), bench->filter);
}

static int run_cases(struct bench *bench, struct quire_error *err)
{
    struct bench_progress progress;
    uint32_t done = 0;
    int status = QUIRE_OK;
    if (!bench->rows)
        print_heading(bench);
    bench_progress_begin(&progress, "cases", bench->n_cases);
    for (size_t i = 0; i < op_n_bench_cases && status == QUIRE_OK; i++) {
        if (!is_chosen(bench, &op_bench_cases[i]))
            continue;
        bench_progress_end(&progress); /* the case's line comes where the bar was */
        status = bench_case(bench, &op_bench_cases[i], err);
        bench_progress_set(&progress, ++done);
    }
    bench_progress_end(&progress);
    return status;
}

static int finish(struct bench *bench)
{
    if (!bench->rows) {
        printf("\nlimits, best of the run: read %.2f GB/s, FMA %.1f GFLOP/s\n", bench->best.read_gb_s,
               bench->best.fma_gflop_s);
        return 0;
    }
    return bench_print_json(json_pack("{s:s, s:s, s:s, s:i, s:f, s:f, s:O}", "device", bench->device, "description",
                                      bench->description, "isa", bench->isa, "threads", (int)bench->n_threads,
                                      "read_gb_s", bench->best.read_gb_s, "fma_gflop_s", bench->best.fma_gflop_s,
                                      "cases", bench->rows));
}

/* Which instructions the backend uses: the FMA limit is theirs. */
static int open_limits(struct bench *bench, struct quire_error *err)
{
    const struct k_backend_options options = {
        .device = bench->device, .n_threads = bench->n_threads, .form = K_FORM_LANE};
    struct k_backend *b;
    const char *why;
    int status = k_backend_open(&options, &b, &why, err);
    if (status != QUIRE_OK)
        return status;
    bool is_cpu = strcmp(b->ops->name, "cpu") == 0;
    bench->isa = is_cpu ? cpu_isa_of(b)->name : "";
    bench->device = is_cpu ? "cpu" : "ref";
    bench->description = b->ops->description;
    bool wide = is_cpu && strcmp(bench->isa, "avx2") != 0;
    b->ops->close(b);
    return bench_limits_open(bench->n_threads, wide, &bench->limits, err);
}

int bench_kernels(int argc, char **argv)
{
    struct bench bench = {.device = "cpu"};
    struct quire_error err;
    bool help;
    const struct cli_option options[] = {
        {.names = "Options:", .kind = CLI_GROUP},
        {.names = "device,backend", .kind = CLI_STRING, .target = &bench.device, .value = "NAME",
         .help = "cpu or ref. Default cpu. QUIRE_ISA=avx2 in the environment makes cpu use no more than AVX2."},
        {.names = "threads", .kind = CLI_U32, .target = &bench.n_threads, .max = K_MAX_THREADS, .value = "N",
         .help = "Compute threads. Default: the cores this process may use."},
        {.names = "case", .kind = CLI_STRING, .target = &bench.filter, .value = "TEXT",
         .help = "Only cases whose name holds TEXT: gemm, \"float16 T1 \", attention."},
        {.names = "json", .kind = CLI_FLAG, .target = &bench.json, .help = "Print JSON for programs."},
        {0},
    };
    const struct cli_command command = {
        .name = "bench kernels",
        .usage = "quire bench kernels [options]",
        .about = "Times each operation of the kernels on shapes of a 0.5B model and says what share of the machine's limit\n"
                 "it reaches: of the memory read, or of the multiply-adds, that the same threads manage at best, measured\n"
                 "before and after each case. Weights, KV and logits are read from memory, not from a cache.",
        .examples = "examples:\n"
                    "  quire bench kernels\n"
                    "  quire bench kernels --case gemm --threads 2\n"
                    "  QUIRE_ISA=avx2 quire bench kernels --case \"gemm bfloat16\" --json",
        .options = options,
        .positionals = {NULL},
    };
    if (cli_parse(&command, argc, argv, &help, &err) != QUIRE_OK)
        return command_fail(2, err.text);
    if (help) {
        cli_print_help(&command);
        return 0;
    }
    for (size_t i = 0; i < op_n_bench_cases; i++) {
        if (!is_chosen(&bench, &op_bench_cases[i]))
            continue;
        int width = (int)strlen(op_name(&op_bench_cases[i]));
        bench.name_width = width > bench.name_width ? width : bench.name_width;
        bench.n_cases++;
    }
    if (bench.n_cases == 0)
        return command_fail(2, "--case: no case has that in its name; without --case all are shown");
    if (bench.n_threads == 0)
        bench.n_threads = k_default_threads();
    if (bench.json && !(bench.rows = json_array()))
        return command_fail(1, "out of memory");

    int status = open_limits(&bench, &err);
    if (status == QUIRE_OK)
        status = run_cases(&bench, &err);
    int code = status == QUIRE_OK ? finish(&bench) : command_fail(1, err.text);
    bench_limits_close(bench.limits);
    json_decref(bench.rows);
    return code;
}
