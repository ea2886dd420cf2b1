#include "tools/hub/list.h"

#include "base/encoding/json.h"
#include "app/models/quant.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHERE "the hub's list of files"
#define MAX_DEPTH 64

static int parse_files(json_t *siblings, struct hub_list *out, struct quire_error *err)
{
    size_t n = json_array_size(siblings);
    json_t *seen = json_object();
    int status = QUIRE_OK;
    if (n > HUB_MAX_FILES)
        status = quire_fail(err, QUIRE_INVALID, WHERE ": siblings: more than %u files", HUB_MAX_FILES);
    else if (!seen || !(out->files = calloc(n + 1, sizeof *out->files)))
        status = quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    for (size_t i = 0; status == QUIRE_OK && i < n; i++) {
        const char *name = NULL;
        const json_t *entry = json_array_get(siblings, i);
        if (!json_is_object(entry))
            status = quire_fail(err, QUIRE_INVALID, WHERE ": siblings[%zu]: must be an object", i);
        else
            status = quire_json_string(entry, WHERE, "rfilename", &name, err);
        if (status != QUIRE_OK)
            break;
        if (!name || !hub_file_name_ok(name))
            status = quire_fail(err, QUIRE_INVALID, WHERE ": siblings[%zu]: rfilename: is not a valid file name", i);
        else if (json_object_get(seen, name))
            status = quire_fail(err, QUIRE_INVALID, WHERE ": siblings[%zu]: rfilename: occurs twice", i);
        else if (json_object_set_new(seen, name, json_true()) != 0 || !(out->files[i] = strdup(name)))
            status = quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
        else
            out->n++;
    }
    json_decref(seen);
    return status;
}

int hub_list_parse(const char *json, size_t n_bytes, struct hub_list *out, struct quire_error *err)
{
    json_t *root = NULL, *siblings = NULL;
    const char *sha = NULL;
    *out = (struct hub_list){.n = 0};
    int status = quire_json_parse(json, n_bytes, MAX_DEPTH, WHERE, &root, err);
    if (status == QUIRE_OK && !json_is_object(root))
        status = quire_fail(err, QUIRE_INVALID, WHERE ": must be a JSON object");
    if (status == QUIRE_OK)
        status = quire_json_string(root, WHERE, "sha", &sha, err);
    if (status == QUIRE_OK)
        status = quire_json_array(root, WHERE, "siblings", &siblings, err);
    if (status == QUIRE_OK && (!sha || !hub_is_commit(sha)))
        status = quire_fail(err, QUIRE_INVALID, WHERE ": sha: must be a commit, 40 hex digits");
    if (status == QUIRE_OK)
        status = parse_files(siblings, out, err);
    if (status == QUIRE_OK)
        strcpy(out->commit, sha);
    else
        hub_list_free(out);
    json_decref(root);
    return status;
}

void hub_list_free(struct hub_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->files[i]);
    free(list->files);
    *list = (struct hub_list){.n = 0};
}

static bool matches(const char *const *patterns, size_t n, const char *name, int flags)
{
    for (size_t i = 0; i < n; i++)
        if (fnmatch(patterns[i], name, flags) == 0)
            return true;
    return false;
}

/* consolidated*.safetensors contain the same weights in another program's format. Directories (original/, onnx/)
 * contain other formats, too, except for the chat templates and sentence-transformers' modules (1_Pooling, 2_Dense). */
static bool is_wanted(const struct hub_patterns *p, const char *name)
{
    static const char *const never[] = {"*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.gguf"};
    static const char *const wanted[] = {"*.json",
                                         "*.safetensors",
                                         "tokenizer*",
                                         "*.txt",
                                         "*.jinja",
                                         "additional_chat_templates/*.jinja",
                                         "[0-9]_*/config.json",
                                         "[0-9]_*/model.safetensors"};
    static const char *const twice[] = {"consolidated*.safetensors"};
    if (matches(never, sizeof never / sizeof *never, name, 0) || matches(p->exclude, p->n_exclude, name, 0))
        return false;
    if (p->n_include)
        return matches(p->include, p->n_include, name, 0);
    return matches(wanted, sizeof wanted / sizeof *wanted, name, FNM_PATHNAME | FNM_PERIOD) &&
           !matches(twice, 1, name, 0);
}

void hub_list_select(struct hub_list *list, const struct hub_patterns *patterns)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->n; i++) {
        if (is_wanted(patterns, list->files[i]))
            list->files[kept++] = list->files[i];
        else
            free(list->files[i]);
    }
    list->n = kept;
}

static bool has_file(const struct hub_list *list, const char *file)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->files[i], file) == 0)
            return true;
    return false;
}

static int check_splits(const struct hub_list *list, const char *first, struct quire_error *err)
{
    char name[HUB_FILE_NAME_BYTES];
    const unsigned n = hub_quant_n_splits(first);
    for (unsigned i = 0; i < n; i++)
        if (!hub_quant_split(first, i, name, sizeof name) || !has_file(list, name))
            return quire_fail(err, QUIRE_UNSUPPORTED,
                              "the hub lacks part %u of the %u of %.150s; nothing was downloaded", i + 1, n, first);
    return QUIRE_OK;
}

int hub_list_quant(struct hub_list *list, const char *quant, struct quire_error *err)
{
    const char *first = NULL;
    size_t kept = 0;
    char name[HUB_FILE_NAME_BYTES] = "";
    int status = quant[0] ? hub_quant_choose(list->files, list->n, quant, &first, err)
                          : hub_quant_only(list->files, list->n, &first, err);
    if (status == QUIRE_OK)
        status = check_splits(list, first, err);
    if (status != QUIRE_OK)
        return status;
    snprintf(name, sizeof name, "%s", first);
    for (size_t i = 0; i < list->n; i++) {
        if (hub_quant_belongs(list->files[i], name))
            list->files[kept++] = list->files[i];
        else
            free(list->files[i]);
    }
    list->n = kept;
    return QUIRE_OK;
}

bool hub_list_has(const struct hub_list *list, const char *pattern)
{
    for (size_t i = 0; i < list->n; i++)
        if (fnmatch(pattern, list->files[i], 0) == 0)
            return true;
    return false;
}
