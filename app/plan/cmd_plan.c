/* quire plan: the memory of a model to the byte, from its configuration and weight headers only. */
#include "app/companion/companion.h"
#include "app/command/command.h"
#include "app/command/commands.h"
#include "app/command/foreign_flags.h"
#include "app/flags/engine_flags.h"
#include "app/models/cache.h"
#include "app/plan/bare.h"
#include "app/plan/planned.h"
#include "base/size.h"
#include "engine/grammars.h"
#include "engine/plan_model.h"

#include <stdio.h>
#include <string.h>

/* p points to plan and ranks, which the caller owns. */
static int make_plan(const struct engine_options *o, struct planned *p, struct engine_plan *plan,
                     struct engine_plan_rank ranks[ENGINE_MAX_RANKS], struct quire_error *err)
{
    struct model_config *config;
    int status = engine_plan_model(o, &config, &p->cost, plan, ranks, err);
    if (status != QUIRE_OK)
        return status;
    snprintf(p->architecture, sizeof p->architecture, "%s", config->architecture);
    snprintf(p->multimodal, sizeof p->multimodal, "%s", config->multimodal);
    p->vocab_size = config->vocab_size;
    p->has_vectors = config->outputs.kind != OUTPUT_TOKENS;
    model_config_free(config);
    p->plan = plan;
    p->ranks = ranks;
    return QUIRE_OK;
}

static int plan_first(struct engine_options *o, struct planned *p, struct engine_plan *plan,
                      struct engine_plan_rank ranks[ENGINE_MAX_RANKS], struct quire_error *err)
{
    int status = hub_model_find(p->name, false, &p->model, err);
    o->model_dir = p->model.dir;
    return status == QUIRE_OK ? make_plan(o, p, plan, ranks, err) : status;
}

static int plan_second(const struct companion_flags *flags, const struct engine_options *first_options,
                       const struct planned *first, struct planned *p, struct engine_plan *plan,
                       struct engine_plan_rank ranks[ENGINE_MAX_RANKS], struct quire_error *err)
{
    if (first->has_vectors)
        return quire_fail(err, QUIRE_INVALID, "--embedding-model: %s is an embedding model, too: serve one of the two",
                          first->model.name);
    *p = (struct planned){.name = flags->model};
    int status = hub_model_find(p->name, false, &p->model, err);
    if (status == QUIRE_OK) {
        struct step_options steps;
        const struct engine_options o = companion_options(flags, p->model.dir, first_options, &steps);
        status = make_plan(&o, p, plan, ranks, err);
    }
    if (status != QUIRE_OK)
        quire_error_prefix(err, "--embedding-model");
    return status;
}

/* `--device list`, or --device at the end without a value. */
static bool wants_devices(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--device=list") == 0 ||
            (strcmp(argv[i], "--device") == 0 && (i + 1 == argc || strcmp(argv[i + 1], "list") == 0)))
            return true;
    return false;
}

static int print_devices(void)
{
    const struct k_device *gpu;
    printf("%-10s %-26s %s\n", "--device", "GPU", "memory");
    for (uint32_t i = 0; (gpu = k_device_at(i)) != NULL; i++)
        printf("%-10s %-26s %s\n", gpu->name, gpu->title, quire_size(gpu->memory_bytes).text);
    puts("\nauto, ref, cpu, cuda and cuda:N plan for this machine. AMD GPUs (MI300 and others) are not supported.");
    return 0;
}

/* Without its options and its positional. */
static const struct cli_command description = {
    .name = "plan",
    .usage = "quire plan MODEL [options]",
    .about =
        "Prints the memory that `quire serve MODEL` with the same options uses, to the byte, and the number of\n"
        "KV blocks. Reads only config.json and the headers of the weights. Plans for the CPU unless --device\n"
        "names a GPU, even if this machine has one.\n\n"
        "With --weights, --contexts or --batches, or if MODEL is a config.json or a directory with nothing else,\n"
        "it plans from config.json alone: weights, KV cache and activations of each context and batch, the GPUs\n"
        "that hold them, with their flags, and predicted times. Of a name on the hub it downloads only config.json.",
    .examples = "examples:\n"
                "  quire plan Qwen/Qwen2.5-1.5B-Instruct\n"
                "  quire plan ./Qwen2.5-1.5B-Instruct --max-num-seqs 16 --kv-cache-memory 2GiB --json\n"
                "  quire plan Qwen/Qwen3-8B --device h200      a GPU that this machine does not have\n"
                "  quire plan --device list                    the names of such GPUs\n"
                "  quire plan config.json --weights int4 --contexts 8k,128000 --batches 1,16",
    .first_names = FOREIGN_MODEL_NAMES,
    .foreign = foreign_flags,
};

int command_plan(int argc, char **argv)
{
    struct planned first = {0}, second;
    struct engine_plan plans[2];
    struct engine_plan_rank ranks[2][ENGINE_MAX_RANKS];
    bool json = false;
    struct engine_options options;
    struct step_options steps;
    struct engine_placement placement = {0};
    struct companion_flags companion = {0};
    struct bare_flags bare = {0};
    struct cli_option rows[ENGINE_FLAGS_MAX + COMPANION_FLAGS_MAX + BARE_FLAGS_MAX + 3];
    struct quire_error err;

    if (wants_devices(argc, argv))
        return print_devices();
    engine_options_default(&options);
    step_options_default(&steps);
    options.steps = &steps;
    options.placement = &placement;
    size_t n = engine_flags(&options, rows);
    n += companion_flags(&companion, rows + n);
    n += bare_flags(&bare, rows + n);
    rows[n++] = (struct cli_option){.names = "Output:", .kind = CLI_GROUP};
    rows[n++] = (struct cli_option){
        .names = "json", .kind = CLI_FLAG, .target = &json, .common = true, .help = "Print JSON."};
    rows[n] = (struct cli_option){0};
    struct cli_command command = description;
    command.options = rows;
    command.positionals[0] = &first.name;
    int code;
    if (!command_begin(&command, argc, argv, &code))
        return code;
    if (!first.name)
        return command_fail(2, "MODEL is missing; usage: quire plan MODEL [options]");
    if (companion_check(&companion, &err) != QUIRE_OK)
        return command_fail(2, err.text);
    static const struct engine_grammars unused; /* a plan calls none of them */
    options.grammars = &unused;
    if (bare.weights || bare.contexts.n || bare.batches.n || bare_is_config(first.name))
        return companion.model
                   ? command_fail(2, "--embedding-model: a plan from config.json alone is of one model: leave it out")
                   : bare_command(first.name, &options, &bare, json);
    if (plan_first(&options, &first, &plans[0], ranks[0], &err) != QUIRE_OK)
        return command_fail(1, err.text);
    if (companion.model && plan_second(&companion, &options, &first, &second, &plans[1], ranks[1], &err) != QUIRE_OK)
        return command_fail(1, err.text);
    const struct planned *more = companion.model ? &second : NULL;
    if (json)
        return plan_print_json(&first, more);
    plan_print_table(&first, more);
    return 0;
}
