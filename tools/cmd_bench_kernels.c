/* quire bench kernels: the cases of kernels/cases on one backend, timed as they run within a step. Calls take turns with
 * samples of what the same threads read and multiply at most. */
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

    struct bench_limits *limits; /* from the first case on */
    bool wide;
    double read_gb_s, fma_gflop_s; /* the best case's limits */
    const char *description, *isa;
    json_t *rows; /* NULL without --json */
    uint32_t n_cases;
    int name_width; /* of the longest case's name */
};

struct timing {
    double median_us, low_us, high_us; /* the 10th and 90th percentiles */
    uint32_t n_runs;
    double read_gb_s, fma_gflop_s; /* what the threads managed at the same time, medians; 0: not measured */
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
    case OP_KV_COPY: *bytes = 4 * t * c->n_kv_heads * c->head_dim * c->block_tokens * size; break;
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
    case OP_KV_COPY: return 2 * (uint64_t)c->n_rows * c->n_kv_heads * c->head_dim * c->block_tokens * k_dtype_bytes(c->dtype);
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

struct samples {
    double us[MAX_RUNS], read4[MAX_RUNS], read8[MAX_RUNS], fma[MAX_RUNS];
    uint32_t n;
};

static double percentile_of(double *values, uint32_t n, double p)
{
    bench_sort(values, n);
    return bench_percentile(values, n, p);
}

static int take_samples(struct bench *bench, struct k_backend *b, struct op_binding *const *copies, uint32_t n_copies,
                        bool is_cold, struct samples *s, struct quire_error *err)
{
    struct k_pool *pool = host_of(b)->pool;
    double spent = 0;
    bench_limits_sweep(bench->limits, pool);
    /* The first call is not counted: it wakes the threads. */
    int status = op_call_in_step(copies[0], err);
    while (status == QUIRE_OK && s->n < MAX_RUNS && (s->n < MIN_RUNS || spent < ENOUGH_US)) {
        if (is_cold) {
            s->read4[s->n] = bench_limits_read(bench->limits, pool, 4);
            s->read8[s->n] = bench_limits_read(bench->limits, pool, 8);
            s->fma[s->n] = bench_limits_fma(bench->limits, pool);
        }
        double start = bench_now();
        status = op_call_in_step(copies[(s->n + 1) % n_copies], err);
        s->us[s->n] = (bench_now() - start) * 1e6;
        spent += s->us[s->n++];
    }
    return status;
}

static int time_copies(struct bench *bench, struct k_backend *b, struct op_binding *const *copies, uint32_t n_copies,
                       bool is_cold, struct timing *out, struct quire_error *err)
{
    struct samples s = {.n = 0};
    int status = b->ops->step_begin(b, err);
    if (status == QUIRE_OK)
        status = take_samples(bench, b, copies, n_copies, is_cold, &s, err);
    if (status == QUIRE_OK)
        status = b->ops->step_end(b, err);
    if (status != QUIRE_OK)
        return status;
    *out = (struct timing){.median_us = percentile_of(s.us, s.n, 50), .low_us = percentile_of(s.us, s.n, 10),
                           .high_us = percentile_of(s.us, s.n, 90), .n_runs = s.n};
    if (is_cold) {
        double four = percentile_of(s.read4, s.n, 50), eight = percentile_of(s.read8, s.n, 50);
        out->read_gb_s = four > eight ? four : eight;
        out->fma_gflop_s = percentile_of(s.fma, s.n, 50);
    }
    return QUIRE_OK;
}

static int time_case(struct bench *bench, struct k_backend *b, const struct op_case *c, struct timing *out,
                     struct quire_error *err)
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
    int status = time_copies(bench, b, copies, n_copies, cold_bytes(c) > 0, out, err);
    for (uint32_t i = 0; i < n_copies; i++)
        op_release(copies[i]);
    op_data_free(&d);
    return status;
}

/* ---- the report ---- */

static void print_heading(const struct bench *bench)
{
    printf("%s, %u threads; median of %d to %d calls within a step, with the 10th and 90th percentiles\n"
           "share: of the limit that binds (reading memory, or FMA), measured between the calls; cases\n"
           "whose data the step has in a cache have none\n\n"
           "%-*s %10s %21s %8s %9s  %s\n",
           bench->description, bench->n_threads, MIN_RUNS, MAX_RUNS, bench->name_width, "case", "median us", "10 %  -  90 %", "GB/s", "GFLOP/s",
           "share");
}

static int report(struct bench *bench, const struct op_case *c, const struct timing *t)
{
    double bytes, flops, share = 0;
    bool is_cold = cold_bytes(c) > 0, by_fma = false;
    cost(c, &bytes, &flops);
    double gb_s = bytes / t->median_us * 1e-3, gflop_s = flops / t->median_us * 1e-3;
    if (is_cold) {
        by_fma = flops / t->fma_gflop_s > bytes / t->read_gb_s;
        share = by_fma ? gflop_s / t->fma_gflop_s : gb_s / t->read_gb_s;
    }
    if (!bench->rows) {
        char text[32] = "-";
        if (is_cold)
            snprintf(text, sizeof text, "%.0f %% of %s", share * 100, by_fma ? "FMA" : "read");
        printf("%-*s %10.1f %9.1f - %9.1f %8.2f %9.2f  %s\n", bench->name_width, op_name(c), t->median_us, t->low_us,
               t->high_us, gb_s, gflop_s, text);
        fflush(stdout);
        return QUIRE_OK;
    }
    json_t *row = json_pack("{s:s, s:i, s:f, s:f, s:f, s:f, s:f}", "case", op_name(c), "calls", (int)t->n_runs,
                            "median_us", t->median_us, "p10_us", t->low_us, "p90_us", t->high_us, "gb_s", gb_s,
                            "gflop_s", gflop_s);
    int bad = !row || json_object_set_new(row, "read_limit_gb_s", is_cold ? json_real(t->read_gb_s) : json_null()) ||
              json_object_set_new(row, "fma_limit_gflop_s", is_cold ? json_real(t->fma_gflop_s) : json_null()) ||
              json_object_set_new(row, "limit", is_cold ? json_string(by_fma ? "fma" : "read") : json_null()) ||
              json_object_set_new(row, "share_of_limit", is_cold ? json_real(share) : json_null());
    return json_array_append_new(bench->rows, row) || bad ? QUIRE_NO_MEMORY : QUIRE_OK;
}

static int bench_case(struct bench *bench, const struct op_case *c, struct quire_error *err)
{
    const struct k_backend_options options = {
        .device = bench->device, .n_threads = bench->n_threads, .form = c->form};
    struct k_backend *b;
    struct timing t = {0};
    const char *why;
    int status = k_backend_open(&options, &b, &why, err);
    if (status != QUIRE_OK)
        return status;
    if (!bench->limits)
        status = bench_limits_open(host_of(b)->pool, bench->wide, &bench->limits, err);
    if (status == QUIRE_OK)
        status = time_case(bench, b, c, &t, err);
    b->ops->close(b);
    if (status != QUIRE_OK)
        return status;
    bench->read_gb_s = t.read_gb_s > bench->read_gb_s ? t.read_gb_s : bench->read_gb_s;
    bench->fma_gflop_s = t.fma_gflop_s > bench->fma_gflop_s ? t.fma_gflop_s : bench->fma_gflop_s;
    return report(bench, c, &t) == QUIRE_OK ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
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
        if (bench->read_gb_s > 0)
            printf("\nlimits, the best case's: read %.2f GB/s, FMA %.1f GFLOP/s\n", bench->read_gb_s,
                   bench->fma_gflop_s);
        return 0;
    }
    return bench_print_json(json_pack("{s:s, s:s, s:s, s:i, s:f, s:f, s:O}", "device", bench->device, "description",
                                      bench->description, "isa", bench->isa, "threads", (int)bench->n_threads,
                                      "read_gb_s", bench->read_gb_s, "fma_gflop_s", bench->fma_gflop_s,
                                      "cases", bench->rows));
}

/* Which instructions the backend uses: the FMA limit is theirs. */
static int look_at_backend(struct bench *bench, struct quire_error *err)
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
    bench->device = b->ops->name;
    bench->description = b->ops->description;
    bench->wide = is_cpu && strcmp(bench->isa, "avx2") != 0;
    b->ops->close(b);
    return QUIRE_OK;
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
                 "in turns with it. Weights, KV and logits are read from memory, not from a cache.",
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

    int status = look_at_backend(&bench, &err);
    if (status == QUIRE_OK)
        status = run_cases(&bench, &err);
    int code = status == QUIRE_OK ? finish(&bench) : command_fail(1, err.text);
    bench_limits_close(bench.limits);
    json_decref(bench.rows);
    return code;
}
