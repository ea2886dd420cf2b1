#include "files/model_files.h"

#include "base/file.h"
#include "files/gguf.h"
#include "files/gguf_made.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool model_is_gguf(const char *model)
{
    struct stat info;
    return stat(model, &info) == 0 && S_ISREG(info.st_mode);
}

static int read_path(const char *path, const char *dir, const char *name, size_t max_bytes, struct buffer *out,
                     struct quire_error *err)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return quire_fail(err, errno == ENOENT ? QUIRE_NOT_FOUND : QUIRE_IO, "%s: cannot be opened in %.300s: %m", name,
                          dir);
    if (!S_ISREG(info.st_mode)) /* opening a FIFO would wait */
        return quire_fail(err, QUIRE_INVALID, "%s: not a regular file", name);
    FILE *file = fopen(path, "rbe");
    if (!file)
        return quire_fail(err, QUIRE_IO, "%s: cannot be opened in %.300s: %m", name, dir);
    int status = buffer_read(out, file, max_bytes, name, err);
    fclose(file);
    return status;
}

static int make(const char *model, const char *name, struct buffer *out, struct quire_error *err)
{
    static const struct {
        const char *name;
        int (*make)(const struct gguf *g, struct buffer *out, struct quire_error *err);
    } made[] = {{"config.json", gguf_make_config},
                {"generation_config.json", gguf_make_generation},
                {"tokenizer.json", gguf_make_tokenizer},
                {"tokenizer_config.json", gguf_make_tokenizer_config}};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        struct gguf *g;
        if (strcmp(made[i].name, name) != 0)
            continue;
        int status = gguf_open_model(model, &g, err);
        if (status == QUIRE_OK)
            status = made[i].make(g, out, err);
        if (status == QUIRE_OK && out->failed)
            status = quire_fail(err, QUIRE_NO_MEMORY, "%s: out of memory", name);
        gguf_close(g);
        return status;
    }
    return quire_fail(err, QUIRE_NOT_FOUND, "%s: a GGUF file does not contain it", name);
}

int model_file_read(const char *model, const char *name, size_t max_bytes, struct buffer *out, struct quire_error *err)
{
    char *path;
    if (model_is_gguf(model))
        return make(model, name, out, err);
    if (asprintf(&path, "%s/%s", model, name) < 0)
        return quire_fail(err, QUIRE_NO_MEMORY, "%s: out of memory", name);
    int status = read_path(path, model, name, max_bytes, out, err);
    free(path);
    return status;
}
