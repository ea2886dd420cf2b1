/* quire doctor: the resources of this machine, and how a model would use them. */
#include "base/size.h"
#include "engine/grammars.h"
#include "engine/info.h"
#include "engine/model/describe.h"
#include "engine/plan.h"
#include "text/quire_text.h"
#include "app/command/command.h"
#include "app/command/commands.h"
#include "app/flags/engine_flags.h"
#include "app/command/foreign_flags.h"
#include "tools/doctor/machine.h"
#include "app/models/cache.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define CONNECTIONS 4096u      /* quire serve's default */
#define OTHER_DESCRIPTORS 256u /* besides connections */
#define MAX_ADVICE 8

/* Possible improvements. */
struct advice {
    char lines[MAX_ADVICE][400];
    size_t n;
};

/* How a model would run. Strings that are "" were not reached. */
struct verdict {
    const char *given; /* NULL: no model given */
    struct engine_plan *plan; /* the caller's; zeros: not reached */
    char architecture[64], why[QUIRE_ERROR_BYTES], gemms[96], placement[200];
    uint32_t max_position;
    int status;
    struct quire_error problem;
};

__attribute__((format(printf, 2, 3))) static void advise(struct advice *a, const char *format, ...)
{
    va_list args;
    if (a->n == MAX_ADVICE)
        return;
    va_start(args, format);
    vsnprintf(a->lines[a->n++], sizeof a->lines[0], format, args);
    va_end(args);
}

/* ---- the model ------------------------------------------------------------------------------- */

static void look(void *context, const struct engine_info *info)
{
    struct verdict *v = context;
    *v->plan = *info->plan;
    if (info->desc->config) { /* NULL: options were refused before the model was read */
        v->max_position = info->desc->config->max_position;
        snprintf(v->architecture, sizeof v->architecture, "%s", info->desc->config->architecture);
    }
    snprintf(v->why, sizeof v->why, "%s", info->device_why ? info->device_why : "");
    snprintf(v->gemms, sizeof v->gemms, "%s", info->gemms);
    snprintf(v->placement, sizeof v->placement, "%s", info->placement ? info->placement : "");
}

static int check_text(const char *dir, uint32_t vocab_size, struct quire_error *err)
{
    struct quire_text *text;
    int status = quire_text_open(dir, &text, err);
    if (status != QUIRE_OK)
        return status;
    uint32_t n_ids = quire_text_n_ids(text);
    quire_text_close(text);
    return n_ids <= vocab_size
               ? QUIRE_OK
               : quire_fail(err, QUIRE_INVALID, "the tokenizer has token id %u, but config.json: vocab_size is %u",
                            n_ids - 1, vocab_size);
}

static void examine(struct verdict *v, const struct engine_options *given)
{
    struct engine_options options = *given;
    struct model_config *config = NULL;
    struct sampling_defaults sampling;
    struct hub_model model;
    v->status = hub_model_find(v->given, false, &model, &v->problem);
    if (v->status != QUIRE_OK)
        return;
    options.model_dir = model.dir;
    v->status = engine_examine(&options, look, v, &v->problem);
    if (v->status == QUIRE_OK)
        v->status = model_describe(model.dir, &config, &sampling, &v->problem);
    if (v->status == QUIRE_OK)
        v->status = check_text(model.dir, config->vocab_size, &v->problem);
    model_config_free(config);
}

static uint64_t kv_tokens(const struct engine_plan *plan)
{
    return (uint64_t)plan->groups[0].n_blocks * plan->block_tokens;
}

/* ---- advice ---------------------------------------------------------------------------------- */

static void advise_on_machine(struct advice *a, const struct machine *m)
{
    if (m->files_most < CONNECTIONS + OTHER_DESCRIPTORS)
        advise(a,
               "this process may open at most %" PRIu64
               " files, fewer than quire serve's %u connections need; raise the limit "
               "with ulimit -Hn, or with LimitNOFILE= of the systemd unit",
               m->files_most, CONNECTIONS);
    if (m->driver[0] && !m->has_gpu)
        advise(a, "an NVIDIA driver is installed, but the GPU cannot be used: %.250s (docs/internals/gpu.md)", m->gpu);
    if (m->quota && m->quota < m->n_allowed)
        advise(a,
               "the control groups allow %u of %u CPUs: with more threads, the kernel would stop all of them "
               "together",
               m->quota, m->n_allowed);
}

static void advise_on_model(struct advice *a, const struct machine *m, const struct verdict *v, uint32_t asked_len)
{
    const struct engine_plan *p = v->plan;
    if (!v->given || v->status != QUIRE_OK)
        return;
    if (!asked_len && p->max_model_len < v->max_position) {
        /* One block more than its tokens fill for each step in flight; more than needed with windows. */
        uint64_t n_blocks = (v->max_position + p->block_tokens - 1) / p->block_tokens + 1 +
                            engine_plan_overlap_depth(p);
        advise(
            a,
            "the KV cache holds requests of at most %u tokens, but the model supports %u: use --kv-cache-memory %" PRIu64
            "M",
            p->max_model_len, v->max_position, (n_blocks * p->kv_block_bytes >> 20) + 1);
    }
    if (!p->device_memory && p->bytes[PLAN_WEIGHTS] + engine_plan_total_bytes(p) > m->free_bytes)
        advise(a,
               "weights (%s) and the plan (%s) need more than the free memory (%s), so weights would be read from disk "
               "again and again; lower --kv-cache-memory, free memory or use a smaller model",
               quire_size(p->bytes[PLAN_WEIGHTS]).text, quire_size(engine_plan_total_bytes(p)).text,
               quire_size(m->free_bytes).text);
}

/* ---- for people ------------------------------------------------------------------------------ */

__attribute__((format(printf, 2, 3))) static void row(const char *name, const char *format, ...)
{
    va_list args;
    printf("  %-15s ", name);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

static const char *size_or_none(uint64_t n_bytes, char out[16])
{
    snprintf(out, 16, "%s", n_bytes == MACHINE_NO_LIMIT ? "no limit" : quire_size(n_bytes).text);
    return out;
}

static void print_machine(const struct machine *m)
{
    char text[16], quota[32] = "no quota";
    printf("This machine\n");
    row("system", "%s", m->system);
    row("CPU", "%s", m->cpu[0] ? m->cpu : "the system does not say which");
    for (uint32_t i = 0; i < m->n_sets; i++)
        row(i ? "" : "instructions", "%-7s %s", m->sets[i].name, m->sets[i].lacks ? m->sets[i].lacks : "yes");
    if (m->n_sets == 0)
        row("instructions", "no kernels for this architecture: the slow ref backend computes");
    if (m->quota)
        snprintf(quota, sizeof quota, "a quota of %u", m->quota);
    row("CPUs", "%u, this process may use %u, %s; NUMA nodes: %s", m->n_online, m->n_allowed, quota,
        m->nodes[0] ? m->nodes : "not told");
    row("threads", "%s", m->placement);
    row("memory", "%s, %s free; control group: %s", quire_size(m->memory_bytes).text, quire_size(m->free_bytes).text,
        size_or_none(m->limit_bytes, text));
    row("huge pages", "%s", m->huge_pages[0] ? m->huge_pages : "none");
    if (m->files_most == MACHINE_NO_LIMIT)
        row("open files", "no limit");
    else
        row("open files", "%" PRIu64 ", can be raised to %" PRIu64, m->files_now, m->files_most);
    row("locked memory", "%s", size_or_none(m->locked_bytes, text));
    row("GPU", "%s%s", m->has_gpu ? "" : "none: ", m->gpu);
    if (m->driver[0])
        row("NVIDIA driver", "%s", m->driver);
}

static void print_model(const struct verdict *v)
{
    const struct engine_plan *p = v->plan;
    printf("\n%s\n", v->given);
    if (v->architecture[0])
        row("architecture", "%s", v->architecture);
    if (v->why[0])
        row("device", "%s", v->why);
    if (v->gemms[0])
        row("GEMM form", "%s", v->gemms);
    if (v->placement[0])
        row("placement", "%s", v->placement);
    if (p->max_model_len && p->bytes[PLAN_KV]) {
        row("weights", "%s in %s, %s", quire_size(p->bytes[PLAN_WEIGHTS]).text, k_format_name(p->weight_format),
            p->device_memory ? "copied to the GPU" : "mapped and used in place");
        row("KV cache", "%s in %s: %" PRIu64 " tokens, %.1f requests of maximum length",
            quire_size(p->bytes[PLAN_KV]).text, k_format_name(p->kv_format), kv_tokens(p),
            (double)kv_tokens(p) / p->max_model_len);
        row("besides", "%s", quire_size(engine_plan_total_bytes(p) - p->bytes[PLAN_KV]).text);
        row("longest request", "%u tokens; %u sequences at once, %u tokens per step", p->max_model_len, p->max_num_seqs,
            p->max_num_batched_tokens);
    }
    if (v->status == QUIRE_OK)
        row("verdict", "it runs: quire serve %s", v->given);
    else
        row("verdict", "it does not run: %s", v->problem.text);
}

static void print_all(const struct machine *m, const struct verdict *v, const struct advice *a)
{
    print_machine(m);
    if (v->given)
        print_model(v);
    for (size_t i = 0; i < a->n; i++)
        printf("%s  - %s\n", i ? "" : "\nAdvice\n", a->lines[i]);
}

/* ---- for programs ---------------------------------------------------------------------------- */

static json_t *limit_json(uint64_t value)
{
    return value == MACHINE_NO_LIMIT ? json_null() : json_integer((json_int_t)value);
}

static json_t *machine_json(const struct machine *m)
{
    json_t *sets = json_array();
    for (uint32_t i = 0; i < m->n_sets; i++)
        json_array_append_new(sets, json_pack("{s:s, s:b, s:s?}", "name", m->sets[i].name, "has",
                                              m->sets[i].lacks == NULL, "lacks", m->sets[i].lacks));
    return json_pack("{s:s, s:s, s:o, s:i, s:i, s:i, s:s, s:i, s:s, s:I, s:I, s:o, s:s, s:o, s:o, s:o, s:b, s:s, s:s}",
                     "system", m->system, "cpu", m->cpu, "instructions", sets, "cpus", (int)m->n_online, "cpus_allowed",
                     (int)m->n_allowed, "cpu_quota", (int)m->quota, "numa_nodes", m->nodes, "threads",
                     (int)m->n_threads, "placement", m->placement, "memory_bytes", (json_int_t)m->memory_bytes,
                     "free_bytes", (json_int_t)m->free_bytes, "memory_limit_bytes", limit_json(m->limit_bytes),
                     "huge_pages", m->huge_pages, "open_files", limit_json(m->files_now), "open_files_most",
                     limit_json(m->files_most), "locked_bytes", limit_json(m->locked_bytes), "has_gpu", m->has_gpu,
                     "gpu", m->gpu, "nvidia_driver", m->driver);
}

static json_t *model_json(const struct verdict *v)
{
    const struct engine_plan *p = v->plan;
    bool planned = p->max_model_len && p->bytes[PLAN_KV];
    json_t *plan = planned
                       ? json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:i, s:i, s:i}", "device",
                                   engine_plan_device(p), "weight_dtype", k_format_name(p->weight_format), "kv_dtype",
                                   k_format_name(p->kv_format), "weight_bytes", (json_int_t)p->bytes[PLAN_WEIGHTS],
                                   "kv_bytes", (json_int_t)p->bytes[PLAN_KV], "kv_tokens", (json_int_t)kv_tokens(p),
                                   "total_bytes", (json_int_t)engine_plan_total_bytes(p), "max_model_len",
                                   (int)p->max_model_len, "max_num_seqs", (int)p->max_num_seqs,
                                   "max_num_batched_tokens", (int)p->max_num_batched_tokens)
                       : json_null();
    return json_pack("{s:s, s:b, s:s?, s:s, s:s, s:s, s:s, s:o}", "model", v->given, "runs", v->status == QUIRE_OK,
                     "problem", v->status == QUIRE_OK ? NULL : v->problem.text, "architecture", v->architecture,
                     "device_why", v->why, "gemm_form", v->gemms, "placement", v->placement, "plan", plan);
}

static json_t *all_json(const struct machine *m, const struct verdict *v, const struct advice *a)
{
    json_t *advice = json_array();
    for (size_t i = 0; i < a->n; i++)
        json_array_append_new(advice, json_string(a->lines[i]));
    return json_pack("{s:s, s:o, s:o, s:o}", "version", QUIRE_VERSION, "machine", machine_json(m), "model",
                     v->given ? model_json(v) : json_null(), "advice", advice);
}

int command_doctor(int argc, char **argv)
{
    struct engine_plan plan = {.device_memory = false};
    struct verdict v = {.plan = &plan, .status = QUIRE_OK};
    struct machine machine;
    struct advice advice = {.n = 0};
    struct engine_options options;
    struct step_options steps;
    struct engine_placement placement = {0};
    bool json = false;
    struct cli_option rows[ENGINE_FLAGS_MAX + 3];

    static const struct engine_grammars unused; /* it only plans their memory */
    engine_options_default(&options);
    step_options_default(&steps);
    options.steps = &steps;
    options.placement = &placement;
    options.grammars = &unused;
    size_t n = engine_flags(&options, rows);
    rows[n++] = (struct cli_option){.names = "Output:", .kind = CLI_GROUP};
    rows[n++] = (struct cli_option){
        .names = "json", .kind = CLI_FLAG, .target = &json, .common = true, .help = "Print JSON."};
    rows[n] = (struct cli_option){0};
    const struct cli_command command = {
        .name = "doctor",
        .usage = "quire doctor [MODEL] [options]",
        .about =
            "Prints the instructions, CPUs, memory, limits and GPU of this machine. With MODEL, it also prints the device,\n"
            "weights, KV cache and longest request of `quire serve MODEL` with the same options. It runs the checks of\n"
            "the engine's start and stops before large allocations. The exit status is 0 if the model would run, else 1.",
        .examples = "examples:\n"
                    "  quire doctor\n"
                    "  quire doctor ./Qwen2.5-1.5B-Instruct --max-num-seqs 16\n"
                    "  quire doctor Qwen/Qwen2.5-1.5B-Instruct --json",
        .options = rows,
        .positionals = {&v.given},
        .first_names = FOREIGN_MODEL_NAMES,
        .foreign = foreign_flags,
    };
    int code;
    if (!command_begin(&command, argc, argv, &code))
        return code;
    machine_look(&machine);
    if (v.given)
        examine(&v, &options);
    advise_on_machine(&advice, &machine);
    advise_on_model(&advice, &machine, &v, options.max_model_len);
    code = v.status != QUIRE_OK || (machine.n_sets > 0 && machine.sets[0].lacks);
    if (json) {
        int wrote = command_print_json(all_json(&machine, &v, &advice));
        return wrote ? wrote : code;
    }
    print_all(&machine, &v, &advice);
    return code;
}
