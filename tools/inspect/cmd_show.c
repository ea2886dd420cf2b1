/* quire show: what a model is, on one screen, from its small files. */
#include "app/command/command.h"
#include "app/command/commands.h"
#include "app/models/cache.h"
#include "app/models/quant.h"
#include "app/models/snapshot.h"
#include "base/size.h"
#include "engine/model/describe.h"
#include "engine/model/quantization/quantization.h"
#include "files/model_files.h"
#include "text/quire_chat.h"
#include "text/quire_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct shown {
    const char *given;
    struct hub_model model;
    struct model_config *config;
    struct sampling_defaults sampling;
    bool has_chat, has_tools, is_gguf;
    uint64_t bytes;
};

static uint64_t size_of(const char *dir, const char *file)
{
    char path[HUB_PATH_BYTES + HUB_FILE_NAME_BYTES];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", dir, file);
    return stat(path, &info) == 0 ? (uint64_t)info.st_size : 0;
}

/* The bytes of a GGUF file with its splits, or of all safetensors files. */
static uint64_t count_bytes(const struct shown *s)
{
    const char *slash = strrchr(s->model.dir, '/');
    char dir[HUB_PATH_BYTES], file[HUB_FILE_NAME_BYTES];
    struct hub_names names;
    uint64_t sum = 0;
    if (s->is_gguf) {
        snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - s->model.dir) : 1, slash ? s->model.dir : ".");
        const char *first = slash ? slash + 1 : s->model.dir;
        for (unsigned i = 0; i < hub_quant_n_splits(first); i++)
            if (hub_quant_split(first, i, file, sizeof file))
                sum += size_of(dir, file);
        return sum;
    }
    hub_snapshot_files(s->model.dir, &names);
    for (size_t i = 0; i < names.n; i++) {
        const size_t n = strlen(names.items[i]), n_end = strlen(".safetensors");
        if (n > n_end && strcmp(names.items[i] + n - n_end, ".safetensors") == 0)
            sum += size_of(s->model.dir, names.items[i]);
    }
    hub_names_free(&names);
    return sum;
}

static const char *format_of(const struct shown *s)
{
    return s->is_gguf ? "gguf" : "safetensors";
}

/* The model's defaults, or else those of the API. */
static double temperature_of(const struct shown *s)
{
    return s->sampling.has_temperature ? s->sampling.temperature : 1;
}

static double top_p_of(const struct shown *s)
{
    return s->sampling.has_top_p ? s->sampling.top_p : 1;
}

static json_t *shown_json(const struct shown *s)
{
    const struct model_config *c = s->config;
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:i, s:i, s:i, s:i, s:b, s:b, s:f, s:f, s:i}", "model",
                     s->model.name, "path", s->model.dir, "architecture", c->architecture, "format", format_of(s),
                     "quantization", quantization_name(c->quantization), "bytes", (json_int_t)s->bytes, "layers",
                     (int)c->n_layers, "hidden_size", (int)c->hidden_size, "vocabulary", (int)c->vocab_size,
                     "context_tokens", (int)c->max_position, "chat_template", s->has_chat, "chat_tools", s->has_tools,
                     "temperature", temperature_of(s), "top_p", top_p_of(s), "top_k", (int)s->sampling.top_k);
}

static void print_text(const struct shown *s)
{
    const struct model_config *c = s->config;
    printf("%s\n", s->model.name);
    printf("  %-14s %s\n", "architecture", c->architecture);
    if (c->multimodal[0])
        printf("  %-14s the text part of %s\n", "", c->multimodal);
    printf("  %-14s %s, %s%s%s\n", "weights", quire_size(s->bytes).text, format_of(s),
           s->is_gguf ? "" : ", quantization ", s->is_gguf ? "" : quantization_name(c->quantization));
    printf("  %-14s %u tokens\n", "context", c->max_position);
    printf("  %-14s %u layers, hidden size %u, vocabulary %u\n", "size", c->n_layers, c->hidden_size, c->vocab_size);
    if (c->encoder)
        printf("  %-14s vectors of texts (POST /v1/embeddings)\n", "returns");
    else
        printf("  %-14s %s\n", "chat template",
               s->has_tools  ? "yes, with tools"
               : s->has_chat ? "yes, without tools: it ignores the tools of requests"
                             : "no: the model completes raw text");
    if (!c->encoder)
        printf("  %-14s temperature %g, top_p %g, top_k %d\n", "sampling", temperature_of(s), top_p_of(s),
               (int)s->sampling.top_k);
    printf("  %-14s %s\n", "path", s->model.dir);
    printf("\nquire inspect %s prints the formats, parameters and bytes.\n", s->given);
}

static int read_model(struct shown *s, struct quire_error *err)
{
    struct quire_text *text = NULL;
    int status = hub_model_find(s->given, false, &s->model, err);
    if (status == QUIRE_OK)
        status = model_describe(s->model.dir, &s->config, &s->sampling, err);
    if (status == QUIRE_OK)
        status = quire_text_open(s->model.dir, &text, err);
    if (status != QUIRE_OK)
        return status;
    s->is_gguf = model_is_gguf(s->model.dir);
    s->has_chat = quire_text_has_chat(text);
    s->has_tools = quire_text_chat_mentions(text, "tools");
    s->bytes = count_bytes(s);
    quire_text_close(text);
    return QUIRE_OK;
}

int command_show(int argc, char **argv)
{
    struct shown s = {.given = NULL};
    struct quire_error err;
    bool json = false;
    const struct cli_option rows[] = {
        {.names = "json", .kind = CLI_FLAG, .target = &json, .help = "Print JSON."},
        {0},
    };
    const struct cli_command command = {
        .name = "show",
        .usage = "quire show MODEL [options]",
        .about =
            "Prints what a downloaded model, a checkpoint directory or a GGUF file is: architecture, size, context,\n"
            "chat template and sampling defaults.",
        .examples = "examples:\n"
                    "  quire show Qwen/Qwen2.5-1.5B-Instruct\n"
                    "  quire show ./model --json",
        .options = rows,
        .positionals = {&s.given},
    };
    int code;
    if (!command_begin(&command, argc, argv, &code))
        return code;
    if (!s.given)
        return command_fail(2, "MODEL is missing; usage: quire show MODEL");
    if (read_model(&s, &err) != QUIRE_OK)
        code = command_fail(1, err.text);
    else if (json)
        code = command_print_json(shown_json(&s));
    else
        print_text(&s);
    model_config_free(s.config);
    return code;
}
