#include "app/serving/identity.h"

#include "base/buffer.h"
#include "files/model_files.h"
#include "kernels/gemm_form.h"
#include "text/quire_text.h"

#include <stdio.h>

#define MAX_CONFIG_BYTES ((size_t)16 << 20)

int serving_identity_read(const char *model, struct serving_identity *out, struct quire_error *err)
{
    struct buffer config = {0}, generation = {0};
    snprintf(out->numerics, sizeof out->numerics, "law=%d\n", K_NUMERICS_VERSION);
    int status = model_file_read(model, "config.json", MAX_CONFIG_BYTES, &config, err);
    if (status == QUIRE_OK)
        out->config = quire_sha256(config.data, config.n);
    if (status == QUIRE_OK)
        status = model_file_read(model, "generation_config.json", MAX_CONFIG_BYTES, &generation, err);
    if (status == QUIRE_NOT_FOUND && config.n > 0) /* it may be missing, which is another identity than any */
        status = QUIRE_OK;
    if (status == QUIRE_OK)
        out->generation = quire_sha256(generation.data, generation.n);
    buffer_free(&config);
    buffer_free(&generation);
    return status == QUIRE_OK ? quire_text_identity(model, out->text.bytes, err) : status;
}
