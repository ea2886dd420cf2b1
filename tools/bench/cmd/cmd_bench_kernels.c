/* quire bench kernels: the cases of kernels/cases, or one shape from the command line, timed on one backend and held against
 * what the machine can do at most. */
#include "kernels/cases/isolate.h"
#include "kernels/cpu/cpu.h"
#include "app/command/progress.h"
#include "tools/bench/cmd/shape.h"
#include "tools/bench/cmd/timing.h"
#include "tools/bench/cmd/work.h"
#include "app/command/cli.h"
#include "tools/bench/cmd/cmd_bench.h"
#include "app/command/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BENCH_MAX_CASES 256
#define CASE_LIMIT_S 60 /* of a device: the longest takes 3 s */

struct kernels_options { /* as given */
    const char *device, *filter, *kernel;
    uint32_t n_threads;
    double limit_gb_s, limit_tflop_s; /* of a device; 0: not given */
    bool json, quick;
    struct bench_shape shape;
};

struct target { /* the backend under test */
    bool is_device, wide;
    const char *isa, *limits_from;
    char name[16], description[192];
};

struct selection { /* the cases to measure; they do not change once they are chosen */
    const struct op_case *cases; /* [n_all] the table's, or the shape's */
    size_t n_all;
    bool is_supported[BENCH_MAX_CASES]; /* of each of the cases */
    uint32_t n_cases, n_lacking;
    struct isolate_range range; /* of the cases, that this process measures */
    int name_width; /* of the longest case's name */
};

struct bench {
    const struct kernels_options *options;
    struct target target;
    struct selection chosen;

    struct bench_limits *limits; /* of host memory: from the first case on */
    double read_gb_s, fma_gflop_s; /* the best case's limits */
    uint32_t n_rows; /* of the JSON so far */
};

/* ---- the report ---- */

static void print_heading(const struct bench *bench)
{
    if (bench->target.is_device)
        printf("%s\n%s, recorded as a graph where the operation can be, with the 10th and 90th\n"
               "percentiles; share: of the given limit that binds\n\n",
               bench->target.description, bench->options->quick ? "one call each" : "median of 31 bursts of calls");
    else
        printf("%s, %u threads; %s, with the 10th and 90th percentiles\n"
               "share: of the limit that binds (reading memory, or FMA), measured between the calls; cases\n"
               "whose data the step has in a cache have none\n\n",
               bench->target.description, bench->options->n_threads,
               bench->options->quick ? "one call each" : "median of 5 to 31 calls within a step");
    printf("%-*s %10s %21s %8s %9s  %-13s %s\n", bench->chosen.name_width, "case", "median us", "10 %  -  90 %", "GB/s",
           "GFLOP/s", "share", "kernel");
    fflush(stdout); /* also where the first case hangs */
}

static json_t *real_or_null(double x)
{
    return x > 0 ? json_real(x) : json_null();
}

/* Row by row, each on a line of its own: what ends early has said what it measured. */
static int print_json_line(json_t *object, const char *before, const char *after)
{
    char *text = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(object);
    if (!text)
        return QUIRE_NO_MEMORY;
    size_t end = strlen(text) - (*after == ','); /* what comes after goes on in the object */
    bool ok = printf("%s%.*s%s", before, (int)end, text, after) > 0 && fflush(stdout) == 0;
    free(text);
    return ok ? QUIRE_OK : QUIRE_IO;
}

static int print_json_heading(const struct bench *bench)
{
    return print_json_line(json_pack("{s:s, s:s, s:s, s:i, s:s?, s:i}", "device", bench->target.name, "description",
                                     bench->target.description, "isa", bench->target.isa, "threads",
                                     (int)bench->options->n_threads, "limits", bench->target.limits_from,
                                     "not_measured", (int)bench->chosen.n_lacking),
                           "", ",\"cases\":[\n");
}

/* kernel: the row that ran, NULL: the operation has no table of kernels. */
static int report(struct bench *bench, const struct op_case *c, const struct bench_timing *t, const char *kernel)
{
    double bytes, flops, share = 0;
    bool by_fma = false;
    bench_work(c, &bytes, &flops);
    double gb_s = bytes / t->median_us * 1e-3, gflop_s = flops / t->median_us * 1e-3;
    bool crosses_bus = bench->target.is_device &&
                       c->op == K_OP_KV_COPY; /* one arena is host memory: no limit of the device's */
    bool has_share = bench_work_cold_bytes(c) > 0 && t->read_gb_s > 0 && !crosses_bus;
    if (has_share) {
        by_fma = t->fma_gflop_s > 0 && flops / t->fma_gflop_s > bytes / t->read_gb_s;
        share = by_fma ? gflop_s / t->fma_gflop_s : gb_s / t->read_gb_s;
    }
    if (!bench->options->json) {
        char text[32] = "-";
        if (has_share)
            snprintf(text, sizeof text, "%.0f %% of %s", share * 100, by_fma ? "FMA" : "read");
        printf("%-*s %10.1f %9.1f - %9.1f %8.2f %9.2f  %-13s %s\n", bench->chosen.name_width, op_name(c), t->median_us,
               t->low_us, t->high_us, gb_s, gflop_s, text, kernel ? kernel : "");
        fflush(stdout);
        return QUIRE_OK;
    }
    json_t *row = json_pack("{s:s, s:s?, s:i, s:i, s:f, s:f, s:f, s:f, s:f}", "case", op_name(c), "kernel", kernel,
                            "calls", (int)t->n_runs, "calls_in_burst", (int)t->n_calls, "median_us", t->median_us,
                            "p10_us", t->low_us, "p90_us", t->high_us, "gb_s", gb_s, "gflop_s", gflop_s);
    int bad = !row || json_object_set_new(row, "read_limit_gb_s", real_or_null(has_share ? t->read_gb_s : 0)) ||
              json_object_set_new(row, "fma_limit_gflop_s", real_or_null(has_share ? t->fma_gflop_s : 0)) ||
              json_object_set_new(row, "limit", has_share ? json_string(by_fma ? "fma" : "read") : json_null()) ||
              json_object_set_new(row, "share_of_limit", has_share ? json_real(share) : json_null());
    if (bad) {
        json_decref(row);
        return QUIRE_NO_MEMORY;
    }
    return print_json_line(row, bench->n_rows++ ? "," : "", "\n");
}

/* Forces the kernel of --kernel on the operation. */
static int force_kernel(const struct bench *bench, struct k_backend *b, const struct op_case *c,
                        struct quire_error *err)
{
    const struct k_kernel *row;
    for (uint32_t i = 0; bench->options->kernel && b->ops->kernel_at && (row = b->ops->kernel_at(c->op, i)); i++)
        if (strcmp(row->name, bench->options->kernel) == 0)
            b->choice.only = row;
    return !bench->options->kernel || b->choice.only
               ? QUIRE_OK
               : quire_fail(err, QUIRE_INVALID, "--kernel %.40s: %s has no kernel of that name on %s",
                            bench->options->kernel, k_operation_name(c->op), bench->target.name);
}

static int bench_case(struct bench *bench, const struct op_case *c, struct quire_error *err)
{
    const struct k_backend_options options = {
        .device = bench->options->device, .n_threads = bench->options->n_threads, .form = c->form};
    struct k_backend *b;
    struct bench_timing t;
    const char *why;
    int status = k_backend_open(&options, &b, &why, err);
    if (status != QUIRE_OK)
        return status;
    status = force_kernel(bench, b, c, err);
    if (status == QUIRE_OK)
        status = bench_timing_run(b, c, bench->options->n_threads, bench->options->quick, bench->target.wide,
                                  &bench->limits, &t, err);
    const bool has_table = b->ops->kernel_at && b->ops->kernel_at(c->op, 0);
    char kernel[40];
    snprintf(kernel, sizeof kernel, "%s", has_table && b->choice.last ? b->choice.last->name : "");
    if (status == QUIRE_OK && bench->options->kernel && strcmp(kernel, bench->options->kernel) != 0)
        status = quire_fail(err, QUIRE_UNSUPPORTED, "--kernel %.40s: does not take %s here; without --kernel, %s does",
                            bench->options->kernel, op_name(c), kernel);
    b->ops->close(b);
    if (status != QUIRE_OK)
        return status;
    if (bench->target.is_device) {
        t.read_gb_s = bench->options->limit_gb_s;
        t.fma_gflop_s = bench->options->limit_tflop_s * 1e3;
    }
    bench->read_gb_s = t.read_gb_s > bench->read_gb_s ? t.read_gb_s : bench->read_gb_s;
    bench->fma_gflop_s = t.fma_gflop_s > bench->fma_gflop_s ? t.fma_gflop_s : bench->fma_gflop_s;
    return report(bench, c, &t, has_table ? kernel : NULL) == QUIRE_OK
               ? QUIRE_OK
               : quire_fail(err, QUIRE_IO, "the results could not be written");
}

static bool is_chosen(const struct bench *bench, const struct op_case *c)
{
    return !bench->options->filter || strstr(op_name(c), bench->options->filter);
}

/* A backend has some forms; cases of the others are left out, and counted. */
static bool is_supported(const struct bench *bench, const struct op_case *c)
{
    return bench->chosen.is_supported[c - bench->chosen.cases];
}

static void note_support(struct bench *bench, struct k_backend *b)
{
    for (size_t i = 0; i < bench->chosen.n_all && i < BENCH_MAX_CASES; i++) {
        const struct op_case *c = &bench->chosen.cases[i];
        const bool has_weight = op_is_gemm(c) || c->op == K_OP_EMBED, is_of_form = has_weight || c->form != K_FORM_LANE;
        const struct k_format format = has_weight ? op_format(c, 0) : k_format_of(K_F16);
        bench->chosen.is_supported[i] = !is_of_form ||
                                        b->ops->supports(b, c->op == K_OP_EMBED ? c->op : K_OP_GEMM, c->form, format);
    }
}

static int run_cases(struct bench *bench, struct quire_error *err)
{
    struct bench_progress progress;
    uint32_t done = 0;
    int status = QUIRE_OK;
    if (bench->chosen.range.first > 0) /* a process before this one printed the heading, and at least one row */
        bench->n_rows = 1;
    else if (!bench->options->json)
        print_heading(bench);
    else if (print_json_heading(bench) != QUIRE_OK)
        return quire_fail(err, QUIRE_IO, "the results could not be written");
    bench_progress_begin(&progress, "cases", bench->chosen.n_cases);
    for (size_t i = 0; i < bench->chosen.n_all && status == QUIRE_OK; i++) {
        const struct op_case *c = &bench->chosen.cases[i];
        if (!is_chosen(bench, c) || !is_supported(bench, c))
            continue;
        done++;
        if (i < bench->chosen.range.first || i >= bench->chosen.range.end)
            continue;
        bench_progress_end(&progress); /* the case's line comes where the bar was */
        isolate_enter(i, op_name(c));
        status = bench_case(bench, c, err);
        bench_progress_set(&progress, done);
    }
    bench_progress_end(&progress);
    return status;
}

static int finish(struct bench *bench)
{
    if (!bench->options->json) {
        if (bench->read_gb_s > 0 && !bench->target.is_device)
            printf("\nlimits, the best case's: read %.2f GB/s, FMA %.1f GFLOP/s\n", bench->read_gb_s,
                   bench->fma_gflop_s);
        if (bench->target.is_device && bench->target.limits_from) {
            printf("\nlimits, as given: read %.0f GB/s", bench->read_gb_s);
            printf(bench->fma_gflop_s > 0 ? ", products %.0f TFLOP/s\n" : "\n", bench->fma_gflop_s * 1e-3);
        }
        if (bench->chosen.n_lacking > 0)
            printf("\nnot measured: %u cases of forms that %s does not have\n", bench->chosen.n_lacking,
                   bench->target.name);
        return 0;
    }
    bool ok = printf("],\"read_gb_s\":%.9g,\"fma_gflop_s\":%.9g}\n", bench->read_gb_s, bench->fma_gflop_s) > 0 &&
              fflush(stdout) == 0;
    return ok ? 0 : command_fail(1, "the results could not be written");
}

/* ---- what is measured, and on what ---- */

/* Which instructions the backend uses: the FMA limit is theirs. Which forms it has; which it takes by itself, for cases of
 * a shape without a form. from_shape: NULL for the table's cases. */
static int look_at_backend(struct bench *bench, struct op_case *from_shape, struct k_format weights,
                           struct quire_error *err)
{
    const struct k_backend_options options = {.device = bench->options->device,
                                              .n_threads = bench->options->n_threads,
                                              .form = K_FORM_AUTO,
                                              .weight_format = weights};
    struct k_backend *b;
    const char *why;
    int status = k_backend_open(&options, &b, &why, err);
    if (status != QUIRE_OK)
        return status;
    bool is_cpu = b->ops->planner == k_planner_find("cpu");
    bench->target.isa = is_cpu ? cpu_arch_name(cpu_arch_of(b)) : "";
    bench->target.is_device = bench_is_device(b);
    snprintf(bench->target.name, sizeof bench->target.name, "%s", b->ops->planner->name);
    snprintf(bench->target.description, sizeof bench->target.description, "%s", b->description);
    bench->target.wide = is_cpu && strcmp(bench->target.isa, "avx2") != 0;
    for (uint32_t i = 0; from_shape && i < bench->chosen.n_all; i++)
        if (from_shape[i].form == K_FORM_AUTO)
            from_shape[i].form = b->form;
    note_support(bench, b);
    b->ops->close(b);
    bench->target.limits_from = !bench->target.is_device ? "measured" : bench->options->limit_gb_s > 0 ? "given" : NULL;
    return QUIRE_OK;
}

/* Exit status, 0 where there is something to measure. from_shape, moe: receive the cases of the shape, if one is given,
 * and what they point to. */
static int choose_cases(struct bench *bench, struct bench_shape_cases *from_shape, struct op_moe *moe)
{
    struct quire_error err;
    const struct bench_shape unused = {0};
    bench->chosen.cases = op_bench_cases;
    bench->chosen.n_all = op_n_bench_cases;
    if (bench->options->shape.op) {
        if (bench_shape_cases(&bench->options->shape, moe, from_shape, &err) != QUIRE_OK)
            return command_fail(2, err.text);
        bench->chosen.cases = from_shape->cases;
        bench->chosen.n_all = from_shape->n;
    } else if (memcmp(&bench->options->shape, &unused, sizeof unused) != 0) {
        return command_fail(2,
                            "--op is missing: a shape is an operation's; without any, the table's cases are measured");
    }
    struct op_case *first = bench->options->shape.op ? from_shape->cases : NULL;
    const struct k_format weights = first && op_is_gemm(first) ? op_format(first, 0) : k_format_of(K_F16);
    if (look_at_backend(bench, first, weights, &err) != QUIRE_OK)
        return command_fail(1, err.text);
    for (size_t i = 0; i < bench->chosen.n_all; i++) {
        const struct op_case *c = &bench->chosen.cases[i];
        int width = (int)strlen(op_name(c));
        if (!is_chosen(bench, c))
            continue;
        bench->chosen.n_lacking += !is_supported(bench, c);
        bench->chosen.n_cases += is_supported(bench, c);
        bench->chosen.name_width = width > bench->chosen.name_width ? width : bench->chosen.name_width;
    }
    if (bench->chosen.n_cases == 0 && bench->chosen.n_lacking == 0)
        return command_fail(2, "--case: no case has that in its name; without --case all are shown");
    return bench->chosen.n_cases > 0 ? 0 : command_fail(1, "the device does not have the form of any of these cases");
}

#define OWN_FLAGS_MAX 32

static size_t own_flags(struct kernels_options *o, struct cli_option *out)
{
    struct bench_shape *shape = &o->shape;
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "Options:", .kind = CLI_GROUP},
        {.names = "device,backend", .kind = CLI_STRING, .target = &o->device, .value = "NAME",
         .help = "cpu, ref, cuda or cuda:N. Default cpu. QUIRE_ISA=avx2 in the environment makes cpu use no more than AVX2."},
        {.names = "threads", .kind = CLI_U32, .target = &o->n_threads, .max = K_MAX_THREADS, .value = "N",
         .help = "Compute threads. Default: the cores this process may use."},
        {.names = "case", .kind = CLI_STRING, .target = &o->filter, .value = "TEXT",
         .help = "Only cases whose name holds TEXT: gemm, \"float16 T1 \", attention."},
        {.names = "kernel", .kind = CLI_STRING, .target = &o->kernel, .value = "NAME",
         .help = "Measures this row of the operation's table of kernels. Default: the one that the backend chooses."},
        {.names = "quick", .kind = CLI_FLAG, .target = &o->quick,
         .help = "One call of each case: to see that it runs, not how fast."},
        {.names = "json", .kind = CLI_FLAG, .target = &o->json, .help = "Print JSON for programs."},
        {.names = "A shape instead of the table's:", .kind = CLI_GROUP},
        {.names = "op", .kind = CLI_STRING, .target = &shape->op, .value = "NAME",
         .help = "One of" BENCH_SHAPE_OPS "."},
        {.names = "tokens", .kind = CLI_STRING, .target = &shape->tokens, .value = "N[,N...]",
         .help = "Tokens of the step, a case each: 1,8,64. Of sample, rows of logits; of kv_copy, blocks."},
        {.names = "rows", .kind = CLI_U32, .target = &shape->n_rows, .max = 1 << 24, .value = "N",
         .help = "Outputs of a gemm; vocabulary of embed and sample; rows picked by gather; blocks of kv_copy's arenas."},
        {.names = "cols", .kind = CLI_U32, .target = &shape->n_cols, .max = 1 << 24, .value = "N",
         .help = "Inputs of a gemm; width of a token elsewhere."},
        {.names = "unit", .kind = CLI_U32, .target = &shape->unit, .max = 1 << 24, .value = "N",
         .help = "Columns to a unit of a gemm that sums in segments, as attention's output does by the head. Default: one segment."},
        {.names = "dtype", .kind = CLI_STRING, .target = &shape->dtype, .value = "TYPE",
         .help = "Of the weights, or of the KV cache: float16 (default), bfloat16, float32. Of weights also q8_0, q4_k and\n"
                 "the like, and int4, int8, float8_e4m3 and float8_e5m2, with a scale for a row or, as int4/128, for so many columns.\n"
                 "Of a cache also int8, float8_e4m3 and float8_e5m2."},
        {.names = "form", .kind = CLI_STRING, .target = &shape->form, .value = "FORM",
         .help = "Of gemm and attention: lane, tile, tile-bf16, mma or int8. Default: what the device takes by itself."},
        {.names = "sampling", .kind = CLI_STRING, .target = &shape->sampling, .value = "KIND",
         .help = "What rows of sample ask for: greedy, temperature, top_p or full (default): top_k 50, top_p 0.9, 5 logprobs."},
        {.names = "heads", .kind = CLI_STRING, .target = &shape->heads, .value = "Q/KV", .help = "Heads of queries and of KV: 32/8."},
        {.names = "experts", .kind = CLI_STRING, .target = &shape->experts, .value = "E/USED", .help = "Number of experts, and of those that a token uses: 64/8. --rows is then the number of rows of one expert."},
        {.names = "head-dim", .kind = CLI_U32, .target = &shape->head_dim, .max = 256, .value = "N", .help = "Of attention's heads."},
        {.names = "seqs", .kind = CLI_STRING, .target = &shape->seqs, .value = "LIST",
         .help = "Sequences of the step, COUNTxTOKENS@POSITION: 64x1@4096 decodes 64 with 4096 tokens behind each,\n"
                 "1x512@0 is a first chunk. At most 64; several with commas."},
        {.names = "block-tokens", .kind = CLI_U32, .target = &shape->block_tokens, .max = 128, .value = "N",
         .help = "Tokens of a KV block. Default 16."},
        {.names = "window", .kind = CLI_U32, .target = &shape->window, .max = 1 << 24, .value = "N",
         .help = "Attention's window. Default: all positions."},
        {.names = "A device's limits:", .kind = CLI_GROUP},
        {.names = "limit-gb-s", .kind = CLI_F64, .target = &o->limit_gb_s, .max = 1e6, .value = "X",
         .help = "What its memory can be read at, measured elsewhere. Without it there are no shares."},
        {.names = "limit-tflop-s", .kind = CLI_F64, .target = &o->limit_tflop_s, .max = 1e6, .value = "X",
         .help = "What its tensor cores do at most, measured elsewhere. Default: none, and shares are of reading alone."},
    };
    /* clang-format on */
    _Static_assert(sizeof rows / sizeof rows[0] < OWN_FLAGS_MAX, "raise OWN_FLAGS_MAX");
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

/* Case i was lost: its row says how. */
static void report_lost(void *context, size_t i, const char *name, const char *how)
{
    const struct bench *bench = context;
    if (bench->options->json)
        print_json_line(json_pack("{s:s, s:s}", "case", name, "error", how), i > 0 ? "," : "", "\n");
    else
        printf("%s: not measured: %s\n", name, how);
    fflush(stdout);
}

static void report_explained(void *context, const char *line)
{
    (void)context;
    printf("%s\n", line);
    fflush(stdout);
}

/* On a device, a case that dies takes no other with it. */
static int run_isolated(struct bench *bench)
{
    struct quire_error err;
    int code;
    const struct isolate_job job = {.n = BENCH_MAX_CASES,
                                    .limit_s = CASE_LIMIT_S,
                                    .lost = report_lost,
                                    .explained = bench->options->json ? NULL : report_explained,
                                    .context = bench};
    if (isolate_run(&job, &code, &err) == QUIRE_OK)
        return code;
    fprintf(stderr, "quire: %s\n", err.text);
    return 1;
}

int bench_kernels(int argc, char **argv)
{
    struct kernels_options options = {.device = "cpu"};
    struct bench_shape_cases from_shape = {.n = 0};
    struct op_moe moe = {0};
    struct bench bench = {.options = &options};
    struct quire_error err;
    struct cli_option rows[OWN_FLAGS_MAX];
    rows[own_flags(&options, rows)] = (struct cli_option){0};
    const struct cli_command command = {
        .name = "bench kernels",
        .usage = "quire bench kernels [options]",
        .about =
            "Times each operation of the kernels on shapes of a 0.5B model, or one operation on the shape that you give,\n"
            "and says what share of the machine's limit it reaches: on a CPU, of the memory read, or of the multiply-adds,\n"
            "that the same threads manage at best, measured in turns with it. Weights, KV and logits are read from memory,\n"
            "not from a cache.",
        .examples = "examples:\n"
                    "  quire bench kernels\n"
                    "  quire bench kernels --case gemm --threads 2\n"
                    "  QUIRE_ISA=avx2 quire bench kernels --case \"gemm bfloat16\" --json\n"
                    "  quire bench kernels --op gemm --rows 4096 --cols 4096 --tokens 1,8,64 --dtype bfloat16\n"
                    "  quire bench kernels --op moe_gemm_gated --rows 1536 --cols 2048 --experts 64/8 --tokens 1,16\n"
                    "  quire bench kernels --device cuda --op attention --heads 32/8 --head-dim 128 --seqs 64x1@4096",
        .options = rows,
        .positionals = {NULL},
    };
    int code;
    if (!command_begin(&command, argc, argv, &code))
        return code;
    if (options.n_threads == 0)
        options.n_threads = k_default_threads();
    bench.chosen.range = isolate_range(BENCH_MAX_CASES);
    if (!bench.chosen.range.is_child && strncmp(options.device, "cuda", 4) == 0)
        return run_isolated(&bench);
    code = choose_cases(&bench, &from_shape, &moe);
    if (code != 0)
        return code;
    int status = run_cases(&bench, &err);
    code = status == QUIRE_OK ? finish(&bench)
                              : command_fail(bench.chosen.range.is_child ? ISOLATE_BROKEN : 1, err.text);
    bench_limits_close(bench.limits);
    return code;
}
