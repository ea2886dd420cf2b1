#include "server/gateway/file/targets.h"

#include "server/gateway/file/secret.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WEIGHT 1000
#define MAX_CONCURRENT 1000000
#define MAX_PLACE 2048
#define MAX_OPTIONS 64 /* arguments: names and values */

static const char *const known[] = {"name",   "model",   "engine",         "engine_key_file", "url",
                                    "weight", "options", "max_concurrent", "api_key_env",     "api_key_file"};

/* ---- places --------------------------------------------------------------------------------- */

/* Whether text is HOST:PORT; an IPv6 address stands in [ ]. */
static bool is_host_port(const char *text)
{
    const char *colon = strrchr(text, ':');
    const size_t n = colon ? (size_t)(colon - text) : 0;
    if (n == 0 || (memchr(text, ':', n) && (text[0] != '[' || text[n - 1] != ']')))
        return false;
    const size_t n_digits = strspn(colon + 1, "0123456789");
    return n_digits > 0 && n_digits <= 5 && colon[1 + n_digits] == '\0' && atol(colon + 1) > 0 &&
           atol(colon + 1) <= UINT16_MAX;
}

static int check_address(const struct fields *f, const struct yaml_node *node, const char *text)
{
    if (strncmp(text, "unix:", 5) == 0 && text[5])
        return QUIRE_OK;
    if (strncmp(text, "tcp:", 4) == 0 && is_host_port(text + 4))
        return QUIRE_OK;
    return fields_wrong(f, node, "engine", "\"%.*s\" must be unix:PATH or tcp:HOST:PORT", yaml_shown(text), text);
}

/* Why libcurl's parser or a rule refuses it; NULL: it is good. host: freed by curl_free(). */
static const char *check_url(CURLU *url, const char *text, char **host)
{
    char *part = NULL;
    if (strncmp(text, "http://", 7) != 0 && strncmp(text, "https://", 8) != 0)
        return "must begin with http:// or https://";
    if (strchr(text, '@'))
        return "must not have a user or password; use api_key_env or api_key_file";
    if (strpbrk(text, " ?#\\"))
        return "must not have spaces, a query (?) or a fragment (#)";
    /* libcurl takes the next part as the host. */
    if (strstr(text, ":///"))
        return "has no host";
    if (curl_url_set(url, CURLUPART_URL, text, 0) != CURLUE_OK ||
        curl_url_get(url, CURLUPART_HOST, host, 0) != CURLUE_OK)
        return "is not a URL";
    const bool has_port = curl_url_get(url, CURLUPART_PORT, &part, 0) == CURLUE_OK;
    const bool is_zero = has_port && atol(part) == 0;
    curl_free(part);
    return is_zero ? "has the port 0" : NULL;
}

/* A target's name from its place: what a label of Prometheus or a header may not contain becomes '_'. */
static const char *made_name(const struct fields *f, const char *text, size_t n)
{
    static const char kept[] = FIELDS_NAME_CHARACTERS "[]";
    char *name = arena_text(f->arena, text, n < FIELDS_MAX_NAME ? n : FIELDS_MAX_NAME);
    for (char *c = name; c && *c; c++)
        if (!strchr(kept, *c))
            *c = '_';
    return name;
}

/* place: the URL without slashes at its end; name: its host. */
static int read_url(const struct fields *f, const struct yaml_node *node, struct gateway_target *t)
{
    CURLU *url = curl_url();
    char *host = NULL;
    size_t n = node->n;
    while (n > 0 && node->text[n - 1] == '/')
        n--;
    const char *place = arena_text(f->arena, node->text, n);
    if (!url || !place) {
        curl_url_cleanup(url);
        return fields_no_memory(f);
    }
    const char *why = check_url(url, place, &host);
    t->place = place;
    if (!why && !t->name)
        t->name = made_name(f, host, strlen(host));
    curl_free(host);
    curl_url_cleanup(url);
    if (why)
        return fields_wrong(f, node, "url", "\"%.*s\" %s", yaml_shown(node->text), node->text, why);
    return t->name ? QUIRE_OK : fields_no_memory(f);
}

/* The last part of a path. */
static const char *last_part(const struct fields *f, const char *place)
{
    size_t n = strlen(place);
    while (n > 1 && place[n - 1] == '/')
        n--;
    size_t from = n;
    while (from > 0 && place[from - 1] != '/')
        from--;
    return made_name(f, place + from, n - from);
}

static int read_place(const struct fields *f, const struct yaml_node *map, struct gateway_target *t)
{
    const struct yaml_node *model = yaml_get(map, "model"), *engine = yaml_get(map, "engine"),
                           *url = yaml_get(map, "url");
    const struct yaml_node *node = url ? url : engine ? engine : model;
    const char *field = url ? "url" : engine ? "engine" : "model";
    if (!node)
        return fields_wrong(f, map, NULL, "must have model (a directory), engine (an address) or url");
    if (engine && (model || url))
        return fields_wrong(f, engine, "engine", "a target has one place; remove %s", url ? "url" : "model");
    int status = fields_text_of(f, node, field, &t->place);
    if (status == QUIRE_OK && node->n > MAX_PLACE)
        status = fields_wrong(f, node, field, "has more than %d bytes", MAX_PLACE);
    if (status != QUIRE_OK)
        return status;
    if (url) {
        t->kind = GATEWAY_TARGET_URL;
        return read_url(f, url, t);
    }
    t->kind = engine ? GATEWAY_TARGET_ENGINE : GATEWAY_TARGET_MODEL;
    if (engine && (status = check_address(f, engine, t->place)) != QUIRE_OK)
        return status;
    if (!t->name)
        t->name = engine ? made_name(f, t->place, strlen(t->place)) : last_part(f, t->place);
    return t->name ? QUIRE_OK : fields_no_memory(f);
}

/* ---- keys ----------------------------------------------------------------------------------- */

static int read_keys(const struct fields *f, const struct yaml_node *map, struct gateway_target *t)
{
    const struct yaml_node *env = yaml_get(map, "api_key_env"), *file = yaml_get(map, "api_key_file");
    const struct yaml_node *engine = yaml_get(map, "engine_key_file"), *node = env ? env : file;
    const char *text = NULL, *why = NULL, *field = env ? "api_key_env" : "api_key_file";
    if (node && t->kind != GATEWAY_TARGET_URL)
        return fields_wrong(f, node, field, "is for a target with url");
    if (env && file)
        return fields_wrong(f, file, "api_key_file", "a target has one key; remove this or api_key_env");
    if (engine && (t->kind != GATEWAY_TARGET_ENGINE || strncmp(t->place, "tcp:", 4) != 0))
        return fields_wrong(f, engine, "engine_key_file", "is for a target with engine: tcp:HOST:PORT");
    if (engine) {
        node = engine;
        field = "engine_key_file";
    }
    if (!node)
        return QUIRE_OK;
    const int status = fields_text_of(f, node, field, &text);
    if (status != QUIRE_OK)
        return status;
    if (env)
        why = secret_from_environment(text, f->arena, &t->key);
    else
        why = secret_from_file(text, f->arena, engine ? NULL : &t->key);
    t->engine_key_file = engine ? text : NULL;
    return why ? fields_wrong(f, node, field, "%.*s %s", yaml_shown(text), text, why) : QUIRE_OK;
}

/* ---- options -------------------------------------------------------------------------------- */

struct arguments {
    const char *items[MAX_OPTIONS];
    size_t n;
};

/* "--name", or "--no-name". */
static const char *flag(const struct fields *f, const char *name, bool is_set)
{
    char text[80];
    const int n = snprintf(text, sizeof text, "--%s%.60s", is_set ? "" : "no-", name);
    return arena_text(f->arena, text, (size_t)n);
}

static int push(const struct fields *f, const struct yaml_node *at, const char *text, struct arguments *a)
{
    if (!text)
        return fields_no_memory(f);
    if (a->n == MAX_OPTIONS)
        return fields_wrong(f, at, "options", "are more than %d words", MAX_OPTIONS);
    a->items[a->n++] = text;
    return QUIRE_OK;
}

static int push_value(const struct fields *f, const struct yaml_node *node, const char *name, struct arguments *a)
{
    const char *text;
    int status = fields_text_of(f, node, "options", &text);
    if (status == QUIRE_OK)
        status = push(f, node, flag(f, name, true), a);
    return status == QUIRE_OK ? push(f, node, text, a) : status;
}

/* true and false set and clear a flag; a list repeats the option. */
static int push_option(const struct fields *f, const struct yaml_node *node, struct arguments *a)
{
    const char *name = node->key;
    const size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_");
    int status = QUIRE_OK;
    if (n == 0 || name[n] || n > 60 || name[0] == '-')
        return fields_wrong(f, node, "options", "\"%.*s\" is not the name of an option", yaml_shown(name), name);
    if (node->kind == YAML_MAPPING)
        return fields_wrong(f, node, "options", "%s must be a text, a number, true, false or a list", name);
    if (node->kind == YAML_SCALAR && node->is_plain && strcmp(node->text, "true") == 0)
        return push(f, node, flag(f, name, true), a);
    if (node->kind == YAML_SCALAR && node->is_plain && strcmp(node->text, "false") == 0)
        return push(f, node, flag(f, name, false), a);
    if (node->kind == YAML_SCALAR)
        return push_value(f, node, name, a);
    for (const struct yaml_node *item = node->first; item && status == QUIRE_OK; item = item->next)
        status = push_value(f, item, name, a);
    return status;
}

static int read_options(const struct fields *f, const struct yaml_node *map, struct gateway_target *t)
{
    const struct yaml_node *options = yaml_get(map, "options");
    struct arguments a = {.n = 0};
    if (!options)
        return QUIRE_OK;
    if (t->kind == GATEWAY_TARGET_URL)
        return fields_wrong(f, options, "options", "are for a target with model or engine");
    if (options->kind != YAML_MAPPING)
        return fields_wrong(f, options, "options", "must be a mapping of options of quire serve (max-model-len: 4096)");
    for (const struct yaml_node *node = options->first; node; node = node->next) {
        const int status = push_option(f, node, &a);
        if (status != QUIRE_OK)
            return status;
    }
    const char **items = arena_new(f->arena, a.n * sizeof *items);
    if (!items)
        return fields_no_memory(f);
    memcpy(items, a.items, a.n * sizeof *items);
    t->options = items;
    t->n_options = a.n;
    return QUIRE_OK;
}

/* ---- a target, and all of a model ------------------------------------------------------------ */

static int read_target(const struct fields *f, const struct yaml_node *map, struct gateway_target *t)
{
    int status = fields_check(f, map, NULL, known, sizeof known / sizeof *known);
    const struct yaml_node *name = status == QUIRE_OK ? yaml_get(map, "name") : NULL;
    *t = (struct gateway_target){.weight = 1, .line = map->line, .column = map->column};
    if (name)
        status = fields_name(f, name, "name", &t->name);
    if (status != QUIRE_OK || (status = read_place(f, map, t)) || (status = read_keys(f, map, t)) ||
        (status = read_options(f, map, t)) || (status = fields_u32(f, map, "weight", 1, MAX_WEIGHT, &t->weight)) ||
        (status = fields_u32(f, map, "max_concurrent", 0, MAX_CONCURRENT, &t->max_concurrent)))
        return status;
    return t->kind == GATEWAY_TARGET_URL ? fields_text(f, map, "model", &t->upstream_model) : QUIRE_OK;
}

static bool is_taken(const struct gateway_target *targets, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(targets[i].name, name) == 0)
            return true;
    return false;
}

/* A name of the file must be unique; a made one gets a number. */
static int make_unique(const struct fields *f, const struct yaml_node *map, struct gateway_target *targets, size_t i)
{
    const struct yaml_node *name = yaml_get(map, "name");
    const char *const first = targets[i].name;
    char text[FIELDS_MAX_NAME + 16];
    if (name && is_taken(targets, i, first))
        return fields_wrong(f, name, "name", "\"%s\" is another target's", first);
    for (size_t n = 2; is_taken(targets, i, targets[i].name); n++) {
        snprintf(text, sizeof text, "%.*s-%zu", FIELDS_MAX_NAME, first, n);
        targets[i].name = arena_text(f->arena, text, strlen(text));
        if (!targets[i].name)
            return fields_no_memory(f);
    }
    return QUIRE_OK;
}

int targets_read(const struct fields *f, const struct yaml_node *map, struct gateway_model *model)
{
    const struct yaml_node *list = NULL;
    int status = fields_list(f, map, "targets", GATEWAY_MAX_TARGETS, &list);
    if (status != QUIRE_OK || !list)
        return status;
    struct gateway_target *targets = arena_new(f->arena, list->n * sizeof *targets);
    if (!targets)
        return fields_no_memory(f);
    size_t i = 0;
    for (const struct yaml_node *node = list->first; node && status == QUIRE_OK; node = node->next, i++) {
        struct fields at = *f;
        const size_t n = strlen(at.where);
        snprintf(at.where + n, sizeof at.where - n, ": target %zu", i + 1);
        status = read_target(&at, node, &targets[i]);
        if (status == QUIRE_OK)
            status = make_unique(&at, node, targets, i);
    }
    model->targets = targets;
    model->n_targets = list->n;
    return status;
}
