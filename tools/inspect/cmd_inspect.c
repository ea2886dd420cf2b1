/* quire inspect: the contents of a checkpoint and how Quire would load it, from its config and the headers of its
 * files. */
#include "base/size.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/model/describe.h"
#include "engine/model/opened.h"
#include "engine/model/weights.h"
#include "engine/plan_model.h"
#include "files/model_files.h"
#include "app/command/command.h"
#include "app/command/commands.h"
#include "app/flags/engine_flags.h"
#include "app/command/foreign_flags.h"
#include "app/models/cache.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

/* How far the inspection got. */
enum reached { REACHED_NAME, REACHED_CONFIG, REACHED_FILES, REACHED_WEIGHTS, REACHED_PLAN };

/* What the files hold. */
struct stored {
    uint64_t file_bytes;
    uint32_t n_files;
    struct weights_contents contents;
    struct weights_unused unused;
};

/* The parts from desc on are valid as far as `reached` says. */
struct inspected {
    const char *name; /* as typed */
    const char *dir;
    enum reached reached;
    struct quire_error refused; /* why it got no further */
    struct opened_model *files;
    struct model_desc *desc; /* of them */
    struct stored *stored;
    struct engine_plan *plan;
};

static const char *const owners[WEIGHTS_OWNERS] = {
    [OF_ATTENTION] = "attention", [OF_MLP] = "mlp", [OF_EXPERTS] = "experts", [OF_MODEL] = "embeddings_and_head"};

static const char *activations_of(const struct inspected *x)
{
    const enum k_gemm_form form = x->plan->gemm_form;
    return form == K_FORM_INT8 ? "int8" : form == K_FORM_TILE_BF16 ? "bfloat16" : "float32";
}

static const char *method_of(const struct inspected *x)
{
    return !x->desc->facts->quantization.made && model_is_gguf(x->dir)
               ? "gguf"
               : quantization_name(&x->desc->facts->quantization);
}

/* A token's K and V in all layers. */
static uint64_t token_bytes(const struct inspected *x)
{
    return x->plan->kv_block_bytes / x->plan->block_tokens;
}

static uint64_t n_parameters_of(const struct inspected *x, enum model_owner owner)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < x->stored->contents.n; i++)
        n += x->stored->contents.of[i].n_weights[owner];
    return n;
}

/* Of all groups, behind as many tokens as the context has. */
static uint64_t kv_read_bytes(const struct inspected *x)
{
    uint64_t n = 0;
    for (uint32_t g = 0; g < x->plan->n_kv_groups; g++)
        n += engine_plan_read_bytes(x->plan, g, x->plan->max_model_len);
    return n;
}

/* Parts of the file that are not used; NULL: none. */
static const char *left_out(const struct inspected *x)
{
    return x->desc->facts->quantization.scales_cache
               ? "kv_cache_scheme: the scales of a KV cache in the file are not used"
               : NULL;
}

/* ---- for programs ------------------------------------------------------------------------------------------------- */

static void set_number(json_t *to, const char *name, uint64_t value)
{
    json_object_set_new(to, name, json_integer((json_int_t)value));
}

static void set_text(json_t *to, const char *name, const char *value)
{
    json_object_set_new(to, name, value ? json_string(value) : json_null());
}

static json_t *owners_json(const uint64_t n_weights[WEIGHTS_OWNERS])
{
    json_t *of = json_object();
    for (uint32_t i = 0; i < WEIGHTS_OWNERS; i++)
        set_number(of, owners[i], n_weights[i]);
    return of;
}

static json_t *formats_json(const struct inspected *x)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < x->stored->contents.n; i++) {
        const struct weights_of_format *f = &x->stored->contents.of[i];
        json_t *one = json_object();
        set_text(one, "format", k_format_name(f->format));
        set_number(one, "group", f->format.group);
        set_number(one, "bytes", f->bytes);
        json_object_set_new(one, "parameters", owners_json(f->n_weights));
        json_array_append_new(list, one);
    }
    return list;
}

static json_t *unused_json(const struct inspected *x)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < x->stored->unused.n; i++) {
        const struct weights_unused_kind *kind = &x->stored->unused.of[i];
        json_t *one = json_object();
        set_text(one, "what", kind->what);
        set_text(one, "first", kind->first);
        set_number(one, "tensors", kind->n);
        set_number(one, "bytes", kind->bytes);
        json_array_append_new(list, one);
    }
    return list;
}

static json_t *groups_json(const struct engine_plan *plan)
{
    json_t *groups = json_array();
    for (uint32_t g = 0; g < plan->n_kv_groups; g++) {
        json_t *one = json_object();
        set_number(one, "window", plan->groups[g].window);
        set_number(one, "n_layers", plan->groups[g].n_layers);
        set_number(one, "bytes_per_token", plan->groups[g].block_bytes / plan->block_tokens);
        set_number(one, "request_bytes", engine_plan_request_bytes(plan, g, plan->max_model_len));
        set_number(one, "read_bytes", engine_plan_read_bytes(plan, g, plan->max_model_len));
        json_array_append_new(groups, one);
    }
    return groups;
}

static void set_plan(json_t *to, const struct inspected *x)
{
    set_text(to, "device", engine_plan_device(x->plan));
    set_text(to, "gemm_form", k_form_name(x->plan->gemm_form));
    set_text(to, "activations", activations_of(x));
    set_text(to, "weight_format", k_format_name(x->plan->weight_format));
    set_text(to, "kv_format", k_format_name(x->plan->kv_format));
    set_number(to, "kv_bytes_per_token", token_bytes(x));
    json_object_set_new(to, "kv_groups", groups_json(x->plan));
    set_number(to, "token_weight_bytes", x->stored->contents.active_bytes);
    set_number(to, "token_kv_bytes", kv_read_bytes(x));
    set_number(to, "max_model_len", x->plan->max_model_len);
    set_number(to, "regrouped_bytes", x->plan->bytes[PLAN_REPACKED_ROWS]);
    set_number(to, "panel_bytes", x->plan->bytes[PLAN_REPACKED]);
}

static void print_json(const struct inspected *x)
{
    json_t *root = json_object();
    set_text(root, "model", x->name);
    json_object_set_new(root, "supported", json_boolean(x->reached == REACHED_PLAN));
    set_text(root, "refused", x->reached == REACHED_PLAN ? NULL : x->refused.text);
    if (x->reached >= REACHED_CONFIG) {
        set_text(root, "architecture", x->desc->config->architecture);
        set_text(root, "multimodal", x->desc->config->multimodal[0] ? x->desc->config->multimodal : NULL);
        set_text(root, "quantization", method_of(x));
        set_text(root, "not_used", left_out(x));
        set_number(root, "n_layers", x->desc->config->n_layers);
        set_number(root, "max_position", x->desc->config->max_position);
    }
    if (x->reached >= REACHED_FILES) {
        set_number(root, "files", x->stored->n_files);
        set_number(root, "file_bytes", x->stored->file_bytes);
    }
    if (x->reached >= REACHED_WEIGHTS) {
        set_number(root, "parameters", weights_n_parameters(&x->stored->contents));
        set_number(root, "active_parameters", x->stored->contents.n_active);
        set_number(root, "vector_parameters", x->stored->contents.n_vector_weights);
        json_object_set_new(root, "matrices", formats_json(x));
        json_object_set_new(root, "unused_tensors", unused_json(x));
    }
    if (x->reached == REACHED_PLAN)
        set_plan(root, x);
    json_dumpf(root, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(root);
}

/* ---- for people --------------------------------------------------------------------------------------------------- */

static void print_weights(const struct inspected *x)
{
    printf("  %-12s %" PRIu64 ": attention %" PRIu64 ", MLP %" PRIu64 ", embeddings and head %" PRIu64
           ", norms and biases %" PRIu64 "\n",
           "parameters", weights_n_parameters(&x->stored->contents), n_parameters_of(x, OF_ATTENTION),
           n_parameters_of(x, OF_MLP), n_parameters_of(x, OF_MODEL), x->stored->contents.n_vector_weights);
    if (n_parameters_of(x, OF_EXPERTS) > 0)
        printf("  %-12s %" PRIu64 "; a token uses %u of %u experts of a layer, and %" PRIu64 " parameters\n", "experts",
               n_parameters_of(x, OF_EXPERTS), model_largest_whole(x->desc, SIZE_USED),
               model_largest_whole(x->desc, SIZE_EXPERTS), x->stored->contents.n_active);
    for (uint32_t i = 0; i < x->stored->contents.n; i++) {
        const struct weights_of_format *f = &x->stored->contents.of[i];
        char group[32] = "";
        if (f->format.group)
            snprintf(group, sizeof group, ", groups of %u", f->format.group);
        printf("  %-12s %" PRIu64 " in layers, %" PRIu64 " in addition, %s%s\n", k_format_name(f->format),
               f->n_weights[OF_ATTENTION] + f->n_weights[OF_MLP] + f->n_weights[OF_EXPERTS], f->n_weights[OF_MODEL],
               quire_size(f->bytes).text, group);
    }
}

static void print_plan(const struct inspected *x)
{
    printf("  %-12s %" PRIu64 " bytes a token in %s; at most %u tokens\n", "KV cache", token_bytes(x),
           k_format_name(x->plan->kv_format), x->desc->config->max_position);
    for (uint32_t g = 0; g < x->plan->n_kv_groups && x->plan->n_kv_groups > 1; g++) {
        const uint32_t window = x->plan->groups[g].window;
        char span[32] = "full attention";
        if (window)
            snprintf(span, sizeof span, "window of %u", window);
        printf("  %-12s %u layers, %s: %s for a request of %u tokens\n", "", x->plan->groups[g].n_layers, span,
               quire_size(engine_plan_request_bytes(x->plan, g, x->plan->max_model_len)).text, x->plan->max_model_len);
    }
    printf("  %-12s a token reads %s of weights, and %s of KV behind %u tokens\n", "decode",
           quire_size(x->stored->contents.active_bytes).text, quire_size(kv_read_bytes(x)).text,
           x->plan->max_model_len);
    printf("  %-12s GEMM form %s, activations %s\n", engine_plan_device(x->plan), k_form_name(x->plan->gemm_form),
           activations_of(x));
    if (x->plan->bytes[PLAN_REPACKED_ROWS])
        printf("  %-12s %s while loading: %s of memory in addition to the file\n", "loading",
               x->desc->facts->copied_bytes ? "misaligned tensors are copied" : "rows are repacked",
               quire_size(x->plan->bytes[PLAN_REPACKED_ROWS]).text);
    else
        printf("  %-12s %s\n", "loading",
               x->plan->bytes[PLAN_REPACKED] ? "repacked for the form int8"
               : x->plan->planner->on_host   ? "used in place"
                                             : "copied to the device");
}

/* Of the first layer. */
static const struct model_attention *attention_of(const struct model_config *c)
{
    return &model_layer_block(&c->layers[0], BLOCK_ATTENTION)->attention;
}

static void print_text(const struct inspected *x)
{
    const struct model_config *c = x->desc->config;
    if (x->reached >= REACHED_CONFIG)
        printf("%s: %s, %u layers, hidden %u, %u heads of %u (%u of K and V), MLP %u, vocabulary %u\n\n", x->name,
               c->architecture, c->n_layers, c->hidden_size, attention_of(c)->n_q_heads, attention_of(c)->k_dim,
               attention_of(c)->n_kv_heads, model_whole_size(x->desc, 0, SIZE_INNER), c->vocab_size);
    if (x->reached >= REACHED_FILES)
        printf("  %-12s %s in %u file%s; quantization: %s\n", "weights", quire_size(x->stored->file_bytes).text,
               x->stored->n_files, x->stored->n_files == 1 ? "" : "s", method_of(x));
    if (x->reached >= REACHED_WEIGHTS)
        print_weights(x);
    if (x->reached == REACHED_PLAN)
        print_plan(x);
    for (uint32_t i = 0; i < x->stored->unused.n; i++)
        printf("  %-12s %u tensor%s, %s: %s, %s%s\n", "not used", x->stored->unused.of[i].n,
               x->stored->unused.of[i].n == 1 ? "" : "s", quire_size(x->stored->unused.of[i].bytes).text,
               x->stored->unused.of[i].what, x->stored->unused.of[i].n == 1 ? "" : "the first ",
               x->stored->unused.of[i].first);
    if (x->reached >= REACHED_CONFIG && x->desc->config->multimodal[0])
        printf("  %-12s of %s; images and audio are not supported\n", "text part", x->desc->config->multimodal);
    if (left_out(x))
        printf("  %-12s %s\n", "not used", left_out(x));
}

/* ---- looking ------------------------------------------------------------------------------------------------------ */

static int look_at_files(struct engine_options *o, struct inspected *x, struct quire_error *err)
{
    struct opened_model *m = x->files;
    uint64_t mapped_bytes;
    int status = weights_open(o->model_dir, m->config, &m->checkpoint, err);
    const struct checkpoint *checkpoint = m->checkpoint;
    if (status == QUIRE_OK) {
        x->reached = REACHED_FILES;
        x->stored->file_bytes = checkpoint_total_bytes(checkpoint);
        x->stored->n_files = checkpoint_n_files(checkpoint);
        status = weights_stored_dtype(checkpoint, o->quantization, m->config, &m->facts, err);
    }
    if (status == QUIRE_OK)
        status = weights_look_share(checkpoint, engine_plan_planner(o), x->desc, &mapped_bytes, err);
    if (status == QUIRE_OK)
        status = weights_look(checkpoint, x->desc, &x->stored->contents, err);
    if (status == QUIRE_OK) { /* all of them are listed, also where one is refused */
        x->reached = REACHED_WEIGHTS;
        weights_unused(checkpoint, x->desc, true, &x->stored->unused, NULL);
        struct weights_unused allowed;
        status = weights_unused(checkpoint, x->desc, o->ignore_unused_tensors, &allowed, err);
    }
    if (status == QUIRE_OK)
        status = engine_plan_make(o, x->desc, x->stored->file_bytes, x->plan, err);
    if (status == QUIRE_OK)
        x->reached = REACHED_PLAN;
    return status;
}

static int inspect(struct engine_options *o, struct hub_model *model, struct inspected *x)
{
    struct sampling_defaults sampling;
    int status = hub_model_find(x->name, false, model, &x->refused);
    x->dir = o->model_dir = model->dir;
    *x->desc = opened_model_desc(x->files);
    if (status == QUIRE_OK)
        status = model_describe(o->model_dir, &x->files->config, &sampling, &x->refused);
    if (status == QUIRE_OK)
        status = engine_plan_task(o, x->files->config, &x->refused);
    if (status != QUIRE_OK)
        return status;
    *x->desc = opened_model_desc(x->files);
    x->files->facts.quantization = *x->files->config->quantization;
    x->reached = REACHED_CONFIG;
    return look_at_files(o, x, &x->refused);
}

int command_inspect(int argc, char **argv)
{
    struct hub_model model;
    struct opened_model files = {.config = NULL};
    struct model_desc desc = {0};
    struct stored stored = {0};
    struct engine_plan plan = {0};
    struct inspected x = {.files = &files, .desc = &desc, .stored = &stored, .plan = &plan};
    bool json = false;
    struct engine_options options;
    struct step_options steps;
    struct engine_placement placement = {0};
    struct cli_option rows[ENGINE_FLAGS_MAX + 3];

    engine_options_default(&options);
    step_options_default(&steps);
    options.steps = &steps;
    options.placement = &placement;
    size_t n = engine_flags(&options, rows);
    rows[n++] = (struct cli_option){.names = "Output:", .kind = CLI_GROUP};
    rows[n++] = (struct cli_option){
        .names = "json", .kind = CLI_FLAG, .target = &json, .common = true, .help = "Print JSON."};
    rows[n] = (struct cli_option){0};
    const struct cli_command command = {
        .name = "inspect",
        .usage = "quire inspect MODEL [options]",
        .about =
            "Prints the formats, parameters and bytes of a checkpoint, and how `quire serve MODEL` with the same\n"
            "options would load it. If something is not supported, it prints the reason, with exit status 1. Reads\n"
            "only config.json and the headers of the weights.",
        .examples = "examples:\n"
                    "  quire inspect Qwen/Qwen2.5-1.5B-Instruct-GPTQ-Int4\n"
                    "  quire inspect ./model --json",
        .options = rows,
        .positionals = {&x.name},
        .first_names = FOREIGN_MODEL_NAMES,
        .foreign = foreign_flags,
    };
    int code;
    if (!command_begin(&command, argc, argv, &code))
        return code;
    if (!x.name)
        return command_fail(2, "MODEL is missing; usage: quire inspect MODEL [options]");
    const int status = inspect(&options, &model, &x);
    (json ? print_json : print_text)(&x);
    opened_model_close(&files);
    return status == QUIRE_OK ? 0 : command_fail(1, x.refused.text);
}
