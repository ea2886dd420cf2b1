#include "tools/quantize/model_files_copy.h"

#include "base/buffer.h"
#include "base/encoding/json.h"
#include "files/model_files.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_FILE_BYTES ((size_t)256 << 20) /* the largest tokenizers have 40 MiB */

static bool ends_with(const char *name, const char *suffix)
{
    const size_t n = strlen(name), m = strlen(suffix);
    return n >= m && strcmp(name + n - m, suffix) == 0;
}

/* Files that describe a model; weights in other formats and indexes of weights are left out. */
static bool describes_model(const char *name)
{
    static const char *const endings[] = {".json", ".txt", ".model", ".jinja", ".md", ".tiktoken", ".py"};
    if (strcmp(name, "config.json") == 0 || ends_with(name, ".index.json") || name[0] == '.')
        return false;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (ends_with(name, endings[i]))
            return true;
    return strncmp(name, "LICENSE", 7) == 0;
}

/* A module's weights are small, and stay as they are. */
static bool is_of_module(const char *name)
{
    return strcmp(name, "config.json") == 0 || strcmp(name, "model.safetensors") == 0;
}

static int copy_file(const char *dir, const char *name, struct quantizer_output *output, struct quire_error *err)
{
    struct buffer text = {0};
    struct stat st;
    char *path;
    if (asprintf(&path, "%s/%s", dir, name) < 0)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    const bool is_file = stat(path, &st) == 0 && S_ISREG(st.st_mode);
    free(path);
    if (!is_file)
        return QUIRE_OK;
    int status = model_file_read(dir, name, MAX_FILE_BYTES, &text, err);
    if (status == QUIRE_OK)
        status = quantizer_output_file(output, name, text.data, text.n, err);
    buffer_free(&text);
    return status;
}

/* Copies the chosen files of a folder of dir: "", or "NAME/". */
static int copy_folder(const char *dir, const char *folder, bool (*is_chosen)(const char *name),
                       struct quantizer_output *output, struct quire_error *err)
{
    struct dirent **entries;
    char *path;
    if (asprintf(&path, "%s/%s", dir, folder) < 0)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    const int n = scandir(path, &entries, NULL, alphasort);
    int status = n < 0 ? quire_fail(err, QUIRE_IO, "%.350s: cannot be read: %m", path) : QUIRE_OK;
    free(path);
    for (int i = 0; i < n; i++) {
        char *name;
        if (status == QUIRE_OK && is_chosen(entries[i]->d_name)) {
            if (asprintf(&name, "%s%s", folder, entries[i]->d_name) < 0)
                status = quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
            else {
                status = copy_file(dir, name, output, err);
                free(name);
            }
        }
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    return status;
}

/* A module without settings, such as Normalize, may have no folder. The model's own is "". */
static int copy_module(const char *dir, const char *name, struct quantizer_output *output, struct quire_error *err)
{
    struct stat st;
    char *path, *folder;
    if (name[0] == 0 || name[0] == '.' || strchr(name, '/'))
        return QUIRE_OK;
    if (asprintf(&path, "%s/%s", dir, name) < 0)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    const bool exists = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    free(path);
    if (!exists)
        return QUIRE_OK;
    if (asprintf(&folder, "%s/", name) < 0)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    const int status = copy_folder(dir, folder, is_of_module, output, err);
    free(folder);
    return status;
}

static int copy_modules(const char *dir, struct quantizer_output *output, struct quire_error *err)
{
    struct buffer text = {0};
    json_t *modules = NULL;
    int status = model_file_read(dir, "modules.json", MAX_FILE_BYTES, &text, err);
    if (status == QUIRE_OK)
        status = quire_json_parse_python(text.data, text.n, "modules.json", &modules, err);
    else if (status == QUIRE_NOT_FOUND)
        status = QUIRE_OK;
    for (size_t i = 0; status == QUIRE_OK && i < json_array_size(modules); i++) {
        const char *name = json_string_value(json_object_get(json_array_get(modules, i), "path"));
        status = name ? copy_module(dir, name, output, err) : QUIRE_OK;
    }
    json_decref(modules);
    buffer_free(&text);
    return status;
}

int model_files_copy(const char *dir, struct quantizer_output *output, struct quire_error *err)
{
    const int status = copy_folder(dir, "", describes_model, output, err);
    return status == QUIRE_OK ? copy_modules(dir, output, err) : status;
}
