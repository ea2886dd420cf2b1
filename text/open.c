#include "text/quire_text_rust.h"

#include "base/buffer.h"
#include "files/model_files.h"

#define MAX_FILE_BYTES ((size_t)1 << 30) /* of the file that is made; the GGUF file bounds it */

/* The two texts that a GGUF file's metadata become. */
static int make(const char *model, struct buffer files[2], struct quire_error *err)
{
    int status = model_file_read(model, "tokenizer.json", MAX_FILE_BYTES, &files[0], err);
    return status == QUIRE_OK ? model_file_read(model, "tokenizer_config.json", MAX_FILE_BYTES, &files[1], err)
                              : status;
}

int quire_text_open(const char *model, struct quire_text **out, struct quire_error *err)
{
    struct buffer files[2] = {{0}, {0}};
    if (!model || !model_is_gguf(model))
        return quire_text_open_dir(model, out, err);
    int status = make(model, files, err);
    if (status == QUIRE_OK)
        status = quire_text_open_made(files[0].data, files[0].n, files[1].data, files[1].n, out, err);
    buffer_free(&files[0]);
    buffer_free(&files[1]);
    return status;
}

int quire_text_identity(const char *model, uint8_t sha256[32], struct quire_error *err)
{
    struct buffer files[2] = {{0}, {0}};
    if (!model || !model_is_gguf(model))
        return quire_text_identity_dir(model, sha256, err);
    int status = make(model, files, err);
    if (status == QUIRE_OK)
        status = quire_text_identity_made(files[0].data, files[0].n, files[1].data, files[1].n, sha256, err);
    buffer_free(&files[0]);
    buffer_free(&files[1]);
    return status;
}
