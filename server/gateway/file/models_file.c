#include "server/gateway/file/models_file.h"

#include "base/file.h"
#include "server/gateway/file/arms.h"
#include "server/gateway/file/fields.h"
#include "server/gateway/file/models_parse.h"
#include "server/gateway/file/routes.h"
#include "server/gateway/file/targets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ALIASES 16
#define MAX_LATENCY_MS 3600000
#define MAX_TOKENS INT32_MAX
#define MAX_BATCH 256
#define MAX_WAIT_MS 60000
#define DEFAULT_WAIT_MS 50

/* A configuration and its memory. The texts of the tree stay, because the configuration refers to them. */
struct held_config {
    struct gateway_config config; /* first member */
    uint32_t n_holders;
    struct arena arena;
};

static const char *const known[] = {"aliases",
                                    "targets",
                                    "tokenizer",
                                    "route",
                                    "simple",
                                    "moderate",
                                    "complex",
                                    "among",
                                    "arms",
                                    "by",
                                    "metric",
                                    "fallback",
                                    "price_per_1k",
                                    "cost_per_1k_input",
                                    "cost_per_1k_output",
                                    "avg_latency_ms",
                                    "max_tokens",
                                    "batch"};

/* ---- names ---------------------------------------------------------------------------------- */

static int read_aliases(const struct fields *f, const struct yaml_node *map, struct gateway_model *model)
{
    const struct yaml_node *list = NULL;
    int status = fields_list(f, map, "aliases", MAX_ALIASES, &list);
    if (status != QUIRE_OK || !list)
        return status;
    const char **aliases = arena_new(f->arena, list->n * sizeof *aliases);
    if (!aliases)
        return fields_no_memory(f);
    model->aliases = aliases;
    for (const struct yaml_node *node = list->first; node && status == QUIRE_OK; node = node->next, model->n_aliases++)
        status = fields_name(f, node, "aliases", &aliases[model->n_aliases]);
    return status;
}

/* Counts the models that have a name. */
static size_t n_named(const struct gateway_config *config, const char *name, const char **of)
{
    size_t found = 0;
    for (size_t i = 0; i < config->n_models; i++) {
        const struct gateway_model *m = &config->models[i];
        size_t n = strcmp(m->name, name) == 0;
        for (size_t j = 0; j < m->n_aliases; j++)
            n += strcmp(m->aliases[j], name) == 0;
        if (n && (!*of || strcmp(m->name, name) == 0))
            *of = m->name;
        found += n;
    }
    return found;
}

static int check_aliases(const struct fields *f, const struct yaml_node *maps, const struct gateway_config *config)
{
    for (const struct yaml_node *map = maps->first; map; map = map->next) {
        const struct yaml_node *list = yaml_get(map, "aliases");
        struct fields at = *f;
        snprintf(at.where, sizeof at.where, "model %s", map->key);
        for (const struct yaml_node *node = list ? list->first : NULL; node; node = node->next) {
            const char *of = NULL;
            if (n_named(config, node->text, &of) > 1)
                return fields_wrong(&at, node, "aliases", "\"%s\" is also a name or alias of model %s", node->text, of);
        }
    }
    return QUIRE_OK;
}

/* Models first, so that routes may name models that follow. */
static int read_names(const struct fields *f, const struct yaml_node *maps, struct gateway_config *config,
                      struct gateway_model *models)
{
    for (const struct yaml_node *map = maps->first; map; map = map->next) {
        struct gateway_model *m = &models[config->n_models++];
        const struct yaml_node name = {.kind = YAML_SCALAR,
                                       .line = map->key_line,
                                       .column = map->key_column,
                                       .text = map->key,
                                       .n = strlen(map->key)};
        struct fields at = *f;
        int status = fields_name(f, &name, "models", &m->name);
        if (status != QUIRE_OK)
            return status;
        snprintf(at.where, sizeof at.where, "model %s", m->name);
        status = fields_check(&at, map, NULL, known, sizeof known / sizeof *known);
        if (status == QUIRE_OK)
            status = read_aliases(&at, map, m);
        if (status != QUIRE_OK)
            return status;
    }
    return check_aliases(f, maps, config);
}

/* ---- prices and limits ---------------------------------------------------------------------- */

static int read_prices(const struct fields *f, const struct yaml_node *map, struct gateway_price *p)
{
    static const char *const names[] = {"input", "cached_input", "output"};
    const struct yaml_node *prices = yaml_get(map, "price_per_1k");
    const struct yaml_node *in = yaml_get(map, "cost_per_1k_input"), *out = yaml_get(map, "cost_per_1k_output");
    struct fields at = *f;
    int status;
    if (!prices && !in && !out)
        return QUIRE_OK;
    if (prices && (in || out))
        return fields_wrong(f, in ? in : out, in ? "cost_per_1k_input" : "cost_per_1k_output",
                            "says what price_per_1k says; remove one");
    if (prices && (status = fields_check(f, prices, "price_per_1k", names, 3)) != QUIRE_OK)
        return status;
    if (prices)
        strncat(at.where, ": price_per_1k", sizeof at.where - strlen(at.where) - 1);
    const struct yaml_node *from = prices ? prices : map;
    const char *input = prices ? "input" : "cost_per_1k_input", *output = prices ? "output" : "cost_per_1k_output";
    if (!yaml_get(from, input) || !yaml_get(from, output))
        return fields_wrong(&at, from, yaml_get(from, input) ? output : input, "is missing; write 0 if it is free");
    if ((status = fields_price(&at, from, input, &p->input)) || (status = fields_price(&at, from, output, &p->output)))
        return status;
    p->cached_input = p->input;
    p->is_set = true;
    return prices ? fields_price(&at, prices, "cached_input", &p->cached_input) : QUIRE_OK;
}

static int read_batching(const struct fields *f, const struct yaml_node *map, struct gateway_batching *b)
{
    static const char *const names[] = {"max_batch_size", "max_wait_ms"};
    const struct yaml_node *batch = yaml_get(map, "batch");
    struct fields at = *f;
    int status;
    if (!batch)
        return QUIRE_OK;
    if ((status = fields_check(f, batch, "batch", names, 2)) != QUIRE_OK)
        return status;
    strncat(at.where, ": batch", sizeof at.where - strlen(at.where) - 1);
    if (!yaml_get(batch, "max_batch_size"))
        return fields_wrong(&at, batch, "max_batch_size", "is missing");
    b->max_wait_ms = DEFAULT_WAIT_MS;
    status = fields_u32(&at, batch, "max_batch_size", 1, MAX_BATCH, &b->max_batch_size);
    return status == QUIRE_OK ? fields_u32(&at, batch, "max_wait_ms", 0, MAX_WAIT_MS, &b->max_wait_ms) : status;
}

/* The directory of the first engine of this process has the tokenizer of the others. */
static void default_tokenizer(struct gateway_model *m)
{
    for (size_t i = 0; i < m->n_targets && !m->tokenizer; i++)
        if (m->targets[i].kind == GATEWAY_TARGET_MODEL)
            m->tokenizer = m->targets[i].place;
}

static int read_model(struct fields *f, const struct yaml_node *map, const struct gateway_config *config,
                      struct gateway_model *m)
{
    int status;
    snprintf(f->where, sizeof f->where, "model %s", m->name);
    if ((status = routes_read(f, map, config, m)) || (status = targets_read(f, map, m)) ||
        (status = fields_text(f, map, "tokenizer", &m->tokenizer)) || (status = read_prices(f, map, &m->price)) ||
        (status = fields_u32(f, map, "avg_latency_ms", 1, MAX_LATENCY_MS, &m->avg_latency_ms)) ||
        (status = fields_u32(f, map, "max_tokens", 1, MAX_TOKENS, &m->max_tokens)) ||
        (status = read_batching(f, map, &m->batching)))
        return status;
    if (m->route.kind == GATEWAY_ROUTE_NONE && m->n_targets == 0)
        return fields_wrong(f, map, NULL, "must have targets, or a route to other models");
    default_tokenizer(m);
    return QUIRE_OK;
}

/* ---- the file ------------------------------------------------------------------------------- */

static int read_tree(struct fields *f, const struct yaml_node *root, struct gateway_config *config)
{
    static const char *const names[] = {"models", "overrides"};
    int status = fields_check(f, root, NULL, names, 2);
    const struct yaml_node *maps = status == QUIRE_OK ? yaml_get(root, "models") : NULL;
    if (status != QUIRE_OK)
        return status;
    if (!maps || maps->kind != YAML_MAPPING || maps->n == 0 || maps->n > GATEWAY_MAX_MODELS)
        return fields_wrong(f, maps ? maps : root, "models", "must be a mapping of 1 to %d models (name: {targets: …})",
                            GATEWAY_MAX_MODELS);
    struct gateway_model *models = arena_new(f->arena, maps->n * sizeof *models);
    if (!models)
        return fields_no_memory(f);
    config->models = models;
    status = read_names(f, maps, config, models);
    const struct yaml_node *map = maps->first;
    for (size_t i = 0; map && status == QUIRE_OK; map = map->next, i++)
        status = read_model(f, map, config, &models[i]);
    f->where[0] = '\0';
    if (status == QUIRE_OK)
        status = routes_check_circles(f, maps, config);
    if (status == QUIRE_OK)
        status = arms_check(f, maps, config);
    return status == QUIRE_OK ? routes_read_overrides(f, root, config) : status;
}

int models_file_parse(const char *text, size_t n_bytes, const char *path, const struct gateway_config **out,
                      struct quire_error *err)
{
    struct held_config *held = calloc(1, sizeof *held);
    const struct yaml_node *root;
    *out = NULL;
    if (!held)
        return quire_fail(err, QUIRE_NO_MEMORY, "%s: out of memory", path);
    struct fields f = {.path = path, .arena = &held->arena, .err = err};
    held->n_holders = 1;
    int status = yaml_parse(text, n_bytes, path, &held->arena, &root, err);
    if (status == QUIRE_OK)
        status = read_tree(&f, root, &held->config);
    if (status == QUIRE_OK)
        *out = &held->config;
    else
        models_file_release(&held->config);
    return status;
}

int models_file_read(const char *path, const struct gateway_config **out, struct quire_error *err)
{
    struct buffer text = {0};
    FILE *file = fopen(path, "rbe");
    *out = NULL;
    if (!file)
        return quire_fail(err, QUIRE_NOT_FOUND, "%s: cannot be opened: %m", path);
    int status = buffer_read(&text, file, YAML_MAX_BYTES, path, err);
    fclose(file);
    if (status == QUIRE_OK)
        status = models_file_parse(text.n ? text.data : "", text.n, path, out, err);
    buffer_free(&text);
    return status;
}

/* ---- holders -------------------------------------------------------------------------------- */

/* config is the first member. */
static struct held_config *held_of(const struct gateway_config *config)
{
    return (struct held_config *)config;
}

const struct gateway_config *models_file_hold(const struct gateway_config *config)
{
    held_of(config)->n_holders++;
    return config;
}

void models_file_release(const struct gateway_config *config)
{
    struct held_config *held = config ? held_of(config) : NULL;
    if (!held || --held->n_holders > 0)
        return;
    arena_free(&held->arena);
    free(held);
}
