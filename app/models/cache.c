#include "app/models/cache.h"

#include "app/models/hub_url.h"
#include "app/models/quant.h"
#include "app/models/snapshot.h"
#include "base/encoding/distance.h"
#include "base/encoding/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define INDEX_FILE "model.safetensors.index.json"
#define MAX_INDEX_BYTES (64u << 20)
#define SHOWN_MISSING 4

/* ---- paths ---- */

__attribute__((format(printf, 3, 4))) static int put_path(char out[HUB_PATH_BYTES], struct quire_error *err,
                                                          const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(out, HUB_PATH_BYTES, format, args);
    va_end(args);
    if (n < 0 || n >= HUB_PATH_BYTES)
        return quire_fail(err, QUIRE_INVALID, "a path in the Hugging Face cache is too long");
    return QUIRE_OK;
}

static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

int hub_home_path(const char *file, char out[HUB_PATH_BYTES], struct quire_error *err)
{
    const char *value;
    if ((value = environment("HF_HOME")))
        return put_path(out, err, "%s/%s", value, file);
    if ((value = environment("XDG_CACHE_HOME")))
        return put_path(out, err, "%s/huggingface/%s", value, file);
    if ((value = environment("HOME")))
        return put_path(out, err, "%s/.cache/huggingface/%s", value, file);
    return quire_fail(err, QUIRE_NOT_FOUND, "the location of the Hugging Face cache is unknown: set HF_HOME or HOME");
}

int hub_cache_root(char out[HUB_PATH_BYTES], struct quire_error *err)
{
    const char *value = environment("HF_HUB_CACHE");
    return value ? put_path(out, err, "%s", value) : hub_home_path("hub", out, err);
}

int hub_cache_repo(const struct hub_name *name, char out[HUB_PATH_BYTES], struct quire_error *err)
{
    char root[HUB_PATH_BYTES];
    int status = hub_cache_root(root, err);
    if (status != QUIRE_OK)
        return status;
    const char *slash = strchr(name->text, '/');
    if (!slash)
        return put_path(out, err, "%s/models--%s", root, name->text);
    return put_path(out, err, "%s/models--%.*s--%s", root, (int)(slash - name->text), name->text, slash + 1);
}

/* ---- checking a snapshot ---- */

/* The missing files, as the error shows them. */
struct missing {
    char text[320];
    size_t n;
};

static void look_for(const char *dir, const char *file, struct missing *missing)
{
    char path[HUB_PATH_BYTES];
    struct stat info;
    if (put_path(path, NULL, "%s/%s", dir, file) == QUIRE_OK && stat(path, &info) == 0 && S_ISREG(info.st_mode))
        return;
    size_t at = strlen(missing->text);
    if (missing->n++ < SHOWN_MISSING)
        snprintf(missing->text + at, sizeof missing->text - at, "%s%.70s", at ? ", " : "", file);
}

/* Checks every shard that the index names. A missing shard is reported once, whatever number of tensors it holds. */
static int look_for_shards(const char *dir, struct missing *missing, struct quire_error *err)
{
    char path[HUB_PATH_BYTES];
    json_t *index = NULL, *map = NULL, *value, *seen = json_object();
    const char *key;
    int status = put_path(path, err, "%s/" INDEX_FILE, dir);
    if (status == QUIRE_OK)
        status = quire_json_read_python_file(path, MAX_INDEX_BYTES, &index, err);
    if (status == QUIRE_OK)
        status = quire_json_object(index, INDEX_FILE, "weight_map", &map, err);
    json_object_foreach(map, key, value)
    {
        const char *shard = json_string_value(value);
        if (status != QUIRE_OK)
            break;
        if (!shard || !hub_file_name_ok(shard))
            status = quire_fail(err, QUIRE_INVALID, INDEX_FILE ": weight_map: contains an invalid file name");
        else if (!json_object_get(seen, shard) && json_object_set_new(seen, shard, json_true()) == 0)
            look_for(dir, shard, missing);
    }
    json_decref(seen);
    json_decref(index);
    return status;
}

int hub_snapshot_check(const char *dir, bool without_weights, struct quire_error *err)
{
    struct missing missing = {.n = 0}, sentencepiece = {.n = 0}, single = {.n = 0}, index = {.n = 0};
    int status = QUIRE_OK;
    look_for(dir, "config.json", &missing);
    look_for(dir, "tokenizer.model", &sentencepiece);
    if (sentencepiece.n)
        look_for(dir, "tokenizer.json", &missing);
    look_for(dir, "model.safetensors", &single);
    look_for(dir, INDEX_FILE, &index);
    if (!without_weights && single.n && index.n)
        look_for(dir, "model.safetensors", &missing);
    else if (!without_weights && single.n)
        status = look_for_shards(dir, &missing, err);
    if (status != QUIRE_OK || missing.n == 0)
        return status;
    if (missing.n > SHOWN_MISSING)
        return quire_fail(err, QUIRE_NOT_FOUND, "without %s and %zu other files", missing.text,
                          missing.n - SHOWN_MISSING);
    return quire_fail(err, QUIRE_NOT_FOUND, "without %s", missing.text);
}

/* ---- lookup ---- */

/* The commit in refs/REVISION. Returns false if it is missing or invalid. */
static bool read_ref(const char *repo, const char *revision, char out[HUB_COMMIT_BYTES])
{
    char path[HUB_PATH_BYTES];
    FILE *file = put_path(path, NULL, "%s/refs/%s", repo, revision) == QUIRE_OK ? fopen(path, "re") : NULL;
    if (!file)
        return false;
    size_t n = fread(out, 1, HUB_COMMIT_BYTES - 1, file);
    fclose(file);
    out[n] = 0;
    return hub_is_commit(out);
}

int hub_cache_commit(const struct hub_name *name, char out[HUB_COMMIT_BYTES], struct quire_error *err)
{
    char repo[HUB_PATH_BYTES];
    int status = hub_cache_repo(name, repo, err);
    if (status != QUIRE_OK)
        return status;
    if (hub_is_commit(name->revision))
        strcpy(out, name->revision);
    else if (!read_ref(repo, name->revision, out))
        return quire_fail(err, QUIRE_NOT_FOUND, "the Hugging Face cache has no revision %s of %s (quire list)",
                          name->revision, name->text);
    return QUIRE_OK;
}

int hub_snapshot_quant(const char *dir, const char *quant, char out[HUB_PATH_BYTES], struct quire_error *err)
{
    struct hub_names names;
    struct missing missing = {.n = 0};
    const char *first = NULL;
    char name[HUB_FILE_NAME_BYTES];
    hub_snapshot_files(dir, &names);
    int status = quant[0] ? hub_quant_choose(names.items, names.n, quant, &first, err)
                          : hub_quant_only(names.items, names.n, &first, err);
    const unsigned n = status == QUIRE_OK ? hub_quant_n_splits(first) : 0;
    for (unsigned i = 0; i < n && missing.n <= SHOWN_MISSING; i++)
        if (hub_quant_split(first, i, name, sizeof name))
            look_for(dir, name, &missing);
    if (status == QUIRE_OK && missing.n)
        status = quire_fail(err, QUIRE_NOT_FOUND, "without %s", missing.text);
    if (status == QUIRE_OK)
        status = put_path(out, err, "%s/%s", dir, first);
    hub_names_free(&names);
    return status;
}

int hub_config_find(const char *given, char dir[HUB_PATH_BYTES], struct quire_error *err)
{
    struct hub_name name;
    char repo[HUB_PATH_BYTES], commit[HUB_COMMIT_BYTES], path[HUB_PATH_BYTES];
    struct stat info;
    if (hub_name_parse(given, &name, NULL) != QUIRE_OK)
        return quire_fail(err, QUIRE_INVALID,
                          "%.300s: this file or directory does not exist, and it is not a name like ORG/NAME either",
                          given);
    int status = hub_cache_repo(&name, repo, err);
    if (status != QUIRE_OK)
        return status;
    if (hub_is_commit(name.revision))
        strcpy(commit, name.revision);
    else if (!read_ref(repo, name.revision, commit))
        commit[0] = '\0';
    if (commit[0] && put_path(dir, NULL, "%s/snapshots/%s", repo, commit) == QUIRE_OK &&
        put_path(path, NULL, "%s/config.json", dir) == QUIRE_OK && stat(path, &info) == 0)
        return QUIRE_OK;
    return quire_fail(err, QUIRE_NOT_FOUND, "the Hugging Face cache has no config.json of %s", name.text);
}

/* The model in the cache whose ORG/NAME a person may have meant, or "". */
static void near_model(const char *typed, char out[HUB_NAME_BYTES])
{
    char root[HUB_PATH_BYTES];
    struct hub_names names;
    unsigned best = 4;
    out[0] = 0;
    if (hub_cache_root(root, NULL) != QUIRE_OK)
        return;
    hub_cache_models(root, &names);
    for (size_t i = 0; i < names.n; i++) {
        const char *name = names.items[i], *slash = strchr(name, '/');
        unsigned distance = quire_distance(typed, strlen(typed), name, strlen(name));
        if (strcmp(name, typed) == 0) /* its revision is missing */
            continue;
        if (strcasecmp(name, typed) == 0)
            distance = 0;
        else if (slash && !strchr(typed, '/') && strcasecmp(slash + 1, typed) == 0)
            distance = 1;
        if (distance < best)
            snprintf(out, HUB_NAME_BYTES, "%s", name);
        best = distance < best ? distance : best;
    }
    hub_names_free(&names);
}

/* The advice is a command that can work: the hub's names have an organisation. */
static int not_in_cache(const struct hub_name *name, const char *typed, const char *repo, struct quire_error *err)
{
    char near[HUB_NAME_BYTES];
    near_model(name->text, near);
    if (near[0])
        return quire_fail(err, QUIRE_NOT_FOUND,
                          "%s is not a directory, and the Hugging Face cache has no such model; did "
                          "you mean %s? quire list shows the downloaded models",
                          typed, near);
    if (!strchr(name->text, '/'))
        return quire_fail(err, QUIRE_NOT_FOUND,
                          "%s is not a directory, and no downloaded model has this name (quire list); "
                          "names on the hub are ORG/NAME, such as Qwen/Qwen2.5-1.5B-Instruct",
                          typed);
    return quire_fail(err, QUIRE_NOT_FOUND,
                      "%s is not a directory, and the Hugging Face cache has no such model (%.200s); "
                      "to download it: quire pull %s",
                      typed, repo, typed);
}

/* Whether the snapshot has GGUF files and no configuration in JSON. */
static bool is_gguf_snapshot(const char *dir)
{
    struct missing config = {.n = 0};
    struct hub_names names;
    bool found = false;
    look_for(dir, "config.json", &config);
    if (!config.n)
        return false;
    hub_snapshot_files(dir, &names);
    for (size_t i = 0; i < names.n && !found; i++)
        found = hub_quant_is_first(names.items[i]);
    hub_names_free(&names);
    return found;
}

static int find_snapshot(const struct hub_name *name, bool without_weights, char out[HUB_PATH_BYTES],
                         struct quire_error *err)
{
    char repo[HUB_PATH_BYTES], commit[HUB_COMMIT_BYTES], typed[HUB_TYPED_BYTES];
    struct stat info;
    hub_name_typed(name, typed);
    int status = hub_cache_repo(name, repo, err);
    if (status != QUIRE_OK)
        return status;
    if (hub_is_commit(name->revision))
        strcpy(commit, name->revision);
    else if (!read_ref(repo, name->revision, commit))
        return not_in_cache(name, typed, repo, err);
    if ((status = put_path(out, err, "%s/snapshots/%s", repo, commit)) != QUIRE_OK)
        return status;
    if (stat(out, &info) != 0)
        return quire_fail(err, QUIRE_NOT_FOUND,
                          "the Hugging Face cache has no snapshot %s of %s; to download it: quire pull %s", commit,
                          name->text, typed);
    struct quire_error missing = {.text = ""};
    char dir[HUB_PATH_BYTES];
    strcpy(dir, out);
    if (name->quant[0] || is_gguf_snapshot(dir))
        status = hub_snapshot_quant(dir, name->quant, out, &missing);
    else
        status = hub_snapshot_check(out, without_weights, &missing);
    if (status == QUIRE_NOT_FOUND && name->quant[0])
        return quire_fail(err, status, "%s is not in the Hugging Face cache (%.280s); to download it: quire pull %s",
                          typed, missing.text, typed);
    if (status == QUIRE_NOT_FOUND)
        return quire_fail(err, status, "the Hugging Face cache has %s %.330s; to complete it: quire pull %s", typed,
                          missing.text, typed);
    if (status != QUIRE_OK)
        return quire_fail(err, status, "%s: %.300s", typed, missing.text);
    return QUIRE_OK;
}

/* The last part of a path such as ".../Qwen2.5-1.5B-Instruct/". Returns false if it is not a name. */
static bool last_part(const char *path, char out[256])
{
    size_t end = strlen(path);
    while (end > 0 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    snprintf(out, 256, "%.*s", (int)(end - begin), path + begin);
    return out[0] && strcmp(out, ".") != 0 && strcmp(out, "..") != 0;
}

/* The name of a directory: as typed, also for a link; for "." and "..", the name of the target. */
static void directory_name(const char *dir, char out[256])
{
    if (last_part(dir, out))
        return;
    char *real = realpath(dir, NULL);
    if (!real || !last_part(real, out))
        strcpy(out, "model"); /* "/" has no name */
    free(real);
}

#define GGUF ".gguf"

bool hub_is_gguf(const char *path)
{
    const size_t n = strlen(path);
    return n > strlen(GGUF) && strcasecmp(path + n - strlen(GGUF), GGUF) == 0;
}

/* Returns whether a regular file begins as GGUF does. Other programs' stores name their files by digests. */
static bool begins_as_gguf(const char *path)
{
    char magic[4] = "";
    FILE *file = fopen(path, "rbe");
    const bool is_read = file && fread(magic, 1, sizeof magic, file) == sizeof magic;
    if (file)
        fclose(file);
    return is_read && memcmp(magic, "GGUF", sizeof magic) == 0;
}

/* An existing file or directory. */
static int find_path(const char *given, mode_t mode, struct hub_model *out, struct quire_error *err)
{
    directory_name(given, out->name);
    if (S_ISDIR(mode) && !is_gguf_snapshot(given))
        return put_path(out->dir, err, "%s", given);
    if (S_ISDIR(mode)) {
        struct quire_error many = {.text = ""};
        const int status = hub_snapshot_quant(given, "", out->dir, &many);
        if (status == QUIRE_OK)
            return QUIRE_OK;
        return quire_fail(err, status, "%.300s: MODEL must be one GGUF file of this directory, with all its parts",
                          given);
    }
    if (hub_is_gguf(given))
        out->name[strlen(out->name) - strlen(GGUF)] = 0;
    else if (!S_ISREG(mode) || !begins_as_gguf(given))
        return quire_fail(err, QUIRE_INVALID,
                          "%.300s is a file, but not a GGUF file; MODEL must be the directory of a checkpoint, a GGUF "
                          "file, or a name on the hub",
                          given);
    return put_path(out->dir, err, "%s", given);
}

int hub_model_find(const char *given, bool without_weights, struct hub_model *out, struct quire_error *err)
{
    struct hub_name name;
    struct stat info;
    if (stat(given, &info) == 0)
        return find_path(given, info.st_mode, out, err);
    if (hub_url_is(given) && hub_name_parse(given, &name, err) != QUIRE_OK)
        return QUIRE_INVALID;
    if (hub_name_parse(given, &name, NULL) != QUIRE_OK || hub_is_gguf(given))
        return quire_fail(err, QUIRE_NOT_FOUND,
                          hub_is_gguf(given) ? "%.300s: this file does not exist"
                                             : "%.300s: this directory does not exist, and it is not a name like "
                                               "ORG/NAME either",
                          given);
    snprintf(out->name, sizeof out->name, "%s%s%s", name.text, name.quant[0] ? ":" : "", name.quant);
    return find_snapshot(&name, without_weights, out->dir, err);
}
