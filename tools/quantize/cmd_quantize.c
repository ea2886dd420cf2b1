/* quire quantize: writes a quantized copy of a model. */
#include "app/command/command.h"
#include "app/command/commands.h"
#include "app/command/progress.h"
#include "app/models/cache.h"
#include "base/size.h"
#include "tools/quantize/job.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAX_THREADS 64u

/* A progress bar that begins with the first report of what it counts. */
struct bar {
    struct bench_progress progress;
    const char *what; /* is counted; NULL: it has not begun */
};

static void end_bar(struct bar *bar)
{
    if (bar->what)
        bench_progress_end(&bar->progress);
    bar->what = NULL;
}

static void show(void *context, const char *what, uint64_t done, uint64_t total)
{
    struct bar *bar = context;
    if (!bar->what || strcmp(bar->what, what) != 0) {
        end_bar(bar);
        bench_progress_begin(&bar->progress, what, total);
        bar->what = what;
    }
    bench_progress_set(&bar->progress, done);
}

static int parse_group(const char *text, void *target, struct quire_error *err)
{
    long long value;
    char end;
    if (sscanf(text, "%lld%c", &value, &end) != 1)
        return quire_fail(err, QUIRE_INVALID, "must be -1 or a number of columns, got \"%.40s\"", text);
    *(int64_t *)target = value;
    return QUIRE_OK;
}

static int find_model(const char *model, const char *out, struct hub_model *found, struct quire_error *err)
{
    struct hub_model swapped;
    int status = hub_model_find(model, false, found, err);
    if (status != QUIRE_OK && hub_model_find(out, false, &swapped, NULL) == QUIRE_OK)
        return quire_fail(err, QUIRE_INVALID, "OUT is a model: the two are swapped; write MODEL first");
    return status;
}

static int run(const char *model, const char *out, const struct quantizer_choices *choices, uint32_t n_threads,
               struct quire_error *err)
{
    struct hub_model found;
    struct bar bar = {.what = NULL};
    struct quantizer_report report = {0};
    struct quantizer_job job = {
        .out = out, .choices = choices, .n_threads = n_threads, .progress = show, .context = &bar};
    int status = quantizer_method_choose(choices, &job.method, &job.how, err);
    if (status == QUIRE_OK)
        status = find_model(model, out, &found, err);
    if (status != QUIRE_OK)
        return status;
    job.model = found.dir;
    const bool is_imatrix = job.method->algorithm == ALGORITHM_IMATRIX;
    status = (is_imatrix                          ? quantizer_run_imatrix
              : job.method->layout == LAYOUT_GGUF ? quantizer_run_gguf
                                                  : quantizer_run_checkpoint)(&job, &report, err);
    end_bar(&bar);
    if (status == QUIRE_OK && is_imatrix)
        printf("%s: the importance matrix of %u layers\n", out, report.n_quantized);
    else if (status == QUIRE_OK)
        printf("%s: %u matrices as %s, %u tensors as stored; %s of tensors, before %s\n", out, report.n_quantized,
               job.method->name, report.n_copied, quire_size(report.bytes).text, quire_size(report.source_bytes).text);
    if (status == QUIRE_OK && report.n_rounded > 0)
        printf(
            "%u matrices belong to experts that saw too few tokens: they are rounded to the nearest. More samples help\n",
            report.n_rounded);
    return status;
}

/* Options of methods. Returns the number of rows. */
static size_t method_options(struct quantizer_choices *choices, struct cli_option *rows)
{
    const struct cli_option all[] = {
        {.names = "method",
         .kind = CLI_STRING,
         .target = &choices->method,
         .value = "NAME",
         .common = true,
         .help =
             "Required. absmax-int8, zeropoint-int8, int4-block, fp8-e4m3, fp8-e5m2, mxfp4, gptq, awq, "
             "smoothquant-w8a8, gguf-q8_0, gguf-q4_0, gguf-q4_1, gguf-q5_0, gguf-q5_1, gguf-q4_k_m, gguf-q5_k_m, gguf-q6_k "
             "or gguf-mxfp4; imatrix writes an importance matrix for --imatrix (docs/guides/quantizing.md)."},
        {.names = "group-size",
         .kind = CLI_PARSED,
         .parse = parse_group,
         .target = &choices->group,
         .given = &choices->is_set.group,
         .value = "N",
         .common = true,
         .help =
             "Columns that share a scale, a multiple of 16; -1: the whole row. Default -1 for int8, otherwise 128."},
        {.names = "sym",
         .kind = CLI_FLAG,
         .target = &choices->symmetric,
         .given = &choices->is_set.symmetric,
         .common = true,
         .help = "int4-block and gptq: store no zero points, the default; --no-sym stores zero points. Other "
                 "methods with integers accept only what they do."},
        {.names = "bits",
         .kind = CLI_U32,
         .target = &choices->bits,
         .given = &choices->is_set.bits,
         .value = "N",
         .common = true,
         .help = "Bits of gptq: 4 or 8. Default 4. Other methods have one number of bits and accept only it."},
        {.names = "desc-act",
         .kind = CLI_FLAG,
         .target = &choices->desc_act,
         .given = &choices->is_set.desc_act,
         .common = true,
         .help = "gptq: round columns by falling activation. More accurate, and slower to compute "
                 "with. Default off."},
        {.names = "damp",
         .kind = CLI_F64,
         .target = &choices->damp,
         .given = &choices->is_set.damp,
         .min = 0,
         .max = 1,
         .value = "X",
         .common = true,
         .help = "gptq: add this part of the mean diagonal to the Hessian. Default 0.01."},
    };
    memcpy(rows, all, sizeof all);
    return sizeof all / sizeof *all;
}

/* Options of calibration. Returns the number of rows. */
static size_t calibration_options(struct quantizer_choices *choices, struct cli_option *rows)
{
    const struct cli_option all[] = {
        {.names = "Calibration:", .kind = CLI_GROUP},
        {.names = "calibration",
         .kind = CLI_STRING,
         .target = &choices->calibration,
         .given = &choices->is_set.calibration,
         .value = "FILE",
         .common = true,
         .help = "Text, or JSONL (*.jsonl) with a field \"text\". Required by gptq, awq, smoothquant-w8a8 and "
                 "imatrix."},
        {.names = "calibration-samples",
         .kind = CLI_U32,
         .target = &choices->samples,
         .given = &choices->is_set.samples,
         .min = 1,
         .max = 65536,
         .value = "N",
         .common = true,
         .help = "Samples. Default 128 for gptq and imatrix, otherwise 512. If the text has fewer, all of it is used."},
        {.names = "calibration-length",
         .kind = CLI_U32,
         .target = &choices->length,
         .given = &choices->is_set.length,
         .min = 16,
         .max = 1 << 20,
         .value = "N",
         .common = true,
         .help = "Tokens of a sample. Default 2048 for gptq, otherwise 512."},
        {.names = "imatrix",
         .kind = CLI_STRING,
         .target = &choices->imatrix,
         .given = &choices->is_set.imatrix,
         .value = "FILE",
         .common = true,
         .help = "gguf-q4_k_m, gguf-q5_k_m and gguf-q6_k: llama.cpp's importance matrix, in either of its formats. "
                 "Errors of important columns become smaller."},
    };
    memcpy(rows, all, sizeof all);
    return sizeof all / sizeof *all;
}

int command_quantize(int argc, char **argv)
{
    const char *model = NULL, *out = NULL;
    struct quantizer_choices choices = {.damp = 0.01};
    const long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t n_threads = n_cpus > 0 && n_cpus < (long)MAX_THREADS ? (uint32_t)n_cpus : MAX_THREADS;
    struct cli_option rows[16];
    size_t n = method_options(&choices, rows);
    n += calibration_options(&choices, rows + n);
    rows[n++] = (struct cli_option){.names = "Computation:", .kind = CLI_GROUP};
    rows[n++] = (struct cli_option){.names = "threads",
                                    .kind = CLI_U32,
                                    .target = &n_threads,
                                    .min = 1,
                                    .max = MAX_THREADS,
                                    .value = "N",
                                    .common = true,
                                    .help = "Threads. The output does not depend on them. Default: all CPUs."};
    rows[n] = (struct cli_option){0};
    const struct cli_command command = {
        .name = "quantize",
        .usage = "quire quantize MODEL OUT --method NAME [options]",
        .about = "Writes a quantized copy of MODEL, a directory, a name on the hub or a GGUF file: a directory OUT of\n"
                 "safetensors, or with a gguf- method a file OUT. OUT must not exist. If the command is interrupted,\n"
                 "repeat it: it continues from OUT.partial, and the result has the same bytes.",
        .examples = "examples:\n"
                    "  quire quantize Qwen/Qwen2.5-0.5B-Instruct ./qwen-int4 --method int4-block\n"
                    "  quire quantize model-f16.gguf model-q4_k_m.gguf --method gguf-q4_k_m",
        .options = rows,
        .positionals = {&model, &out},
    };
    struct quire_error err = {.text = ""};
    int code;
    if (!command_begin(&command, argc, argv, &code))
        return code;
    if (!model || !out)
        return command_fail(2, "MODEL or OUT is missing; usage: quire quantize MODEL OUT --method NAME");
    return run(model, out, &choices, n_threads, &err) == QUIRE_OK ? 0 : command_fail(1, err.text);
}
