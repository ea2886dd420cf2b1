#include "app/plan/bare.h"

#include "app/command/command.h"
#include "app/models/cache.h"
#include "app/models/fetch.h"
#include "app/plan/mla.h"
#include "base/encoding/number.h"
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_CONFIG_BYTES (4u << 20)
#define MAX_CONTEXT (1u << 26)
#define MAX_BATCH 65536u

/* ---- options --------------------------------------------------------------------------------------------- */

/* "4096,32k,1M" */
static int parse_list(const char *text, void *target, uint32_t most, struct quire_error *err)
{
    struct bare_list *list = target;
    list->n = 0;
    for (const char *at = text;; at++) {
        char *end;
        errno = 0;
        unsigned long long value = *at >= '0' && *at <= '9' ? strtoull(at, &end, 10) : 0;
        if (value == 0 || errno || value > most)
            return quire_fail(err, QUIRE_INVALID, "must be numbers from 1 to %u with commas, got \"%.60s\"", most,
                              text);
        const bool is_k = *end == 'k' || *end == 'K', is_m = *end == 'm' || *end == 'M';
        value *= is_k ? 1024u : is_m ? 1024u * 1024u : 1u;
        end += is_k || is_m;
        if (value > most || (*end != ',' && *end != '\0'))
            return quire_fail(err, QUIRE_INVALID, "must be numbers from 1 to %u with commas, got \"%.60s\"", most,
                              text);
        if (list->n == BARE_MAX_LIST)
            return quire_fail(err, QUIRE_INVALID, "has more than %d numbers", BARE_MAX_LIST);
        list->items[list->n++] = (uint32_t)value;
        at = end;
        if (*at == '\0')
            return QUIRE_OK;
    }
}

static int parse_contexts(const char *text, void *target, struct quire_error *err)
{
    return parse_list(text, target, MAX_CONTEXT, err);
}

static int parse_batches(const char *text, void *target, struct quire_error *err)
{
    return parse_list(text, target, MAX_BATCH, err);
}

size_t bare_flags(struct bare_flags *flags, struct cli_option out[BARE_FLAGS_MAX])
{
    const struct cli_option rows[BARE_FLAGS_MAX] = {
        {.names = "From config.json alone:", .kind = CLI_GROUP},
        {.names = "weights",
         .kind = CLI_STRING,
         .target = &flags->weights,
         .value = "FORMAT",
         .common = true,
         .help =
             "Plan for weights of this format: f32, f16, bf16, int8, int4, fp8, w8a8, gptq, gptq-8, awq, mxfp4, q8_0, "
             "q6_k, q5_k_m, q4_k_m or q4_0. Sizes include scales. Default: what config.json says."},
        {.names = "contexts",
         .kind = CLI_PARSED,
         .parse = parse_contexts,
         .target = &flags->contexts,
         .value = "LIST",
         .common = true,
         .help =
             "Plan for sequences of these lengths, such as 4096,32k,128000. Default: --max-model-len, or the longest that "
             "the model was made for."},
        {.names = "batches",
         .kind = CLI_PARSED,
         .parse = parse_batches,
         .target = &flags->batches,
         .value = "LIST",
         .common = true,
         .help = "Plan for these numbers of sequences at once, such as 1,16,64. Default: --max-num-seqs, or 1."},
    };
    memcpy(out, rows, sizeof rows);
    return BARE_FLAGS_MAX;
}

/* ---- the file ----------------------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), n_end = strlen(end);
    return n > n_end && strcmp(text + n - n_end, end) == 0;
}

static bool has_weights(const char *dir)
{
    DIR *open = opendir(dir);
    bool has = false;
    for (struct dirent *entry; open && (entry = readdir(open)) != NULL;)
        has |= ends_with(entry->d_name, ".safetensors") || ends_with(entry->d_name, ".safetensors.index.json") ||
               ends_with(entry->d_name, ".gguf") || ends_with(entry->d_name, ".bin");
    if (open)
        closedir(open);
    return has;
}

bool bare_is_config(const char *given)
{
    char path[HUB_PATH_BYTES];
    struct stat info;
    if (stat(given, &info) != 0)
        return false;
    if (!S_ISDIR(info.st_mode))
        return ends_with(given, ".json");
    return snprintf(path, sizeof path, "%s/config.json", given) < (int)sizeof path && stat(path, &info) == 0 &&
           !has_weights(given);
}

static int read_text(const char *path, struct buffer *text, struct quire_error *err)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return quire_fail(err, errno == ENOENT ? QUIRE_NOT_FOUND : QUIRE_IO, "%.300s: %s", path, strerror(errno));
    const int status = buffer_read(text, file, MAX_CONFIG_BYTES, "config.json", err);
    fclose(file);
    return status;
}

/* The text of config.json: of a file, a directory, or a name on the hub, from which only this file is downloaded. */
static int read_config(const char *given, struct buffer *text, struct quire_error *err)
{
    char path[HUB_PATH_BYTES + 16];
    char dir[HUB_PATH_BYTES];
    struct stat info;
    if (stat(given, &info) == 0) {
        const bool is_dir = S_ISDIR(info.st_mode);
        if (!is_dir && !ends_with(given, ".json"))
            return quire_fail(err, QUIRE_INVALID,
                              "%.300s: --weights, --contexts and --batches need a config.json: give the file, or its "
                              "directory",
                              given);
        if (snprintf(path, sizeof path, "%s%s", given, is_dir ? "/config.json" : "") >= (int)sizeof path)
            return quire_fail(err, QUIRE_INVALID, "MODEL: the path is too long");
        return read_text(path, text, err);
    }
    int status = hub_config_find(given, dir, err);
    if (status == QUIRE_NOT_FOUND)
        status = hub_fetch_config(given, dir, err);
    if (status != QUIRE_OK)
        return status;
    snprintf(path, sizeof path, "%s/config.json", dir);
    return read_text(path, text, err);
}

/* ---- the report --------------------------------------------------------------------------------------------- */

static uint32_t n_devices(void)
{
    uint32_t n = 0;
    while (k_device_at(n))
        n++;
    return n;
}

static int plan_case(struct bare_report *r, const struct engine_options *o, struct bare_case *c,
                     struct quire_error *err)
{
    const uint32_t n_ranks = o->tensor_parallel_size > 1 ? o->tensor_parallel_size : 1;
    c->plan = malloc(sizeof *c->plan);
    c->fits = calloc(r->n_gpus, sizeof *c->fits);
    if (!c->plan || !c->fits)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    int status = bare_plan(&r->model, o, n_ranks, c->context, c->batch, c->plan, err);
    if (status != QUIRE_OK)
        return status;
    c->times = bare_predict(&engine_step_options(o)->cost, c->plan, c->context, c->batch);
    for (uint32_t i = 0; i < r->n_gpus; i++)
        bare_fit_gpu(&r->model, o, c->context, c->batch, k_device_at(i), &c->fits[i]);
    return QUIRE_OK;
}

static int make_report(struct bare_report *r, const struct engine_options *o, const struct bare_flags *flags,
                       struct quire_error *err)
{
    const struct bare_list contexts = flags->contexts.n ? flags->contexts
                                                        : (struct bare_list){1, {r->model.config->max_position}};
    const struct bare_list batches = flags->batches.n ? flags->batches : (struct bare_list){1, {1}};
    int status = o->attention_window || o->attention_sinks
                     ? model_stream(r->model.config, o->attention_sinks, o->attention_window, err)
                     : QUIRE_OK;
    r->n_gpus = n_devices();
    r->max_position = r->model.config->max_position;
    r->utilization = o->gpu_memory_utilization > 0 ? o->gpu_memory_utilization : 0.9;
    bare_weights(&r->model, 1, engine_plan_planner(o), &r->weights);
    for (uint32_t i = 0; status == QUIRE_OK && i < contexts.n; i++)
        for (uint32_t j = 0; status == QUIRE_OK && j < batches.n; j++) {
            struct bare_case *c = &r->cases[r->n_cases++];
            c->context = contexts.items[i];
            c->batch = batches.items[j];
            status = plan_case(r, o, c, err);
        }
    return status;
}

/* The format that the command line asks for, or NULL. */
static int choose_weights(const struct engine_options *o, const struct bare_flags *flags, const char **out,
                          struct quire_error *err)
{
    *out = flags->weights;
    if (!o->quantization)
        return QUIRE_OK;
    if (flags->weights)
        return quire_fail(err, QUIRE_INVALID, "--weights and --quantization both name a format: give one");
    *out = bare_format_find(o->quantization) ? o->quantization : NULL;
    return *out ? QUIRE_OK
                : quire_fail(err, QUIRE_INVALID, "--quantization %.40s: give the format by --weights", o->quantization);
}

/* Lists that were not given are of the server's options, if those were. */
static struct bare_flags with_options(const struct bare_flags *flags, const struct engine_options *o)
{
    struct bare_flags all = *flags;
    if (!all.contexts.n && o->max_model_len)
        all.contexts = (struct bare_list){1, {o->max_model_len}};
    if (!all.batches.n && o->max_num_seqs)
        all.batches = (struct bare_list){1, {o->max_num_seqs}};
    return all;
}

int bare_command(const char *given, const struct engine_options *options, const struct bare_flags *flags, bool json)
{
    struct buffer text = {0};
    struct quire_error err, why;
    const char *weights;
    struct bare_report *r = calloc(1, sizeof *r);
    const bool streams = options->attention_window || options->attention_sinks;
    const struct bare_flags all = with_options(flags, options);
    int code = 1;
    if (!r)
        return command_fail(1, "out of memory");
    r->name = given;
    int status = choose_weights(options, flags, &weights, &why);
    if (status == QUIRE_OK)
        status = read_config(given, &text, &why);
    const bool is_read = status == QUIRE_OK;
    if (is_read)
        status = bare_open(text.data, text.n, weights, &r->model, &why);
    if (is_read && status == QUIRE_UNSUPPORTED && !streams && /* an MLA model's plan has no windows */
        mla_command(given, text.data, text.n, weights, &all, json, &code, &err)) {
        status = QUIRE_OK; /* printed, or told in code */
    } else if (status != QUIRE_OK) {
        err = why;
    } else {
        status = make_report(r, options, &all, &err);
        code = status == QUIRE_OK && json ? bare_print_json(r) : 0;
        if (status == QUIRE_OK && !json)
            bare_print_table(r);
    }
    for (uint32_t i = 0; i < r->n_cases; i++) {
        free(r->cases[i].plan);
        free(r->cases[i].fits);
    }
    bare_close(&r->model);
    free(r);
    buffer_free(&text);
    return status == QUIRE_OK ? code : command_fail(1, err.text);
}
